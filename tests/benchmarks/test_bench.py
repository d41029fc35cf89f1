"""The file of a run: every row is there, its numbers are numbers, and what targets and reasons name exists."""

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
    """An object that has these members, perhaps some more of these, and no others."""
    return {"type": "object", "properties": required | optional, "required": [*required], "additionalProperties": False}


def members(*names):
    """An object that has these members, among others."""
    return {"type": "object", "required": [*names]}


def each(items, **limits):
    """An array of such items."""
    return {"type": "array", "items": items, **limits}


NUMBER, POSITIVE = {"type": "number"}, {"type": "number", "exclusiveMinimum": 0}
NAME = {"type": "string", "minLength": 1}
CONTENDER = {"name": NAME, "kind": {"enum": ["ours", "rival", "floor"]}}
QUARTILES = each(POSITIVE, minItems=2, maxItems=2)
RATIO = record({"ratio": POSITIVE, "quartiles": QUARTILES})
TIMED = record(
    {**CONTENDER, "median": POSITIVE, "quartiles": QUARTILES, "samples": {"type": "integer", "minimum": 1}},
    over_floor=RATIO,
    over={"type": "object", "additionalProperties": RATIO},
)
ABSENT = record({"name": NAME, "absent": NAME})
POINTS = each(each(NUMBER, minItems=2, maxItems=2), minItems=3)
VALUE = record({**CONTENDER, "value": NUMBER}, error={"type": "number", "minimum": 0}, by=NAME, points=POINTS)


def cells_of(kind):
    return {"properties": {"cells": each({"anyOf": [kind, ABSENT]}, minItems=1)}}


SCHEMA = record(
    {
        "version": {"const": bench.VERSION},
        "date": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$"},
        "seconds": {"type": "integer"},
        "quick": {"type": "boolean"},
        "machine": members("cpu", "cores", "caches", "memory_gib", "system"),
        "versions": {"type": "object", "additionalProperties": members("python", "numpy")},
        "failures": {"type": "array", "maxItems": 0},
        "targets": each(members("row", "at_most", "measured", "verdict", "reason")),
        "rows": each(
            {
                **members("id", "section", "what", "shape", "dtype", "unit", "cells"),
                "properties": {"unit": {"enum": ["s", "B", "count", ""]}},
                "if": {"properties": {"unit": {"const": "s"}}},
                "then": cells_of(TIMED),
                "else": cells_of(VALUE),
            }
        ),
    }
)


def run(*options):
    """The exit status of the program."""
    with mock.patch.object(sys, "argv", ["bench.py", *options]):
        return bench.main()


@pytest.fixture(scope="module", params=["committed", pytest.param("quick", marks=pytest.mark.slow)])
def report(request, tmp_path_factory):
    """The committed file of a whole run, or that of a quick run of all rows."""
    if request.param == "committed":
        return json.loads(document.SHOWN.read_text("utf-8"))
    path = tmp_path_factory.mktemp("bench") / "quick.json"
    assert run("--quick", "--json", str(path)) == 0
    return json.loads(path.read_text("utf-8"))


def test_the_file_has_the_form_that_it_is_said_to_have(report):
    """Times with quartiles and positive ratios; values; or why there is none."""
    jsonschema.validate(report, SCHEMA)


def test_every_row_is_there_once(report):
    """In the order of the table."""
    ids = [spec.id for spec in sections.all_specs()]
    assert [row["id"] for row in report["rows"]] == ids
    assert len(set(ids)) == len(ids)


def test_ours_comes_first_and_has_its_ratio_to_every_other(report):
    """And to the floor, where the row has one: all but those of the update and of the scaler's part alone."""
    without_floor = set()
    for row in report["rows"]:
        first, *others = row["cells"]
        assert first["name"].startswith("ampscale"), row["id"]
        assert first["kind"] == "ours"
        if row["unit"] == "s":
            assert set(first["over"]) == {cell["name"] for cell in others if "absent" not in cell}
            assert ("over_floor" in first) == any(cell.get("kind") == "floor" for cell in others)
            if "over_floor" not in first:
                without_floor.add(row["id"].partition("/")[0])
    assert without_floor == {"update", "step-overhead"}


def test_every_target_binds_a_row_and_names_contenders_of_it(report):
    """So that none is passed by being misspelt; a rival that cannot be measured on one row can be on another of the pattern."""
    for target in targets.TARGETS:
        bound = list(targets.bound(target, report["rows"]))
        assert bound, target.rows
        for row in bound:
            names = {cell["name"] for cell in row["cells"]} | {targets.FLOOR}
            assert {target.of, target.over or target.of} <= names, (target.rows, row["id"])
        assert any(targets.verdict(target, row)["measured"] is not None for row in bound), target.rows


def test_host_reads_and_launches_are_counted(report):
    """Each scaler reads once in a step of an ordinary optimizer, torch's and ours; jitted, all is one program without a read."""
    values = {row["id"]: {cell["name"]: cell.get("value") for cell in row["cells"]} for row in report["rows"]}
    assert values["host-reads/torch"] == {"ampscale, the verbs": 0, "ampscale, the scaler": 1, "torch.amp, the scaler": 1}
    assert values["launches/jax"]["ampscale, jitted"] == 1
    assert values["host-reads/jax"]["ampscale, jitted"] == 0
    launches = [cells.values() for name, cells in values.items() if name.startswith("launches")]
    assert all(value > 0 for cells in launches for value in cells if value is not None)


def test_a_quick_run_of_chosen_rows_has_no_others_and_judges_nothing(tmp_path, capsys):
    """Each has a line on the terminal; its numbers say that it runs, and no more."""
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


def test_rows_can_be_chosen(capsys):
    """By a part of their id, with wildcards; those of no match are none."""
    for pattern, count in {"jax/unscale+check/*/gpt2": 3, "growth/": 2, "nothing": 0}.items():
        assert run("--list", "--only", pattern) == 0
        assert len(capsys.readouterr().out.split()) == count, pattern
