"""Tests of docs/performance.md and of the README's figures, which are generated from the result files."""

import json

import document
import pytest
import targets
from document import PAGE, README

FILES = document.result_files()
REPORTS = [json.loads(path.read_text("utf-8")) for path in FILES]
TEXT = PAGE.read_text("utf-8")
each_report = pytest.mark.parametrize("report", REPORTS, ids=[path.stem for path in FILES])


def test_pages_are_generated_from_the_files():
    """`python benchmarks/bench.py --document` updates the pages."""
    assert document.generated() == {page: page.read_text("utf-8") for page in (PAGE, README)}


@each_report
def test_file_is_of_a_complete_run(report):
    """Each missed target has a reason."""
    assert not report["quick"]
    assert targets.faults(report["targets"]) == []


@each_report
def test_verdicts_of_the_file_are_current(report):
    """Verdicts are computed again from the current targets and reasons."""

    def without_bounds(judgements):
        return [(row["row"], row["of"], row["over"], row["verdict"], row["reason"]) for row in judgements]

    evaluated = targets.evaluate(report["rows"], targets.read_reasons())
    assert without_bounds(report["targets"]) == without_bounds(evaluated)
    assert [row["at_most"] for row in report["targets"]] == pytest.approx([row["at_most"] for row in evaluated])


@each_report
def test_page_shows_each_row(report):
    """A row is identified by its label, dtype and shape, in the section of its processor."""
    (section,) = [part for part in TEXT.split("\n## ") if part.startswith(document.title(report) + "\n")]
    for row in report["rows"]:
        assert f"| {row['label']} | {row['dtype']} | {row['shape']} |" in section, row["id"]
