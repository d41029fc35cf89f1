"""Comparison of scaled and unscaled trees with the oracle."""

from collections.abc import Callable
from typing import Any

from ..model.bits import Bits, leaves, map_tree
from ..model.subject import Subject
from ..oracle import tensors


def check_products(
    subject: Subject, handle: Any, method: str, scale: float, tree: Any, arrays: Any = None, *, ulps: int = 0
) -> Any:
    """
    Call `scale` or `unscale` with a tree of `Bits`, and compare the result with the oracle's, up to *ulps* in the last place.

    *arrays* is the same tree as arrays; None to create them. Return the tree of arrays that the implementation returned; None if
    it works in place.
    """
    arrays = subject.to_arrays(tree) if arrays is None else arrays
    result = subject.call(method, handle, arrays)
    actual = subject.to_bits(arrays if result is None else result, method)
    expected = expected_tree(getattr(tensors, method), scale, tree, actual, ulps)
    subject.expect_same(actual, expected, f"{method} at {scale!r}")
    if actual != expected:  # an array has other NaNs, or a container another type
        check_containers(subject, actual, expected, method)
    return result


def check_containers(subject: Subject, result: Any, tree: Any, label: str) -> None:
    """Fail if a list in *tree* is a tuple in *result*, or a tuple a list, which `expect_same` accepts."""
    result_containers, tree_containers = (map_tree(lambda _: None, each) for each in (result, tree))
    subject.expect(result_containers == tree_containers, f"{label}: a list became a tuple, or a tuple a list")


def expected_tree(compute: Callable[..., Bits], scale: float, tree: Any, result: Any, ulps: int = 0) -> Any:
    """
    Return the exact results, in float32 where those of *result* are.

    A leaf of *result* within *ulps* of the exact one replaces it.
    """
    result_leaves = dict(leaves(result))
    paths = iter([path for path, leaf in leaves(tree) if leaf is not None])

    def expected_leaf(leaf: Bits) -> Bits:
        actual = result_leaves.get(next(paths))
        if not isinstance(actual, Bits):
            return compute(leaf, scale)
        exact = compute(leaf, scale, "float32" if actual.dtype == "float32" else None)  # float64 is not narrowed
        return actual if _near(actual, exact, ulps) else exact

    return map_tree(expected_leaf, tree)


def _near(actual: Bits, exact: Bits, ulps: int) -> bool:
    """Return True if all elements differ by at most *ulps*. Adjacent numbers of one sign have adjacent bit patterns."""
    if actual == exact:
        return True
    if (actual.dtype, actual.shape) != (exact.dtype, exact.shape):
        return False
    return all(abs(left - right) <= ulps for left, right in zip(actual.bits, exact.bits, strict=True))
