"""What an implementation is known to fail: read, applied to results, found stale, and rewritten."""

import time
import tomllib

import pytest
from ampscale_conformance.model.verdicts import Result, Verdict
from ampscale_conformance.run.expectations import EXPECTABLE, read
from ampscale_conformance.run.expectations_update import updated

ENTRY = {"case": "grows", "verdict": "fail", "reason": "late"}
CLAUSES = {"grows": "MACHINE-growth-window", "grows-again": "MACHINE-growth-window", "backs-off": "MACHINE-backoff"}


def table(**members):
    """An entry, as it stands in a file."""
    return "[[expect]]\n" + "".join(f"{key} = {value!r}\n" for key, value in members.items())


def result(case, verdict, message="came"):
    """What came of a case."""
    return Result(CLAUSES[case], case, Verdict(verdict), message)


@pytest.fixture
def file(tmp_path):
    """Where expectations are kept."""
    return tmp_path / "expect.toml"


@pytest.fixture
def of(file):
    """The expectations that a text is."""

    def made(*entries):
        file.write_text("\n".join(entries))
        return read(file)

    return made


# --- reading ---


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("case = ", "expected TOML: "),
        ("[[expects]]\n", "expected only [[expect]] tables, got ['expects']"),
        ("expect = 3\n", "expected at most 1000 [[expect]] tables, got expect = 3"),
        ("expect = ['grows']\n", "expected at most 1000 [[expect]] tables, got expect = ['grows']"),
        (table(**ENTRY) + table(**ENTRY, reasons="x"), "entry 2: expected case, clause, verdict, reason, issue, got ['reasons']"),
        (table(case="grows", verdict="fail"), "entry 1 (case = 'grows'): expected a reason, got none"),
        (table(case="grows", reason="late"), "entry 1 (case = 'grows'): expected a verdict, got none"),
        (table(**ENTRY | {"reason": "  "}), "reason must be a string of 1 to 2000 characters, got '  '"),
        (table(**ENTRY | {"case": 3}), "entry 1: case must be a string of 1 to 2000 characters, got 3"),
        (table(verdict="fail", reason="late"), "expected either case or clause, got neither"),
        (table(**ENTRY, clause="MACHINE-*"), "expected either case or clause, got case and clause"),
        (
            table(**ENTRY | {"verdict": "pass"}),
            "verdict must be one of fail, error, timeout, crash, protocol-error, got 'pass'",
        ),
        (table(**ENTRY | {"verdict": "unsupported"}), "verdict must be one of"),
        (table(**ENTRY, issue="12"), "issue must be a URL, got '12'"),
        (table(**ENTRY | {"reason": "x" * 2001}), "reason must be a string of 1 to 2000 characters, got 'xxx"),
        ("[[expect]]\n" * 1001, "expected at most 1000 [[expect]] tables, got expect = [{}, {}"),
        ("x = " + "[" * 10**5, "expected TOML: "),
        ("x = " + "9" * 5000, "expected TOML: "),
        ("#" * (2**20 + 1), " must have at most 1048576 bytes, got more"),
        ("x" * 10**6 + " = 1", "expected only [[expect]] tables, got ['xxx"),
    ],
    ids=lambda text: text[:40],
)
def test_what_is_wrong_is_refused(of, file, text, wanted):
    """With the file and the entry, what was wanted and what came."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - its words are compared
        of(text)
    assert str(caught.value).startswith(str(file))
    assert wanted in str(caught.value)
    assert len(str(caught.value)) < 400
    file.write_bytes(b"# \xff\n")
    with pytest.raises(ValueError, match=r"expected TOML: .*utf-8"):
        read(file)


# --- applying ---


def test_what_is_expected_is_an_xfail(of):
    """Its message has the reason, and what came."""
    for verdict in EXPECTABLE:
        expected = of(table(case="grows", verdict=str(verdict), reason="late")).applied(result("grows", verdict))
        assert (expected.verdict, expected.message) == (Verdict.XFAIL, f"late; {verdict}: came")


@pytest.mark.parametrize(
    ("changes", "came", "verdict", "message"),
    [
        ({"issue": "https://example.org/1"}, "fail", "xfail", "late (https://example.org/1); fail: came"),
        ({}, "pass", "xpass", "passes, but expect.toml expects fail: late"),
        ({}, "crash", "crash", "came (expect.toml expects fail: late)"),  # this is not what a fail excuses
        ({}, "unsupported", "unsupported", "came"),
        (
            {"reason": "TODO: write the reason"},
            "fail",
            "fail",
            "came (expect.toml expects this, but its reason is not written yet)",
        ),
        *(({"case": glob}, "fail", "fail", "came") for glob in ("grow", "rows", "GROWS", "backs-*")),
    ],
)
def test_an_entry_is_applied(of, changes, came, verdict, message):
    """The glob has to match the whole id, and in its case."""
    got = of(table(**ENTRY | changes)).applied(result("grows", came))
    assert (got.verdict, got.message) == (verdict, message)


def test_the_first_entry_that_matches_counts(of):
    """A glob matches cases or clauses, as in a shell; an entry has all of its members, and the issue may be left out."""
    for by, glob in (("case", "g*"), ("case", "*rows"), ("case", "[a-z]????"), ("clause", "MACHINE-g*")):
        expectations = of(table(**{by: glob}, verdict="fail", reason="late"))
        assert expectations.applied(result("grows", "fail")).verdict is Verdict.XFAIL
        assert [(each.by, each.glob, each.verdict, each.issue) for each in expectations.entries] == [(by, glob, "fail", "")]
    expected = of(table(case="g*", verdict="error", reason="first"), table(**ENTRY))
    assert expected.applied(result("grows", "fail")).verdict is Verdict.FAIL
    assert expected.applied(result("grows", "error")).message == "first; error: came"


# --- stale entries ---


def stale(expectations, *results):
    """What is said of entries that say nothing."""
    found = list(expectations.stale(results, CLAUSES))
    assert {each.verdict for each in found} <= {Verdict.XPASS}
    return [(each.case, each.message) for each in found]


def test_an_entry_on_no_case_is_stale(of):
    """The suite knows none of that name."""
    said = "expect.toml, entry 2 (case = 'shrinks') is stale: no case matches; remove it"
    assert stale(of(table(**ENTRY), table(**ENTRY | {"case": "shrinks"}))) == [("expectation-2", said)]


def test_an_entry_on_unsupported_cases_is_stale(of):
    """If all that it speaks of are."""
    expectations = of(table(clause="MACHINE-growth-*", verdict="fail", reason="late"))
    came = [result("grows", "unsupported"), result("grows-again", "unsupported")]
    assert "all its cases are unsupported" in stale(expectations, *came)[0][1]
    assert stale(expectations, result("grows", "fail"), came[1]) == []


def test_an_entry_behind_others_is_stale(of):
    """Where those speak of all its cases."""
    expectations = of(table(**ENTRY | {"case": "g*"}), table(**ENTRY), table(**ENTRY | {"case": "*"}))
    assert [(case, "earlier entries" in message) for case, message in stale(expectations)] == [("expectation-2", True)]


def test_an_entry_on_cases_that_were_left_out_is_not_stale(of):
    """Nothing is known of them; also where the others are unsupported."""
    assert stale(of(table(**ENTRY))) == []
    assert stale(of(table(**ENTRY | {"case": "g*"})), result("grows", "unsupported")) == []


# --- rewriting ---

KEPT = """\
# Known faults of mine.

