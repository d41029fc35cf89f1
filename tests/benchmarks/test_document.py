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


README_ROWS = {
    "NumPy, unscale and check": "numpy/unscale+check/float32/100x1M",
    "NumPy, with the norm in the same pass": "numpy/unscale+check+norm/float32/100x1M",
    "torch, unscale and check": "torch/unscale+check/float32/100x1M",
}


def test_the_readme_quotes_the_file():
    """What a row takes, over the floor, naive NumPy where there is such a rival, and torch.amp; and how many rows it has."""
    readme = (document.ROOT / "README.md").read_text("utf-8")
    rows = {row["id"]: row["cells"][0] for row in REPORT["rows"]}
    for words, name in README_ROWS.items():
        line = next(line for line in readme.splitlines() if line.startswith(f"| {words} |"))
        ours = rows[name]
        ratios = [ours["over_floor"], ours["over"].get("naive"), ours["over"].get("torch.amp")]
        told = [f"{ours['median'] * 1e3:.0f} ms", *("" if each is None else f"{each['ratio']:.2f}" for each in ratios)]
        assert [cell.strip() for cell in line.split("|")[2:-1]] == told
    (target,) = [
        one for one in REPORT["targets"] if one["row"] == "torch/unscale+check/float32/100x1000" and one["of"] != "ampscale"
    ]
    assert f"has all {len(REPORT['rows'])} rows" in readme
    assert f"unscales 100 tensors of 1,000 values in {target['measured']:.2f} of its time" in readme


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
