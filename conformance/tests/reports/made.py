"""Implementations, right and wrong, and the reports that the suite makes on them."""

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
COMMITTED = [page for folder in ("docs", "conformance/docs") for page in (REPOSITORY / folder).rglob("*.html")]
HOSTILE = "<img src=x onerror=alert(1)>"


class Right:
    """The machine itself, as an adapter."""

    def __init__(self, name="right", preset="torch", level=1, capabilities=(), **said):
        self.info = ImplementationInfo(name=name, version="1.0", preset=preset, level=level, capabilities=capabilities, **said)

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


class Late(Right):
    """Its windows are one step too long."""

    def create(self, rule, **_):
        return super().create(replace(rule, growth_interval=rule.growth_interval + 1))


class Raising(Right):
    """It raises at every finite step, with words that XML and HTML have to be guarded from."""

    def update(self, handle, finite):
        raise RuntimeError("no <update> & no ]]> here: \x00\x1b[31m \ud800 `````` |</script><!--")


class Infinite(Right):
    """Every overflow leaves an infinite scale."""

    def update(self, handle, finite):
        after = super().update(handle, finite)
        state = after["state"]
        return after if finite else {**after, "state": state._replace(scale=np.float32("inf") + state.scale)}


class Fixed(Right):
    """It has nothing to set."""

    def create(self, rule, **_):
        raise Unsupported("its constants are fixed")


def walk(id: str, clause: str, signs: str, *needs: str, **settings: Any) -> Case:
    """A case that walks a scaler along *signs*, one "+" (finite) or "-" (overflow) a step."""
    run = partial(_walk, signs=signs, settings=settings)
    return Case(id, clause, 0, "off by one: a window is longer or shorter than its interval", run, frozenset(needs))


def _walk(subject, signs, settings):
    rule = subject.rule(**settings)
    wanted = trajectory(rule, [sign == "+" for sign in signs])
    handle = subject.create(rule)
    got = [subject.read_scale(handle)]
    subject.trajectory = Trajectory(signs, [point.scale for point in wanted], got)
    for step, (sign, point) in enumerate(zip(signs, wanted[1:], strict=False), start=1):
        if point.stopped:
            return subject.expect(subject.raises("update", handle, sign == "+"), f"step {step}: expected it to give up")
        handle = subject.update(handle, sign == "+")
        got.append(subject.read_scale(handle))
        subject.expect(got[-1] == point.scale, f"after step {step}: expected {point.scale}, got {got[-1]}")
    return None


def _trees(subject):
    tree = {
        "weights": [array("float16", [1.5, -0.0, 6e-8]), array("bfloat16", [3.0])],
        "bias": (array("float32", [0.1, np.inf]),),
    }
    handle = subject.create(subject.rule(init_scale=2.0**3))
    subject.scale(handle, tree)
    subject.expect(not subject.all_finite(tree), "expected False of a tree with an infinity, got True")


TREES = Case("trees-are-scaled", "SCALING-scale", 1, "shape: a leaf is lost", _trees)
WALKS = tuple(
    walk(f"walks-{''.join('g' if sign == '+' else 'o' for sign in signs)}", clause, "".join(signs), growth_interval=2)
    for signs, clause in zip(product("+-", repeat=4), [known for known in clauses() if known.startswith("MACHINE")], strict=False)
)


def report_of(adapter: Any, cases=(*WALKS, TREES)) -> Report:
    """The suite's report; small cases unless others are given."""
    return check(adapter, cases=cases)


def said(report: Report) -> dict[str, Any]:
    """Its JSON object."""
    return json.loads(report.to_json())


def every_verdict(**members: Any) -> Report:
    """One result of each verdict, all of them with something to say."""
    results = [
        Result("MACHINE-backoff", f"case-{verdict}", verdict, f"what {verdict} says", number % 5, "late: one step", **members)
        for number, verdict in enumerate(Verdict)
    ]
    return Report(ImplementationInfo(name="every", version="2"), tuple(results), {"python": "3.11"})


def many() -> list[dict[str, Any]]:
    """
    Reports on thirty implementations and 130 cases, with every transcript; some are wrong, and one is expected to be.

    Each six have the same answers, for the sake of time.
    """
    known = [clause for clause in clauses() if not clause.startswith("PRESETS")]
    asked = []
    for number, signs in zip(range(130), product("+-", repeat=8), strict=False):
        needs = ["resume"] if number % 9 == 4 else []
        name, clause = f"walks-{number:03d}-in-eight-steps", known[number % len(known)]
        asked.append(walk(name, clause, "".join(signs), *needs, growth_interval=1 + number % 4))
    kinds = zip([Right, Infinite, Late] * 2, [[], ["resume"]] * 3, sorted(PRESETS), strict=False)
    reports = [
        report_of(kind(f"{name}-scaler", name, 1, claims, url="https://example.org"), asked) for kind, claims, name in kinds
    ]
    six = [said(report) for report in reports]
    for result in six[-1]["results"]:
        result["verdict"] = result["verdict"].replace("fail", "xfail")
    return [one | {"implementation": one["implementation"] | {"version": str(place)}} for place, one in enumerate(six * 5)]
