"""JSON reports conform to spec/conformance/report.schema.json, which rejects other members and values."""

import copy
import json
import operator
from functools import reduce
from pathlib import Path

import jsonschema
from ampscale_conformance import CAPABILITIES
from ampscale_conformance.model.adapter import ARRAYS, OPAQUE
from ampscale_conformance.model.verdicts import Verdict
from reports import samples

from ampscale import LossScaleRule

SCHEMA = json.loads((Path(__file__).parents[3] / "spec" / "conformance" / "report.schema.json").read_text("utf-8"))


def errors(report):
    return [f"{error.json_path}: {error.message}" for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(report)]


def objects(schema):
    """Yield every schema of an object with members."""
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for inner in schema.values():
            yield from objects(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from objects(inner)


def test_the_schema_is_valid_and_closed():
    """The schema is one of draft 2020-12. Every object rejects additional properties or restricts their values."""
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    schemas = list(objects(SCHEMA))
    assert len(schemas) > 10
    assert not any(schema.get("additionalProperties", True) in (True, {}) for schema in schemas)


def test_real_reports_are_valid():
    """The reports have errors, unsupported cases and unknown capabilities."""
    for adapter in (
        samples.Conforming(preset=LossScaleRule(hysteresis=2, skip_infinite_growth=False), capabilities=CAPABILITIES),
        samples.Conforming(preset="deepspeed", capabilities=["time travel"]),
        samples.Raising(),
        samples.Infinite(preset="chainer"),
        samples.Fixed(level=0),
    ):
        report = samples.report_dict(adapter)
        assert report["results"]
        assert errors(report) == []


def test_the_schema_lists_every_verdict_and_library():
    """The fields of a rule and the kinds of handles are listed, too."""
    assert SCHEMA["$defs"]["verdict"]["enum"] == [str(verdict) for verdict in Verdict]
    assert SCHEMA["$defs"]["implementation"]["properties"]["arrays"]["enum"] == list(ARRAYS)
    assert set(SCHEMA["$defs"]["rule"]["properties"]) == set(json.loads(LossScaleRule().to_json()))
    assert set(SCHEMA["$defs"]["numbered"]["properties"]) == set(OPAQUE)


def test_a_report_with_every_verdict_conforms_to_the_schema():
    assert errors(samples.to_dict(samples.every_verdict())) == []


INVALID = {
    "format": "a report",
    "version": 2,
    "ok": "yes",
    "date": "2026-01-01",
    "counts/pass": 0,
    "counts/passed": 1,
    "environment/cores": 2,
    "implementation/level": 6,
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


def test_invalid_reports_are_rejected():
    """One member is wrong, missing or additional."""
    valid = samples.report_dict(samples.Conforming(level=0))
    valid["results"] = valid["results"][:1]
    for path, value in INVALID.items():
        report = copy.deepcopy(valid)
        *parents, last = [int(step) if step.isdigit() else step for step in path.split("/")]
        parent = reduce(operator.getitem, parents, report)
        parent[last] = value
        assert errors(report), path
    del valid["results"][0]["snippet"]
    assert errors(valid)
