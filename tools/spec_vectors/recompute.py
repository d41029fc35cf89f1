"""Recomputation of a vector's expected values from its inputs with the oracle: one function for each kind of vector."""

from collections.abc import Callable, Mapping
from typing import Any

from ampscale_conformance.model.bits import Bits, arrays, map_tree, tree_from_json, tree_to_json
from ampscale_conformance.oracle.calls import Loop, Rejected
from ampscale_conformance.oracle.machine import Constants, Machine
from ampscale_conformance.oracle.norms import clip, global_norm, local_norms, norm_dtype
from ampscale_conformance.oracle.tensors import all_finite, array, scale, unscale

from . import replicas, statistics
from .cells import outputs_of
from .encoding import arguments, number, rule, scalar
from .profiles import constants

Case = Mapping[str, Any]

# These vectors state whether a call raises an error, which is a decision of the specification, not the result of a computation.
DECISIONS = frozenset(["error"])


def recomputed(chapter: str, case: Case) -> dict[str, Any]:
    """
    Return the members of a vector that are expected results, computed by the oracle; None for a member that must be absent.

    Args:
        chapter: Chapter of the vector's file.
        case: The vector. Its expectations only select which outputs are returned.

    Raises:
        ValueError: The kind of the vector is unknown.
    """
    if case["kind"] not in KINDS:
        raise ValueError(f"kind must be one of {sorted(KINDS)}, got {case['kind']!r}")
    return KINDS[case["kind"]](chapter, case)


def _trace(chapter: str, case: Case) -> dict[str, Any]:
    has_rule = "rule" in case
    scaler = rule(case["rule"]) if has_rule else constants(chapter, case["class"], arguments(case["arguments"]))
    scales, raises_at = _scales(scaler, [sign == "+" for sign in case["finite"]])
    return {"scale": scales, "raises_at": raises_at} if has_rule else {"scale": scales}


def _scales(scaler: Constants, finite: list[bool]) -> tuple[list[str], int | None]:
    """Return the scales of a run, and the first step in which the published scaler raises an error; None if there is none."""
    machine = Machine(scaler)
    points = [machine.point, *(machine.step(flag) for flag in finite)]
    raises_at = next((step for step, point in enumerate(points[1:]) if point.stopped), None)
    return [point.scale.hex() for point in points], raises_at


def _scale(chapter: str, case: Case) -> dict[str, Any]:
    dtype = "float32" if chapter == "paddle" else None  # PADDLE-scale-dtype
    return {"output": _on_leaves(lambda leaf: scale(leaf, number(case["scale"]), dtype), case["input"])}


def _unscale(_: str, case: Case) -> dict[str, Any]:
    return {"output": _on_leaves(lambda leaf: unscale(leaf, number(case["scale"]), case.get("dtype")), case["input"])}


def _all_finite(_: str, case: Case) -> dict[str, Any]:
    return {"finite": all_finite(tree_from_json(case["tree"]))}


def _check(chapter: str, case: Case) -> dict[str, Any]:
    output = _unscale(chapter, case)["output"]
    finite = all_finite(tree_from_json(case["input"])) and all_finite(tree_from_json(output))
    return _selected({"finite": finite, "output": output}, case)


def _global_norm(_: str, case: Case) -> dict[str, Any]:
    tree = tree_from_json(case["input"])
    return {"norm": scalar(global_norm(tree), norm_dtype(tree))}


def _local_norms(_: str, case: Case) -> dict[str, Any]:
    tree = tree_from_json(case["input"])
    norms = array(norm_dtype(tree), local_norms(tree))
    sizes = array("int64", [len(leaf.bits) for leaf in arrays(tree)])
    return {"norm": norms.to_json(), "sizes": sizes.to_json()}


def _clip(_: str, case: Case) -> dict[str, Any]:
    tree = tree_from_json(case["input"])
    clipped, norm = clip(tree, number(case["max_norm"]))
    return {"output": tree_to_json(clipped), "norm": scalar(norm, norm_dtype(tree))}


