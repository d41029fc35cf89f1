"""Expected failures: they are read, applied to results, reported if they are stale, and rewritten."""

import time
import tomllib

import pytest
from ampscale_conformance.model.verdicts import Result, Verdict
from ampscale_conformance.model.versions import RENAMED
from ampscale_conformance.run.expectations import EXPECTABLE, read, updated

ENTRY = {"case": "grows", "verdict": "fail", "reason": "late"}
CLAUSES = {"grows": "MACHINE-growth-window", "grows-again": "MACHINE-growth-window", "backs-off": "MACHINE-backoff"}


def table(**members):
    """Return an entry as TOML."""
    return "[[expect]]\n" + "".join(f"{key} = {value!r}\n" for key, value in members.items())


def result(case, verdict, message="actual message"):
    """Return the result of a case."""
    return Result(CLAUSES[case], case, Verdict(verdict), message)


@pytest.fixture
def file(tmp_path):
    """Return the path of the expectations file."""
    return tmp_path / "expect.toml"


@pytest.fixture
def read_entries(file):
    """Return a function that writes entries to the file and reads it."""

    def write(*entries):
        file.write_text("\n".join(entries))
        return read(file)

    return write


# --- reading ---


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("case = ", "expected TOML: "),
        ("[[expects]]\n", "expected only [[expect]] tables, got ['expects']"),
        ("expect = 3\n", "expected at most 1000 [[expect]] tables, got expect = 3"),
        ("expect = ['grows']\n", "expected at most 1000 [[expect]] tables, got expect = ['grows']"),
        (table(**ENTRY) + table(**ENTRY, reasons="x"), "entry 2: expected only the keys case, clause, verdict, reason, issue,"),
        (table(case="grows", verdict="fail"), "entry 1 (case = 'grows'): expected a reason, got none"),
        (table(case="grows", reason="late"), "entry 1 (case = 'grows'): expected a verdict, got none"),
        (table(**ENTRY | {"reason": "  "}), "reason must be a non-blank string of at most 2000 characters, got '  '"),
        (table(**ENTRY | {"case": 3}), "entry 1: case must be a non-blank string of at most 2000 characters, got 3"),
        (table(verdict="fail", reason="late"), "expected either case or clause, got neither"),
        (table(**ENTRY, clause="MACHINE-*"), "expected either case or clause, got case and clause"),
        (
            table(**ENTRY | {"verdict": "pass"}),
            "verdict must be one of fail, error, timeout, crash, protocol-error, got 'pass'",
        ),
        (table(**ENTRY | {"verdict": "unsupported"}), "verdict must be one of"),
        (table(**ENTRY, issue="12"), "issue must be an http or https URL, got '12'"),
        (table(**ENTRY | {"reason": "x" * 2001}), "reason must be a non-blank string of at most 2000 characters, got 'xxx"),
        ("[[expect]]\n" * 1001, "expected at most 1000 [[expect]] tables, got expect = [{}, {}"),
        ("x = " + "[" * 10**5, "expected TOML: "),
        ("x = " + "9" * 5000, "expected TOML: "),
        ("#" * (2**20 + 1), " must have at most 1048576 bytes, got more"),
        ("x" * 10**6 + " = 1", "expected only [[expect]] tables, got ['xxx"),
    ],
    ids=lambda text: text[:40],
)
def test_an_invalid_file_is_rejected(read_entries, file, text, message):
    """The message contains the file, the entry, and the expected and actual values, in fewer than 400 characters."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        read_entries(text)
    assert str(caught.value).startswith(str(file))
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_file_that_is_not_utf_8_is_rejected(file):
    file.write_bytes(b"# \xff\n")
    with pytest.raises(ValueError, match=r"expected TOML: .*utf-8"):
        read(file)


# --- applying ---


def test_an_expected_failure_is_an_xfail(read_entries):
    """The message contains the reason and the original message."""
    for verdict in EXPECTABLE:
        expected = read_entries(table(case="grows", verdict=str(verdict), reason="late")).applied(result("grows", verdict))
        assert (expected.verdict, expected.message) == (Verdict.XFAIL, f"late; {verdict}: actual message")


@pytest.mark.parametrize(
    ("changes", "actual", "verdict", "message"),
    [
        ({"issue": "https://example.org/1"}, "fail", "xfail", "late (https://example.org/1); fail: actual message"),
        ({}, "pass", "xpass", "passes, but expect.toml expects fail: late"),
        ({}, "crash", "crash", "actual message (expect.toml expects fail: late)"),  # "fail" does not cover "crash"
        ({}, "unsupported", "unsupported", "actual message"),
        (
            {"reason": "TODO: write the reason"},
            "fail",
            "fail",
            "actual message (expect.toml expects this, but its reason is not written yet)",
        ),
        *(({"case": glob}, "fail", "fail", "actual message") for glob in ("grow", "rows", "GROWS", "backs-*")),
    ],
    ids=str,
)
def test_an_entry_requires_the_verdict_and_the_whole_id(read_entries, changes, actual, verdict, message):
    """Globs are case-sensitive."""
    applied = read_entries(table(**ENTRY | changes)).applied(result("grows", actual))
    assert (applied.verdict, applied.message) == (verdict, message)


def test_an_entry_with_the_former_id_of_a_renamed_case_applies(read_entries, monkeypatch):
    monkeypatch.setitem(RENAMED, "rises", "grows")
    expectations = read_entries(table(**ENTRY | {"case": "rises"}))
    assert expectations.applied(result("grows", "fail")).verdict is Verdict.XFAIL
    assert list(expectations.stale([result("grows", "fail")], CLAUSES)) == []


def test_a_glob_matches_ids_or_clauses(read_entries):
    """An issue is optional."""
    for by, glob in (("case", "g*"), ("case", "*rows"), ("case", "[a-z]????"), ("clause", "MACHINE-g*")):
        expectations = read_entries(table(**{by: glob}, verdict="fail", reason="late"))
        assert expectations.applied(result("grows", "fail")).verdict is Verdict.XFAIL
        assert [(entry.by, entry.glob, entry.verdict, entry.issue) for entry in expectations.entries] == [(by, glob, "fail", "")]


def test_the_first_matching_entry_applies(read_entries):
    expected = read_entries(table(case="g*", verdict="error", reason="first"), table(**ENTRY))
    assert expected.applied(result("grows", "fail")).verdict is Verdict.FAIL
    assert expected.applied(result("grows", "error")).message == "first; error: actual message"


# --- stale entries ---


def stale(expectations, *results):
    """Return the ids and the messages of stale entries."""
    stale_results = list(expectations.stale(results, CLAUSES))
    assert {result_.verdict for result_ in stale_results} <= {Verdict.XPASS}
    return [(result_.case, result_.message) for result_ in stale_results]


def test_an_entry_without_a_case_is_stale(read_entries):
    """No case of the suite matches the entry."""
    message = "expect.toml, entry 2 (case = 'shrinks') is stale: no case matches; remove it"
    assert stale(read_entries(table(**ENTRY), table(**ENTRY | {"case": "shrinks"}))) == [("expectation-2", message)]


def test_an_entry_on_unsupported_cases_is_stale(read_entries):
    """All cases of the entry must be unsupported."""
    expectations = read_entries(table(clause="MACHINE-growth-*", verdict="fail", reason="late"))
    results = [result("grows", "unsupported"), result("grows-again", "unsupported")]
    assert "all its cases are unsupported" in stale(expectations, *results)[0][1]
    assert stale(expectations, result("grows", "fail"), results[1]) == []


def test_an_entry_that_earlier_ones_cover_is_stale(read_entries):
    """The earlier entries match all cases of the stale entry."""
    expectations = read_entries(table(**ENTRY | {"case": "g*"}), table(**ENTRY), table(**ENTRY | {"case": "*"}))
    assert [(case, "earlier entries" in message) for case, message in stale(expectations)] == [("expectation-2", True)]


def test_an_entry_on_cases_that_were_not_run_is_not_stale(read_entries):
    """The remaining cases of the entry may be unsupported."""
    assert stale(read_entries(table(**ENTRY))) == []
    assert stale(read_entries(table(**ENTRY | {"case": "g*"})), result("grows", "unsupported")) == []


# --- rewriting ---

EXISTING = """\
# Known faults of mine.

