"""
CuPy backend. No function needs a host synchronization. Fused passes process all arrays on the current stream.

The backend does not use the definitions of the core, because CuPy's arithmetic flushes subnormal float32 numbers to zero.

A CUDA graph can capture every function. The graph keeps using the memory that was allocated during the capture, so capture with
a separate allocator that lives as long as the graph. Call the function once before the capture, because the first launch
compiles a kernel.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from typing import Any

import array_api_compat.cupy
import cupy

from ...core import overflow, statistics
from ...core.dtypes import INTEGERS, name_of, unscaled_dtype
from ...core.norms import norm_dtype
from ...core.trees import leaves, unflatten
from ...core.typing import Array, Flag, Namespace, Scale, Tree
from .launches import Operands, launch_histograms, launch_measuring_pass, launch_norms, launch_pass, operands_of, plan_of

NAME = "cupy"

# CuPy's private attribute is ten times faster than `flags`, which matters for thousands of arrays.
_is_contiguous = attrgetter("_c_contiguous" if hasattr(cupy.ndarray, "_c_contiguous") else "flags.c_contiguous")


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
    """Raise a TypeError, because CuPy has no differentiation."""
    raise TypeError("CuPy does not differentiate; use Network(loss_fn, params, vjp=...)")


def scale(tree: Tree, scale: Scale) -> Tree:
    """Implement `core.scaling.scale`."""
    return _run(tree, lambda operands, _: launch_pass(operands, scale, divides=False))[0]


def unscale(tree: Tree, scale: Scale, dtype: str | None = None) -> Tree:
    """Implement `core.scaling.unscale`."""
    return _run(tree, lambda operands, _: launch_pass(operands, scale, divides=True), None, dtype)[0]


def all_finite(tree: Tree) -> Flag:
    """Implement `core.overflow.all_finite`."""
    arrays = leaves(tree)
    with _device_of(arrays):
        floats = _contiguous([array for array in arrays if name_of(array.dtype) not in INTEGERS])
        return launch_pass(operands_of(floats), 1, divides=False)[0]


def unscale_and_check(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag]:
    """Implement `core.overflow.unscale_and_check`."""
    return _run(tree, lambda operands, _: launch_pass(operands, scale, divides=True), out, dtype)[:2]


def unscale_check_and_norm(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag, Array]:
    """Implement `core.norms.unscale_check_and_norm`."""

    def launch(operands: Operands, targets: list[Array]) -> tuple[Flag, Array | None]:
        return launch_pass(operands, scale, divides=True, sums=norm_dtype(targets))

    unscaled, finite, sums = _run(tree, launch, out, dtype)
    with _device_of([sums]):
        return unscaled, finite, launch_norms(sums, norm_dtype(leaves(unscaled)))[1]


def global_norm(tree: Tree) -> Array:
    """Implement `core.norms.global_norm`."""
    return _norms(tree)[1]


def local_norms(tree: Tree) -> Array:
    """Implement `core.norms.local_norms`."""
    return _norms(tree)[0]


def clip_by_global_norm(tree: Tree, max_norm: float, out: Tree = None) -> tuple[Tree, Array]:
    """Implement `core.norms.clip_by_global_norm`."""
    _, norm, coefficient = _norms(tree, max_norm)
    return _run(tree, lambda operands, _: launch_pass(operands, coefficient, divides=False), out)[0], norm


def measure(tree: Tree) -> Array:
    """Implement `core.statistics.statistics`."""
    arrays = leaves(tree)
    statistics.check_sizes(arrays)
    with _device_of(arrays):
        sources = _contiguous(arrays)
        return launch_measuring_pass(operands_of(sources), 1)[1]


def unscale_check_and_measure(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag, Array]:
    """Implement `core.statistics.unscale_check_and_measure`."""
    statistics.check_sizes(leaves(tree))
    return _run(tree, lambda operands, _: launch_measuring_pass(operands, scale), out, dtype)


def exponent_histogram(tree: Tree) -> Array:
    """Implement `core.statistics.exponent_histogram`."""
    arrays = leaves(tree)
    statistics.check_sizes(arrays)
    with _device_of(arrays):
        sources = _contiguous(arrays)
        return launch_histograms(operands_of(sources))


def _run(
    tree: Tree, launch: Callable[[Operands, list[Array]], tuple[Flag, Any]], out: Tree = None, dtype: str | None = None
) -> tuple[Tree, Flag, Any]:
    """Call *launch* with operands and targets; return the tree of results, the finite flag, and the other result of *launch*."""
    arrays = leaves(tree)
    out_arrays = arrays if out is tree else leaves(out)
    with _device_of(arrays):
        sources = _contiguous(arrays)
        targets, operands = _targets(sources, out_arrays, dtype)
        finite, result = launch(operands, targets)
        if out is not None and targets is not out_arrays:
            overflow.write(out, targets)
    return (unflatten(tree, targets) if out is None else out), finite, result


def _targets(sources: list[Array], out_arrays: list[Array], dtype: str | None) -> tuple[list[Array], Operands]:
    """Return the arrays that a launch writes, *out_arrays* if it can write to them or else new ones, and its operands."""
    if out_arrays and all(map(_is_contiguous, out_arrays)):
        operands = operands_of(sources, out_arrays)
        if plan_of(operands).writable:
            return out_arrays, operands
    targets = _like(sources, dtype)
    return targets, operands_of(sources, targets)


def _norms(tree: Tree, limit: float = 1.0) -> tuple[Array, Array, Array]:
    """Return the local norms, the global norm, and the coefficient that clips to *limit*."""
    arrays = leaves(tree)
    with _device_of(arrays):
        sources = _contiguous(arrays)
        dtype = norm_dtype(sources)
        _, sums = launch_pass(operands_of(sources), 1, divides=False, sums=dtype)
        return launch_norms(sums, dtype, limit)


def _device_of(arrays: list[Array]) -> AbstractContextManager[Any]:
    return arrays[0].device if arrays else nullcontext()


def _contiguous(arrays: list[Array]) -> list[Array]:
    """Replace non-contiguous arrays by contiguous copies, which the caller must keep until the launch; `Operands` does not."""
    if all(map(_is_contiguous, arrays)):
        return arrays
    return [array if _is_contiguous(array) else array.copy(order="C") for array in arrays]


def _like(arrays: list[Array], dtype: str | None) -> list[Array]:
    """Return new, uninitialized arrays with the shapes of *arrays* and the `unscaled_dtype` of each."""
    dtypes = (array.dtype if dtype is None else unscaled_dtype(name_of(array.dtype), dtype) for array in arrays)
    return [cupy.empty(array.shape, dtype=result_dtype) for array, result_dtype in zip(arrays, dtypes, strict=True)]
