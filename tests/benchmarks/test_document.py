"""Tests of docs/performance.md, whose tables are generated from the result file."""

import json
import re

import document
import pytest
import targets

PAGE = document.PAGE.read_text("utf-8")
REPORT = json.loads(document.SHOWN.read_text("utf-8"))


def test_page_is_generated_from_the_file():
    """`python benchmarks/bench.py --document` updates the page."""
    assert document.updated(PAGE, REPORT) == PAGE


def test_file_is_of_a_complete_run():
    """Each missed target has a reason."""
    assert not REPORT["quick"]
    assert targets.faults(REPORT["targets"]) == []


def test_verdicts_of_the_file_are_current():
    """They are those of the current targets and reasons."""
    judged = json.loads(json.dumps(targets.judged(REPORT["rows"], targets.read_reasons())))
    expected = [(row["row"], row["over"], row["at_most"], row["verdict"], row["reason"]) for row in judged]
    assert [
        (row["row"], row["over"], pytest.approx(row["at_most"]), row["verdict"], row["reason"]) for row in REPORT["targets"]
    ] == expected


def test_file_has_a_line_for_each_row():
    """Line-based tools can compare two runs."""
    text = document.SHOWN.read_text("utf-8")
    assert document.text_of(REPORT) == text
    assert json.loads(document.text_of({"a": [], "rows": []})) == {"a": [], "rows": []}
    lines = [line for line in text.splitlines() if line.startswith("  ")]
    assert [json.loads(line.rstrip(",")) for line in lines] == [*REPORT["targets"], *REPORT["rows"]]


def test_page_shows_each_row():
    """A row is identified by its label, dtype and shape."""
    for row in REPORT["rows"]:
        assert f"| {row['label']} | {row['dtype']} | {row['shape']} |" in PAGE, row["id"]


def test_readme_quotes_the_file():
    """The README quotes the time of one row, its ratio to an in-place multiplication, and the number of rows."""
    readme = " ".join((document.ROOT / "README.md").read_text("utf-8").split())
    (row,) = [row for row in REPORT["rows"] if row["id"] == "numpy/unscale+check/float32/100x1M"]
    time, ratio = row["cells"][0]["median"], row["cells"][0]["over_baseline"]["ratio"]
    assert f"takes {time * 1e3:.0f} ms, {ratio:.2f} times an in-place multiplication" in readme
    assert f"lists all {len(REPORT['rows'])} measurements" in readme


@pytest.mark.parametrize("change", ["<!-- bench: machine -->", "<!-- bench: torch -->"])
def test_page_without_a_block_raises_a_value_error(change):
    """The page must contain each block once."""
    with pytest.raises(ValueError, match="each of the blocks"):
        document.updated(PAGE.replace(change, ""), REPORT)


def test_changed_ratio_changes_the_page():
    """The page shows the ratios of a target's row."""
    other = json.loads(json.dumps(REPORT))
    row = next(row for row in other["rows"] if row["id"] == "torch/unscale+check/float32/100x1M")
    row["cells"][0]["over"]["torch.amp"]["ratio"] = 7.77
    assert "7.77 ±" in document.updated(PAGE, other)


def test_links_have_targets():
    """Links are relative to the page."""
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (document.PAGE.parent / target).exists(), target