# The window is counted from one.
[[expect]]
case = "grows" # exactly
reason = 'late'
verdict = "fail"
"""


def rewrite(file, *results):
    """Return the new text, the changes, and the id, verdict and reason of each entry."""
    text, changes = updated(file, results)
    entries = tomllib.loads(text).get("expect", [])
    return text, changes, [(entry.get("case", entry.get("clause")), entry["verdict"], entry["reason"]) for entry in entries]


def test_new_failures_are_added_with_a_placeholder_reason(file):
    """New entries follow the existing text, one for each case."""
    assert rewrite(file, result("grows", "timeout"))[2] == [("grows", "timeout", "TODO: write the reason")]
    file.write_text(EXISTING)
    text, changes, entries = rewrite(file, result("grows", "fail"), result("backs-off", "crash"), result("grows-again", "pass"))
    assert text.startswith(EXISTING)
    assert entries == [("grows", "fail", "late"), ("backs-off", "crash", "TODO: write the reason")]
    assert changes == ["added: case = 'backs-off', crash; write its reason"]


def test_an_entry_with_the_placeholder_reason_is_not_accepted(file):
    """A further update leaves it unchanged."""
    text, _ = updated(file, [result("grows", "fail"), result("backs-off", "crash")])
    file.write_text(text)
    assert read(file).applied(result("backs-off", "crash")).verdict is Verdict.CRASH
    assert updated(file, [result("grows", "fail"), result("backs-off", "crash")]) == (text, [])


def test_an_unknown_capability_gets_no_entry(file):
    """The result has no clause, so an entry for it would be stale."""
    assert updated(file, [Result("", "capability-telepathy", Verdict.ERROR)]) == ("", [])


def test_line_ends_stay(file):
    """A file from Windows keeps its line ends, whether entries change or not."""
    windows = EXISTING.replace("\n", "\r\n").encode()
    file.write_bytes(windows)
    assert updated(file, [result("grows", "fail")]) == (windows.decode(), [])
    text, _ = updated(file, [result("grows", "fail"), result("backs-off", "crash")])
    assert text.startswith(windows.decode())
    assert text.count("\r\n") == text.count("\n") > windows.count(b"\n")


def test_a_long_comment_is_rewritten_in_linear_time(file):
    """The comment has 500,000 lines."""
    file.write_text("#\n" * 500_000 + "\n" + table(**ENTRY))
    started = time.process_time()
    assert updated(file, [result("grows", "fail")])[1] == []
    assert time.process_time() - started < 10


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        ([result("grows", "pass")], "now grows: pass"),
        ([result("grows", "unsupported")], "no supported case matches"),
        ([], "no supported case matches"),
    ],
    ids=["pass", "unsupported", "no result"],
)
def test_entries_that_no_longer_apply_are_removed(file, results, reason):
    """The comment directly above an entry is removed with it; the comment at the top of the file stays."""
    file.write_text(EXISTING)
    text, changes, entries = rewrite(file, *results)
    assert (text, entries) == ("# Known faults of mine.\n", [])
    assert changes == [f"removed: case = 'grows', fail; {reason}"]


def test_another_verdict_requires_another_reason(file):
    """The old entry is removed."""
    file.write_text(EXISTING)
    _, changes, entries = rewrite(file, result("grows", "error"))
    assert entries == [("grows", "error", "TODO: write the reason")]
    assert [change.partition(":")[0] for change in changes] == ["removed", "added"]


def test_a_partly_fixed_glob_is_split_into_its_cases(file):
    """The reason, the issue and the comment above are kept."""
    written = 'reason = "la\\tte \\"\\\\ \\u007f é"\n'
    file.write_text("# why\n" + table(case="*", verdict="fail", issue="https://example.org/1") + written)
    text, changes, entries = rewrite(file, result("grows", "fail"), result("grows-again", "pass"), result("backs-off", "fail"))
    assert text.startswith("# why\n[[expect]]\n")
    assert entries == [("grows", "fail", 'la\tte "\\ \x7f é'), ("backs-off", "fail", 'la\tte "\\ \x7f é')]
    assert {entry["issue"] for entry in tomllib.loads(text)["expect"]} == {"https://example.org/1"}
    assert changes == ["split: case = '*', fail; now grows-again: pass"]


def test_an_unsupported_case_does_not_split_a_glob(file):
    file.write_text(table(case="g*", verdict="fail", reason="late"))
    assert updated(file, [result("grows", "fail"), result("grows-again", "unsupported")])[1] == []


def test_an_entry_is_removed_if_earlier_entries_cover_its_cases(file):
    """The first entry is split, and the last one is removed."""
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
def test_other_toml_syntax_is_not_rewritten(file, text):
    """Rewriting such syntax could lose text of the user."""
    file.write_text(text)
    with pytest.raises(ValueError, match=r"expect\.toml"):
        updated(file, [result("grows", "pass")])
