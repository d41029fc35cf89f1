"""Markdown report: totals, failures, expected failures and unsupported cases."""

import re

from ampscale_conformance import ImplementationInfo, Report, Result, Verdict
from ampscale_conformance.model.clauses import clauses
from ampscale_conformance.reports import markdown
from reports import samples


def table(text, title):
    """Return the table whose first column has this title, with a dict for each row."""
    (block,) = re.findall(rf"^\| {title} .*(?:\n\|.*)*", text, re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
    return {row[0]: dict(zip(rows[0][1:], row[1:], strict=True)) for row in rows[2:]}


def markdown_with(**members):
    """Return the Markdown of a report with one result."""
    values = {"clause": "MACHINE-max-scale", "case": "a-case", "verdict": Verdict.FAIL, "message": "m", "catches": "c", **members}
    return markdown.markdown_of(Report(ImplementationInfo(name="x"), (Result(**values),)))


def test_totals_are_by_chapter_and_by_level():
    """Verdicts that do not occur have no column."""
    text = markdown.markdown_of(samples.report_of(samples.Late(level=0)))
    assert table(text, "Chapter") == {
        "machine": {"pass": "8", "fail": "8", "unsupported": ""},
        "scaling": {"pass": "", "fail": "", "unsupported": "1"},
    }
    assert table(text, "Level") == {
        "0 (rule)": {"pass": "8", "fail": "8", "unsupported": ""},
        "1 (tensors)": {"pass": "", "fail": "", "unsupported": "1"},
    }
    assert "**8 of 16 cases passed**; 8 fail. 1 more is unsupported and was not run." in text


def test_every_result_that_did_not_pass_is_listed():
    """Expected failures have a section of their own, and unsupported cases are collapsed."""
    text = markdown.markdown_of(samples.every_verdict())
    failed, remainder = text.partition("## Expected failures")[::2]
    expected, collapsed = remainder.partition("<details>")[::2]
    for verdict in Verdict:
        heading = f"### case-{verdict}: {verdict}"
        assert (heading in failed) == (verdict not in (Verdict.PASS, Verdict.UNSUPPORTED, Verdict.XFAIL))
        assert (heading in expected) == (verdict is Verdict.XFAIL)
        assert (f"```text\nmessage of {verdict}\n```" in text) == (verdict not in (Verdict.PASS, Verdict.UNSUPPORTED))
    assert collapsed.splitlines() == [
        "",
        "<summary>1 unsupported: not run, and not counted as passed</summary>",
        "",
        "1 × message of unsupported: case-unsupported",
        "",
        "</details>",
    ]
    assert "case-unsupported" not in failed + expected


def test_a_failure_has_its_clause_and_sources_and_script():
    """The sentence and the sources are those of the specification."""
    text = markdown_with(snippet="print(1)\n", reproduced=True)
    clause = clauses()["MACHINE-max-scale"]
    assert f"**MACHINE-max-scale**, must: {clause.sentence}" in text
    assert [line.removeprefix("> Source: ").strip() for line in text.splitlines() if line.startswith(">")] == list(clause.sources)
    assert "Detects: c" in text
    assert "when run, it did:\n\n```python\nprint(1)\n```" in text
    assert "did **not**:" in markdown_with(snippet="print(1)", reproduced=False)
    assert "was not run" in markdown_with(snippet="print(1)", reproduced=None)
    assert "连续n个steps的梯度都是有限值时" in markdown_with(clause="MACHINE-growth-window")


def test_a_report_without_failures_has_totals_only():
    """There are no further sections."""
    text = markdown.markdown_of(samples.report_of(samples.Conforming()))
    assert "**17 of 17 cases passed**. 0 more are unsupported" in text
    assert "##" not in text.replace("# Conformance", "", 1)
    assert "<details>" not in text


def test_unsupported_cases_are_grouped_by_reason():
    """Each reason has its number of cases."""
    text = markdown.markdown_of(samples.report_of(samples.Fixed(level=0)))
    assert "17 unsupported: not run, and not counted as passed" in text
    assert "16 × its constants are fixed: trace-gggg, " in text
    assert "1 × claims level 0; requires level 1: trees-are-scaled" in text
    assert "**0 of 0 cases passed**" in text


def test_markdown_syntax_in_texts_is_escaped():
    """Fences are longer than those in the text, names are on one line, and control characters and lone surrogates are escaped."""
    text = markdown_with(message="```\n# no heading\x1b\ud800", case="a|b\nc&lt;~~", snippet="````x")
    assert "````text\n```\n# no heading\\x1b\\ud800\n````" in text
    assert "`````python\n````x\n`````" in text
    assert "### a\\|b c\\&lt;\\~\\~: fail" in text
    assert text.encode("utf-8")


def test_an_unknown_clause_is_labeled():
    """A result without a clause has no label."""
    assert "**NEW-clause**: unknown clause." in markdown_with(clause="NEW-clause")
    assert "\n\n**" not in markdown_with(clause="", verdict=Verdict.FAIL).partition("### ")[2]
