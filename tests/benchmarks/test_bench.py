"""Tests of the result files of benchmarks/bench.py."""

import json
import math
import sys
from unittest import mock

import bench
import document
import pytest
import sections
import targets

NEWEST = max(json.loads(path.read_text("utf-8"))["date"] for path in document.result_files())


@pytest.fixture(scope="module")
def quick_report(tmp_path_factory):
    """Return the report of a quick run of all rows."""
    path = tmp_path_factory.mktemp("bench") / "quick.json"
    with mock.patch.object(sys, "argv", ["bench.py", "--quick", "--all", "--json", str(path)]):
        assert bench.main() == 0
    return json.loads(path.read_text("utf-8"))


@pytest.fixture(
    params=[*document.result_files(), pytest.param(None, marks=pytest.mark.slow)], ids=lambda path: path and path.stem
)
def report(request):
    """Return the report in a committed file, or the report of the quick run."""
    return json.loads(request.param.read_text("utf-8")) if request.param else request.getfixturevalue("quick_report")


def test_report_describes_only_the_run_and_its_machine(report):
    """No section failed. The report has no further members, such as the name of the host or a path."""
    figures = {"version", "date", "seconds", "quick", "all", "load", "versions", "failures", "targets", "rows"}
    assert set(report) == figures | {"machine"}
    assert set(report["machine"]) == {"cpu", "cores", "caches", "memory_gib", "system"}
    assert (report["version"], report["failures"]) == (bench.VERSION, [])


def test_each_cell_has_figures_or_a_reason_for_its_absence(report):
    """Times and ratios are positive and have quartiles; exponents of growth may be negative."""
    for row in report["rows"]:
        for cell in row["cells"]:
            if "absent" in cell:
                assert cell["absent"], row["id"]
            elif row["unit"] == "s":
                low, high = cell["quartiles"]
                assert 0 < low <= cell["median"] <= high, row["id"]
                ratios = [*cell.get("over", {}).values(), cell.get("over_baseline")]
                assert all(min(over["ratio"], *over["quartiles"]) > 0 for over in ratios if over), row["id"]
            else:
                assert math.isfinite(cell["value"]), row["id"]


def test_report_has_each_row_once(report):
    """The newest report contains all rows, or those that have targets, in the order of the table. Older ones may lack some."""
    ids = [spec.id for spec in sections.all_specs() if report["all"] or targets.compared_contenders(spec.id)]
    present = [row["id"] for row in report["rows"]]
    assert present == (ids if report["date"] >= NEWEST else [name for name in ids if name in present])
    assert len(set(ids)) == len(ids)


def test_ampscale_is_first_and_has_all_ratios(report):
    """All rows in seconds have a baseline, except updates of the scale, the scaler's part of a step and first calls."""
    without_baseline = set()
    for row in report["rows"]:
        first, *others = row["cells"]
        assert first["name"].startswith("ampscale"), row["id"]
        assert first["kind"] == "ours"
        if row["unit"] == "s":
            assert set(first["over"]) == {cell["name"] for cell in others if "absent" not in cell}
            assert ("over_baseline" in first) == any(cell.get("kind") == "baseline" for cell in others)
            if "over_baseline" not in first:
                without_baseline.add(row["id"].partition("/")[0])
    assert without_baseline == {"update", "step-overhead", "first-call"}


def test_targets_match_rows_and_contenders(report):
    """Each target is measured on at least one of its rows, unless the rows were added after the report."""
    for target in targets.TARGETS:
        rows = list(targets.matching_rows(target, report["rows"]))
        if not rows and report["date"] < NEWEST:
            continue
        assert rows, target.rows
        for row in rows:
            names = {cell["name"] for cell in row["cells"]} | {targets.BASELINE}
            assert {target.of, target.over or target.of} <= names, (target.rows, row["id"])
        assert any(targets.verdict(target, row)["measured"] is not None for row in rows), target.rows


@pytest.mark.slow
def test_host_reads_and_launches_are_counted(quick_report):
    """Each of the two `GradScaler`s reads one value in a step. A jitted step is one program without a read."""
    values = {row["id"]: {cell["name"]: cell.get("value") for cell in row["cells"]} for row in quick_report["rows"]}
    assert values["host-reads/torch"] == {"ampscale, functions": 0, "ampscale, GradScaler": 1, "torch.amp, GradScaler": 1}
    assert values["launches/jax"]["ampscale, jitted"] == 1
    assert values["host-reads/jax"]["ampscale, jitted"] == 0
    launches = [cells.values() for name, cells in values.items() if name.startswith("launches")]
    assert all(value > 0 for cells in launches for value in cells if value is not None)
