"""Conversion of drawn cases to test vectors of spec/vectors."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from ampscale import LossScaleRule

from ..model.bits import DIGITS, arrays, map_tree, tree_from_json, tree_to_json
from ..model.clauses import spec_folder
from ..model.draw import DrawnCase
from ..model.floats import rounded
from ..model.verdicts import Result
from ..oracle import tensors
from ..oracle.machine import trajectory


def vector(id: str, case: DrawnCase, result: Result) -> str:
    """Return a failing case as a test vector in JSON, one member per line. The case must have inputs."""
    members = VECTORS[case.chapter](case.inputs, result)
    catches = f"{_bug(case.chapter, members['clauses'][0])}: {' '.join(result.message.split())}"
    members = {"id": id, "clauses": members.pop("clauses"), "catches": catches, **members}
    text = ",\n".join(f"      {json.dumps(name)}: {json.dumps(value)}" for name, value in members.items())
    return f"    {{\n{text}\n    }}"


def _bug(chapter: str, clause: str) -> str:
    """Return the bug of the first test vector of this clause; without one, the first bug of the chapter."""
    vectors = json.loads((spec_folder() / "vectors" / f"{chapter}.json").read_text("utf-8"))
    names = [case["catches"].partition(":")[0] for case in vectors["cases"] if clause in case["clauses"]]
    return str(names[0] if names else next(iter(vectors["notes"])))


def _trace_members(inputs: Mapping[str, Any], result: Result) -> dict[str, Any]:
    rule = LossScaleRule.from_json(json.dumps(result.calls[0].arguments[0]))  # the argument of create
    points = trajectory(rule, [sign == "+" for sign in inputs["finite"]])
    actual = result.trajectory.got if result.trajectory else []
    differing = (point for scale, point in zip(actual, points, strict=False) if rounded(scale, rule.dtype) != point.scale)
    members = {
        "clauses": list(next(differing, points[-1]).clauses),
        "kind": "trace",
        "rule": dict(_rule_members(rule)),
        "finite": inputs["finite"][: len(points) - 1],
        "scale": [point.scale.hex() for point in points],
    }
    return members | {"raises_at": len(points) - 2} if points[-1].stopped else members


def _rule_members(rule: LossScaleRule) -> Iterator[tuple[str, Any]]:
    """Yield the rule's fields that differ from the defaults, and four that every test vector has."""
    defaults = asdict(LossScaleRule())
    for name, value in asdict(rule).items():
        if value != defaults[name] or name in ("init_scale", "growth_factor", "backoff_factor", "growth_interval"):
            yield name, float(value).hex() if isinstance(defaults[name], float) or isinstance(value, float) else value


def _arithmetic_members(inputs: Mapping[str, Any], result: Result) -> dict[str, Any]:
    method, scale, tree = inputs["method"], inputs["scale"], inputs["tree"]
    dtype = "float32" if method == "unscale" and _widens(result, tree) else None
    output = map_tree(lambda leaf: getattr(tensors, method)(leaf, scale, dtype), tree)
    clause = "SCALING-scale" if method == "scale" else "SCALING-unscale-divides"
    members: dict[str, Any] = {"clauses": [clause], "kind": method, "scale": scale.hex()}
    if [leaf.dtype for leaf in arrays(output)] != [leaf.dtype for leaf in arrays(tree)]:
        members["dtype"] = "float32"
    return members | {"input": tree_to_json(tree), "output": tree_to_json(output)}


def _widens(result: Result, tree: Any) -> bool:
    """Return True if a 16-bit array was returned in float32."""
    got = arrays(tree_from_json(result.calls[-1].result))
    return any(DIGITS[old.dtype] == 4 and new.dtype == "float32" for old, new in zip(arrays(tree), got, strict=False))


def _check_members(inputs: Mapping[str, Any], _: Result) -> dict[str, Any]:
    finite = tensors.all_finite(inputs["tree"])
    return {"clauses": ["OVERFLOW-all-finite"], "kind": "all_finite", "tree": tree_to_json(inputs["tree"]), "finite": finite}


VECTORS = {"machine": _trace_members, "scaling": _arithmetic_members, "overflow": _check_members}
