"""Server of Python adapters: a served adapter has the same report as the adapter itself, and its output goes to stderr."""

import base64
import io
import os
import pickle
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from ampscale_conformance.adapters.loading import find
from ampscale_conformance.cases import every_case
from ampscale_conformance.model.adapter import ImplementationInfo
from ampscale_conformance.model.subject import Crashed
from ampscale_conformance.remote import serve
from ampscale_conformance.remote.client import CommandAdapter, NotStarted
from ampscale_conformance.remote.codec import LONGEST, Codec, read_line, read_reply, write_line
from ampscale_conformance.remote.serve import Server
from ampscale_conformance.run.check import check, run
from mutants.plain import Plain
from remote.commands import RULE, SERVE, served, verdicts

from ampscale import LossScaleRule


@pytest.fixture(autouse=True)
def paths(monkeypatch, tmp_path):
    """Let processes import the mutants, and modules of the temporary folder."""
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{Path(__file__).parents[1]}", prepend=os.pathsep)


# Cases that only an adapter in the same process passes: the protocol transfers neither array objects nor NamedTuples.
IN_PROCESS = {"a-step-on-arrays-reads-nothing", "unscales-in-named-tuples"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # some cases make the scale infinite on purpose
@pytest.mark.parametrize(
    ("name", "levels"),
    [("mutants.plain:Plain", [0]), ("cases.conforming_tensors:InPlace", [1]), ("mutants.loop:Loop", [2, 3, 4, 5])],
)
def test_a_served_adapter_has_the_same_report(name, levels):
    """
    Each case has the same verdict and arguments as in one process, even if handles and trees are changed in place.

    Cases of the capability "process" start processes of their own, and their arguments are not compared. More than 20 cases pass.
    """
    cases = [case for case in every_case() if case.level in levels and case.id not in IN_PROCESS]
    direct = check(find(name), cases=cases)
    with CommandAdapter([*SERVE, name], 60.0) as adapter:
        remote = check(adapter, cases=cases)
    assert remote.info == replace(direct.info, arrays="numpy")
    for served_result, direct_result, case in zip(remote.results, direct.results, cases, strict=True):
        assert (served_result.case, served_result.verdict) == (direct_result.case, direct_result.verdict)
        arguments = [[(call.method, call.arguments) for call in result.calls] for result in (served_result, direct_result)]
        assert arguments[0] == arguments[1] or "process" in case.needs
    assert verdicts(direct).count("pass") > 20


class Own(Plain):
    """Adapter whose state is an object, and whose compiled forms add 1 to the scale."""

    def __init__(self, compilations=0):
        super().__init__("torch", 4, ("resume", "jit"))
        self.compilations = compilations

    def read_scale(self, handle):
        return super().read_scale(handle) + self.compilations

    def save(self, handle):
        return handle

    def load(self, rule, saved):
        return saved

    def compiled(self):
        return Own(self.compilations + 1)


def test_compiled_adapters_and_saved_objects_stay_in_their_server():
    """Another server rejects the token of a saved object."""
    with served(Own()) as adapter:
        compiled = adapter.compiled()
        forms = adapter, compiled, compiled.compiled()
        assert [form.read_scale(form.create(RULE)) for form in forms] == [8, 9, 10]
        assert compiled.info == adapter.info
        handle = adapter.create(RULE)
        saved = adapter.save(handle)
        assert list(saved) == ["token"]
        assert adapter.load(RULE, saved) is handle
        adapter.close()
        with pytest.raises(Exception, match="there is no saved "):
            adapter.load(RULE, saved)


class UnprintableError(Exception):
    def __str__(self):
        raise RuntimeError


class RaisesUnprintable(Plain):
    def update(self, handle, finite):
        raise UnprintableError


def test_an_error_without_a_message_has_a_reply():
    """The error has the text that it has without a server."""
    case = next(case for case in every_case() if case.id == "grows-by-4")
    with served(RaisesUnprintable()) as adapter:
        result = run(case, adapter)
    note = "its message cannot be formatted: RuntimeError"
    assert (result.verdict, result.message) == ("error", f"update raised UnprintableError: {note}")


class Long(Plain):
    def update(self, handle, finite):
        raise ValueError("x" * 10**7)

    def all_finite(self, tree):
        return [True] * 10**6


def test_long_messages_are_cut():
    """An error is cut to 65,536 characters and a wrong result to about 300, so that no line exceeds the 4 MiB of the protocol."""
    with served(Long()) as adapter:
        with pytest.raises(Exception, match=f"^x{{{2**16}}}$"):
            adapter.update(adapter.create(RULE), True)
        with pytest.raises(Exception, match=r"^expected a bool or a bool array, got \[True, .{,300}$"):
            adapter.all_finite([])


# --- stdin and stdout ---

LOUD = """
import os, subprocess, sys
print("on import")
from mutants.plain import Plain

class Loud(Plain):
    def update(self, handle, finite):
        print("at an update")
        os.write(1, b"below Python\\n")
        subprocess.run(["echo", "by a child"])
        print("to the old stdout", file=sys.__stdout__, flush=True)
        assert sys.stdin.read() == ""
        assert subprocess.run(["cat"], capture_output=True).stdout == b""
        return super().update(handle, finite)
    def save(self, handle):
        os._exit(1)

ADAPTER = Loud()
"""


@pytest.mark.parametrize(("end", "line"), [("os._exit(1)", "on import"), ('sys.exit("I quit")', "I quit")])
def test_output_of_an_adapter_goes_to_stderr(end, line, tmp_path):
    """
    Python, libraries and child processes write the output. An exit is a crash; the error contains the last five lines of stderr.

    The adapter's stdin is empty.
    """
    (tmp_path / "loud.py").write_text(LOUD.replace("os._exit(1)", end))
    with CommandAdapter([*SERVE, "loud:ADAPTER"], 60.0) as adapter:
        handle = adapter.create(RULE)
        assert adapter.read_scale(adapter.update(handle, True)) == 16.0
        with pytest.raises(Crashed) as caught:
            adapter.save(handle)
    parts = ["at an update", "below Python", "by a child", "to the old stdout", "exit status 1", line]
    assert [part for part in parts if part not in str(caught.value)] == []


def test_an_unknown_adapter_is_not_started():
    """The reason is read from stderr."""
    with pytest.raises(NotStarted, match="no module nowhere"):
        CommandAdapter([*SERVE, "nowhere:ADAPTER"], 60.0).start()


def serve_lines(*lines):
    """Send lines to the command; return its replies, its errors and its exit status."""
    command = [*SERVE, "mutants.plain:Plain"]
    process = subprocess.run(command, input=b"".join(lines), capture_output=True, check=False, timeout=60)
    return process.stdout.splitlines(), process.stderr.decode(), process.returncode


def test_the_server_ends_with_its_input_or_after_bye():
    """The server writes nothing to stderr, and replies to no request after bye."""
    hello = write_line({"id": 1, "call": "hello", "arguments": {"protocol": 1}})
    bye = write_line({"id": 2, "call": "bye", "arguments": {}})
    replies, errors, status = serve_lines(hello)
    assert (len(replies), errors, status) == (1, "", 0)
    serve.serve(Server(Bare()), [hello, bye, hello], output := io.BytesIO())
    assert len(output.getvalue().splitlines()) == 2


def test_an_unreadable_request_ends_the_server():
    """Such a request has no id to which the server can reply."""
    replies, errors, status = serve_lines(b" " * (LONGEST + 2))
    assert (replies, status) == ([], 2)
    assert "expected a JSON object, got b'   " in errors
    for line in (b"{\n", b"[]\n", b'{"call":"hello"}\n', b'{"id":true,"call":"hello","arguments":{}}\n'):
        with pytest.raises(ValueError, match=r"expected a JSON object|expected a request with an integer as its id"):
            Server(Bare()).answer(line)


def test_the_command_requires_one_name(capsys):
    assert serve.main([]) == serve.main(["a", "b"]) == 2
    assert capsys.readouterr().err.count("usage: ") == 2


# --- invalid requests ---


class Bare:
    """Minimal adapter with results of the wrong types."""

    info = ImplementationInfo(name="bare", preset=LossScaleRule(hysteresis=3))

    def read_scale(self, handle):
        """Return a text instead of a number."""
        return "much"

    def all_finite(self, tree):
        """Return an int instead of a bool."""
        return 1


@pytest.mark.parametrize(
    ("request_", "expected", "message"),
    [
        ({"call": "hello", "arguments": {"protocol": 2}}, "unsupported", "this server supports protocol 1, got 2"),
        ({"call": "jump", "arguments": {}}, "absent", "there is no call 'jump'"),
        ({"call": "info", "arguments": {}}, "absent", "there is no call 'info'"),
        ({"call": "create", "arguments": {"rule": {}, "options": {}}}, "absent", "the adapter has no method create"),
        ({"call": "read_scale", "arguments": {"handle": 5}}, "raised", "there is no handle 5"),
        ({"call": "read_scale", "arguments": {}}, "raised", "read_scale takes handle, got nothing"),
        ({"call": "read_scale", "arguments": {"handle": 0, "tree": []}}, "raised", "read_scale takes handle, got handle, tree"),
        ({"call": "all_finite", "arguments": {"tree": True}}, "raised", "expected an array"),
        ({"call": "all_finite", "arguments": {"tree": []}}, "raised", "expected a bool or a bool array, got 1"),
        ({"call": "all_finite", "adapter": 9, "arguments": {"tree": []}}, "raised", "there is no adapter 9"),
        (
            {"call": "all_finite", "arguments": []},
            "raised",
            "expected a request with id, call, an object of arguments, and optionally adapter, got {",
        ),
        ({"call": "x" * 10**6, "arguments": {}}, "absent", "x..."),
        ({"call": "hello", "arguments": {"protocol": "x" * 10**6}}, "unsupported", "x..."),
        ({"call": "save", "arguments": {"x" * 10**6: 0}}, "raised", "x..."),
        (
            {"call": "all_finite", "arguments": {"tree": []}, "time": 1},
            "raised",
            "expected a request with id, call, an object of arguments, and optionally adapter, got {",
        ),
    ],
)
def test_an_invalid_request_gets_a_reply(request_, expected, message):
    """The reply has the reason, shortened."""
    outcome, value = read_reply(Server(Bare()).answer(write_line({"id": 7, **request_})), 7)
    assert outcome == expected
    text = value["message"] if expected == "raised" else value
    assert message in text
    assert len(text) < 300


class RunsCode:
    """Object whose pickle runs a command when it is loaded."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return os.system, (f"touch {self.file}",)


def test_no_saved_state_runs_code(tmp_path):
    """Neither a pickle nor any encoding that names code is executed."""
    file, server = tmp_path / "it-ran", Server(find("mutants.plain:Plain"))
    attack = pickle.dumps(RunsCode(file))
    rule = Codec("numpy", server).encode("rule", RULE)
    states = [base64.b64encode(attack).decode(), {"pickle": attack.hex()}, {"os.system": [str(file)]}, {"token": 0}]
    for saved in [*states, {"bytes": attack.hex()}, {"scalar": {"dtype": "object", "shape": [], "bits": []}}]:
        request = {"id": 1, "call": "load", "arguments": {"rule": rule, "saved": saved}}
        assert read_reply(server.answer(write_line(request)), 1)[0] == "raised", saved
    assert not file.exists()


def test_a_result_that_cannot_be_encoded_is_an_error():
    """The reply has the error of the encoding."""
    server = Server(Bare())
    arguments = {"handle": server.number("handle", object())}
    reply = server.answer(write_line({"id": 1, "call": "read_scale", "arguments": arguments}))
    assert read_line(reply)["raised"] == {"type": "ValueError", "message": "could not convert string to float: 'much'"}


def test_reset_discards_all_handles():
    """The numbers of handles start again at 0."""
    server = Server(Bare())
    first, second = object(), object()
    assert (server.number("handle", first), server.number("handle", first), server.number("cell", second)) == (0, 0, 1)
    server.answer(write_line({"id": 1, "call": "reset", "arguments": {}}))
    with pytest.raises(ValueError, match="there is no handle 0"):
        server.lookup("handle", 0)
    assert (server.number("cell", second), server.number("handle", first)) == (0, 1)


def test_hello_has_a_reply_at_any_time():
    """Here it is the second request."""
    server = Server(Bare())
    server.answer(write_line({"id": 1, "call": "reset", "arguments": {}}))
    reply = read_line(server.answer(write_line({"id": 2, "call": "hello", "arguments": {"protocol": 1}})))["result"]
    assert reply["implementation"]["preset"]["hysteresis"] == 3
