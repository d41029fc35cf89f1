"""What is wrong with an implementation has its own verdict, in its own case, within a bound; and nothing of it runs on."""

import re

import pytest
from ampscale_conformance.cases import every_case
from ampscale_conformance.remote.command_adapter import NotStarted, ReplayAdapter
from ampscale_conformance.run.check import check
from remote.commands import FAKES, WALKS, fake, told, verdicts
from remote.fakes import AT_HELLO, STRUCK


@pytest.mark.parametrize("name", STRUCK)
def test_a_fault_in_one_case_spoils_no_other(name, tmp_path):
    """The cases beside it pass; the message says what came and at which request; a replay gives the same report."""
    verdict, words, _ = STRUCK[name]
    with fake(name, tmp_path / "pids", record=tmp_path / "talk") as adapter:
        report = check(adapter, cases=WALKS)
    assert verdicts(report) == ["pass", verdict, "pass"]
    assert words in report.results[1].message
    assert re.match(r"(update|read_scale), request \d+: |update raised |$", report.results[1].message)
    assert (len(list((tmp_path / "pids").iterdir())) > 1) == (verdict not in ("pass", "error"))  # processes
    with ReplayAdapter(tmp_path / "talk") as replayed:
        assert (replayed.command, told(check(replayed, cases=WALKS))) == (adapter.command, told(report))


@pytest.mark.parametrize("name", AT_HELLO)
def test_what_answers_no_hello_is_not_started(name, tmp_path):
    """It is told as one exception, and as a report of one result that is not ok."""
    with fake(name, tmp_path / "pids", record=tmp_path / "talk") as adapter, pytest.raises(NotStarted) as caught:
        adapter.start()
    with ReplayAdapter(tmp_path / "talk") as replayed, pytest.raises(NotStarted) as again:
        check(replayed, cases=WALKS)
    report = caught.value.report()
    assert (report.ok, verdicts(report), report.results[0].case) == (False, [AT_HELLO[name][0]], "hello")
    assert str(caught.value) == str(again.value)
    assert str(FAKES) in str(caught.value)
    assert "hello, request 1: " in str(caught.value)


def test_level_0_is_enough_for_level_0(tmp_path):
    """An implementation of six calls passes what level 0 asks, and nothing else is asked of it."""
    with fake("right", tmp_path / "pids") as adapter:
        report = check(adapter, level=0)
    assert set(verdicts(report)) == {"pass", "unsupported"}
    assert verdicts(report).count("pass") > 10


@pytest.mark.parametrize(("name", "level"), [("claims resume", 0), ("claims level 4", 4)])
def test_a_claim_that_is_not_kept_is_a_failure(name, level, tmp_path):
    """Each case that needs what is claimed and absent fails, and no other."""
    with fake(name, tmp_path / "pids") as adapter:
        report = check(adapter)
    asked = {case.id: case for case in every_case()}
    failed = [result for result in report.results if result.verdict == "fail"]
    assert {"pass", "fail"} <= set(verdicts(report)) <= {"pass", "fail", "unsupported"}
    assert all(re.search("is claimed but missing: .*I never wrote that", result.message) for result in failed)
    assert {asked[result.case].level for result in failed} == set(range(level + 1))
    assert all(asked[result.case].level or "resume" in asked[result.case].needs for result in failed)


def test_another_process_is_the_same_implementation(tmp_path):
    """One that says something else of itself than before is not put to the suite."""
    with fake("another each time", tmp_path / "pids") as adapter:
        report = check(adapter, cases=WALKS[:2])
    assert verdicts(report) == ["crash", "protocol-error"]
    assert "expected the first reply again" in report.results[1].message


def test_what_does_not_start_again_is_tried_thrice(tmp_path):
    """After three failures in a row no more is started, and each further case says why; others do not count."""
    with fake("starts once", tmp_path / "pids") as adapter:
        report = check(adapter, cases=WALKS * 3)
    assert verdicts(report) == ["crash"] * 9
    assert len(list((tmp_path / "pids").iterdir())) == 4
    assert (
        "not started again after 3 failures; the last failure: hello, request 1: its process ended" in report.results[8].message
    )
    with fake("starts every other time", tmp_path / "every other") as adapter:
        assert verdicts(check(adapter, cases=WALKS * 3)) == ["crash"] * 9
    assert len(list((tmp_path / "every other").iterdir())) == 9
