"""Recordings have every message of an implementation, and a replay gives the same report."""

import json

import pytest
from ampscale_conformance.remote import transcript
from ampscale_conformance.remote.client import CommandAdapter, ReplayAdapter
from ampscale_conformance.remote.transcript import Recorder, Recording
from ampscale_conformance.run.check import check
from remote.commands import CASES, PLAIN, RULE, script, verdicts, without_times
from remote.fakes import LONG


def test_a_recording_has_every_request_and_reply(tmp_path):
    """The recording is in order, and contains the starts of processes."""
    with CommandAdapter(PLAIN, record=tmp_path / "recording") as adapter:
        adapter.update(adapter.create(RULE), True)
    head, *entries = [json.loads(line) for line in (tmp_path / "recording").read_text().splitlines()]
    assert head == {"format": "ampscale conformance recording", "version": 1, "command": PLAIN}
    assert [next(iter(entry)) for entry in entries] == ["start", *["request", "reply"] * 4]
    calls = [json.loads(entry["request"])["call"] for entry in entries if "request" in entry]
    assert calls == ["hello", "create", "update", "bye"]
    assert json.loads(entries[2]["reply"])["result"]["implementation"]["name"] == "plain Python"


def test_a_replay_repeats_the_timeout_of_a_case(tmp_path):
    """The recording includes the time limit of the case, which is shorter than the time limit of a reply."""
    hang = f'time.sleep({LONG}) if r["call"] == "update" else {{"id": n, "result": 0}}'
    with script(hang, seconds=LONG, record=tmp_path / "recording") as adapter:
        report = check(adapter, cases=CASES[:1], seconds=0.5)
    with ReplayAdapter(tmp_path / "recording") as replayed:
        assert without_times(check(replayed, cases=CASES[:1])) == without_times(report)
    assert verdicts(report) == ["timeout"]


def test_a_replay_of_another_run_reports_the_line(tmp_path):
    """All later requests fail, too, and so do requests after the last line."""
    with CommandAdapter(PLAIN, record=tmp_path / "recording") as adapter:
        check(adapter, cases=CASES[:1])
    with ReplayAdapter(tmp_path / "recording") as replayed:
        report = check(replayed, cases=[CASES[1], *CASES])
    assert verdicts(report) == ["protocol-error"] * 4
    assert f"{tmp_path / 'recording'}:5 belongs to another run: expected " in report.results[0].message
    assert "got {'request': " in report.results[0].message
    with ReplayAdapter(tmp_path / "recording") as replayed:
        assert verdicts(check(replayed, cases=CASES[:1] * 2)) == ["pass", "protocol-error"]


def test_a_truncated_recording_is_replayed_up_to_its_end(tmp_path):
    """A process that is killed leaves a part of a line."""
    with CommandAdapter(PLAIN, record=tmp_path / "recording") as adapter:
        check(adapter, cases=CASES[:1])
    lines = (tmp_path / "recording").read_text().splitlines(keepends=True)
    (tmp_path / "recording").write_text("".join(lines[:11]) + lines[11][:20])
    with ReplayAdapter(tmp_path / "recording") as replayed:
        report = check(replayed, cases=CASES[:1])
    assert verdicts(report) == ["protocol-error"]
    assert "recording:12 belongs to another run: expected a reply, got the end of the file" in report.results[0].message


def test_a_recording_keeps_every_byte(tmp_path):
    """Replies need not be text."""
    recorder = Recorder(tmp_path / "recording", ["it"])
    recorder.start()
    recorder.message("request", b'{"id":1}\n')
    recorder.message("reply", b"\xff\xc3\xa9\r")
    recording = Recording(tmp_path / "recording").start()
    assert recording.exchange(b'{"id":1}\n', 0) == b"\xff\xc3\xa9\r"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must begin with the format"),
        ("{}\n", "must begin with the format"),
        ('{"format": "ampscale conformance recording", "version": 2, "command": []}\n', "in version 1 and a command, got"),
        ('{"format": "ampscale conformance recording", "version": 1}\n', "and a command, got"),
        ('{"format": "ampscale conformance recording", "version": 1, "command": [1]}\n', "and a command, got"),
        ('{"format": "ampscale conformance recording", "version": 1, "command": 1}\n', "and a command, got"),
        ("[]\n", r":1: expected a JSON object, got \[\]"),
        ("{\n", ":1: expected a JSON object, got b'{': "),
        ("[" * 10**6 + "\n", r":1: expected a JSON object, got b'\[+\.\.\.: .*nested"),
    ],
)
def test_an_invalid_recording_is_rejected(text, message, tmp_path):
    """The message contains the file, and the expected and the actual first line."""
    file = tmp_path / "recording"
    file.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        ReplayAdapter(file)
    assert str(caught.value).startswith(str(file))


def test_a_recording_that_is_too_long_is_rejected(tmp_path, monkeypatch):
    """Such a recording is not read."""
    monkeypatch.setattr(transcript, "LONGEST", 100)
    (tmp_path / "recording").write_text(" " * 101)
    with pytest.raises(ValueError, match="recording must have at most 100 bytes, got more"):
        ReplayAdapter(tmp_path / "recording")


def test_an_unwritable_recording_raises_before_the_start(tmp_path):
    """Without this error, the recording would be lost at the end."""
    with pytest.raises(OSError, match="nowhere"):
        CommandAdapter(PLAIN, record=tmp_path / "nowhere" / "recording")
