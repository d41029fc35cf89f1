"""A quick run of the whole table: every row is there, its numbers are numbers, and what targets and reasons name exists."""

import json
import subprocess
import sys
from pathlib import Path

import bench
import jsonschema
import pytest
import sections
import targets

ROOT = Path(__file__).parents[2]
RATIO = {
    "type": "object",
    "properties": {
        "ratio": {"type": "number", "exclusiveMinimum": 0},
        "quartiles": {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}, "minItems": 2, "maxItems": 2},
    },
    "required": ["ratio", "quartiles"],
    "additionalProperties": False,
}
NAME = {"type": "string", "minLength": 1}
KIND = {"enum": ["ours", "rival", "floor"]}
TIMED = {
    "type": "object",
    "properties": {
        "name": NAME,
        "kind": KIND,
        "median": {"type": "number", "exclusiveMinimum": 0},
        "quartiles": RATIO["properties"]["quartiles"],
        "samples": {"type": "integer", "minimum": 1},
        "over_floor": RATIO,
        "over": {"type": "object", "additionalProperties": RATIO},
    },
    "required": ["name", "kind", "median", "quartiles", "samples"],
    "additionalProperties": False,
}
ABSENT = {
    "type": "object",
    "properties": {"name": NAME, "absent": NAME},
    "required": ["name", "absent"],
    "additionalProperties": False,
}
VALUE = {
    "type": "object",
    "properties": {
        "name": NAME,
        "kind": KIND,
        "value": {"type": "number"},
        "error": {"type": "number", "minimum": 0},
        "by": NAME,
        "points": {"type": "array", "minItems": 3, "items": {"type": "array", "minItems": 2, "maxItems": 2}},
    },
    "required": ["name", "kind", "value"],
    "additionalProperties": False,
}
SCHEMA = {
    "type": "object",
    "properties": {
        "version": {"const": bench.VERSION},
        "date": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$"},
        "seconds": {"type": "integer"},
        "quick": {"type": "boolean"},
        "machine": {"type": "object", "required": ["cpu", "cores", "caches", "memory_gib", "system"]},
        "versions": {"type": "object", "additionalProperties": {"type": "object", "required": ["python", "numpy"]}},
        "failures": {"type": "array", "maxItems": 0},
        "targets": {
            "type": "array",
            "items": {"type": "object", "required": ["row", "at_most", "measured", "verdict", "reason"]},
        },
        "rows": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"unit": {"enum": ["s", "B", "count", ""]}, "cells": {"type": "array", "minItems": 1}},
                "required": ["id", "section", "what", "shape", "dtype", "unit", "cells"],
                "if": {"properties": {"unit": {"const": "s"}}},
                "then": {"properties": {"cells": {"items": {"anyOf": [TIMED, ABSENT]}}}},
                "else": {"properties": {"cells": {"items": {"anyOf": [VALUE, ABSENT]}}}},
            },
        },
    },
    "required": ["version", "date", "seconds", "quick", "machine", "versions", "failures", "targets", "rows"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The file of a quick run."""
    path = tmp_path_factory.mktemp("bench") / "quick.json"
    command = [sys.executable, "benchmarks/bench.py", "--quick", "--json", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return {**json.loads(path.read_text("utf-8")), "printed": done.stdout}


def test_the_file_has_the_form_that_it_is_said_to_have(report):
    """Times with quartiles and positive ratios; values; or why there is none."""
    jsonschema.validate({key: value for key, value in report.items() if key != "printed"}, SCHEMA)
    assert report["quick"]


def test_every_row_is_there_once(report):
    """In the order of the table, and each has a line on the terminal."""
    ids = [spec.id for spec in sections.all_specs()]
    assert [row["id"] for row in report["rows"]] == ids
    assert len(set(ids)) == len(ids)
    lines = [line for line in report["printed"].splitlines() if line and line[0].isalpha()]
    assert len(lines) >= len(ids)
    assert max(map(len, report["printed"].splitlines())) <= 130


def test_ours_comes_first_and_has_its_ratio_to_every_other(report):
    """And to the floor, where the row has one."""
    for row in report["rows"]:
        first, *others = row["cells"]
        assert first["name"].startswith("ampscale"), row["id"]
        assert first["kind"] == "ours"
        if row["unit"] == "s":
            assert set(first["over"]) == {cell["name"] for cell in others if "absent" not in cell}
            assert ("over_floor" in first) == any(cell.get("kind") == "floor" for cell in others)


def test_the_rows_of_verbs_have_a_floor(report):
    """All but those of the update and of the scaler's part alone."""
    without = {
        row["id"].partition("/")[0] for row in report["rows"] if row["unit"] == "s" and "over_floor" not in row["cells"][0]
    }
    assert without == {"update", "step-overhead"}


def test_the_rows_that_the_table_must_have_are_there():
    """On NumPy and torch each verb on each dtype and shape, but for 16 bits in the largest; on JAX each verb, and each dtype."""
    ids = {spec.id for spec in sections.all_specs()}
    verbs = ("unscale+check", "unscale+check+norm", "unscale+check+norm+clip", "all_finite", "global_norm")
    shapes = ("1x100M", "100x1M", "10000x1000", "100x1000", "1x10", "resnet50", "gpt2")
    dtypes = ("float32", "float16", "bfloat16")
    for backend in ("numpy", "torch"):
        assert ids >= {f"{backend}/{verb}/float32/{shape}" for verb in verbs for shape in shapes}
        assert ids >= {f"{backend}/{verbs[0]}/{dtype}/{shape}" for dtype in dtypes for shape in shapes}
        assert ids >= {f"{backend}/{v}/{d}/{s}" for v in verbs for d in dtypes for s in shapes if s not in ("1x100M", "gpt2")}
    assert ids >= {f"jax/{verb}/float32/100x1M" for verb in verbs} | {f"jax/{verbs[1]}/float32/{shape}" for shape in shapes} | {
        f"jax/{verbs[0]}/{d}/{s}" for d in dtypes for s in shapes
    }
    assert ids >= {f"{b}/{verbs[0]}/float32/100x1M/scale49" for b in ("numpy", "torch", "jax")}
    assert ids >= {f"update/{b}" for b in ("numpy", "torch", "jax")} | {"growth/elements", "growth/tensors"}
    assert ids >= {f"{what}/{b}" for b in ("numpy", "torch", "jax") for what in ("launches", "host-reads")}
    assert ids >= {"step/100x1000", "step/mlp", "step-overhead/100x1000", "step-overhead/mlp"}
    assert ids >= {f"memory/{b}/unscale+check/float32" for b in ("numpy", "torch", "jax")}


def test_every_target_binds_a_row_and_names_contenders_of_it(report):
    """So that none is passed by being misspelt; a rival that cannot be measured on one row can be on another of the pattern."""
    for target in targets.TARGETS:
        bound = list(targets.bound(target, report["rows"]))
        assert bound, target.rows
        for row in bound:
            names = {cell["name"] for cell in row["cells"]} | {targets.FLOOR}
            assert {target.of, target.over or target.of} <= names, (target.rows, row["id"])
        assert any(targets.verdict(target, row)["measured"] is not None for row in bound), target.rows


def test_a_quick_run_judges_nothing(report):
    """Its numbers say that it runs, and no more."""
    assert report["targets"] == []


def test_host_reads_and_launches_are_counted(report):
    """Each scaler reads once in a step of an ordinary optimizer, torch's and ours; jitted, all is one program without a read."""
    values = {row["id"]: {cell["name"]: cell.get("value") for cell in row["cells"]} for row in report["rows"]}
    assert values["host-reads/torch"] == {"ampscale, the verbs": 0, "ampscale, the scaler": 1, "torch.amp, the scaler": 1}
    assert values["launches/jax"]["ampscale, jitted"] == 1
    assert values["host-reads/jax"]["ampscale, jitted"] == 0
    assert all(
        value > 0
        for name, cells in values.items()
        if name.startswith("launches")
        for value in cells.values()
        if value is not None
    )


def test_rows_can_be_chosen():
    """By a part of their id, with wildcards; those of no match are none."""
    command = [sys.executable, "benchmarks/bench.py", "--list", "--only"]
    for pattern, count in {"jax/unscale+check/*/gpt2": 3, "growth/": 2, "nothing": 0}.items():
        printed = subprocess.run([*command, pattern], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert len(printed.split()) == count, pattern
