"""
CuPy backend. Each function is one fused pass over all arrays on the current stream, without a host synchronization.

It does not use the definitions of the core, because CuPy compiles its arithmetic with subnormal float32 numbers flushed to zero.

A CUDA graph can capture every function. The graph keeps using the memory that was allocated during the capture, so capture with
a separate allocator that lives as long as the graph. Call the function once before, because the first launch compiles a kernel.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any

import array_api_compat.cupy
import cupy

from ...core import overflow
from ...core.dtypes import INTEGERS, accumulation_dtype, name_of
from ...core.scaling import unscaled_dtype
from ...core.trees import leaves, unflatten
from ...core.typing import Array, Flag, Namespace, Scale, Tree
from .launches import launch_norms, launch_pass

NAME = "cupy"


def owns(array: Any) -> bool:
    """Return True if *array* is a CuPy array."""
    return isinstance(array, cupy.ndarray)


def namespace() -> Namespace:
    """Return the library's Array API namespace."""
    return array_api_compat.cupy


def devices() -> tuple[str, ...]:
    """Return the devices on which arrays can be created; () without a driver."""
    if not cupy.cuda.is_available():
        return ()
    return tuple(str(cupy.cuda.Device(index)) for index in range(cupy.cuda.runtime.getDeviceCount()))


def as_network(value: Any) -> Any:  # noqa: ARG001
    """Return None, because CuPy has no networks."""
    return None


def vjp(loss_fn: Callable[..., Array], params: Tree, *inputs: Any) -> tuple[Array, Callable[[Array], Tree]]:  # noqa: ARG001
    """
    Raise an error: CuPy has no differentiation.

    Raises:
        TypeError: Always.
    """
    raise TypeError("CuPy does not differentiate; use Network(loss_fn, params, vjp=...)")


def scale(tree: Tree, scale: Scale) -> Tree:
    """Implement `core.scaling.scale`."""
    return _multiplied(tree, scale)


def unscale(tree: Tree, scale: Scale, dtype: str | None = None) -> Tree:
    """Implement `core.scaling.unscale`."""
    return _unscaled(tree, scale, None, dtype)[0]


def all_finite(tree: Tree) -> Flag:
    """Implement `core.overflow.all_finite`."""
    arrays = leaves(tree)
    with _device_of(arrays):
        floats = [array for array in arrays if name_of(array.dtype) not in INTEGERS]
        return launch_pass(_contiguous(floats), None, 1, divides=False)[0]


def unscale_and_check(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag]:
    """Implement `core.overflow.unscale_and_check`."""
    unscaled, finite, _ = _unscaled(tree, scale, out, dtype)
    return unscaled, finite


def unscale_check_and_norm(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag, Array]:
    """Implement `core.norms.unscale_check_and_norm`."""
    unscaled, finite, sums = _unscaled(tree, scale, out, dtype, with_sums=True)
    with _device_of([sums]):
        return unscaled, finite, launch_norms(sums, _norm_dtype(leaves(unscaled)), 1)[1]


def global_norm(tree: Tree) -> Array:
    """Implement `core.norms.global_norm`."""
    return _norms(tree, 1)[1]


def local_norms(tree: Tree) -> Array:
    """Implement `core.norms.local_norms`."""
    return _norms(tree, 1)[0]


def clip_by_global_norm(tree: Tree, max_norm: float, out: Tree = None) -> tuple[Tree, Array]:
    """Implement `core.norms.clip_by_global_norm`."""
    _, norm, coefficient = _norms(tree, max_norm)
    return _multiplied(tree, coefficient, out), norm


def _multiplied(tree: Tree, factor: Scale, out: Tree = None) -> Tree:
    arrays = leaves(tree)
    with _device_of(arrays):
        sources, targets, direct = _sources_and_targets(arrays, arrays if out is tree else leaves(out), None)
        launch_pass(sources, targets, factor, divides=False)
        if out is not None and not direct:
            overflow.write(out, targets)
    return unflatten(tree, targets) if out is None else out


def _sources_and_targets(
    arrays: list[Array], out_arrays: list[Array], dtype: str | None
) -> tuple[list[Array], list[Array], bool]:
    """Return contiguous sources, arrays for the results, and True if these are *out_arrays*."""
    sources = _contiguous(arrays)
    direct = len(out_arrays) > 0 and _can_write(out_arrays, sources)
    return sources, out_arrays if direct else _like(sources, dtype), direct


def _unscaled(
    tree: Tree, scale: Scale, out: Tree, dtype: str | None, *, with_sums: bool = False
) -> tuple[Tree, Flag, Array | None]:
    """Return the unscaled tree, the finite flag and, with *with_sums*, the sum of the squares of each array."""
    arrays = leaves(tree)
    with _device_of(arrays):
        sources, targets, direct = _sources_and_targets(arrays, arrays if out is tree else leaves(out), dtype)
        sums = _norm_dtype(targets) if with_sums else None
        finite, totals = launch_pass(sources, targets, scale, divides=True, sums=sums)
        if out is not None and not direct:
            overflow.write(out, targets)
    return (unflatten(tree, targets) if out is None else out), finite, totals


def _norms(tree: Tree, limit: float) -> tuple[Array, Array, Array]:
    arrays = leaves(tree)
    with _device_of(arrays):
        sources = _contiguous(arrays)
        dtype = _norm_dtype(sources)
        _, totals = launch_pass(sources, None, 1, divides=False, sums=dtype)
        return launch_norms(totals, dtype, limit)


def _norm_dtype(arrays: list[Array]) -> str:
    return accumulation_dtype([name_of(array.dtype) for array in arrays])


def _device_of(arrays: list[Array]) -> AbstractContextManager[Any]:
    return arrays[0].device if arrays else nullcontext()


def _contiguous(arrays: list[Array]) -> list[Array]:
    """Return *arrays* with copies of those that are not contiguous; the same list if there are none."""
    if all(array.flags.c_contiguous for array in arrays):
        return arrays
    return [array if array.flags.c_contiguous else array.copy(order="C") for array in arrays]


def _like(arrays: list[Array], dtype: str | None) -> list[Array]:
    """Return new arrays in the `unscaled_dtype` of each array."""
    dtypes = (array.dtype if dtype is None else unscaled_dtype(name_of(array.dtype), dtype) for array in arrays)
    return [cupy.empty(array.shape, dtype=result_dtype) for array, result_dtype in zip(arrays, dtypes, strict=True)]


def _can_write(targets: list[Array], sources: list[Array]) -> bool:
    """Return True if a fused pass can write *targets*: each is its own source, or shares no memory with other arrays."""
    spans = [_span(source) for source in sources]
    if targets is not sources:
        if not all(target.flags.c_contiguous for target in targets):
            return False
        spans += [span for span, source in zip(map(_span, targets), tuple(spans), strict=True) if span != source]
    spans.sort()
    return all(left[1] <= right[0] for left, right in pairwise(spans))


def _span(array: Array) -> tuple[int, int]:
    start = array.data.ptr
    return start, start + array.nbytes
