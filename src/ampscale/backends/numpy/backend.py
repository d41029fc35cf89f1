"""
NumPy backend. Fused passes over the arrays scale, check, square and measure the values; `vjp` uses the autograd package.

The definitions of the core process arrays that a fused pass does not support: subclasses that define their own arithmetic,
arrays in a foreign byte order, and targets whose memory overlaps sources that are read later.
"""

import math
from collections.abc import Callable
from typing import Any

import array_api_compat.numpy
import numpy as np

from ...core import norms, overflow, scaling, statistics
from ...core.dtypes import INTEGERS, name_of
from ...core.namespaces import quiet
from ...core.scaling import number_host
from ...core.trees import leaves, unflatten
from ...core.typing import Array, Flag, Namespace, Scale, Tree
from ..cpu.fused import FusedOp, PassResult
from .layout import can_write, like, plain
from .one_pass import run_host, run_in_place_host

NAME = "numpy"
_LEAST = {np.dtype(name): lifts.least for name, lifts in norms.LIFTS.items()}  # squares may underflow in a smaller norm


def owns(array: Any) -> bool:
    """Return True if *array* is a NumPy array or scalar."""
    return isinstance(array, (np.ndarray, np.generic))  # torch.compile cannot trace `|` of these types


def namespace() -> Namespace:
    """Return the library's Array API namespace."""
    return array_api_compat.numpy


def devices() -> tuple[str, ...]:
    """Return the devices on which arrays can be created."""
    return ("cpu",)


def as_network(value: Any) -> Any:  # noqa: ARG001
    """Return None, because NumPy has no networks."""
    return None


def vjp(loss_fn: Callable[..., Array], params: Tree, *inputs: Any) -> tuple[Array, Callable[[Array], Tree]]:
    """
    Implement `Backend.vjp` for a function that is written with `autograd.numpy`.

    Raises:
        TypeError: autograd is not installed.
    """
    try:
        from autograd import make_vjp
    except ModuleNotFoundError as missing:
        remedy = 'use Network(loss_fn, params, vjp=...), or pip install "ampscale[numpy]"'
        for_jax = "for JAX, convert the parameters with jax.tree.map(jnp.asarray, params)"
        raise TypeError(f"NumPy does not differentiate without autograd: {remedy}; {for_jax}") from missing

    def of_leaves(values: list[Array]) -> Array:
        return loss_fn(unflatten(params, values), *inputs)

    with quiet(np):
        backward, loss = make_vjp(of_leaves)(leaves(params))

    def pullback(seed: Array) -> Tree:
        with quiet(np):
            return unflatten(params, backward(seed))  # autograd accumulates into new arrays of the parameters' dtypes

    return loss, pullback


def scale(tree: Tree, scale: Scale) -> Tree:
    """Implement `core.scaling.scale`."""
    result = _run(FusedOp(number_host(scale), divides=False), tree)
    return scaling.scale(tree, scale) if result is None else result[0]


def unscale(tree: Tree, scale: Scale, dtype: str | None = None) -> Tree:
    """Implement `core.scaling.unscale`."""
    result = _run(FusedOp(number_host(scale)), tree, None, dtype)
    return scaling.unscale(tree, scale, dtype) if result is None else result[0]


def all_finite(tree: Tree) -> Flag:
    """Implement `core.overflow.all_finite`."""
    sources = plain([leaf for leaf in leaves(tree) if name_of(leaf.dtype) not in INTEGERS])
    if sources is None:
        return overflow.all_finite(tree)
    return np.array(run_host(FusedOp(checks=True), sources, sources).finite)


def unscale_and_check(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag]:
    """Implement `core.overflow.unscale_and_check`."""
    result = _run(FusedOp(number_host(scale), checks=True), tree, out, dtype)
    if result is None:
        return overflow.unscale_and_check(tree, scale, out, dtype)
    unscaled, (finite, _, _) = result
    return unscaled, np.array(finite)


def unscale_check_and_norm(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag, Array]:
    """Implement `core.norms.unscale_check_and_norm`."""
    result = _run(FusedOp(number_host(scale), checks=True), tree, out, dtype, with_sums=True)
    if result is None:
        return norms.unscale_check_and_norm(tree, scale, out, dtype)
    unscaled, (finite, sums, _) = result
    norm = _norm_of_sums(sums)
    if finite and not _is_accurate_host(norm):  # the norm of non-finite values is an infinity or a NaN anyway
        norm = norms.global_norm(unscaled)
    return unscaled, np.array(finite), norm


