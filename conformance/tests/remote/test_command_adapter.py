"""An implementation in a process of its own: how it is started, asked, held to its time, ended, recorded and replayed."""

import gc
import json
import signal
import sys
import threading
import time
from contextlib import suppress

import numpy as np
import pytest
from ampscale_conformance.model.adapter import ImplementationInfo, Unsupported
from ampscale_conformance.model.case import Case
from ampscale_conformance.model.methods import METHODS
from ampscale_conformance.model.subject import Crashed, ProtocolError, TimedOut
from ampscale_conformance.remote.client import Client, RemoteMethods
from ampscale_conformance.remote.codec import hello_to_json
from ampscale_conformance.remote.command_adapter import CommandAdapter, NotStarted
from ampscale_conformance.remote.jsonl import write_line
from ampscale_conformance.remote.transcript import Recorder
from ampscale_conformance.run.check import check
from hypothesis import given
from hypothesis import strategies as st
from remote.commands import PLAIN, PYTHON, RULE, SCRIPT, WALKS, processes, runs, script, verdicts
from remote.fakes import LONG


def test_every_call_of_the_table_is_a_method():
    """So that an adapter in another process is an adapter."""
    assert all(callable(getattr(RemoteMethods(), name)) for name in METHODS)
    assert not hasattr(RemoteMethods(), "no_such_call")


# --- starting ---


def test_a_string_is_split_as_a_shell_does(tmp_path):
    """Quotes hold words together, and nothing else of a shell happens: no variable, no file, no second command."""
    program = tmp_path / "two words.py"
    program.write_text("import sys; open(sys.argv[1], 'w').write(repr(sys.argv[2:]))")
    made = tmp_path / "made"
    with pytest.raises(NotStarted):
        CommandAdapter(f"{sys.executable} '{program}' {made} $HOME '*' '; echo' > x").start()
    assert made.read_text() == "['$HOME', '*', '; echo', '>', 'x']"


def test_what_cannot_be_a_command_is_refused():
    """With what was wanted and what came; what cannot be started is a crash before anything was asked."""
    for wrong, error, words in (
        (("",), ValueError, "command must name a program, got ''"),
        (([],), ValueError, "command must name a program"),
        (("'a",), ValueError, "quotation"),
        (([1],), TypeError, "command must be a string or a sequence of strings"),
        (("a", 0), ValueError, "seconds must be positive, got 0"),
        (("a", float("nan")), ValueError, "seconds must be positive"),
        (("a", 1, None, -1), ValueError, "start_seconds must be positive, got -1"),
    ):
        with pytest.raises(error, match=words):
            CommandAdapter(*wrong)
    for program in ("/no/such/program", "/", "a\0b"):
        with pytest.raises(NotStarted, match=r"the process cannot be started: .*") as caught:
            CommandAdapter([program]).start()
        assert caught.value.report().results[0].verdict == "crash"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import nothing", r"hello, request 1: .* ended, exit status 1; its stderr ends: .*No module named 'nothing'"),
        (
            "import sys; sys.stderr.writelines(f'{line}\\n' for line in range(10000))",
            r"its stderr ends: 9995 \| 9996 \| 9997 \| 9998 \| 9999$",
        ),
        (
            "import os, time; os.close(1); time.sleep(0.3); os.write(2, b'last words'); os._exit(1)",
            r"exit status 1; its stderr ends: last words$",
        ),
    ],
)
def test_a_start_that_fails_says_what_stderr_said(program, words):
    """Its last five lines, also what comes after the output is closed."""
    with pytest.raises(NotStarted, match=words):
        CommandAdapter([*PYTHON, "-c", program]).start()


def test_hello_may_take_longer_than_an_answer():
    """An implementation has to be imported; the limit needs no signal, and closing twice is closing, whatever it does."""
    slow = "import time; time.sleep(0.5)\n" + SCRIPT % f"time.sleep({LONG})"
    got = []

    def ask():
        with CommandAdapter([*PYTHON, "-c", slow], seconds=0.3, start_seconds=20) as adapter:
            got.extend(check(adapter, cases=WALKS[:1]).results)
            adapter.start()
            running = processes(adapter)
            adapter.close()
            adapter.close()
            got.append(runs(running[0]))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(30)
    assert (got[0].verdict, got[1]) == ("timeout", False)


# --- asking ---


def test_the_same_number_is_the_same_thing():
    """So that a report tells a scaler that is changed in place from one that is made anew; hello is asked once."""
    with CommandAdapter(PLAIN) as adapter:
        assert (adapter.info.name, adapter.info.level, adapter.info.arrays) == ("plain Python", 1, "numpy")
        assert adapter.start() is adapter.info
        handle, other = adapter.create(RULE), adapter.create(RULE)
        assert adapter.update(handle, True) is handle
        assert other is not handle
    with script('{"id": n, "result": n}') as adapter:
        handle = adapter.create(RULE)
        assert adapter.update(handle, True) is not handle


