"""
NumPy: every verb is one pass over the arrays, and the autograd package differentiates.

What a pass cannot take is left to the definitions of the core: subclasses with an arithmetic of their own, arrays in another
byte order, and memory that is to be written before all of it was read.
"""

import math
from collections.abc import Callable
from typing import Any

import array_api_compat.numpy
import numpy as np

from ...core import norms, overflow, scaling
from ...core.dtypes import INTEGERS, accumulation_dtype, name_of
from ...core.namespaces import quiet
from ...core.trees import leaves, unflatten
from ...core.typing import Array, Flag, Namespace, Scale, Tree
from .layout import can_write, like, plain
from .one_pass import DTYPE_OF, Pass, run_host

NAME = "numpy"
_LEAST = {np.dtype(name): lifts.least for name, lifts in norms.LIFTS.items()}


def owns(array: Any) -> bool:
    """Whether *array* belongs to this library."""
    return isinstance(array, (np.ndarray, np.generic))  # torch.compile cannot trace `|` of these


def namespace() -> Namespace:
    """The library's Array API namespace."""
    return array_api_compat.numpy


def devices() -> tuple[str, ...]:
    """Where arrays can be put here."""
    return ("cpu",)


def as_network(value: Any) -> Any:  # noqa: ARG001
    """None: NumPy has no networks."""
    return None


def vjp(loss_fn: Callable[..., Array], params: Tree, *inputs: Any) -> tuple[Array, Callable[[Array], Tree]]:
    """
    The loss, and what turns a seed into gradients.

    Args:
        loss_fn: ``loss_fn(params, *inputs) -> loss``, written with `autograd.numpy`.
        params: Floating-point arrays.
        inputs: Handed to *loss_fn* as they are.

    Returns:
        What *loss_fn* returned, and ``pullback(seed) -> gradients``: the structure of *params*, each a new array in the
        dtype of its parameter, zero where the loss does not depend on it.

    Raises:
        TypeError: autograd is not installed.
    """
    try:
        from autograd import make_vjp
    except ModuleNotFoundError as missing:
        wanted = 'give Network(loss_fn, params, vjp=...), or pip install "ampscale[numpy]"'
        raise TypeError(f"NumPy does not differentiate by itself: {wanted}") from missing

    count = len(leaves(params))

    def of_leaves(values: list[Array]) -> Array:
        return loss_fn(unflatten(params, (values[index] for index in range(count))), *inputs)

    with quiet(np):
        backward, loss = make_vjp(of_leaves)(leaves(params))

    def pullback(seed: Array) -> Tree:
        with quiet(np):
            return unflatten(params, backward(seed))  # autograd adds up into new arrays of the parameters' dtypes

    return loss, pullback


def scale(tree: Tree, scale: Scale) -> Tree:
    """As `core.scaling.scale`."""
    sources = plain(leaves(tree))
    if sources is None:
        return scaling.scale(tree, scale)
    return unflatten(tree, _applied(Pass(_number_host(scale), divides=False), sources))


def unscale(tree: Tree, scale: Scale, dtype: str | None = None) -> Tree:
    """As `core.scaling.unscale`."""
    sources = plain(leaves(tree))
    if sources is None:
        return scaling.unscale(tree, scale, dtype)
    return unflatten(tree, _applied(Pass(_number_host(scale)), sources, dtype))


def all_finite(tree: Tree) -> Flag:
    """As `core.overflow.all_finite`."""
    sources = plain([leaf for leaf in leaves(tree) if name_of(leaf.dtype) not in INTEGERS])
    if sources is None:
        return overflow.all_finite(tree)
    return np.array(run_host(Pass(checks=True), sources, sources).finite)


def unscale_and_check(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag]:
    """As `core.overflow.unscale_and_check`."""
    arrays = _sources_and_targets(tree, out, dtype)
    if arrays is None:
        return overflow.unscale_and_check(tree, scale, out, dtype)
    known = run_host(Pass(_number_host(scale), checks=True), *arrays)
    return (unflatten(tree, arrays[1]) if out is None else out), np.array(known.finite)


def unscale_check_and_norm(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag, Array]:
    """As `core.norms.unscale_check_and_norm`."""
    arrays = _sources_and_targets(tree, out, dtype)
    if arrays is None:
        return norms.unscale_check_and_norm(tree, scale, out, dtype)
    known = run_host(Pass(_number_host(scale), checks=True, sums=_widest(arrays[1])), *arrays)
    norm = _global(known.sums)
    if known.finite and not _is_right_host(norm):
        norm = norms.global_norm(arrays[1])
    return (unflatten(tree, arrays[1]) if out is None else out), np.array(known.finite), norm


def global_norm(tree: Tree) -> Array:
    """As `core.norms.global_norm`."""
    sources = plain(leaves(tree))
    norm = None if sources is None else _global(_sums(sources))
    return norms.global_norm(tree) if norm is None or not _is_right_host(norm) else norm


def local_norms(tree: Tree) -> Array:
    """As `core.norms.local_norms`."""
    sources = plain(leaves(tree))
    if sources is None:
        return norms.local_norms(tree)
    each = norms.root(_sums(sources))
    for index in np.flatnonzero(np.isinf(each) | (each < _LEAST[each.dtype])):
        each[index] = norms.global_norm([sources[index], each[:0]])  # the second, which is empty, tells the dtype
    return each


def clip_by_global_norm(tree: Tree, max_norm: float) -> tuple[Tree, Array]:
    """As `core.norms.clip_by_global_norm`."""
    sources = plain(leaves(tree))
    if sources is None:
        return norms.clip_by_global_norm(tree, max_norm)
    norm = _global(_sums(sources))
    if not _is_right_host(norm):
        return norms.clip_by_global_norm(tree, max_norm)
    coefficient = _number_host(norms.clip_coefficient(norm, max_norm))
    return unflatten(tree, _applied(Pass(coefficient, divides=False), sources)), norm


def _sources_and_targets(tree: Tree, out: Tree, dtype: str | None) -> tuple[list[Array], list[Array]] | None:
    """The arrays to read and to write in a pass; None where a pass would not give what the core's definition gives."""
    sources = plain(leaves(tree))
    if sources is None:
        return None
    if out is None:
        return sources, like(sources, dtype)
    targets = sources if out is tree else plain(leaves(out))
    return None if targets is None or not can_write(targets, sources) else (sources, targets)


def _applied(work: Pass, sources: list[Array], dtype: str | None = None) -> list[Array]:
    """New arrays with the results of a pass."""
    targets = like(sources, dtype)
    run_host(work, sources, targets)
    return targets


def _number_host(scale: Scale) -> float:
    return float(scale if isinstance(scale, int | float) else scale.reshape(()))


def _widest(arrays: list[Array]) -> Any:
    return np.dtype(accumulation_dtype(list(map(name_of, set(map(DTYPE_OF, arrays))))))


def _sums(sources: list[Array]) -> Array:
    """The sum of the squares of each array."""
    squares: Array = run_host(Pass(sums=_widest(sources)), sources, sources).sums
    return squares


def _is_right_host(norm: Array) -> bool:
    """Return True if a plain norm is right: it is neither infinite nor tiny."""
    value: float = norm.item()
    return not (value == math.inf or value < _LEAST[norm.dtype])


def _global(sums: Array) -> Array:
    """The root of the sum of *sums*, added in their order."""
    with quiet(np):
        return norms.root(np.add.accumulate(sums)[-1])