def global_norm(tree: Tree) -> Array:
    """Implement `core.norms.global_norm`."""
    sources = plain(leaves(tree))
    norm = None if sources is None else _norm_of_sums(_square_sums(sources))
    return norms.global_norm(tree) if norm is None or not _is_accurate_host(norm) else norm


def local_norms(tree: Tree) -> Array:
    """Implement `core.norms.local_norms`."""
    sources = plain(leaves(tree))
    if sources is None:
        return norms.local_norms(tree)
    result = norms.root(_square_sums(sources))
    for index in np.flatnonzero(np.isinf(result) | (result < _LEAST[result.dtype])):
        result[index] = norms.global_norm([sources[index], result[:0]])  # the empty array widens the norm to the common dtype
    return result


def clip_by_global_norm(tree: Tree, max_norm: float, out: Tree = None) -> tuple[Tree, Array]:
    """Implement `core.norms.clip_by_global_norm`."""
    sources = plain(leaves(tree))
    targets = None if sources is None else _targets(sources, tree, out)
    if sources is None or targets is None:
        return norms.clip_by_global_norm(tree, max_norm, out)
    norm = _norm_of_sums(_square_sums(sources))
    if not _is_accurate_host(norm):
        return norms.clip_by_global_norm(tree, max_norm, out)
    run_host(FusedOp(number_host(norms.clip_coefficient(norm, max_norm)), divides=False), sources, targets)
    return (unflatten(tree, targets) if out is None else out), norm


def measure(tree: Tree) -> Array:
    """Implement `core.statistics.statistics`."""
    sources = plain(leaves(tree))
    if sources is None:
        return statistics.statistics(tree)
    return run_host(FusedOp(measures=True), sources, sources).statistics


def unscale_check_and_measure(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag, Array]:
    """Implement `core.statistics.unscale_check_and_measure`."""
    result = _run(FusedOp(number_host(scale), checks=True, measures=True), tree, out, dtype)
    if result is None:
        return statistics.unscale_check_and_measure(tree, scale, out, dtype)
    unscaled, (finite, _, measured) = result
    return unscaled, np.array(finite), measured


def exponent_histogram(tree: Tree) -> Array:
    """Implement `core.statistics.exponent_histogram`."""
    sources = plain(leaves(tree))
    if sources is None:
        return statistics.exponent_histogram(tree)
    statistics.check_sizes(sources)
    return statistics.stacked(list(map(_histogram, sources)), tree, statistics.BINS)


def _histogram(array: Array) -> Array:
    magnitudes = statistics.magnitudes_of(array)
    exponents = np.frexp(magnitudes[np.isfinite(magnitudes) & (magnitudes > 0)])[1] - 1
    bins = exponents.clip(statistics.LOWEST, statistics.HIGHEST) - statistics.LOWEST
    return np.bincount(bins, minlength=statistics.BINS).astype(np.int32)


def _run(
    op: FusedOp, tree: Tree, out: Tree = None, dtype: str | None = None, *, with_sums: bool = False
) -> tuple[Tree, PassResult] | None:
    """Return the tree of values and the result of a fused pass; None if the pass does not support the arrays or *out*."""
    arrays = leaves(tree)
    if out is tree and (result := run_in_place_host(op, arrays, with_sums)) is not None:
        return out, result
    sources = plain(arrays)
    targets = None if sources is None else _targets(sources, tree, out, dtype)
    if sources is None or targets is None:
        return None
    if with_sums:
        op = op._replace(square_dtype=norms.norm_dtype(targets))
    return (unflatten(tree, targets) if out is None else out), run_host(op, sources, targets)


def _targets(sources: list[Array], tree: Tree, out: Tree, dtype: str | None = None) -> list[Array] | None:
    """Return the arrays to which a fused pass can write; None if it cannot write to *out*."""
    if out is None:
        return like(sources, dtype)
    targets = sources if out is tree else plain(leaves(out))
    return targets if targets is not None and can_write(targets, sources) else None


def _square_sums(sources: list[Array]) -> Array:
    """Return the sum of the squares of each array."""
    return run_host(FusedOp(square_dtype=norms.norm_dtype(sources)), sources, sources).sums


def _is_accurate_host(norm: Array) -> bool:
    """Return False if squares may have overflowed or underflowed in the plain *norm*, which was computed without scaling."""
    value: float = norm.item()
    return not (value == math.inf or value < _LEAST[norm.dtype])


def _norm_of_sums(sums: Array) -> Array:
    """Return the square root of the sum of *sums*, added in their order: an array of shape ()."""
    with quiet(np):
        return norms.root(np.add.accumulate(sums)[-1:]).reshape(())