def test_what_it_says_is_raised():
    """As this package raises it; what it raised itself, in a class of its name, whatever that is; and the process goes on."""
    expression = """{"id": n, **{"update": {"raised": {"type": "NotImplementedError", "message": "out of luck"}},
        "read_scale": {"unsupported": "no such thing"}, "save": {"absent": "not here"}}.get(r["call"], {"result": 0})}"""
    with script(expression.replace("\n", "")) as adapter:
        handle = adapter.create(RULE)
        with pytest.raises(Exception, match="out of luck") as caught:
            adapter.update(handle, True)
        assert type(caught.value).__name__ == "NotImplementedError"
        assert not isinstance(caught.value, NotImplementedError)
        with pytest.raises(Unsupported, match="no such thing"):
            adapter.read_scale(handle)
        with pytest.raises(NotImplementedError, match="not here"):
            adapter.save(handle)


def test_what_was_saved_goes_on_in_another_process():
    """Any JSON, as it was, numbers that are no more than JSON's among it."""
    with script('{"id": n, "result": [0.1, 10**17, {"a": None}] if r["call"] == "save" else 0}') as adapter:
        saved = adapter.save(adapter.create(RULE))
    with script('{"id": n, "result": 0} if r["arguments"]["saved"] == [0.1, 10**17, {"a": None}] else {"id": n}') as adapter:
        adapter.load(RULE, saved)
    with CommandAdapter(PLAIN) as adapter:
        handle = adapter.create(RULE)
        saved = adapter.save(adapter.update(handle, True))
        adapter.close()
        assert adapter.read_scale(adapter.load(RULE, saved)) == 16.0


def test_options_and_outputs_are_told_by_name():
    """Options of the call go as numbers, lists and arrays; outputs come as they are."""
    options = {"learning_rate": ["3ff0000000000000"], "momentum": "0000000000000000"}
    outputs = '{"scale": "4020000000000000", "finite": True, "attempted": 1, "parameters": r["arguments"].get("arrays")}'
    expression = f'{{"id": n, "result": 0 if r["arguments"].get("options") == {options} else {outputs}}}'
    with script(expression) as adapter:
        cell = adapter.create_cell(RULE, [np.float32([1])], learning_rate=[1.0], momentum=0.0)
        got = adapter.train_step(cell, [np.float16([1, 2])])
    assert (got["scale"], got["finite"], got["attempted"], got["parameters"][0].tolist()) == (8.0, True, 1, [1, 2])


def test_a_wrong_argument_is_the_suites_own_mistake():
    """It is told, nothing is sent, and the process is not blamed."""
    with CommandAdapter(PLAIN) as adapter:
        with pytest.raises(TypeError, match="expected a handle of this implementation, got 5"):
            adapter.read_scale(5)
        with pytest.raises(ValueError, match="zip"):
            adapter.update(adapter.create(RULE))
        assert adapter.read_scale(adapter.create(RULE)) == 8.0


class Says:
    """In the place of a process: answers hello, and then always the same."""

    def __init__(self, line):
        self.lines = [write_line({"id": 1, "result": hello_to_json(ImplementationInfo(name="x"))}), line]

    def exchange(self, _line, _seconds):
        return self.lines.pop(0)

    def end(self, _patience=0.0):
        pass


ATOMS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20)
NAMES = st.sampled_from(
    ["dtype", "shape", "bits", "tuple", "dict", "parameters", "float16", "bool", "3ff0000000000000", "3c00", "01"]
)
VALUES = st.recursive(
    ATOMS | NAMES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)
REPLIES = st.binary(max_size=40) | st.builds(lambda value: json.dumps({"id": 2, "result": value}).encode(), VALUES)


@given(st.sampled_from(["create", "read_scale", "save", "all_finite", "step_on_arrays", "train_step", "compiled"]), REPLIES)
def test_whatever_comes_is_a_result_or_a_protocol_error(call, line):
    """No line brings anything else about."""
    arguments = {"rule": RULE, "tree": [], "options": {}, "arrays": []}
    client = client_of(line)
    handle, cell = client.lookup("handle", 0), client.lookup("cell", 0)
    given_ = [{"handle": handle, "cell": cell, **arguments}[kind] for kind in METHODS[call].takes]
    with suppress(ProtocolError):
        client.request(call, *given_)


def client_of(line):
    """A client that has said hello, and gets this line as its next answer."""
    client = Client("x", lambda: Says(line), 1, 1, Recorder())
    client.start()
    return client


def test_a_tree_may_be_too_deep():
    """Then it is no answer; and never the end of the suite."""
    for depth in range(100, 1000, 50):
        client = client_of(b'{"id": 2, "result": ' + b"[" * depth + b"]" * depth + b"}")
        with suppress(ProtocolError):
            client.scale(client.lookup("handle", 0), [])


def test_a_line_that_is_no_answer_is_a_protocol_error():
    """It is none of JSON, of another request or of no handle; its message is no longer than can be read."""
    lines = [b"", b'{"id": 2, "result"', b"[2, 0]", b'{"id": 2, "result": "\xff"}', b'{"id": 2, "result": ' + b"[" * 10**5]
    lines += [
        b'{"result": 0}',
        b'{"id": 2, "result": true}',
        *(b'{"id": %s, "result": 0}' % number for number in (b"3", b"2.0", b'"2"')),
    ]
    for line in lines:
        with pytest.raises(ProtocolError, match="create, request 2: ") as caught:
            client_of(line).create(RULE)
        assert len(str(caught.value)) < 1000


