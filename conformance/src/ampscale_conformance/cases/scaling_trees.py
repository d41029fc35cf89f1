"""Cases that multiply a tree by the scale or divide it, and what they expect."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ..model.adapter import Unsupported
from ..model.bits import Bits, leaves, map_tree
from ..model.case import Case, named
from ..model.claimed_rules import SMALL
from ..model.floats import rounded
from ..model.subject import Subject, plain
from ..oracle import tensors
from ..oracle.machine import trajectory
from ..oracle.tensors import array

PAIR = [array("float32", [1.5, -3.0])]
NOT_FINITE = [array("float32", [value]) for value in (math.inf, -math.inf, math.nan)]


def scaled(name: str, catches: str, tree: Any, *needs: str, scale: float = SMALL) -> Case:
    """A case that multiplies a tree by a scale."""
    return named(name, 1, catches, partial(_first, method="scale", scale=scale, tree=tree), needs)


def unscaled(name: str, catches: str, tree: Any, *needs: str, scale: float = SMALL, ulps: int = 0) -> Case:
    """A case that divides a tree by a scale; quotients may lie some units in the last place beside the rounded ones."""
    return named(name, 1, catches, partial(_first, method="unscale", scale=scale, tree=tree, ulps=ulps), needs)


def moved(name: str, catches: str, method: str, finite: bool, steps_before: int = 0) -> Case:
    """A case that does so after as many steps of one kind as move the scale, or some steps before that."""
    return named(name, 1, catches, partial(_later, method=method, finite=finite, steps_before=steps_before))


def again(name: str, catches: str, method: str) -> Case:
    """A case that does so for the second time in one step."""
    return named(name, 1, catches, partial(_twice, method=method))


def beside(name: str, catches: str, method: str) -> Case:
    """A case that does so while there is another scaler, which was made later and has another scale."""
    return named(name, 1, catches, partial(_older, method=method))


def unmended(name: str, catches: str, method: str) -> Case:
    """A case that gives it infinities and NaN, of which any may become another."""
    return named(name, 1, catches, partial(_unmended, method=method, tree=NOT_FINITE))


def _unmended(subject: Subject, method: str, tree: Any) -> None:
    got = getattr(subject, method)(subject.create(subject.rule(init_scale=SMALL)), tree)
    finite = [path for path, leaf in leaves(got) if not isinstance(leaf, Bits) or tensors.all_finite(leaf)]
    subject.expect(not finite, f"{method}: wanted nothing finite, got {finite} of {plain(got)}")


def _first(subject: Subject, method: str, scale: float, tree: Any, ulps: int = 0) -> None:
    _expect(subject, subject.create(subject.rule(init_scale=scale)), method, scale, tree, ulps)


def _later(subject: Subject, method: str, finite: bool, steps_before: int) -> None:
    """That tensors follow `read_scale` is asked here, and that this goes by the rule at level 0."""
    rule = subject.rule(growth_interval=3)
    points = trajectory(rule, [finite] * 16)
    moves = [step for step, point in enumerate(points) if point.scale != points[0].scale]
    if not moves:
        raise Unsupported("its scale does not move")
    handle = subject.create(rule)
    for _ in range(moves[0] - steps_before):
        handle = subject.update(handle, finite)
    scale = subject.read_scale(handle)
    if not 0 < rounded(scale, "float32") < math.inf:
        raise Unsupported(f"its scale is {scale!r}")
    _expect(subject, handle, method, scale, PAIR, ulps=1)


def _twice(subject: Subject, method: str) -> None:
    handle = subject.create(subject.rule(init_scale=SMALL))
    getattr(subject, method)(handle, PAIR)
    _expect(subject, handle, method, SMALL, PAIR)


def _older(subject: Subject, method: str) -> None:
    handle = subject.create(subject.rule(init_scale=SMALL))
    subject.create(subject.rule(init_scale=2 * SMALL))
    _expect(subject, handle, method, SMALL, PAIR)


def _expect(subject: Subject, handle: Any, method: str, scale: float, tree: Any, ulps: int = 0) -> None:
    got = _in_order(getattr(subject, method)(handle, tree))
    wanted = _wanted(getattr(tensors, method), scale, _in_order(tree), got, ulps)
    subject.expect_same(got, wanted, f"{method} at {scale!r}")


def _wanted(compute: Callable[..., Bits], scale: float, tree: Any, got: Any, ulps: int) -> Any:
    """What *compute* makes of each leaf: in float32 where a 16-bit one came so, and as it came where that is near enough."""
    came = dict(leaves(got))
    paths = iter([path for path, leaf in leaves(tree) if leaf is not None])

    def meant(leaf: Bits) -> Bits:
        there = came.get(next(paths))
        if not isinstance(there, Bits):
            return compute(leaf, scale)
        exact = compute(leaf, scale, "float32" if there.dtype == "float32" else None)  # which never narrows
        return there if _near(there, exact, ulps) else exact

    return map_tree(meant, tree)


def _near(there: Bits, exact: Bits, ulps: int) -> bool:
    """Whether they differ by no more: numbers of one sign that are neighbours have patterns that are."""
    if (there.dtype, there.shape) != (exact.dtype, exact.shape):
        return False
    return all(abs(got - wanted) <= ulps for got, wanted in zip(there.bits, exact.bits, strict=True))


def _in_order(tree: Any) -> Any:
    """The tree with the keys of its dicts in their order, since some tree libraries sort them."""
    if isinstance(tree, list | tuple):
        return type(tree)(_in_order(child) for child in tree)
    if isinstance(tree, Mapping):
        return {key: _in_order(tree[key]) for key in sorted(tree, key=str)}
    return tree
