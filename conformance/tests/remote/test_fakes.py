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
    """The cases before and after it pass, and a replay without the implementation gives the same report."""
    with fake(name, tmp_path / "pids", record=tmp_path / "talk") as adapter:
        report = check(adapter, cases=WALKS)
    assert verdicts(report) == ["pass", STRUCK[name][0], "pass"]
    assert len(list((tmp_path / "pids").iterdir())) >= (1 if STRUCK[name][0] in ("pass", "error") else 2)
    with ReplayAdapter(tmp_path / "talk") as replayed:
        assert told(check(replayed, cases=WALKS)) == told(report)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("slow", "no answer within 2 s; its stderr is empty"),
        ("crash", "its process ended, exit status 3; its stderr ends: at | its  [31mwits' end"),
        ("segfault", "its process ended, killed by SIGSEGV; its stderr is empty"),
        ("truncated, then dead", "its process ended after 9 bytes of a line, exit status 0"),
        ("floods stderr for ever", "no answer within 2 s; its stderr ends: noise | noise"),
        ("floods stdout without newline", "a line of more than 16777216 bytes, which begins with b'xxxx"),
        ("closes stdout", "it closed its standard output, and runs on"),
        ("garbage line", "wanted a JSON object, got 'Segmentation fault (core dumped)': Expecting value"),
        ("extra line", "wanted a reply with the id "),
        ("unknown member", "wanted an id and one of result, raised, unsupported, absent, got {\"id\": "),
        ("always true", "wanted the number of a handle, an integer from 0 to 2**53 - 1, got true"),
        ("raises half a character", "update raised Half : \\ud800"),
    ],
)  # fmt: skip
def test_the_message_says_what_came(name, words, tmp_path):
    """At which request, what was wanted and what came, and the last lines of stderr."""
    with fake(name, tmp_path / "pids") as adapter:
        message = check(adapter, cases=WALKS).results[1].message
    assert words in message
    assert re.match(r"(update|read_scale), request \d+: |update raised ", message)


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
    assert all(re.search("is claimed and not there: .*I never wrote that", result.message) for result in failed)
    assert {asked[result.case].level for result in failed} == set(range(level + 1))
    assert all(asked[result.case].level or "resume" in asked[result.case].needs for result in failed)


def test_a_float_is_no_json_number(tmp_path):
    """However right it is."""
    with fake("numbers for floats", tmp_path / "pids") as adapter:
        report = check(adapter, cases=WALKS)
    assert verdicts(report) == ["protocol-error"] * 3
    assert "wanted a float as the 16 hex digits of its float64, got 1024.0" in report.results[0].message


def test_chance_is_a_failure(tmp_path):
    """A scale that is another each time fails every case."""
    with fake("random scale", tmp_path / "pids") as adapter:
        assert verdicts(check(adapter, cases=WALKS)) == ["fail"] * 3


def test_one_answer_to_everything_is_none(tmp_path):
    """The answer to hello, with its id, answers nothing else."""
    with fake("constant", tmp_path / "pids") as adapter:
        assert verdicts(check(adapter, cases=WALKS)) == ["protocol-error"] * 3


def test_each_case_has_a_process_that_answered_hello(tmp_path):
    """Where each process dies at its third request, each case meets a new one, and crashes."""
    with fake("dies at the third", tmp_path / "pids") as adapter:
        assert verdicts(check(adapter, cases=WALKS * 2)) == ["crash"] * 6
    assert len(list((tmp_path / "pids").iterdir())) == 6


def test_a_crash_at_random_is_a_crash_or_nothing(tmp_path):
    """What does not crash passes."""
    with fake("dies anywhere", tmp_path / "pids", record=tmp_path / "talk") as adapter:
        report = check(adapter, cases=WALKS * 20)
    assert set(verdicts(report)) == {"pass", "crash"}
    with ReplayAdapter(tmp_path / "talk") as replayed:
        assert told(check(replayed, cases=WALKS * 20)) == told(report)


def test_another_process_is_the_same_implementation(tmp_path):
    """One that says something else of itself than before is not put to the suite."""
    with fake("another each time", tmp_path / "pids") as adapter:
        report = check(adapter, cases=WALKS[:2])
    assert verdicts(report) == ["crash", "protocol-error"]
    assert "another answer than before" in report.results[1].message


def test_what_does_not_start_again_is_tried_thrice(tmp_path):
    """After three failures in a row no more is started, and each further case says why."""
    with fake("starts once", tmp_path / "pids") as adapter:
        report = check(adapter, cases=WALKS * 3)
    assert verdicts(report) == ["crash"] * 9
    assert len(list((tmp_path / "pids").iterdir())) == 4
    assert "not started again after 3 failures; the last one: hello, request 1: its process ended" in report.results[8].message


def test_what_starts_again_is_given_another_three_tries(tmp_path):
    """Only failures in a row count."""
    with fake("starts every other time", tmp_path / "pids") as adapter:
        assert verdicts(check(adapter, cases=WALKS * 4)) == ["crash"] * 12
    assert len(list((tmp_path / "pids").iterdir())) == 12
