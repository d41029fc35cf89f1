"""torch: its own differentiation; a module is a network; sparse arrays are seen as their coalesced values."""

import operator
from collections.abc import Callable
from typing import Any

import array_api_compat.torch
import torch

from ...core import norms, overflow, scaling
from ...core.dtypes import accumulation_dtype, name_of
from ...core.trees import leaves, leaves_with_paths, unflatten
from ...core.typing import Array, Flag, Namespace, Scale, Tree
from ...core.validation import check_loss
from . import kernels
from .layout import are_frozen, check_target
from .module_network import ModuleNetwork

NAME = "torch"


def owns(array: Any) -> bool:
    """Whether *array* belongs to this library."""
    return isinstance(array, torch.Tensor)


def namespace() -> Namespace:
    """The library's Array API namespace."""
    return array_api_compat.torch


def devices() -> tuple[str, ...]:
    """Where arrays can be put here, meta apart."""
    kind = torch.accelerator.current_accelerator(check_available=True)
    if kind is None:
        return ("cpu",)
    return ("cpu", *(f"{kind.type}:{index}" for index in range(torch.accelerator.device_count())))


def as_network(value: Any) -> Any:
    """A module that returns its loss, as a network; None where *value* is no module."""
    return ModuleNetwork(value) if isinstance(value, torch.nn.Module) else None


def vjp(loss_fn: Callable[..., Array], params: Tree, *inputs: Any) -> tuple[Array, Callable[[Array], Tree]]:
    """
    The loss, and what turns a seed into gradients.

    Args:
        loss_fn: ``loss_fn(params, *inputs) -> loss``, on torch's arrays.
        params: Floating-point arrays.
        inputs: Handed to *loss_fn* as they are.

    Returns:
        What *loss_fn* returned, and ``pullback(seed) -> gradients``: the structure of *params*, each a new array in the
        dtype of its parameter, zero where the loss does not depend on it. torch takes the seed in the loss's dtype: a
        float16 loss overflows from a scale of 65520, so return a float32 one.

    Raises:
        TypeError: *loss_fn* returned something else than one array.
    """

    def of_leaves(values: list[Array]) -> Array:
        loss = loss_fn(unflatten(params, values), *inputs)
        check_loss(loss)
        return loss

    with torch.no_grad():  # what comes out shall not hold on to parameters or inputs that require gradients
        loss, backward = torch.func.vjp(of_leaves, leaves(params))  # type: ignore[misc]

    def pullback(seed: Array) -> Tree:
        with torch.no_grad():
            (gradients,) = backward(seed.to(loss.dtype))
        return unflatten(params, gradients)

    return loss, pullback


def scale(tree: Tree, scale: Scale) -> Tree:
    """As `core.scaling.scale`; sparse arrays come out coalesced."""
    given = leaves(tree)
    arrays = _stored(given)
    scaled = kernels.products(arrays, scale) if _take(arrays, scale) else scaling.scale(_rounded(arrays), scale)
    return _remade(tree, given, scaled)


def unscale(tree: Tree, scale: Scale, dtype: str | None = None) -> Tree:
    """As `core.scaling.unscale`; sparse arrays come out coalesced."""
    given = leaves(tree)
    arrays = _stored(given)
    taken = _take(arrays, scale)
    return _remade(tree, given, (kernels.quotients if taken else scaling.unscale)(_rounded(arrays), scale, dtype))


def all_finite(tree: Tree) -> Flag:
    """As `core.overflow.all_finite`; values of a sparse array with the same index are added up first."""
    arrays = _stored(leaves(tree))
    return kernels.all_finite(arrays) if _take(arrays) else overflow.all_finite(_rounded(arrays))


def unscale_and_check(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag]:
    """
    As `core.overflow.unscale_and_check`; sparse arrays come out coalesced.

    In place it is one pass where the scale is a power of two from 1 up, and a number or in the host's memory; else two.
    """
    unscaled, finite, _ = _unscaled(tree, scale, out, dtype)
    return unscaled, finite


def unscale_check_and_norm(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag, Array]:
    """As `core.norms.unscale_check_and_norm`; sparse arrays come out coalesced."""
    unscaled, finite, arrays = _unscaled(tree, scale, out, dtype)
    return unscaled, finite, _global_norm(arrays)


def global_norm(tree: Tree) -> Array:
    """As `core.norms.global_norm`."""
    return _global_norm(_stored(leaves(tree)))


def local_norms(tree: Tree) -> Array:
    """As `core.norms.local_norms`."""
    arrays = _stored(leaves(tree))
    sums = _square_sums(arrays)
    if sums is None:
        return norms.local_norms(_rounded(arrays))
    each = norms.root(sums)
    for index in kernels.wrong_norms(each):
        each[index] = norms.global_norm([arrays[index], each[:0]])  # the second, which is empty, tells the dtype
    return each


