"""The page of performance shows what the file of the run holds."""

import json
import re

import document
import pytest
import targets

PAGE = document.PAGE.read_text("utf-8")
REPORT = json.loads(document.SHOWN.read_text("utf-8"))


def test_the_page_shows_the_file():
    """`python benchmarks/bench.py --document` brings it up to date."""
    assert document.brought_up_to_date(PAGE, REPORT) == PAGE


def test_the_file_is_of_a_whole_run():
    """With no target missed without a reason."""
    assert not REPORT["quick"]
    assert targets.faults(REPORT["targets"]) == []


def test_the_verdicts_of_the_file_follow_from_its_rows():
    """With the bounds and the reasons as they are today."""
    judged = json.loads(json.dumps(targets.judged(REPORT["rows"], targets.read_reasons())))
    wanted = [(one["row"], one["over"], one["at_most"], one["verdict"], one["reason"]) for one in judged]
    assert [
        (one["row"], one["over"], pytest.approx(one["at_most"]), one["verdict"], one["reason"]) for one in REPORT["targets"]
    ] == wanted


def test_the_file_has_a_line_for_each_row():
    """So that two runs can be compared."""
    text = document.SHOWN.read_text("utf-8")
    assert document.text_of(REPORT) == text
    assert json.loads(document.text_of({"a": [], "rows": []})) == {"a": [], "rows": []}
    lines = [line for line in text.splitlines() if line.startswith("  ")]
    assert [json.loads(line.rstrip(",")) for line in lines] == [*REPORT["targets"], *REPORT["rows"]]


def test_each_row_is_on_the_page():
    """By what is measured, its dtype and its shape."""
    for row in REPORT["rows"]:
        assert f"| {row['what']} | {row['dtype']} | {row['shape']} |" in PAGE, row["id"]


def test_the_readme_quotes_the_file():
    """It quotes the time of one row, its ratio to an in-place multiplication, and the number of rows."""
    readme = " ".join((document.ROOT / "README.md").read_text("utf-8").split())
    (row,) = [row for row in REPORT["rows"] if row["id"] == "numpy/unscale+check/float32/100x1M"]
    time, ratio = row["cells"][0]["median"], row["cells"][0]["over_floor"]["ratio"]
    assert f"takes {time * 1e3:.0f} ms, {ratio:.2f} times an in-place multiplication" in readme
    assert f"has all {len(REPORT['rows'])} rows" in readme


@pytest.mark.parametrize("change", ["<!-- bench: machine -->", "<!-- bench: torch -->"])
def test_a_page_without_a_block_is_refused(change):
    """So that none can be lost."""
    with pytest.raises(ValueError, match="each of the blocks"):
        document.brought_up_to_date(PAGE.replace(change, ""), REPORT)


def test_a_changed_number_changes_the_page():
    """Each ratio of a target's row is shown."""
    other = json.loads(json.dumps(REPORT))
    row = next(row for row in other["rows"] if row["id"] == "torch/unscale+check/float32/100x1M")
    row["cells"][0]["over"]["torch.amp"]["ratio"] = 7.77
    assert "7.77 ±" in document.brought_up_to_date(PAGE, other)


def test_links_lead_somewhere():
    """Beside the page."""
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (document.PAGE.parent / target).exists(), target
