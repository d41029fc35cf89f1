"""torch backend. `vjp` uses torch's autograd, a `torch.nn.Module` is a network, and coalesced values represent a sparse array."""

import operator
from collections.abc import Callable
from typing import Any

import array_api_compat.torch
import torch

from ...core import norms, overflow, scaling
from ...core.trees import leaves, leaves_with_paths, unflatten
from ...core.typing import Array, Flag, Namespace, Scale, Tree
from ...core.validation import check_loss
from . import cuda_launches, kernels, statistics
from .cuda_launches import Results
from .dtensor import Shards, has_dtensors
from .layout import WRITABLE, any_frozen, check_target
from .module_network import ModuleNetwork

NAME = "torch"


def owns(array: Any) -> bool:
    """Return True if *array* is a tensor."""
    return isinstance(array, torch.Tensor)


def namespace() -> Namespace:
    """Return the library's Array API namespace."""
    return array_api_compat.torch


def devices() -> tuple[str, ...]:
    """Return the devices on which arrays can be created, except "meta"."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is None:
        return ("cpu",)
    return ("cpu", *(f"{accelerator.type}:{index}" for index in range(torch.accelerator.device_count())))


def as_network(value: Any) -> Any:
    """Return a network that wraps *value*, a module that returns its loss; None if *value* is not a module."""
    return ModuleNetwork(value) if isinstance(value, torch.nn.Module) else None


def vjp(loss_fn: Callable[..., Array], params: Tree, *inputs: Any) -> tuple[Array, Callable[[Array], Tree]]:
    """
    Implement `Backend.vjp`.

    The seed is converted to the dtype of the loss: with a float16 loss, a scale of 65520 or more overflows, so return a float32
    loss.

    Raises:
        TypeError: *loss_fn* returns something other than one array.
    """

    def of_leaves(values: list[Array]) -> Array:
        loss = loss_fn(unflatten(params, values), *inputs)
        check_loss(loss)
        return loss

    with torch.no_grad():  # so that the results keep no reference to parameters or inputs that require gradients
        loss, backward = torch.func.vjp(of_leaves, leaves(params))  # type: ignore[misc]

    def pullback(seed: Array) -> Tree:
        with torch.no_grad():
            (gradients,) = backward(seed.to(loss.dtype))
        return unflatten(params, gradients)

    return loss, pullback


def scale(tree: Tree, scale: Scale) -> Tree:
    """Implement `core.scaling.scale`. Sparse arrays are returned coalesced."""
    return _applied(tree, scale, kernels.products, scaling.scale)


def unscale(tree: Tree, scale: Scale, dtype: str | None = None) -> Tree:
    """Implement `core.scaling.unscale`. Sparse arrays are returned coalesced."""
    return _applied(tree, scale, _quotients, scaling.unscale, dtype)


def all_finite(tree: Tree) -> Flag:
    """Implement `core.overflow.all_finite`. Values of a sparse array with the same index are summed first."""
    arrays = _values(leaves(tree))
    if _supports(arrays):
        launched = cuda_launches.checked(arrays)
        return kernels.all_finite(arrays) if launched is None else launched.finite
    if has_dtensors(arrays):
        shards = Shards(tree)
        return shards.all_finite(all_finite(shards.local))
    return overflow.all_finite(_rounded(arrays))


def unscale_and_check(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag]:
    """
    Implement `core.overflow.unscale_and_check`. Sparse arrays are returned coalesced.

    In place, this is one pass if there are compiled kernels, or if the scale is a power of two of at least 1 whose value is on
    the host; otherwise two passes.
    """
    unscaled, finite, _ = _unscaled(tree, scale, out, dtype)
    return unscaled, finite


def unscale_check_and_norm(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag, Array]:
    """Implement `core.norms.unscale_check_and_norm`. Sparse arrays are returned coalesced."""
    tensors = leaves(tree)
    if not tensors:
        return norms.unscale_check_and_norm(tree, scale, out, dtype)
    if out is tree:
        result = kernels.unscale_and_square_(tensors, scale) if _supports(tensors, scale) else None
        if result is not None:
            finite, sums = result
            norm = _norm_of_sums(sums)
            return out, finite, norms.global_norm(tensors) if norm is None else norm
    unscaled, finite, norm = _unscaled(tree, scale, out, dtype, collects="norm")
    return unscaled, finite, global_norm(unscaled) if norm is None else norm


def global_norm(tree: Tree) -> Array:
    """Implement `core.norms.global_norm`."""
    arrays = _values(leaves(tree))
    norm = _plain_norm(arrays)
    if norm is None and _supports(arrays):
        launched = cuda_launches.checked(arrays, collects="norm")
        norm = None if launched is None else launched.collected
    if norm is not None:
        return norm
    return norms.unlifted(Shards(arrays).norm()) if has_dtensors(arrays) else norms.global_norm(_rounded(arrays))


def local_norms(tree: Tree) -> Array:
    """Implement `core.norms.local_norms`."""
    arrays = _values(leaves(tree))
    sums = _square_sums(arrays)
    if sums is None and has_dtensors(arrays):
        return torch.stack(list(map(norms.unlifted, Shards(arrays).norms())))
    if sums is None:
        return norms.local_norms(_rounded(arrays))
    result = norms.root(sums)
    for index in kernels.inaccurate_norms(result):
        result[index] = norms.global_norm([arrays[index], result[:0]])  # the empty array widens the norm to the common dtype
    return result


def clip_by_global_norm(tree: Tree, max_norm: float, out: Tree = None) -> tuple[Tree, Array]:
    """Implement `core.norms.clip_by_global_norm`. Sparse arrays are returned coalesced."""
    tensors = leaves(tree)
    arrays = _values(tensors)
    if out is not None:
        _check_layouts(out, leaves(out), tensors)
        _check_targets(out)
    norm = _plain_norm(arrays)
    if norm is None and has_dtensors(arrays):
        lifted = Shards(arrays).norm(f"clipping to {1.0 * max_norm}")
        norm = norms.unlifted(lifted)
        clipped = scale(arrays, norms.coefficient_of(lifted, max_norm))
    elif norm is None:
        clipped, norm = norms.clip_by_global_norm(_rounded(arrays), max_norm)
    else:
        coefficient = norms.clip_coefficient(norm, max_norm)
        if out is tree and kernels.are_disjoint(arrays):
            kernels.multiply_(arrays, coefficient)
            return out, norm
        clipped = kernels.products(arrays, coefficient)
    if out is None:
        return _rebuilt(tree, tensors, clipped), norm
    for target, value in zip(_values(leaves(out)), clipped, strict=True):
        target.copy_(value)
    return out, norm


def measure(tree: Tree) -> Array:
    """Implement `core.statistics.statistics` for the coalesced values of sparse arrays, and the local shards of DTensors."""
    return statistics.measured(_values(leaves(tree)))


def unscale_check_and_measure(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag, Array]:
    """Implement `core.statistics.unscale_check_and_measure`, measuring like `measure`. Sparse arrays are returned coalesced."""
    if out is tree:
        arrays = leaves(tree)
        result = kernels.unscale_and_measure_(arrays, scale)
        if result is not None:
            return out, *result
        supported = _supports(arrays, scale)
        launched = cuda_launches.unscaled(arrays, scale, arrays, collects="statistics") if supported else None
        if launched is not None:
            return out, launched.finite, launched.collected
    measured = measure(tree)
    return *unscale_and_check(tree, scale, out, dtype), measured


def exponent_histogram(tree: Tree) -> Array:
    """Implement `core.statistics.exponent_histogram` for the same values as `measure`."""
    return statistics.exponent_histogram(_values(leaves(tree)))


def _applied(tree: Tree, factor: Scale, kernel: Callable[..., Tree], definition: Callable[..., Tree], *options: Any) -> Tree:
    """Apply *kernel* to the arrays of *tree* if the kernels support them, else *definition*. DTensors are processed by shard."""
    tensors = leaves(tree)
    arrays = _values(tensors)
    supported = _supports(arrays, factor)
    if not supported and has_dtensors(arrays):
        shards = Shards(tree)
        return shards.wrapped(_applied(shards.local, factor, kernel, definition, *options))
    function = kernel if supported else definition
    return _rebuilt(tree, tensors, function(_rounded(arrays), factor, *options))


def _quotients(arrays: list[Array], scale: Scale, dtype: str | None) -> list[Array]:
    launched = cuda_launches.unscaled(arrays, scale, dtype=dtype)
    return kernels.quotients(arrays, scale, dtype) if launched is None else launched.values


def _values(arrays: list[Array]) -> list[Array]:
    """Replace each sparse array by its coalesced values. Return *arrays* itself if none is sparse. Reject other layouts."""
    layouts = {array.layout for array in arrays}
    if layouts <= {torch.strided}:
        return arrays
    if unknown := layouts - WRITABLE - {torch.jagged}:
        raise TypeError(f"each array must be strided, jagged or sparse COO, got {', '.join(sorted(map(str, unknown)))}")
    return [array.coalesce().values() if array.is_sparse else array for array in arrays]


def _rounded(arrays: list[Array]) -> list[Array]:
    """Return *arrays*. Under torch.compile, force the compiler to round 16-bit values."""
    if not torch.compiler.is_compiling():
        return arrays
    # The compiler may keep the float32 results of a previous operation. An operation on the bits makes it round the results.
    narrow = (torch.float16, torch.bfloat16)
    return [
        array if array.dtype not in narrow or array.requires_grad else array.view(torch.int16).bitwise_or(0).view(array.dtype)
        for array in arrays
    ]


def _supports(arrays: list[Array], scale: Scale = 1.0) -> bool:
    """Return True if the kernels support *arrays* and *scale*; if not, callers use the definitions of the core."""
    return kernels.supports(arrays) and (isinstance(scale, int | float) or kernels.supports([scale]))


def _rebuilt(tree: Tree, tensors: list[Array], values: list[Array]) -> Tree:
    """Return *tree* with *values* instead of its leaves *tensors*. The values for a sparse leaf become a sparse array."""
    if any(tensor.is_sparse for tensor in tensors):
        pairs = zip(tensors, values, strict=True)
        values = [_with_values(tensor, value) if tensor.is_sparse else value for tensor, value in pairs]
    return unflatten(tree, values)


def _with_values(array: Array, values: Array) -> Array:
    """Return a sparse array with *values* at the coalesced indices of sparse *array*."""
    indices = array.coalesce().indices()
    return torch.sparse_coo_tensor(indices, values, array.shape, device=values.device, is_coalesced=True, check_invariants=False)


def _unscaled(
    tree: Tree, scale: Scale, out: Tree, dtype: str | None, collects: str | None = None
) -> tuple[Tree, Flag, Array | None]:
    """
    Return the results of `unscale_and_check`, and the "norm" of the results or the "statistics", as *collects* requests.

    The third result is None unless a CUDA launch collects it.
    """
    tensors = leaves(tree)
    if out is tree and kernels.supports_in_one_pass(tensors, scale):
        found_inf = kernels.unscale_in_one_pass_(tensors, scale)
        if found_inf is not None:
            return out, found_inf.logical_not(), None
    if not tensors:
        return *overflow.unscale_and_check(tree, scale, out, dtype), None
    out_tensors = tensors if out is tree or out is None else leaves(out)
    if out is not None:
        _check_layouts(out, out_tensors, tensors)
    arrays = _values(tensors)
    supported = _supports(arrays, scale)
    if not supported and has_dtensors([*arrays, *out_tensors]):
        return *_unscaled_shards(tree, scale, out, dtype), None
    targets = None
    if out is not None:
        targets = arrays if out_tensors is tensors else _values(out_tensors)
    results = _unscaled_directly(arrays, scale, targets, dtype, collects) if supported else None
    if results is None:
        if out is not None and not torch.compiler.is_compiling():  # compiled code writes to copies
            _check_targets(out)
        values, finite = _new_unscaled(arrays, scale, dtype, supported)
        results = Results(values if targets is None else overflow.write(targets, values), finite)
    return (_rebuilt(tree, tensors, results.values) if out is None else out), results.finite, results.collected


def _new_unscaled(arrays: list[Array], scale: Scale, dtype: str | None, supported: bool) -> tuple[list[Array], Flag]:
    """Return new, unscaled arrays, and the finite flag: from the kernels if *supported*, otherwise by the definitions."""
    if supported:
        values = kernels.quotients(arrays, scale, dtype)
        return values, kernels.all_finite(values)
    values = scaling.unscale(_rounded(arrays), scale, dtype)
    return values, overflow.all_finite(_rounded(values))


def _unscaled_directly(
    arrays: list[Array], scale: Scale, targets: list[Array] | None, dtype: str | None, collects: str | None
) -> Results | None:
    """Unscale directly into *targets*, or by a CUDA launch into new tensors. Write nothing and return None if that fails."""
    results = cuda_launches.unscaled(arrays, scale, targets, dtype, collects=collects)
    if results is None and targets is not None and not any_frozen(targets) and _try_to_fill(targets, arrays):
        return Results(targets, kernels.unscale_(targets, scale).logical_not())
    return results


def _unscaled_shards(tree: Tree, scale: Scale, out: Tree, dtype: str | None) -> tuple[Tree, Flag]:
    """Do what `unscale_and_check` does for DTensors, with the placements of *tree*. The flag is combined over all ranks."""
    if out is None:
        shards = Shards(tree)
        local, finite = unscale_and_check(shards.local, scale, dtype=dtype)
        return shards.wrapped(local), shards.all_finite(finite, scale)
    targets = Shards(out, "out")
    shards = targets if out is tree else Shards(tree)
    targets.check_placed_as(shards, "out")
    _, finite = unscale_and_check(shards.local, scale, targets.local, dtype)
    return out, shards.all_finite(finite, scale)


def _check_targets(out: Tree) -> None:
    for path, target in leaves_with_paths(out, "out"):
        check_target(target, path)


def _check_layouts(out: Tree, targets: list[Array], arrays: list[Array]) -> None:
    """Check that each target is strided, or is the sparse source itself and coalesced, since others may have other indices."""
    if {array.layout for array in [*targets, *arrays]} <= {torch.strided}:
        return
    for (path, _), target, array in zip(leaves_with_paths(out, "out"), targets, arrays, strict=True):
        if target.layout not in WRITABLE:
            check_target(target, path)
        if (target.is_sparse or array.is_sparse) and (target is not array or not target.is_coalesced()):
            actual = "an uncoalesced one" if target is array else "another tensor"
            raise ValueError(
                f"{path} must be the sparse tensor of the tree itself, and coalesced, got {actual}; "
                "call coalesce() on the tensors of the tree first, and pass them as out"
            )


def _try_to_fill(targets: list[Array], arrays: list[Array]) -> bool:
    """Copy *arrays* into *targets*, to unscale *targets* in place; return False, and write nothing, if that is not possible."""
    if targets is arrays or all(map(operator.is_, targets, arrays)):
        return kernels.are_disjoint(arrays)
    if any(map(torch.Tensor._is_zerotensor, targets)) or not kernels.supports(targets):
        return False
    disjoint = kernels.are_disjoint([*targets, *arrays])
    if disjoint:
        torch._foreach_copy_(targets, arrays)
    return disjoint


def _plain_norm(arrays: list[Array]) -> Array | None:
    """Return the norm computed by the kernels; None if they do not support the arrays or their norm may be inaccurate."""
    sums = _square_sums(arrays)
    return None if sums is None else _norm_of_sums(sums)


def _norm_of_sums(sums: Array) -> Array | None:
    """Return the norm, given the sum of the squares of each array; None if the norm may be inaccurate."""
    norm = norms.root(kernels.sum_in_order(sums))
    return None if kernels.inaccurate_norms(norm) else norm


def _square_sums(arrays: list[Array]) -> Array | None:
    """Return the sum of the squares of each array in the dtype of the norm; None if the kernels do not support the arrays."""
    if not (arrays and arrays[0].is_cpu and _supports(arrays)):
        return None
    return kernels.square_sums(arrays, getattr(torch, norms.norm_dtype(arrays)))
