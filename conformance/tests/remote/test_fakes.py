"""Faulty implementations: each fault gets its verdict, in its own case and within a time limit, and leaves no process behind."""

import re

import pytest
from ampscale_conformance.cases import every_case
from ampscale_conformance.remote import process
from ampscale_conformance.remote.client import NotStarted, ReplayAdapter
from ampscale_conformance.run.check import check
from remote.commands import CASES, FAKES, LIMIT, fake, verdicts, without_times
from remote.fakes import AT_HELLO, IN_ONE_CASE


@pytest.mark.parametrize("name", IN_ONE_CASE)
def test_a_fault_affects_only_its_own_case(name, tmp_path, monkeypatch):
    """The message contains the request and the fault, and a replay gives the same report."""
    monkeypatch.setattr(process, "_GRACE", LIMIT)
    verdict, message, _ = IN_ONE_CASE[name]
    with fake(name, tmp_path / "pids", record=tmp_path / "recording") as adapter:
        report = check(adapter, cases=CASES)
    assert verdicts(report) == ["pass", verdict, "pass"]
    assert message in report.results[1].message
    assert re.match(r"(update|read_scale), request \d+: |update raised |$", report.results[1].message)
    assert (len(list((tmp_path / "pids").iterdir())) > 1) == (verdict not in ("pass", "error"))  # the next case starts a process
    with ReplayAdapter(tmp_path / "recording") as replayed:
        assert (replayed.command, without_times(check(replayed, cases=CASES))) == (adapter.command, without_times(report))


@pytest.mark.parametrize("name", AT_HELLO)
def test_an_invalid_hello_raises_not_started(name, tmp_path):
    """
    The exception has a report with one result that is not ok. Its message has the command and the request.

    A replay raises an exception with the same message.
    """
    with fake(name, tmp_path / "pids", record=tmp_path / "recording") as adapter, pytest.raises(NotStarted) as caught:
        adapter.start()
    with ReplayAdapter(tmp_path / "recording") as replayed, pytest.raises(NotStarted) as replay_error:
        check(replayed, cases=CASES)
    report = caught.value.report()
    assert (report.ok, verdicts(report), report.results[0].case) == (False, [AT_HELLO[name][0]], "hello")
    assert str(caught.value) == str(replay_error.value)
    assert str(FAKES) in str(caught.value)
    assert "hello, request 1: " in str(caught.value)


@pytest.mark.parametrize(("name", "levels"), [("conforming", set()), ("claims resume", {0}), ("claims level 4", {0, 1, 2, 3, 4})])
def test_a_claimed_but_missing_method_fails_its_cases(name, levels, tmp_path):
    """Other cases pass or are unsupported. Cases that send thousands of requests are left out."""
    cases = [case for case in every_case() if not case.id.startswith(("follows-", "scalers-"))]
    with fake(name, tmp_path / "pids") as adapter:
        report = check(adapter, cases=cases)
    failed = [(result, case) for result, case in zip(report.results, cases, strict=True) if result.verdict == "fail"]
    assert {"pass", "unsupported"} <= set(verdicts(report)) <= {"pass", "fail", "unsupported"}
    assert all(re.search("is claimed but missing: .*not implemented", result.message) for result, _ in failed)
    assert {case.level for _, case in failed} == levels
    assert all(case.level or "resume" in case.needs for _, case in failed)


def test_a_restarted_process_must_send_the_same_hello(tmp_path):
    """Another name is a protocol error."""
    with fake("another each time", tmp_path / "pids") as adapter:
        report = check(adapter, cases=CASES[:2])
    assert verdicts(report) == ["crash", "protocol-error"]
    assert "expected the earlier reply " in report.results[1].message


def test_a_process_is_not_started_again_after_three_failed_starts_in_a_row(tmp_path):
    """Later cases report the last failure."""
    with fake("starts once", tmp_path / "pids") as adapter:
        report = check(adapter, cases=CASES * 3)
    assert verdicts(report) == ["crash"] * 9
    assert len(list((tmp_path / "pids").iterdir())) == 4
    assert (
        "not started again after 3 failures; the last failure: hello, request 1: the process ended" in report.results[8].message
    )


def test_failed_starts_that_are_not_in_a_row_are_not_counted(tmp_path):
    """Every case starts a process."""
    with fake("starts every other time", tmp_path / "pids") as adapter:
        assert verdicts(check(adapter, cases=CASES * 3)) == ["crash"] * 9
    assert len(list((tmp_path / "pids").iterdir())) == 9
