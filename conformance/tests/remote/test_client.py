"""Adapter of an implementation in another process: start, requests, time limits, faults and end."""

import gc
import json
import signal
import sys
import threading
import time
from contextlib import suppress

import numpy as np
import pytest
from ampscale_conformance.model.adapter import METHODS, ImplementationInfo, Unsupported
from ampscale_conformance.model.case import Case
from ampscale_conformance.model.subject import Crashed, ProtocolError, TimedOut
from ampscale_conformance.remote.client import Client, CommandAdapter, NotStarted, RemoteMethods
from ampscale_conformance.remote.codec import hello_to_json, write_line
from ampscale_conformance.remote.transcript import Recorder
from ampscale_conformance.run.check import check
from hypothesis import given
from hypothesis import strategies as st
from remote.commands import CASES, PLAIN, PYTHON, RULE, SCRIPT, is_running, process_id, script, verdicts
from remote.fakes import LONG


def requested_calls(recording):
    """Return the names of the recorded calls."""
    entries = [json.loads(line) for line in recording.read_text().splitlines()]
    return [json.loads(entry["request"])["call"] for entry in entries if "request" in entry]


def test_remote_methods_are_the_calls_of_the_protocol():
    """No other attribute exists."""
    assert all(callable(getattr(RemoteMethods(), name)) for name in METHODS)
    assert not hasattr(RemoteMethods(), "no_such_call")


# --- starting ---


def test_a_command_string_is_split_like_shell_words(tmp_path):
    """Only quotes are interpreted: variables, globs, redirections and further commands are not."""
    program = tmp_path / "two words.py"
    program.write_text("import sys; open(sys.argv[1], 'w').write(repr(sys.argv[2:]))")
    output = tmp_path / "made"
    with pytest.raises(NotStarted):
        CommandAdapter(f"{sys.executable} '{program}' {output} $HOME '*' '; echo' > x").start()
    assert output.read_text() == "['$HOME', '*', '; echo', '>', 'x']"


def test_invalid_commands_and_limits_are_rejected():
    """The error is raised before a program is started."""
    for arguments, error, message in (
        (("",), ValueError, "command must name a program, got ''"),
        (([],), ValueError, "command must name a program"),
        (("'a",), ValueError, "quotation"),
        (([1],), TypeError, "command must be a string or a sequence of strings"),
        (("a", 0), ValueError, "seconds must be positive and at most 100,000,000, got 0"),
        (("a", float("inf")), ValueError, "seconds must be positive and at most 100,000,000, got inf"),
        (("a", "1"), TypeError, "seconds must be a number, got '1'"),
    ):
        with pytest.raises(error, match=message):
            CommandAdapter(*arguments)


def test_a_program_that_cannot_be_started_is_a_crash():
    """The exception has a report with this verdict."""
    for program in ("/no/such/program", "/", "a\0b"):
        with pytest.raises(NotStarted, match=r"the process cannot be started: .*") as caught:
            CommandAdapter([program]).start()
        assert caught.value.report().results[0].verdict == "crash"


