"""The Markdown report: totals, what did not pass, and what was not asked, each in its own place."""

import re

from ampscale_conformance import ImplementationInfo, Report, Result, Verdict
from ampscale_conformance.model.clauses import clauses
from ampscale_conformance.reports import markdown
from reports import made


def table(text, title):
    """The table with this title over its first column, a dict for each row."""
    (block,) = re.findall(rf"^\| {title} .*(?:\n\|.*)*", text, re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
    return {row[0]: dict(zip(rows[0][1:], row[1:], strict=True)) for row in rows[2:]}


def one(**members):
    """A report of one result."""
    said = {"clause": "MACHINE-max-scale", "case": "a-case", "verdict": Verdict.FAIL, "message": "m", "catches": "c", **members}
    return markdown.of(Report(ImplementationInfo(name="x"), (Result(**said),)))


def test_totals_stand_by_chapter_and_by_level():
    """A column for each verdict that occurs, and a row for each chapter and level; nothing is counted twice."""
    text = markdown.of(made.report_of(made.Late(level=0)))
    assert table(text, "Chapter") == {
        "machine": {"pass": "8", "fail": "8", "unsupported": ""},
        "scaling": {"pass": "", "fail": "", "unsupported": "1"},
    }
    assert table(text, "Level") == {
        "0 (rule)": {"pass": "8", "fail": "8", "unsupported": ""},
        "1 (tensors)": {"pass": "", "fail": "", "unsupported": "1"},
    }
    assert "**8 of 16 cases passed**; 8 fail. 1 more is unsupported and was not run." in text


def test_every_result_that_is_no_pass_is_told():
    """With its verdict and its message; what was expected stands apart, and what is unsupported is folded away."""
    text = markdown.of(made.every_verdict())
    failed, rest = text.partition("## Expected failures")[::2]
    expected, folded = rest.partition("<details>")[::2]
    for verdict in Verdict:
        heading = f"### case-{verdict}: {verdict}"
        assert (heading in failed) == (verdict not in (Verdict.PASS, Verdict.UNSUPPORTED, Verdict.XFAIL))
        assert (heading in expected) == (verdict is Verdict.XFAIL)
        assert (f"```text\nwhat {verdict} says\n```" in text) == (verdict not in (Verdict.PASS, Verdict.UNSUPPORTED))
    assert folded.splitlines() == [
        "",
        "<summary>1 unsupported: not run, and not counted as passed</summary>",
        "",
        "1 × what unsupported says: case-unsupported",
        "",
        "</details>",
    ]
    assert "case-unsupported" not in failed + expected


def test_a_failure_has_its_clause_and_sources_and_script():
    """The sentence and every source, as the specification has them."""
    text = one(snippet="print(1)\n", reproduced=True)
    law = clauses()["MACHINE-max-scale"]
    assert f"**MACHINE-max-scale**, must: {law.sentence}" in text
    assert [line.removeprefix("> Source: ").strip() for line in text.splitlines() if line.startswith(">")] == list(law.sources)
    assert "Detects: c" in text
    assert "when run, it did:\n\n```python\nprint(1)\n```" in text
    assert "did **not**:" in one(snippet="print(1)", reproduced=False)
    assert "was not run" in one(snippet="print(1)", reproduced=None)
    assert "连续n个steps的梯度都是有限值时" in one(clause="MACHINE-growth-window")


def test_a_right_implementation_has_no_faults_listed():
    """Totals, and nothing else."""
    text = markdown.of(made.report_of(made.Right()))
    assert "**17 of 17 cases passed**. 0 more are unsupported" in text
    assert "##" not in text.replace("# Conformance", "", 1)
    assert "<details>" not in text


def test_unsupported_is_grouped_by_its_reason():
    """Each reason once, with how many cases it keeps from being asked."""
    text = markdown.of(made.report_of(made.Fixed(level=0, capabilities=["time travel"])))
    assert "18 unsupported: not run, and not counted as passed" in text
    assert "16 × its constants are fixed: walks-gggg, " in text
    assert "1 × claims level 0; requires level 1: trees-are-scaled" in text
    assert "**0 of 0 cases passed**" in text


def test_no_words_break_out_of_their_place():
    """A fence is longer than any in its text, names are on one line, and control characters are written out."""
    text = one(message="```\n# no heading\x1b\ud800", case="a|b\nc", snippet="````x")
    assert "````text\n```\n# no heading\\x1b\\ud800\n````" in text
    assert "`````python\n````x\n`````" in text
    assert "### a\\|b c: fail" in text
    assert text.encode("utf-8")


def test_a_clause_that_is_unknown_is_told_as_such():
    """A report is never refused for it."""
    assert "**NEW-clause**: unknown clause." in one(clause="NEW-clause")
    assert "\n\n**" not in one(clause="", verdict=Verdict.FAIL).partition("### ")[2]
