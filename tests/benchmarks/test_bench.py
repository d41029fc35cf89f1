"""Tests of the result files and the command line of benchmarks/bench.py."""

import json
import sys
from unittest import mock

import bench
import document
import jsonschema
import pytest
import sections
import targets


def record(required, **optional):
    """Return the schema of an object with required and optional members, and no others."""
    return {"type": "object", "properties": required | optional, "required": [*required], "additionalProperties": False}


def members(*names):
    """Return the schema of an object that has at least these members."""
    return {"type": "object", "required": [*names]}


def list_of(items, **limits):
    """Return the schema of an array."""
    return {"type": "array", "items": items, **limits}


NUMBER, POSITIVE = {"type": "number"}, {"type": "number", "exclusiveMinimum": 0}
NAME = {"type": "string", "minLength": 1}
CONTENDER = {"name": NAME, "kind": {"enum": ["ours", "other", "baseline"]}}
QUARTILES = list_of(POSITIVE, minItems=2, maxItems=2)
RATIO = record({"ratio": POSITIVE, "quartiles": QUARTILES})
TIMED = record(
    {**CONTENDER, "median": POSITIVE, "quartiles": QUARTILES, "samples": {"type": "integer", "minimum": 1}},
    over_baseline=RATIO,
    over={"type": "object", "additionalProperties": RATIO},
)
ABSENT = record({"name": NAME, "absent": NAME})
POINTS = list_of(list_of(NUMBER, minItems=2, maxItems=2), minItems=3)
VALUE = record({**CONTENDER, "value": NUMBER}, error={"type": "number", "minimum": 0}, by=NAME, points=POINTS)


def cells_of(kind):
    """Return the schema of a row's cells: each cell has the schema *kind*, or is absent."""
    return {"properties": {"cells": list_of({"anyOf": [kind, ABSENT]}, minItems=1)}}


SCHEMA = record(
    {
        "version": {"const": bench.VERSION},
        "date": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$"},
        "seconds": {"type": "integer"},
        "quick": {"type": "boolean"},
        "all": {"type": "boolean"},
        "load": list_of({"type": ["number", "null"]}, minItems=2, maxItems=2),
        "machine": members("cpu", "cores", "caches", "memory_gib", "system"),
        "versions": {"type": "object", "additionalProperties": members("python", "numpy")},
        "failures": {"type": "array", "maxItems": 0},
        "targets": list_of(members("row", "at_most", "measured", "verdict", "reason")),
        "rows": list_of(
            {
                **members("id", "section", "label", "shape", "dtype", "unit", "cells"),
                "properties": {"unit": {"enum": ["s", "B", "count", ""]}},
                "if": {"properties": {"unit": {"const": "s"}}},
                "then": cells_of(TIMED),
                "else": cells_of(VALUE),
            }
        ),
    }
)


NEWEST = max(json.loads(path.read_text("utf-8"))["date"] for path in document.result_files())


def run(*options):
    """Run the program, and return its exit status."""
    with mock.patch.object(sys, "argv", ["bench.py", *options]):
        return bench.main()


@pytest.fixture(scope="module")
def quick_report(tmp_path_factory):
    """Return the report of a quick run of all rows."""
    path = tmp_path_factory.mktemp("bench") / "quick.json"
    assert run("--quick", "--all", "--json", str(path)) == 0
    return json.loads(path.read_text("utf-8"))


@pytest.fixture(
    params=[*document.result_files(), pytest.param(None, marks=pytest.mark.slow)], ids=lambda path: path and path.stem
)
def report(request):
    """Return the report in a committed file, or the report of the quick run."""
    return json.loads(request.param.read_text("utf-8")) if request.param else request.getfixturevalue("quick_report")


def test_report_matches_the_schema(report):
    """Each cell has a time with quartiles and positive ratios, a value, or a reason for its absence."""
    jsonschema.validate(report, SCHEMA)


def test_report_has_each_row_once(report):
    """The newest report has all rows, or those that have targets, in the order of the table. Older ones may lack some."""
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


@pytest.mark.slow
def test_quick_run_measures_only_the_selected_rows(tmp_path, capsys):
    """Each row has a line on the terminal, and no target is evaluated."""
    path = tmp_path / "quick.json"
    assert run("--quick", "--json", str(path), "--only", "/global_norm/float32/gpt2") == 0
    report, printed = json.loads(path.read_text("utf-8")), capsys.readouterr().out
    jsonschema.validate(report, SCHEMA)
    assert [row["id"] for row in report["rows"]] == [f"{library}/global_norm/float32/gpt2" for library in ("numpy", "torch")]
    assert report["quick"]
    assert report["targets"] == []
    lines = [line for line in printed.splitlines() if line and line[0].isalpha()]
    assert len(lines) >= len(report["rows"])
    assert max(map(len, printed.splitlines())) <= 130


def test_rows_are_selected_by_pattern(capsys):
    """`--only` matches a part of the id, and accepts wildcards. Without it, the rows that have targets are selected."""
    assert run("--list") == 0
    assert set(capsys.readouterr().out.split()) == {
        spec.id for spec in sections.all_specs() if targets.compared_contenders(spec.id)
    }
    for pattern, count in {"jax/unscale+check/*/gpt2": 3, "growth/": 2, "nothing": 0}.items():
        assert run("--list", "--only", pattern) == 0
        assert len(capsys.readouterr().out.split()) == count, pattern
