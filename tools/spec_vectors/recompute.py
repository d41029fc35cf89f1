"""Every expected value of a vector from its inputs, with the oracle alone: one function for each kind of vector."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ampscale_conformance.model.bits import Bits, map_tree, tree_from_json, tree_to_json
from ampscale_conformance.oracle.calls import Loop, Refused
from ampscale_conformance.oracle.machine import Constants, Machine
from ampscale_conformance.oracle.norms import clip, global_norm, local_norms, norm_dtype, sizes
from ampscale_conformance.oracle.tensors import all_finite, array, scale, unscale

from . import replicas
from .cells import outputs_of
from .encoding import arguments, flags, number, rule, scalar
from .profiles import constants

Case = Mapping[str, Any]

# What is expected here is that a call is refused, or allowed: a decision of the specification, and nothing to compute.
DECISIONS = frozenset(["error"])


def recomputed(chapter: str, case: Case) -> dict[str, Any]:
    """
    The members of a vector that say what is expected, as the oracle computes them; None for one that is not to be there.

    Args:
        chapter: The file's.
        case: The vector, whose own expectations decide no more than which of the outputs are asked for.

    Raises:
        ValueError: The oracle knows no such kind.
    """
    if case["kind"] not in KINDS:
        raise ValueError(f"kind must be one of {sorted(KINDS)}, got {case['kind']!r}")
    return KINDS[case["kind"]](chapter, case)


def _trace(chapter: str, case: Case) -> dict[str, Any]:
    by_rule = "rule" in case
    walked = rule(case["rule"]) if by_rule else constants(chapter, case["class"], arguments(case["arguments"]))
    scales, stops = _walk(walked, flags(case["finite"]))
    return {"scale": scales, "raises_at": stops} if by_rule else {"scale": scales}


def _walk(walked: Constants, finite: list[bool]) -> tuple[list[str], int | None]:
    """All scales, also after a step that the published scaler does not take; and the first such step."""
    machine = Machine(walked)
    points = [machine.point, *(machine.step(flag) for flag in finite)]
    stopped = [step for step, point in enumerate(points[1:]) if point.stopped]
    return [point.scale.hex() for point in points], stopped[0] if stopped else None


def _scale(chapter: str, case: Case) -> dict[str, Any]:
    wide = "float32" if chapter == "paddle" else None  # PADDLE-scale-dtype
    return {"output": _on_leaves(lambda leaf: scale(leaf, number(case["scale"]), wide), case["input"])}


def _unscale(_: str, case: Case) -> dict[str, Any]:
    return {"output": _on_leaves(lambda leaf: unscale(leaf, number(case["scale"]), case.get("dtype")), case["input"])}


def _all_finite(_: str, case: Case) -> dict[str, Any]:
    return {"finite": all_finite(tree_from_json(case["tree"]))}


def _check(chapter: str, case: Case) -> dict[str, Any]:
    output = _unscale(chapter, case)["output"]
    finite = all_finite(tree_from_json(case["input"])) and all_finite(tree_from_json(output))
    return _asked({"finite": finite, "output": output}, case)


def _global_norm(_: str, case: Case) -> dict[str, Any]:
    tree = tree_from_json(case["input"])
    return {"norm": scalar(global_norm(tree), norm_dtype(tree))}


def _local_norms(_: str, case: Case) -> dict[str, Any]:
    tree = tree_from_json(case["input"])
    norms = array(norm_dtype(tree), local_norms(tree))
    return {"norm": norms.to_json(), "sizes": array("int64", sizes(tree)).to_json()}


def _clip(_: str, case: Case) -> dict[str, Any]:
    tree = tree_from_json(case["input"])
    clipped, norm = clip(tree, number(case["max_norm"]))
    return {"output": tree_to_json(clipped), "norm": scalar(norm, norm_dtype(tree))}


def _step(chapter: str, case: Case) -> dict[str, Any]:
    computed = outputs_of(chapter, case)
    return {"expect": [_asked(outputs, asked) for outputs, asked in zip(computed, case["expect"], strict=True)]}


def _replicas(_: str, case: Case) -> dict[str, Any]:
    if "gradients" in case:
        return _averaged(case)
    decided = [replicas.agreed(ranks) for ranks in case["flags"]]
    signs = "".join("+" if finite else "-" for finite in decided)
    return {"finite": signs, "scale": _walk(rule(case["rule"]), decided)[0]} if "rule" in case else {"finite": signs}


def _averaged(case: Case) -> dict[str, Any]:
    mean = replicas.mean([tree_from_json(leaves) for leaves in case["gradients"]])
    unscaled = [unscale(leaf, number(case["scale"])) for leaf in mean]
    outputs = {
        "finite": all_finite(mean) and all_finite(unscaled),
        "output": tree_to_json(unscaled),
        "norm": scalar(global_norm(unscaled), norm_dtype(unscaled)),
    }
    return _asked(outputs, case)


def _calls(_: str, case: Case) -> dict[str, Any]:
    optimizers = {name: tree_from_json(parameters) for name, parameters in case["optimizers"].items()}
    return {"calls": _outcomes_of(Loop(rule(case["rule"]), optimizers), case["calls"])}


def _outcomes_of(loop: Loop, calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The calls, each with what comes of it where the vector tells it."""
    return [_outcome(loop, call) for call in calls]


def _outcome(loop: Loop, call: Mapping[str, Any]) -> dict[str, Any]:
    if call["call"] == "set_gradients":
        loop.set_gradients(call["optimizer"], tree_from_json(call["gradients"]))
        return dict(call)
    methods: dict[str, Callable[..., bool | None]] = {"unscale_": loop.unscale_, "step": loop.step, "update": loop.update}
    try:
        applied, result = methods[call["call"]](*([call["optimizer"]] if "optimizer" in call else [])), "ok"
    except Refused:
        applied, result = None, "rejected"
    came = {"result": result, "applied": applied, "expect": _state(loop, call.get("expect", {}))}
    return {name: came.get(name, value) for name, value in call.items()}


def _state(loop: Loop, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What holds now, of what is asked for."""
    state: dict[str, Any] = {"scale": loop.scale.hex()} if "scale" in asked else {}
    for kind in ("gradients", "parameters"):
        if kind in asked:
            state[kind] = {name: [tree_to_json(leaf) for leaf in getattr(loop.optimizers[name], kind)] for name in asked[kind]}
    return state


def _on_leaves(operation: Callable[[Bits], Bits], said: Any) -> Any:
    return tree_to_json(map_tree(operation, tree_from_json(said)))


def _asked(outputs: dict[str, Any], case: Case) -> dict[str, Any]:
    """Of all outputs those that the vector names."""
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
    "step": _step,
    "replicas": _replicas,
    "calls": _calls,
}