# --- time, and faults ---


def test_the_limit_is_for_the_whole_of_an_answer():
    """Also where the request is longer than a pipe is deep, and is never read."""
    deaf = SCRIPT.replace("for line in sys.stdin:", "for line in [sys.stdin.readline()]:") % "0" + f"time.sleep({LONG})"
    with CommandAdapter([*PYTHON, "-c", deaf], seconds=0.5) as adapter:
        adapter.start()
        started = time.monotonic()
        with pytest.raises(TimedOut, match=r"all_finite, request 2: no reply within 0.5 s"):
            adapter.all_finite([np.zeros(10**5)])
        assert time.monotonic() - started < 30


def test_what_a_dead_process_made_is_gone():
    """A request with it is a crash, with the reason, and starts nothing; one without it meets a new process."""
    with script('{"id": n, "result": 0} if r["call"] == "create" else os._exit(4)') as adapter:
        handle = adapter.create(RULE)
        with pytest.raises(Crashed, match=r"read_scale, request 3: its process ended, exit status 4"):
            adapter.read_scale(handle)
        with pytest.raises(
            Crashed, match=r"handle 0 is no longer valid: read_scale, request 3: its process ended, exit status 4"
        ):
            adapter.read_scale(handle)
        assert processes(adapter) == []
        assert adapter.create(RULE) is not handle


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer")
def test_a_case_that_takes_too_long_spoils_no_other():
    """Its own answers may be in time: the process is ended amid a request, and the next case meets another."""

    def for_ever(subject):
        while True:
            subject.create(RULE)

    endless = Case("endless", "MACHINE-state", 0, "", for_ever)
    with CommandAdapter(PLAIN) as adapter:
        report = check(adapter, cases=[WALKS[0], endless, WALKS[0]], seconds=3.0)
    assert verdicts(report) == ["pass", "timeout", "pass"]
    assert report.results[1].message.endswith("not finished within 3 s")


def test_an_interrupt_ends_the_process():
    """So that the answer that was not waited for is not taken for the next one's."""

    class Interrupt(BaseException):
        pass

    def interrupt(*_):
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with script(f'time.sleep({LONG}) if r["call"] == "save" else {{"id": n, "result": 0}}', seconds=LONG) as adapter:
            handle = adapter.create(RULE)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(Interrupt):
                adapter.save(handle)
            assert processes(adapter) == []
            with pytest.raises(Crashed, match="interrupted by Interrupt"):
                adapter.save(handle)
    finally:
        signal.signal(signal.SIGALRM, before)


# --- between cases, and at the end ---


def test_reset_forgets_every_number(tmp_path):
    """Here and there; and where nothing runs, nothing is asked."""
    with CommandAdapter(PLAIN, record=tmp_path / "talk") as adapter:
        handle = adapter.create(RULE)
        adapter.reset()
        with pytest.raises(Crashed, match="handle 0 is no longer valid: this case is over"):
            adapter.read_scale(handle)
        assert adapter.read_scale(adapter.create(RULE)) == 8.0
        adapter.close()
        adapter.reset()
        assert processes(adapter) == []
    assert (tmp_path / "talk").read_text().count(r"\"call\":\"reset\"") == 1


def test_reset_finds_what_came_after_the_last_answer():
    """A line too many, or an end, is this case's, and not the next one's; it has to be answered, unlike other calls."""
    for after, error in (("print(said)", ProtocolError), ("os._exit(1)", Crashed)):
        program = SCRIPT % '{"id": n, "result": 0}' + f'    if r["call"] == "update": {after}; sys.stdout.flush()'
        with CommandAdapter([*PYTHON, "-c", program]) as adapter:
            adapter.update(adapter.create(RULE), True)
            with pytest.raises(error, match="reset, request 4: "):
                adapter.reset()
            adapter.create(RULE)
    with script('{"id": n, "absent": "what for"}') as adapter:
        adapter.start()
        with pytest.raises(ProtocolError, match="expected a result, got absent: what for"):
            adapter.reset()


def test_it_is_told_bye(tmp_path):
    """And it may end in its own time, which is not long."""
    program = (
        f"import atexit, time; atexit.register(lambda: time.sleep(0.2) or open({str(tmp_path / 'end')!r}, 'w').write('ended'))"
    )
    program += SCRIPT % '{"id": n, "result": None}' + '    if r["call"] == "bye": break'
    with CommandAdapter([*PYTHON, "-c", program]) as adapter:
        adapter.start()
    assert (tmp_path / "end").read_text() == "ended"


def test_what_nobody_closes_is_ended_with_its_adapter():
    """No process outlives what it was started for."""
    adapter = CommandAdapter(PLAIN)
    adapter.start()
    running = processes(adapter)
    assert runs(running[0])
    del adapter
    gc.collect()
    assert not runs(running[0])
