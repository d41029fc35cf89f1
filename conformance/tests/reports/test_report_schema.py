"""The JSON report has the form that spec/conformance/report.schema.json says, and no other."""

import copy
import json
import operator
from functools import reduce
from pathlib import Path

import jsonschema
from ampscale_conformance import CAPABILITIES
from ampscale_conformance.model.adapter import ARRAYS
from ampscale_conformance.model.methods import OPAQUE
from ampscale_conformance.model.verdicts import Verdict
from reports import made

from ampscale import LossScaleRule

SCHEMA = json.loads((Path(__file__).parents[3] / "spec" / "conformance" / "report.schema.json").read_text("utf-8"))


def errors(report):
    return [f"{error.json_path}: {error.message}" for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(report)]


def objects(schema):
    """Every schema of an object with its own members, wherever it stands."""
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for inner in schema.values():
            yield from objects(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from objects(inner)


def test_the_schema_is_one_and_is_closed():
    """It is a schema of draft 2020-12, and no object in it takes a member that it does not name or describe."""
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    found = list(objects(SCHEMA))
    assert len(found) > 10
    assert all("additionalProperties" in schema for schema in found)


def test_real_reports_have_this_form():
    """Whatever the implementation is and does."""
    for adapter in (
        made.Right(preset=LossScaleRule(hysteresis=2, skip_infinite_growth=False), capabilities=CAPABILITIES),
        made.Right(preset="deepspeed", capabilities=["time travel"]),
        made.Raising(),
        made.Infinite(preset="chainer"),
        made.Fixed(level=0),
    ):
        report = made.said(made.report_of(adapter))
        assert report["results"]
        assert errors(report) == []


def test_the_form_has_every_verdict_and_library():
    """What a result may be and what arrays there are is told in full."""
    assert SCHEMA["$defs"]["verdict"]["enum"] == [str(verdict) for verdict in Verdict]
    assert SCHEMA["$defs"]["implementation"]["properties"]["arrays"]["enum"] == list(ARRAYS)
    assert set(SCHEMA["$defs"]["rule"]["properties"]) == set(json.loads(LossScaleRule().to_json()))
    assert set(SCHEMA["$defs"]["numbered"]["properties"]) == set(OPAQUE)
    assert errors(made.said(made.every_verdict())) == []


WRONG = {
    "format": "a report",
    "version": 2,
    "ok": "yes",
    "date": "2026-01-01",
    "counts/pass": 0,
    "counts/passed": 1,
    "environment/cores": 2,
    "implementation/level": 5,
    "implementation/author": "someone",
    "implementation/arrays": "lists",
    "implementation/preset": {"init_scale": 8.0},
    "results/0/verdict": "skipped",
    "results/0/case": "",
    "results/0/note": "",
    "results/0/reproduced": "no",
    "results/0/seconds": -1,
    "results/0/trajectory/finite": "+-0",
    "results/0/trajectory/got/0": 1024.0,
    "results/0/trajectory/got/1": "0x1p+10",
    "results/0/trajectory/stopped": False,
    "results/0/calls/0/method": "delete everything",
    "results/0/calls/0/seconds": 0.1,
    "results/0/calls/0/result": {"handle": -1},
    "results/0/calls/1/result": {},
    "results/0/calls/2/result": {"handle": 0, "cell": 0},
    "results/0/calls/3/result": 1.5,
    "results/0/calls/0/arguments/0": {"dtype": "float8", "shape": [], "bits": ["00"]},
}


def test_another_form_is_refused():
    """One wrong, missing or additional member is seen."""
    right = made.said(made.report_of(made.Right(level=0)))
    right["results"] = right["results"][:1]
    for path, value in WRONG.items():
        report = copy.deepcopy(right)
        *way, last = [int(step) if step.isdigit() else step for step in path.split("/")]
        place = reduce(operator.getitem, way, report)
        place[last] = value
        assert errors(report), path
    del right["results"][0]["snippet"]
    assert errors(right)