# The window is counted from one.
[[expect]]
case = "grows" # exactly
reason = 'late'
verdict = "fail"
"""


def rewrite(file, *results):
    """The new text, the changes, and what was expected of each case in it."""
    text, changes = updated(file, results)
    entries = tomllib.loads(text).get("expect", [])
    return text, changes, [(entry.get("case", entry.get("clause")), entry["verdict"], entry["reason"]) for entry in entries]


def test_what_is_new_is_added_with_a_reason_to_be_written(file):
    """Behind the others, whose text stays; one entry for each case, and it is not accepted yet; also where no file was."""
    assert rewrite(file, result("grows", "timeout"))[2] == [("grows", "timeout", "TODO: write the reason")]
    file.write_text(KEPT)
    text, changes, entries = rewrite(file, result("grows", "fail"), result("backs-off", "crash"), result("grows-again", "pass"))
    assert text.startswith(KEPT)
    assert entries == [("grows", "fail", "late"), ("backs-off", "crash", "TODO: write the reason")]
    assert changes == ["added: case = 'backs-off', crash; write its reason"]
    file.write_text(text)
    assert read(file).applied(result("backs-off", "crash")).verdict is Verdict.CRASH
    assert updated(file, [result("grows", "fail"), result("backs-off", "crash")]) == (text, [])


def test_a_long_comment_is_rewritten_in_linear_time(file):
    """Half a million lines, of which none is above an entry."""
    file.write_text("#\n" * 500_000 + "\n" + table(**ENTRY))
    started = time.process_time()
    assert updated(file, [result("grows", "fail")])[1] == []
    assert time.process_time() - started < 10


@pytest.mark.parametrize(
    ("results", "why"),
    [
        ([result("grows", "pass")], "now grows: pass"),
        ([result("grows", "unsupported")], "no supported case matches"),
        ([], "no supported case matches"),
    ],
)
def test_what_is_not_true_any_more_goes(file, results, why):
    """With the comment directly above it; what stands at the head of the file stays."""
    file.write_text(KEPT)
    text, changes, entries = rewrite(file, *results)
    assert (text, entries) == ("# Known faults of mine.\n", [])
    assert changes == [f"removed: case = 'grows', fail; {why}"]


def test_another_verdict_needs_another_reason(file):
    """The old one was given for something else."""
    file.write_text(KEPT)
    _, changes, entries = rewrite(file, result("grows", "error"))
    assert entries == [("grows", "error", "TODO: write the reason")]
    assert [change.partition(":")[0] for change in changes] == ["removed", "added"]


def test_a_glob_of_which_a_part_is_true_becomes_its_cases(file):
    """With its reason, its issue and the comment above it."""
    written = 'reason = "la\\tte \\"\\\\ \\u007f é"\n'
    file.write_text("# why\n" + table(case="*", verdict="fail", issue="https://example.org/1") + written)
    text, changes, entries = rewrite(file, result("grows", "fail"), result("grows-again", "pass"), result("backs-off", "fail"))
    assert text.startswith("# why\n[[expect]]\n")
    assert entries == [("grows", "fail", 'la\tte "\\ \x7f é'), ("backs-off", "fail", 'la\tte "\\ \x7f é')]
    assert {entry["issue"] for entry in tomllib.loads(text)["expect"]} == {"https://example.org/1"}
    assert changes == ["split: case = '*', fail; now grows-again: pass"]


def test_entries_that_hide_others_are_rewritten(file):
    """What is unsupported is no reason to change a glob; one that is split no longer hides another; one hidden whole goes."""
    file.write_text(table(case="g*", verdict="fail", reason="late"))
    assert updated(file, [result("grows", "fail"), result("grows-again", "unsupported")])[1] == []
    file.write_text(
        table(case="g*", verdict="error", reason="first") + table(**ENTRY) + table(case="*-again", verdict="error", reason="x")
    )
    _, changes, entries = rewrite(file, result("grows", "fail"), result("grows-again", "error"))
    assert entries == [("grows-again", "error", "first"), ("grows", "fail", "late")]
    assert len(changes) == 2


@pytest.mark.parametrize(
    "text",
    [
        'expect = [{case = "grows", verdict = "fail", reason = "late"}]\n',
        table(**ENTRY) + "[expect.more]\n",
        "[[expect]]\ncase = 'grows'\nverdict = 'fail'\nreason = '''\n[[expect]]\n'''\n",
    ],
)
def test_what_is_written_otherwise_is_not_rewritten(file, text):
    """Rather than losing what somebody has written."""
    file.write_text(text)
    with pytest.raises(ValueError, match=r"expect\.toml"):
        updated(file, [result("grows", "pass")])
