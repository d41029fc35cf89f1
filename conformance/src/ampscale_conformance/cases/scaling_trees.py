"""Cases that multiply or divide a tree by the scale, and their expected values."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ..model.adapter import Unsupported
from ..model.bits import Bits, leaves, map_tree
from ..model.case import Case, named
from ..model.floats import rounded
from ..model.subject import Subject, to_record
from ..model.supported_rules import SMALL
from ..oracle import tensors
from ..oracle.machine import trajectory
from ..oracle.tensors import array

PAIR = [array("float32", [1.5, -3.0])]
NOT_FINITE = [array("float32", [value]) for value in (math.inf, -math.inf, math.nan)]


def scaled(name: str, catches: str, tree: Any, *needs: str, scale: float = SMALL) -> Case:
    """Return a case that multiplies a tree by a scale."""
    return named(name, 1, catches, partial(_first, method="scale", scale=scale, tree=tree), needs)


def unscaled(name: str, catches: str, tree: Any, *needs: str, scale: float = SMALL, ulps: int = 0) -> Case:
    """Return a case that divides a tree by a scale; quotients may differ by some units in the last place."""
    return named(name, 1, catches, partial(_first, method="unscale", scale=scale, tree=tree, ulps=ulps), needs)


def after_change(name: str, catches: str, method: str, finite: bool, steps_before: int = 0) -> Case:
    """Return a case that calls *method* *steps_before* steps before a run of equal flags changes the scale; 0 for just after."""
    return named(name, 1, catches, partial(_later, method=method, finite=finite, steps_before=steps_before))


def repeated(name: str, catches: str, method: str) -> Case:
    """Return a case that calls a method for the second time in one step."""
    return named(name, 1, catches, partial(_twice, method=method))


def second_scaler(name: str, catches: str, method: str) -> Case:
    """Return a case that calls a method after another scaler with another scale was created."""
    return named(name, 1, catches, partial(_older, method=method))


def nonfinite(name: str, catches: str, method: str) -> Case:
    """Return a case that passes infinities and NaN, which may turn into one another."""
    return named(name, 1, catches, partial(_nonfinite, method=method, tree=NOT_FINITE))


def _nonfinite(subject: Subject, method: str, tree: Any) -> None:
    got = getattr(subject, method)(subject.create(subject.rule(init_scale=SMALL)), tree)
    finite = [path for path, leaf in leaves(got) if not isinstance(leaf, Bits) or tensors.all_finite(leaf)]
    subject.expect(not finite, f"{method}: expected non-finite values, got finite ones at {finite} of {to_record(got)}")


def _first(subject: Subject, method: str, scale: float, tree: Any, ulps: int = 0) -> None:
    _expect(subject, subject.create(subject.rule(init_scale=scale)), method, scale, tree, ulps)


def _later(subject: Subject, method: str, finite: bool, steps_before: int) -> None:
    """Compare with the scale that `read_scale` returns; the cases of level 0 check that scale."""
    rule = subject.rule(growth_interval=3)
    points = trajectory(rule, [finite] * 16)
    changes = [step for step, point in enumerate(points) if point.scale != points[0].scale]
    if not changes:
        raise Unsupported("its scale does not change")
    handle = subject.create(rule)
    for _ in range(changes[0] - steps_before):
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
    got = _sorted(getattr(subject, method)(handle, tree))
    expected = _expected(getattr(tensors, method), scale, _sorted(tree), got, ulps)
    subject.expect_same(got, expected, f"{method} at {scale!r}")


def _expected(compute: Callable[..., Bits], scale: float, tree: Any, got: Any, ulps: int) -> Any:
    """Return the expected tree: in float32 where a 16-bit leaf was returned so, and the actual leaf where it is near enough."""
    got_leaves = dict(leaves(got))
    paths = iter([path for path, leaf in leaves(tree) if leaf is not None])

    def expected_leaf(leaf: Bits) -> Bits:
        actual = got_leaves.get(next(paths))
        if not isinstance(actual, Bits):
            return compute(leaf, scale)
        exact = compute(leaf, scale, "float32" if actual.dtype == "float32" else None)  # float64 is not narrowed
        return actual if _near(actual, exact, ulps) else exact

    return map_tree(expected_leaf, tree)


def _near(actual: Bits, exact: Bits, ulps: int) -> bool:
    """Return True if all elements differ by at most *ulps*. Adjacent numbers of one sign have adjacent bit patterns."""
    if (actual.dtype, actual.shape) != (exact.dtype, exact.shape):
        return False
    return all(abs(left - right) <= ulps for left, right in zip(actual.bits, exact.bits, strict=True))


def _sorted(tree: Any) -> Any:
    """Return the tree with sorted dict keys, since some pytree libraries sort them."""
    if isinstance(tree, list | tuple):
        return type(tree)(_sorted(child) for child in tree)
    if isinstance(tree, Mapping):
        return {key: _sorted(tree[key]) for key in sorted(tree, key=str)}
    return tree
