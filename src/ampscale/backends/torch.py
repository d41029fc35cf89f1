"""torch: its own differentiation; a module is a network; sparse arrays are seen as their coalesced values."""

from collections.abc import Callable
from typing import Any

import array_api_compat.torch
import torch

from ..core import norms, overflow, scaling
from ..core.checks import check_loss
from ..core.trees import leaves, map_leaves, rebuilt
from ..core.typing import Array, Flag, Namespace, Scale, Tree
from .torch_module import ModuleNetwork

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
        loss = loss_fn(rebuilt(params, values), *inputs)
        check_loss(loss)
        return loss

    with torch.no_grad():  # what comes out shall not hold on to parameters or inputs that require gradients
        loss, backward = torch.func.vjp(of_leaves, leaves(params))  # type: ignore[misc]

    def pullback(seed: Array) -> Tree:
        with torch.no_grad():
            (gradients,) = backward(seed.to(loss.dtype))
        return rebuilt(params, gradients)

    return loss, pullback


def scale(tree: Tree, scale: Scale) -> Tree:
    """As `core.scaling.scale`; sparse arrays come out coalesced."""
    return _with_values(tree, scaling.scale(_values(tree), scale))


def unscale(tree: Tree, scale: Scale, dtype: str | None = None) -> Tree:
    """As `core.scaling.unscale`; sparse arrays come out coalesced."""
    return _with_values(tree, scaling.unscale(_values(tree), scale, dtype))


def all_finite(tree: Tree) -> Flag:
    """As `core.overflow.all_finite`; values of a sparse array with the same index are added up first."""
    return overflow.all_finite(_values(tree))


def unscale_and_check(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag]:
    """As `core.overflow.unscale_and_check`; sparse arrays come out coalesced."""
    _check_sparse(out, tree)
    unscaled = scaling.unscale(_values(tree), scale, dtype)
    return _put(tree, unscaled, out), all_finite(unscaled)


def unscale_check_and_norm(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag, Array]:
    """As `core.norms.unscale_check_and_norm`; sparse arrays come out coalesced."""
    _check_sparse(out, tree)
    unscaled = scaling.unscale(_values(tree), scale, dtype)
    return _put(tree, unscaled, out), all_finite(unscaled), global_norm(unscaled)


def global_norm(tree: Tree) -> Array:
    """As `core.norms.global_norm`."""
    return norms.global_norm(_values(tree))


def local_norms(tree: Tree) -> Array:
    """As `core.norms.local_norms`."""
    return norms.local_norms(_values(tree))


def clip_by_global_norm(tree: Tree, max_norm: float) -> tuple[Tree, Array]:
    """As `core.norms.clip_by_global_norm`; sparse arrays come out coalesced."""
    clipped, norm = norms.clip_by_global_norm(_values(tree), max_norm)
    return _with_values(tree, clipped), norm


def _values(tree: Tree) -> Tree:
    """*tree* with the values of each sparse array in its place, as they are stored."""
    return map_leaves(_rounded, _places(tree)) if torch.compiler.is_compiling() else _places(tree)


def _rounded(leaf: Array) -> Array:
    """A compiler goes on with 16-bit values as it has them in float32; to show their bits, it must round them."""
    if leaf.dtype not in (torch.float16, torch.bfloat16) or leaf.requires_grad:
        return leaf
    return leaf.view(torch.int16).bitwise_or(0).view(leaf.dtype)


def _places(tree: Tree) -> Tree:
    """Where the values of *tree* lie: in its arrays, or in those of the values of its sparse ones."""
    return map_leaves(lambda leaf: leaf.coalesce().values() if leaf.is_sparse else leaf, tree)


def _with_values(tree: Tree, values: Tree) -> Tree:
    """*values*, those of a sparse array of *tree* as a sparse array."""
    return map_leaves(_with_value, tree, values)


def _with_value(leaf: Array, values: Array) -> Array:
    if not leaf.is_sparse:
        return values
    return torch.sparse_coo_tensor(leaf.coalesce().indices(), values, leaf.shape, is_coalesced=True, check_invariants=False)


def _check_sparse(out: Tree, tree: Tree) -> None:
    """Where *out* or *tree* holds a sparse array, both hold the same one, coalesced: others may have values elsewhere."""
    for target, leaf in zip(leaves(out), leaves(tree), strict=False):  # none where out is None
        sparse = target.is_sparse or leaf.is_sparse
        if sparse and (target is not leaf or not target.is_coalesced()):
            raise ValueError("out must hold sparse arrays of the tree itself, coalesced, got another one, or one that is not")


def _put(tree: Tree, unscaled: Tree, out: Tree) -> Tree:
    """The result, or *out* after the result was written to it."""
    if out is None:
        return _with_values(tree, unscaled)
    overflow.write(_places(out), unscaled)
    return out