@pytest.mark.parametrize(
    ("program", "message"),
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
def test_a_failed_start_reports_the_end_of_stderr(program, message):
    """The message contains the last five lines, including those written after stdout is closed."""
    with pytest.raises(NotStarted, match=message):
        CommandAdapter([*PYTHON, "-c", program]).start()


def test_hello_has_a_time_limit_of_its_own():
    """Importing takes time. The limits work in any thread, and close may be called twice."""
    slow = "import time; time.sleep(0.5)\n" + SCRIPT % f"time.sleep({LONG})"
    results = []

    def run_check():
        with CommandAdapter([*PYTHON, "-c", slow], seconds=0.3) as adapter:
            results.extend(check(adapter, cases=CASES[:1]).results)
            adapter.start()
            process = process_id(adapter)
            adapter.close()
            adapter.close()
            results.append(is_running(process))

    thread = threading.Thread(target=run_check)
    thread.start()
    thread.join(30)
    assert (results[0].verdict, results[1]) == ("timeout", False)


# --- requests ---


def test_hello_is_requested_once(tmp_path):
    """`info` is the description in the reply. A call of `start` while the process runs requests nothing."""
    with CommandAdapter(PLAIN, record=tmp_path / "recording") as adapter:
        assert (adapter.info.name, adapter.info.level, adapter.info.arrays) == ("plain Python", 1, "numpy")
        assert adapter.start() is adapter.info
    assert requested_calls(tmp_path / "recording") == ["hello", "bye"]


def test_equal_numbers_are_the_same_handle():
    """Reports thus distinguish updates in place from new handles."""
    with CommandAdapter(PLAIN) as adapter:
        handle, other = adapter.create(RULE), adapter.create(RULE)
        assert adapter.update(handle, True) is handle
        assert other is not handle
    with script('{"id": n, "result": n}') as adapter:
        handle = adapter.create(RULE)
        assert adapter.update(handle, True) is not handle


def test_outcomes_other_than_results_are_raised():
    """An error is raised as a new class with the name that was sent, and not as Python's class. The process continues."""
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


def test_an_invalid_argument_raises_without_a_request(tmp_path):
    """An argument is not a handle, or is missing. The process continues."""
    with CommandAdapter(PLAIN, record=tmp_path / "recording") as adapter:
        handle = adapter.create(RULE)
        with pytest.raises(TypeError, match="handle must be an object of this implementation, got 5"):
            adapter.read_scale(5)
        with pytest.raises(ValueError, match="update takes handle, finite, got 1 arguments"):
            adapter.update(handle)
        assert adapter.read_scale(handle) == 8.0
    assert requested_calls(tmp_path / "recording") == ["hello", "create", "read_scale", "bye"]


class FixedReply:
    """Transport that replies to hello, and to the next request with a fixed line."""

    def __init__(self, line):
        self.lines = [write_line({"id": 1, "result": hello_to_json(ImplementationInfo(name="x"))}), line]

    def exchange(self, _line, _seconds):
        return self.lines.pop(0)

    def end(self, _grace=0.0):
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
def test_any_reply_is_a_result_or_a_protocol_error(call, line):
    """Random bytes and random JSON values raise no other error."""
    arguments = {"rule": RULE, "tree": [], "options": {}, "arrays": []}
    client = client_of(line)
    handle, cell = client.lookup("handle", 0), client.lookup("cell", 0)
    values = [{"handle": handle, "cell": cell, **arguments}[kind] for kind in METHODS[call].takes]
    with suppress(ProtocolError):
        client.request(call, *values)


def client_of(line):
    """Return a client that has received hello, and receives this line next."""
    client = Client("x", lambda: FixedReply(line), 1, Recorder())
    client.start()
    return client


def test_a_deeply_nested_reply_is_a_result_or_a_protocol_error():
    """Python's recursion limit is not reached."""
    for depth in range(100, 1000, 50):
        client = client_of(b'{"id": 2, "result": ' + b"[" * depth + b"]" * depth + b"}")
        with suppress(ProtocolError):
            client.scale(client.lookup("handle", 0), [])


def test_an_invalid_reply_is_a_protocol_error():
    """The line is not JSON, belongs to another request, or has no handle. The message is shortened."""
    not_json = (b"", b'{"id": 2, "result"', b"[2, 0]", b'{"id": 2, "result": "\xff"}', b'{"id": 2, "result": ' + b"[" * 10**5)
    other_ids = (b'{"result": 0}', b'{"id": 3, "result": 0}', b'{"id": 2.0, "result": 0}', b'{"id": "2", "result": 0}')
    for line in (*not_json, *other_ids, b'{"id": 2, "result": true}'):
        with pytest.raises(ProtocolError, match="create, request 2: ") as caught:
            client_of(line).create(RULE)
        assert len(str(caught.value)) < 1000


# --- time limits and faults ---


def test_the_time_limit_includes_writing_the_request():
    """The request is longer than the buffer of the pipe and is never read."""
    unread = SCRIPT.replace("for line in sys.stdin:", "for line in [sys.stdin.readline()]:") % "0" + f"time.sleep({LONG})"
    with CommandAdapter([*PYTHON, "-c", unread], seconds=0.5) as adapter:
        adapter.start()
        started = time.monotonic()
        with pytest.raises(TimedOut, match=r"all_finite, request 2: no reply within 0.5 s"):
            adapter.all_finite([np.zeros(10**5)])
        assert time.monotonic() - started < 30


def test_handles_of_an_ended_process_are_invalid():
    """A call with such a handle is a crash that starts no process; a request without handles starts one."""
    with script('{"id": n, "result": 0} if r["call"] == "create" else os._exit(4)') as adapter:
        handle = adapter.create(RULE)
        with pytest.raises(Crashed, match=r"read_scale, request 3: the process ended, exit status 4"):
            adapter.read_scale(handle)
        with pytest.raises(
            Crashed, match=r"handle 0 is no longer valid: read_scale, request 3: the process ended, exit status 4"
        ):
            adapter.read_scale(handle)
        assert process_id(adapter) is None
        assert adapter.create(RULE) is not handle


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the timer may fire in a callback; it fires again
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer")
def test_a_timeout_of_a_case_ends_its_process():
    """Each reply is in time, but the case takes too long. The next case gets a new process."""

    def loop(subject):
        while True:
            subject.create(RULE)

    endless = Case("endless", "MACHINE-state", 0, "", loop)
    with CommandAdapter(PLAIN) as adapter:
        report = check(adapter, cases=[CASES[0], endless, CASES[0]], seconds=1.5)
    assert verdicts(report) == ["pass", "timeout", "pass"]
    assert report.results[1].message.endswith("not finished within 1.5 s")


def test_an_interrupt_ends_the_process():
    """If the process continued, the pending reply would be read as the reply to the next request."""

    class Interrupt(BaseException):
        pass

    def interrupt(*_):
        raise Interrupt

    handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        with script(f'time.sleep({LONG}) if r["call"] == "save" else {{"id": n, "result": 0}}', seconds=LONG) as adapter:
            handle = adapter.create(RULE)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(Interrupt):
                adapter.save(handle)
            assert process_id(adapter) is None
            with pytest.raises(Crashed, match="interrupted by Interrupt"):
                adapter.save(handle)
    finally:
        signal.signal(signal.SIGALRM, handler)


# --- reset and end ---


def test_reset_invalidates_all_handles(tmp_path):
    """The adapter and the process discard their handles. Without a process, no request is sent."""
    with CommandAdapter(PLAIN, record=tmp_path / "recording") as adapter:
        handle = adapter.create(RULE)
        adapter.reset()
        with pytest.raises(Crashed, match="handle 0 is no longer valid: this case is over"):
            adapter.read_scale(handle)
        assert adapter.read_scale(adapter.create(RULE)) == 8.0
        adapter.close()
        adapter.reset()
        assert process_id(adapter) is None
    assert (tmp_path / "recording").read_text().count(r"\"call\":\"reset\"") == 1


def test_reset_detects_output_after_the_last_reply():
    """An extra line or an exit belongs to the case that ends. Unlike calls of an adapter's methods, reset requires a result."""
    for statement, error in (("print(reply)", ProtocolError), ("os._exit(1)", Crashed)):
        program = SCRIPT % '{"id": n, "result": 0}' + f'    if r["call"] == "update": {statement}; sys.stdout.flush()'
        with CommandAdapter([*PYTHON, "-c", program]) as adapter:
            adapter.update(adapter.create(RULE), True)
            with pytest.raises(error, match="reset, request 4: "):
                adapter.reset()
            adapter.create(RULE)
    with script('{"id": n, "absent": "what for"}') as adapter:
        adapter.start()
        with pytest.raises(ProtocolError, match="expected a result, got absent: what for"):
            adapter.reset()


def test_a_process_can_run_its_exit_handlers_after_bye(tmp_path):
    """The handler takes 0.2 seconds; the process has two seconds to end."""
    program = (
        f"import atexit, time; atexit.register(lambda: time.sleep(0.2) or open({str(tmp_path / 'end')!r}, 'w').write('ended'))"
    )
    program += SCRIPT % '{"id": n, "result": None}' + '    if r["call"] == "bye": break'
    with CommandAdapter([*PYTHON, "-c", program]) as adapter:
        adapter.start()
    assert (tmp_path / "end").read_text() == "ended"


def test_a_process_ends_with_its_adapter():
    """The adapter is deleted without close."""
    adapter = CommandAdapter(PLAIN)
    adapter.start()
    process = process_id(adapter)
    assert is_running(process)
    del adapter
    gc.collect()
    assert not is_running(process)
