"""Conforming and faulty implementations, and the suite's reports on them."""

import json
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from ampscale_conformance import ImplementationInfo, Report, Result, Unsupported, Verdict, check
from ampscale_conformance.model.case import Case
from ampscale_conformance.model.clauses import clauses
from ampscale_conformance.model.verdicts import Trajectory
from ampscale_conformance.oracle.machine import trajectory
from ampscale_conformance.oracle.tensors import array

import ampscale
from ampscale.presets import PRESETS

SNIPPET = "scale = 1024.0\nprint(scale * 2)  # <&>\n"
REPOSITORY = Path(__file__).parents[3]
COMMITTED = [page for folder in ("docs", "conformance/docs") for page in (REPOSITORY / folder).glob("*.html")]
HOSTILE = "<img src=x onerror=alert(1)>"


class Conforming:
    """Adapter of ampscale's own rule and functions."""

    def __init__(self, name="conforming", preset="torch", level=1, capabilities=("float16",), **members):
        self.info = ImplementationInfo(name=name, version="1.0", preset=preset, level=level, capabilities=capabilities, **members)

    def create(self, rule, **_):
        return {"rule": rule, "state": rule.init()}

    def update(self, handle, finite):
        rule, state = handle["rule"], handle["state"]
        if (rule.raise_at_min_scale or rule.raise_at_or_below is not None) and rule.would_raise(state, finite):
            raise FloatingPointError("the scale is at its minimum")
        return {"rule": rule, "state": rule.update(state, finite)}

    def read_scale(self, handle):
        return float(handle["state"].scale)

    def scale(self, handle, tree):
        return ampscale.scale(tree, handle["state"].scale)

    def unscale(self, handle, tree):
        return ampscale.unscale(tree, handle["state"].scale)

    def all_finite(self, tree):
        return bool(ampscale.all_finite(tree))


class Late(Conforming):
    """Implementation whose growth windows are one step too long."""

    def create(self, rule, **_):
        return super().create(replace(rule, growth_interval=rule.growth_interval + 1))


class Raising(Conforming):
    """Implementation that raises an error at every update, with text that XML and HTML must escape."""

    def update(self, handle, finite):
        raise RuntimeError("no <update> & no ]]> here: \x00\x1b[31m \ud800 `````` |</script><!--")


class Infinite(Conforming):
    """Implementation whose scale is infinite after an overflow."""

    def update(self, handle, finite):
        new_handle = super().update(handle, finite)
        state = new_handle["state"]
        return new_handle if finite else {**new_handle, "state": state._replace(scale=np.float32("inf") + state.scale)}


class Fixed(Conforming):
    """Implementation whose constants cannot be set."""

    def create(self, rule, **_):
        raise Unsupported("its constants are fixed")


def trace_case(id: str, clause: str, signs: str, *needs: str, **settings: Any) -> Case:
    """Return a case that updates a scaler along *signs*, with one "+" (finite) or "-" (overflow) for each step."""
    run = partial(_run, signs=signs, settings=settings)
    return Case(id, clause, 0, "off by one: a window is longer or shorter than its interval", run, frozenset(needs))


def _run(subject, signs, settings):
    """Update a scaler along *signs*, and compare its scale after each step, up to an error of the published scaler."""
    rule = subject.rule(**settings)
    expected = trajectory(rule, [sign == "+" for sign in signs])
    handle = subject.create(rule)
    actual = [subject.read_scale(handle)]
    subject.trajectory = Trajectory(signs, [point.scale for point in expected], actual)
    for step, (sign, point) in enumerate(zip(signs, expected[1:], strict=False), start=1):
        if point.stopped:
            subject.expect(subject.raises("update", handle, sign == "+"), f"step {step}: expected an error, got none")
            return
        handle = subject.update(handle, sign == "+")
        actual.append(subject.read_scale(handle))
        subject.expect(actual[-1] == point.scale, f"after step {step}: expected {point.scale}, got {actual[-1]}")


def _trees(subject):
    """Scale and check a tree with arrays of three dtypes and an infinity."""
    tree = {
        "weights": [array("float16", [1.5, -0.0, 6e-8]), array("bfloat16", [3.0])],
        "bias": (array("float32", [0.1, np.inf]),),
    }
    handle = subject.create(subject.rule(init_scale=2.0**3))
    subject.scaled("scale", handle, tree)
    subject.expect(not subject.all_finite(tree), "expected False of a tree with an infinity, got True")


TREES = Case("trees-are-scaled", "SCALING-scale", 1, "shape: a leaf is lost", _trees)
MACHINE_CLAUSES = [clause for clause in clauses() if clause.startswith("MACHINE")]
CASES = tuple(
    trace_case("trace-" + "".join(signs).translate({ord("+"): "g", ord("-"): "o"}), clause, "".join(signs), growth_interval=2)
    for signs, clause in zip(product("+-", repeat=4), MACHINE_CLAUSES, strict=False)
)


def report_of(adapter: Any, cases=(*CASES, TREES)) -> Report:
    """Return the report of a run, by default of a few small cases."""
    return check(adapter, cases=cases)


def to_dict(report: Report) -> dict[str, Any]:
    """Return the JSON object of a report."""
    return json.loads(report.to_json())


def report_dict(adapter: Any) -> dict[str, Any]:
    """Return the JSON object of the report of a few small cases."""
    return to_dict(report_of(adapter))


def every_verdict(**members: Any) -> Report:
    """Return a report with one result of each verdict."""
    results = [
        Result("MACHINE-backoff", f"case-{verdict}", verdict, f"message of {verdict}", number % 5, "late: one step", **members)
        for number, verdict in enumerate(Verdict)
    ]
    return Report(ImplementationInfo(name="every", version="2"), tuple(results), {"python": "3.11"})


def thirty_reports() -> list[dict[str, Any]]:
    """
    Return reports on thirty implementations and 130 cases, as JSON objects with transcripts. Some implementations fail cases.

    To save time, six reports are repeated five times. All failures in the last of the six are expected.
    """
    clause_ids = [clause for clause in clauses() if not clause.startswith("PRESETS")]
    cases = []
    for number, signs in zip(range(130), product("+-", repeat=8), strict=False):
        needs = ["resume"] if number % 9 == 4 else []
        name = f"trace-{number:03d}-in-eight-steps"
        clause = clause_ids[number % len(clause_ids)]
        cases.append(trace_case(name, clause, "".join(signs), *needs, growth_interval=1 + number % 4))
    adapters = zip([Conforming, Infinite, Late] * 2, [[], ["resume"]] * 3, sorted(PRESETS), strict=False)
    reports = [
        report_of(adapter(f"{name}-scaler", name, 1, capabilities, url="https://example.org"), cases)
        for adapter, capabilities, name in adapters
    ]
    report_dicts = [to_dict(report) for report in reports]
    for result in report_dicts[-1]["results"]:
        result["verdict"] = result["verdict"].replace("fail", "xfail")
    versions = [{"version": str(index)} for index in range(30)]
    return [
        report | {"implementation": report["implementation"] | version}
        for report, version in zip(report_dicts * 5, versions, strict=True)
    ]