def clip_by_global_norm(tree: Tree, max_norm: float) -> tuple[Tree, Array]:
    """As `core.norms.clip_by_global_norm`; sparse arrays come out coalesced."""
    given = leaves(tree)
    arrays = _stored(given)
    norm = _plain_norm(arrays)
    if norm is None:
        clipped, norm = norms.clip_by_global_norm(_rounded(arrays), max_norm)
    else:
        clipped = kernels.products(arrays, norms.clip_coefficient(norm, max_norm))
    return _remade(tree, given, clipped), norm


def _stored(arrays: list[Array]) -> list[Array]:
    """*arrays* with the values of each sparse one in its place, as they are stored; *arrays* itself where none is sparse."""
    if not any(array.is_sparse for array in arrays):
        return arrays
    return [array.coalesce().values() if array.is_sparse else array for array in arrays]


def _rounded(arrays: list[Array]) -> list[Array]:
    """A compiler goes on with 16-bit values as it has them in float32; to show their bits, it must round them."""
    if not torch.compiler.is_compiling():
        return arrays
    narrow = (torch.float16, torch.bfloat16)
    return [
        array if array.dtype not in narrow or array.requires_grad else array.view(torch.int16).bitwise_or(0).view(array.dtype)
        for array in arrays
    ]


def _take(arrays: list[Array], scale: Scale = 1.0) -> bool:
    """Whether torch's kernels take *arrays* and *scale*; else the definitions hold."""
    return kernels.takes(arrays) and (isinstance(scale, int | float) or kernels.takes([scale]))


def _remade(tree: Tree, given: list[Array], values: list[Array]) -> Tree:
    """*tree*, whose arrays are *given*, with *values*: those of a sparse array as a sparse array."""
    if any(array.is_sparse for array in given):
        values = [_with_values(array, value) if array.is_sparse else value for array, value in zip(given, values, strict=True)]
    return unflatten(tree, values)


def _with_values(array: Array, values: Array) -> Array:
    indices = array.coalesce().indices()
    return torch.sparse_coo_tensor(indices, values, array.shape, is_coalesced=True, check_invariants=False)


def _unscaled(tree: Tree, scale: Scale, out: Tree, dtype: str | None) -> tuple[Tree, Flag, list[Array]]:
    """The unscaled tree, the flag, and the arrays of values in the tree."""
    given = leaves(tree)
    if out is tree and kernels.takes_at_once(given, scale) and (found := kernels.unscale_at_once_(given, scale)) is not None:
        return out, found.logical_not(), given
    places = given if out is tree or out is None else leaves(out)
    if out is not None:
        _check_sparse(places, given)
    arrays = _stored(given)
    taken = _take(arrays, scale)
    targets = arrays if places is given else _stored(places)
    if taken and out is not None and not are_frozen(targets) and _can_write(targets, arrays):
        return out, kernels.unscale_(targets, scale).logical_not(), targets
    if out is not None and not torch.compiler.is_compiling():  # a compiler writes to copies
        for path, target in leaves_with_paths(out, "out"):
            check_target(target, path)
    unscaled = (kernels.quotients if taken else scaling.unscale)(_rounded(arrays), scale, dtype)
    finite = kernels.all_finite(unscaled) if taken else overflow.all_finite(_rounded(unscaled))
    if out is None:
        return _remade(tree, given, unscaled), finite, unscaled
    return out, finite, overflow.write(targets, unscaled)


def _check_sparse(places: list[Array], arrays: list[Array]) -> None:
    """Where one of them holds a sparse array, both hold the same one, coalesced: others may have values elsewhere."""
    for place, array in zip(places, arrays, strict=True):
        if (place.is_sparse or array.is_sparse) and (place is not array or not place.is_coalesced()):
            raise ValueError("out must hold sparse arrays of the tree itself, coalesced, got another one, or one that is not")


def _can_write(targets: list[Array], arrays: list[Array]) -> bool:
    """Whether *targets* can be unscaled in place, one after the other: then they hold the values of *arrays*."""
    if targets is arrays or all(map(operator.is_, targets, arrays)):
        return kernels.are_apart(arrays)
    apart = kernels.takes(targets) and kernels.are_apart([*targets, *arrays])
    if apart:
        torch._foreach_copy_(targets, arrays)
    return apart


def _global_norm(arrays: list[Array]) -> Array:
    norm = _plain_norm(arrays)
    return norms.global_norm(_rounded(arrays)) if norm is None else norm


def _plain_norm(arrays: list[Array]) -> Array | None:
    """Return the norm as the kernels compute it; None if only the definition is right."""
    sums = _square_sums(arrays)
    norm = None if sums is None else norms.root(kernels.added_in_order(sums))
    return None if norm is None or kernels.wrong_norms(norm) else norm


def _square_sums(arrays: list[Array]) -> Array | None:
    """The sum of the squares of each array, in the dtype of their norm: shape (number of arrays,); None for the definition."""
    if not (_take(arrays) and arrays[0].is_cpu):
        return None
    names = {name_of(dtype) for dtype in {array.dtype for array in arrays}}
    return kernels.square_sums(arrays, getattr(torch, accumulation_dtype([*names])))