def _measure(_: str, case: Case) -> dict[str, Any]:
    counts = [count for leaf in arrays(tree_from_json(case["tree"])) for count in statistics.statistics(leaf)]
    computed: dict[str, Any] = {"statistics": array("int32", counts, (len(counts) // 8, 8)).to_json()}
    if "scale" in case:
        unscaled = _on_leaves(lambda leaf: unscale(leaf, number(case["scale"])), case["tree"])
        computed["finite"] = all_finite(tree_from_json(case["tree"])) and all_finite(tree_from_json(unscaled))
    return computed


def _histogram(_: str, case: Case) -> dict[str, Any]:
    return {"counts": [statistics.histogram(leaf) for leaf in arrays(tree_from_json(case["tree"]))]}


def _step(chapter: str, case: Case) -> dict[str, Any]:
    computed = outputs_of(chapter, case)
    return {"expect": [_selected(outputs, expected) for outputs, expected in zip(computed, case["expect"], strict=True)]}


def _replicas(_: str, case: Case) -> dict[str, Any]:
    if "gradients" in case:
        return _averaged(case)
    agreed = [all(step_flags) for step_flags in case["flags"]]
    computed: dict[str, Any] = {"finite": "".join("+" if finite else "-" for finite in agreed)}
    if "rule" in case:
        computed["scale"] = _scales(rule(case["rule"]), agreed)[0]
    return computed


def _averaged(case: Case) -> dict[str, Any]:
    mean = replicas.mean([tree_from_json(leaves) for leaves in case["gradients"]])
    unscaled = [unscale(leaf, number(case["scale"])) for leaf in mean]
    outputs = {
        "finite": all_finite(mean) and all_finite(unscaled),
        "output": tree_to_json(unscaled),
        "norm": scalar(global_norm(unscaled), norm_dtype(unscaled)),
    }
    return _selected(outputs, case)


def _calls(_: str, case: Case) -> dict[str, Any]:
    optimizers = {name: tree_from_json(parameters) for name, parameters in case["optimizers"].items()}
    loop = Loop(rule(case["rule"]), optimizers)
    return {"calls": [_call(loop, call) for call in case["calls"]]}


def _call(loop: Loop, call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call with its computed results instead of the expected ones."""
    if call["call"] == "set_gradients":
        loop.set_gradients(call["optimizer"], tree_from_json(call["gradients"]))
        return dict(call)
    methods: dict[str, Callable[..., bool | None]] = {"unscale_": loop.unscale_, "step": loop.step, "update": loop.update}
    arguments = [call["optimizer"]] if "optimizer" in call else []
    try:
        applied, result = methods[call["call"]](*arguments), "ok"
    except Rejected:
        applied, result = None, "rejected"
    computed = {"result": result, "applied": applied, "expect": _state(loop, call.get("expect", {}))}
    return {name: computed.get(name, value) for name, value in call.items()}


def _state(loop: Loop, expected: Mapping[str, Any]) -> dict[str, Any]:
    """Return those parts of the current state that *expected* has."""
    state: dict[str, Any] = {"scale": loop.scale.hex()} if "scale" in expected else {}
    for kind in ("gradients", "parameters"):
        if kind in expected:
            state[kind] = {name: [tree_to_json(leaf) for leaf in getattr(loop.optimizers[name], kind)] for name in expected[kind]}
    return state


def _on_leaves(operation: Callable[[Bits], Bits], encoded: Any) -> Any:
    return tree_to_json(map_tree(operation, tree_from_json(encoded)))


def _selected(outputs: dict[str, Any], case: Case) -> dict[str, Any]:
    """Return those of *outputs* that the vector has as members."""
    return {name: value for name, value in outputs.items() if name in case}


KINDS: dict[str, Callable[[str, Case], dict[str, Any]]] = {
    "trace": _trace,
    "scale": _scale,
    "unscale": _unscale,
    "all_finite": _all_finite,
    "check": _check,
    "global_norm": _global_norm,
    "local_norms": _local_norms,
    "clip": _clip,
    "measure": _measure,
    "histogram": _histogram,
    "step": _step,
    "replicas": _replicas,
    "calls": _calls,
}
