"""What the random tier has found, as a case of spec/vectors."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ampscale import LossScaleRule

from ..model.bits import tree_to_json
from ..model.clauses import spec_folder
from ..model.floats import rounded
from ..model.verdicts import Result
from ..oracle import tensors
from ..oracle.machine import trajectory
from .random_draws import Drawn, computed


def vector(id: str, drawn: Drawn, result: Result) -> str:
    """
    The case as it stands in spec/vectors, a member a line.

    Args:
        id: What it is called there.
        drawn: The case.
        result: What came of it.
    """
    said = {"machine": _trace, "scaling": _numbers, "overflow": _check}[drawn.chapter](drawn.given, result)
    catches = f"{_fault(drawn.chapter, said['clauses'][0])}: {' '.join(result.message.split())}"
    case = {"id": id, "clauses": said.pop("clauses"), "catches": catches, **said}
    members = ",\n".join(f"      {json.dumps(name)}: {json.dumps(value)}" for name, value in case.items())
    return f"    {{\n{members}\n    }}"


def _fault(chapter: str, clause: str) -> str:
    """The note of the chapter's vectors under which a fault against this clause goes."""
    vectors = json.loads((spec_folder() / "vectors" / f"{chapter}.json").read_text("utf-8"))
    notes = [case["catches"].partition(":")[0] for case in vectors["cases"] if clause in case["clauses"]]
    return str([*notes, *vectors["notes"]][0])


def _trace(given: dict[str, Any], result: Result) -> dict[str, Any]:
    rule = LossScaleRule.from_json(json.dumps(result.calls[0].arguments[0]))  # as it was created
    points = trajectory(rule, [sign == "+" for sign in given["finite"]])
    got = result.trajectory.got if result.trajectory else []
    apart = [point for scale, point in zip(got, points, strict=False) if rounded(scale, rule.dtype) != point.scale]
    stop = {"raises_at": len(points) - 2} if points[-1].stopped else {}
    return {
        "clauses": [*[*apart, points[-1]][0].clauses],
        "kind": "trace",
        "rule": dict(_members(rule)),
        "finite": given["finite"][: len(points) - 1],
        "scale": [point.scale.hex() for point in points],
        **stop,
    }


def _members(rule: LossScaleRule) -> Iterator[tuple[str, Any]]:
    """What sets the rule apart from the defaults, and the constants that every one has."""
    usual = asdict(LossScaleRule())
    for name, value in asdict(rule).items():
        if value != usual[name] or name in ("init_scale", "growth_factor", "backoff_factor", "growth_interval"):
            yield name, float(value).hex() if isinstance(usual[name], float) or isinstance(value, float) else value


def _numbers(given: dict[str, Any], result: Result) -> dict[str, Any]:
    method, scale, tree = given["method"], given["scale"], given["tree"]
    came = "float32" if method == "unscale" and _came_as_float32(result) else None
    output = [computed(method, leaf, scale, came) for leaf in tree]
    return {
        "clauses": ["SCALING-scale" if method == "scale" else "SCALING-unscale-divides"],
        "kind": method,
        "scale": scale.hex(),
        **({} if [leaf.dtype for leaf in output] == [leaf.dtype for leaf in tree] else {"dtype": "float32"}),
        "input": tree_to_json(tree),
        "output": tree_to_json(output),
    }


def _came_as_float32(result: Result) -> bool:
    came = result.calls[-1].result
    return isinstance(came, list) and all(isinstance(leaf, dict) and leaf.get("dtype") == "float32" for leaf in came)


def _check(given: dict[str, Any], _: Result) -> dict[str, Any]:
    tree = given["tree"]
    return {
        "clauses": ["OVERFLOW-all-finite"],
        "kind": "all_finite",
        "tree": tree_to_json(tree),
        "finite": tensors.all_finite(tree),
    }
