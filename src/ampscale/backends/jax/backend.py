"""
JAX backend. `vjp` uses JAX's autodiff, all JAX pytrees are supported, and `ieee754` corrects the arithmetic of XLA's CPU code.

Each function is one compiled program over all arrays of a tree, or part of the user's program under jit. Compilation takes time
for every new combination of shapes, so until a tree has occurred a few times, its arrays are processed singly or in chunks.
"""

from collections import deque
from collections.abc import Callable, Hashable
from functools import lru_cache, partial, wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...core.dtypes import accumulation_dtype, name_of, unscaled_dtype
from ...core.statistics import BINS, COLUMNS, check_sizes
from ...core.trees import Flattened, leaves, register_container, unflatten
from ...core.typing import Array, Flag, Namespace, Scale, Tree
from . import kernels, norms
from .mapped_axes import varying_like

NAME = "jax"
_Kernel = Callable[..., kernels.Row]
_Columns = tuple[list[Array], list[Flag], list[Array], list[Array]]
_OFTEN = 4  # from the fourth call with the same shapes and dtypes on, one compiled program processes the arrays
_CHUNK = 256  # maximum number of arrays in one program; each array adds up to tens of milliseconds of compilation


def _one_program(*options: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """
    Return a decorator that compiles a function of the arrays of a tree, further arrays and static *options* into one program.

    The compiled program is used under jit tracing, and from the `_OFTEN`-th call with the same shapes and dtypes on. Otherwise
    the function runs uncompiled, and only the functions that it calls are compiled.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        compiled = jax.jit(function, static_argnames=options)

        @wraps(function)
        def run(tree: Tree, *operands: Scale, **static: Any) -> Any:
            if static.get("dtype") == "float64" and not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
                raise TypeError("dtype must be 'float32' or None on JAX without jax_enable_x64, got 'float64'")
            arrays = leaves(tree)
            # The kernels round float64 numbers to their compute dtype.
            numbers = [np.float64(operand) if isinstance(operand, int | float) else operand for operand in operands]
            as_one_program = _is_traced(arrays, *numbers)
            if not as_one_program and len(arrays) <= _CHUNK:
                as_one_program = _is_frequent((function, *static.values()), arrays)
            with jax.enable_x64(True):
                return (compiled if as_one_program else function)(arrays, *numbers, **static)

        return run

    return decorate


def owns(array: Any) -> bool:
    """Return True if *array* is a JAX array."""
    return isinstance(array, jax.Array)


def namespace() -> Namespace:
    """Return the library's Array API namespace."""
    return jnp


def devices() -> tuple[str, ...]:
    """Return the devices on which arrays can be created."""
    return tuple(str(device) for device in jax.devices())


def as_network(value: Any) -> Any:  # noqa: ARG001
    """Return None, because JAX has no networks."""
    return None


def vjp(loss_fn: Callable[..., Array], params: Tree, *inputs: Any) -> tuple[Array, Callable[[Array], Tree]]:
    """
    Implement `Backend.vjp`.

    The seed is converted to the dtype of the loss: with a float16 loss, a scale of 65520 or more overflows, so return a float32
    loss. In `jax.shard_map`, the gradients are those of each rank's own loss, even with ``check_vma=True``.
    """

    def of_leaves(values: list[Array]) -> Array:
        return loss_fn(unflatten(params, values), *inputs)

    arrays = leaves(params)
    loss, backward = jax.vjp(of_leaves, arrays)
    if isinstance(loss, jax.Array) and not jnp.issubdtype(loss.dtype, jnp.inexact):  # JAX would return gradients of zero
        raise TypeError(f"a network must return a floating-point loss, got {loss.dtype}")
    varying = varying_like(loss, arrays)
    if varying is not arrays:  # else JAX would add up the gradients of all ranks, and 16-bit gradients in 16 bits
        loss, backward = jax.vjp(of_leaves, varying)

    def pullback(seed: Array) -> Tree:
        (gradients,) = backward(seed.astype(loss.dtype))
        return unflatten(params, gradients)

    return loss, pullback


def scale(tree: Tree, scale: Scale) -> Tree:
    """Implement `core.scaling.scale`."""
    return unflatten(tree, _scale(tree, scale))


def unscale(tree: Tree, scale: Scale, dtype: str | None = None) -> Tree:
    """
    Implement `core.scaling.unscale`.

    Raises:
        TypeError: *dtype* is "float64", which requires jax_enable_x64.
    """
    return unflatten(tree, _unscale(tree, scale, dtype=dtype))


@_one_program()
def all_finite(tree: list[Array]) -> Flag:
    """Implement `core.overflow.all_finite`."""
    return _all(_map(kernels.is_finite, tree)[1])


def unscale_and_check(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag]:  # noqa: ARG001
    """Implement `core.overflow.unscale_and_check`. *out* is None, because JAX arrays are immutable."""
    values, finite = _unscale_and_check(tree, scale, dtype=dtype)
    return unflatten(tree, values), finite


def unscale_check_and_norm(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag, Array]:  # noqa: ARG001
    """Implement `core.norms.unscale_check_and_norm`. *out* is None, because JAX arrays are immutable."""
    values, finite, norm = _unscale_check_and_norm(tree, scale, dtype=dtype)
    return unflatten(tree, values), finite, norm


@_one_program()
def global_norm(tree: list[Array]) -> Array:
    """Implement `core.norms.global_norm`. The sums are float64 even without jax_enable_x64."""
    return norms.root(*_square_sums(tree))


@_one_program()
def local_norms(tree: list[Array]) -> Array:
    """Implement `core.norms.local_norms`."""
    return norms.roots(*_square_sums(tree))


def clip_by_global_norm(tree: Tree, max_norm: float, out: Tree = None) -> tuple[Tree, Array]:  # noqa: ARG001
    """Implement `core.norms.clip_by_global_norm`. *out* is None, because JAX arrays are immutable."""
    values, norm = _clip_by_global_norm(tree, max_norm)
    return unflatten(tree, values), norm


@_one_program()
def measure(tree: list[Array]) -> Array:
    """Implement `core.statistics.statistics`, from the bits of the values: XLA's CPU code flushes subnormal numbers to zero."""
    check_sizes(tree)
    return _stacked(_map(kernels.counted, tree)[3], len(COLUMNS))


def unscale_check_and_measure(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag, Array]:
    """Implement `core.statistics.unscale_check_and_measure`. *out* is None, because JAX arrays are immutable."""
    measured = measure(tree)
    return *unscale_and_check(tree, scale, out, dtype), measured


@_one_program()
def exponent_histogram(tree: list[Array]) -> Array:
    """Implement `core.statistics.exponent_histogram`."""
    check_sizes(tree)
    return _stacked(_map(kernels.histogram, tree)[3], BINS)


@_one_program()
def _scale(arrays: list[Array], scale: Array) -> list[Array]:
    return _map(kernels.scaled, arrays, scale)[0]


@_one_program("dtype")
def _unscale(arrays: list[Array], scale: Array, dtype: str | None) -> list[Array]:
    return _map(kernels.unscaled, arrays, scale, dtype=dtype)[0]


@_one_program("dtype")
def _unscale_and_check(arrays: list[Array], scale: Array, dtype: str | None) -> tuple[list[Array], Flag]:
    if _is_traced(arrays, scale):
        values, flags, *_ = _map(kernels.checked, arrays, scale, dtype=dtype)
    else:  # reuse kernels that other functions may have compiled already
        values = _map(kernels.unscaled, arrays, scale, dtype=dtype)[0]
        flags = _map(kernels.is_finite, values)[1]
    return values, _all(flags)


@_one_program("dtype")
def _unscale_check_and_norm(arrays: list[Array], scale: Array, dtype: str | None) -> tuple[list[Array], Flag, Array]:
    norm_dtype = _norm_dtype(arrays, dtype)
    if _is_traced(arrays, scale):
        values, flags, sums, _ = _map(kernels.checked_and_squared, arrays, scale, dtype=dtype, norm_dtype=norm_dtype)
    else:  # reuse kernels, as in `_unscale_and_check`
        values = _map(kernels.unscaled, arrays, scale, dtype=dtype)[0]
        flags = _map(kernels.is_finite, values)[1]
        sums, _ = _square_sums(values)
    return values, _all(flags), norms.root(sums, norm_dtype)


@_one_program()
def _clip_by_global_norm(arrays: list[Array], max_norm: Array) -> tuple[list[Array], Array]:
    sums, norm_dtype = _square_sums(arrays)
    coefficient, norm = norms.coefficient(sums, max_norm, norm_dtype)
    return _map(kernels.scaled, arrays, coefficient)[0], norm


def _square_sums(arrays: list[Array]) -> tuple[list[Array], str]:
    """Return the sum of the squares of each array, and the dtype of their norm."""
    norm_dtype = _norm_dtype(arrays)
    return _map(kernels.squared, arrays, norm_dtype=norm_dtype)[2], norm_dtype


def _map(kernel: _Kernel, arrays: list[Array], *operands: Array, **options: Any) -> _Columns:
    """
    Apply *kernel* to each array, and return lists of the values, flags, sums and counts of its `kernels.Row` results.

    The list of values has one item for each array. An item of another list may be a stack of the results for a whole chunk.
    """
    if _is_traced(arrays, *operands):
        return _map_singly(kernel, arrays, *operands, **options)
    columns: _Columns = [], [], [], []
    for start in range(0, len(arrays), _CHUNK):
        chunk = arrays[start : start + _CHUNK]
        as_one_program = len(arrays) > _CHUNK and _is_frequent((kernel, *options.values()), chunk)
        map_chunk = _map_chunk if as_one_program else _map_singly
        for column, values in zip(columns, map_chunk(kernel, chunk, *operands, **options), strict=True):
            column.extend(values)
    return columns


def _map_singly(kernel: _Kernel, arrays: list[Array], *operands: Array, **options: Any) -> _Columns:
    """Do what `_map` does, with one call of the kernel for each array."""
    rows = [_map_one(kernel, array, *operands, **options) for array in arrays]
    values, flags, sums, counts = ([row[index] for row in rows if row[index] is not None] for index in range(4))
    return values, flags, sums, counts


@partial(jax.jit, static_argnums=0, static_argnames=("dtype", "norm_dtype"))
def _map_chunk(kernel: _Kernel, arrays: list[Array], *operands: Array, **options: Any) -> _Columns:
    """Apply *kernel* to up to `_CHUNK` arrays in one program, and stack the results other than values."""
    values, *results = _map_singly(kernel, arrays, *operands, **options)
    flags, sums, counts = ([jnp.stack(column)] if column else [] for column in results)
    return values, flags, sums, counts


@partial(jax.jit, static_argnums=0, static_argnames=("dtype", "norm_dtype"))
def _map_one(kernel: _Kernel, array: Array, *operands: Array, **options: Any) -> kernels.Row:
    """Apply *kernel* to one array. Within a program, arrays of the same shape and dtype share the compiled code."""
    return kernel(array, *operands, **options)


@jax.jit
def _all(flags: list[Flag]) -> Flag:
    return jnp.all(jnp.concatenate([jnp.reshape(flag, -1) for flag in flags])) if flags else jnp.ones((), bool)


def _stacked(rows: list[Array], columns: int) -> Array:
    """Return *rows*, of shape (columns,) or (n, columns), as one int32 array of shape (number of rows, columns)."""
    return jnp.concatenate([jnp.zeros((0, columns), jnp.int32), *(jnp.reshape(row, (-1, columns)) for row in rows)])


def _is_traced(arrays: list[Array], *operands: Any) -> bool:
    return any(isinstance(array, jax.core.Tracer) for array in (*arrays, *operands))


def _is_frequent(program: tuple[Hashable, ...], arrays: list[Array]) -> bool:
    """Return True if this is at least the `_OFTEN`-th call with this *program* and arrays of these shapes and dtypes."""
    calls = _calls(program, tuple((array.shape, array.dtype) for array in arrays))
    calls.append(None)
    return len(calls) == _OFTEN  # the counter is never longer


@lru_cache(maxsize=1024)
def _calls(program: tuple[Hashable, ...], signature: tuple[Hashable, ...]) -> deque[None]:  # noqa: ARG001
    """Return the call counter, which stops at `_OFTEN`, for these arguments. The cache bounds the number of counters."""
    return deque(maxlen=_OFTEN)


def _norm_dtype(arrays: list[Array], dtype: str | None = None) -> str:
    return accumulation_dtype([unscaled_dtype(name_of(array.dtype), dtype) for array in arrays])


def _flattened(value: Any) -> Flattened | None:
    """Return the children of a JAX pytree node, and a function that rebuilds the node; None if *value* is a leaf."""
    children, structure = jax.tree_util.tree_flatten(value, is_leaf=lambda node: node is not value)
    return None if jax.tree_util.treedef_is_leaf(structure) else (children, partial(jax.tree_util.tree_unflatten, structure))


register_container(_flattened)
