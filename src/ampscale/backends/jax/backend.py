"""
JAX: its own differentiation, any of its containers, and IEEE 754 where XLA's CPU code falls short of it.

A verb is one compiled program over all arrays of a tree, within a program of the user's a part of that. Compiling takes a
while for each kind of tree, so arrays are taken one by one, or by hundreds, until such a tree has come a few times.
"""

from collections import deque
from collections.abc import Callable, Hashable
from functools import lru_cache, partial, wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...core.dtypes import FLOATS, accumulation_dtype, name_of
from ...core.norms import CLIP_EPSILON, LIFTS
from ...core.scaling import unscaled_dtype
from ...core.trees import Opened, leaves, register_container, unflatten
from ...core.typing import Array, Flag, Namespace, Scale, Tree
from . import kernels
from .ieee754 import divide

NAME = "jax"
_Kernel = Callable[..., kernels.Row]
_Columns = tuple[list[Array], list[Flag], list[Array]]
_OFTEN = 4  # calls until a program is compiled for just these arrays
_AT_ONCE = 256  # arrays in one program, which takes XLA up to some tens of milliseconds for each


def owns(array: Any) -> bool:
    """Whether *array* belongs to this library."""
    return isinstance(array, jax.Array)


def namespace() -> Namespace:
    """The library's Array API namespace."""
    return jnp


def devices() -> tuple[str, ...]:
    """Where arrays can be put here."""
    return tuple(str(device) for device in jax.devices())


def as_network(value: Any) -> Any:  # noqa: ARG001
    """None: JAX has no networks of its own; a function of parameters is a `Network`'s loss."""
    return None


def vjp(loss_fn: Callable[..., Array], params: Tree, *inputs: Any) -> tuple[Array, Callable[[Array], Tree]]:
    """
    The loss, and what turns a seed into gradients.

    Args:
        loss_fn: ``loss_fn(params, *inputs) -> loss``, on JAX's arrays.
        params: Floating-point arrays.
        inputs: Handed to *loss_fn* as they are.

    Returns:
        What *loss_fn* returned, and ``pullback(seed) -> gradients``: the structure of *params*, each a new array in the
        dtype of its parameter, zero where the loss does not depend on it. JAX takes the seed in the loss's dtype: a
        float16 loss overflows from a scale of 65520, so return a float32 one.
    """

    def of_leaves(values: list[Array]) -> Array:
        return loss_fn(unflatten(params, values), *inputs)

    loss, backward = jax.vjp(of_leaves, leaves(params))

    def pullback(seed: Array) -> Tree:
        (gradients,) = backward(seed.astype(loss.dtype))
        return unflatten(params, gradients)

    return loss, pullback


def scale(tree: Tree, scale: Scale) -> Tree:
    """As `core.scaling.scale`."""
    arrays = leaves(tree)
    return unflatten(tree, _scale(arrays, _number(scale)))


def unscale(tree: Tree, scale: Scale, dtype: str | None = None) -> Tree:
    """
    As `core.scaling.unscale`.

    Raises:
        TypeError: *dtype* is "float64", which JAX has with jax_enable_x64 only.
    """
    _check_dtype(dtype)
    arrays = leaves(tree)
    return unflatten(tree, _unscale(arrays, _number(scale), dtype=dtype))


def all_finite(tree: Tree) -> Flag:
    """As `core.overflow.all_finite`."""
    return _all_finite(leaves(tree))


def unscale_and_check(
    tree: Tree,
    scale: Scale,
    out: Tree = None,  # noqa: ARG001
    dtype: str | None = None,
) -> tuple[Tree, Flag]:
    """As `core.overflow.unscale_and_check`; *out* is None, since JAX's arrays cannot be written to."""
    _check_dtype(dtype)
    arrays = leaves(tree)
    values, finite = _unscale_and_check(arrays, _number(scale), dtype=dtype)
    return unflatten(tree, values), finite


def unscale_check_and_norm(
    tree: Tree,
    scale: Scale,
    out: Tree = None,  # noqa: ARG001
    dtype: str | None = None,
) -> tuple[Tree, Flag, Array]:
    """As `core.norms.unscale_check_and_norm`; *out* is None, since JAX's arrays cannot be written to."""
    _check_dtype(dtype)
    arrays = leaves(tree)
    values, finite, norm = _unscale_check_and_norm(arrays, _number(scale), dtype=dtype)
    return unflatten(tree, values), finite, norm


def global_norm(tree: Tree) -> Array:
    """As `core.norms.global_norm`; without jax_enable_x64 too the sums are float64's."""
    return _global_norm(leaves(tree))


def local_norms(tree: Tree) -> Array:
    """As `core.norms.local_norms`."""
    return _local_norms(leaves(tree))


def clip_by_global_norm(tree: Tree, max_norm: float) -> tuple[Tree, Array]:
    """As `core.norms.clip_by_global_norm`."""
    arrays = leaves(tree)
    values, norm = _clip_by_global_norm(arrays, _number(max_norm))
    return unflatten(tree, values), norm


def _one_program(*options: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """
    Compiles a function of a list of arrays, of more arrays, and of *options*, which are for the compiler to know.

    It is one program where its arrays are traced, or where it is called with such arrays often. Else it is called as it
    is, and compiles what it uses.
    """

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        compiled = jax.jit(function, static_argnames=options)

        @wraps(function)
        def run(arrays: list[Array], *operands: Array, **how: Any) -> Any:
            at_once = _is_traced(arrays, *operands)
            if not at_once and len(arrays) <= _AT_ONCE:
                at_once = _is_known((function, *how.values()), arrays)
            with jax.enable_x64(True):
                return (compiled if at_once else function)(arrays, *operands, **how)

        return run

    return decorated


@_one_program()
def _scale(arrays: list[Array], scale: Array) -> list[Array]:
    return _each(kernels.scaled, arrays, scale)[0]


@_one_program("dtype")
def _unscale(arrays: list[Array], scale: Array, dtype: str | None) -> list[Array]:
    return _each(kernels.unscaled, arrays, scale, dtype=dtype)[0]


@_one_program()
def _all_finite(arrays: list[Array]) -> Flag:
    _, flags, _ = _each(kernels.is_finite, arrays)
    return _all(flags)


@_one_program("dtype")
def _unscale_and_check(arrays: list[Array], scale: Array, dtype: str | None) -> tuple[list[Array], Flag]:
    if _is_traced(arrays, scale):
        values, flags, _ = _each(kernels.checked, arrays, scale, dtype=dtype)
    else:  # of what other verbs have compiled too
        values = _each(kernels.unscaled, arrays, scale, dtype=dtype)[0]
        flags = _each(kernels.is_finite, values)[1]
    return values, _all(flags)


@_one_program("dtype")
def _unscale_check_and_norm(arrays: list[Array], scale: Array, dtype: str | None) -> tuple[list[Array], Flag, Array]:
    within = accumulation_dtype([unscaled_dtype(name_of(array.dtype), dtype) for array in arrays])
    if _is_traced(arrays, scale):
        values, flags, sums = _each(kernels.measured, arrays, scale, dtype=dtype, within=within)
    else:
        values = _each(kernels.unscaled, arrays, scale, dtype=dtype)[0]
        flags = _each(kernels.is_finite, values)[1]
        sums = _each(kernels.squared, values, within=within)[2]
    return values, _all(flags), _root(sums, within)


@_one_program()
def _global_norm(arrays: list[Array]) -> Array:
    within = _norm_dtype(arrays)
    return _root(_each(kernels.squared, arrays, within=within)[2], within)


@_one_program()
def _local_norms(arrays: list[Array]) -> Array:
    within = _norm_dtype(arrays)
    return _roots(_each(kernels.squared, arrays, within=within)[2], within)


@_one_program()
def _clip_by_global_norm(arrays: list[Array], max_norm: Array) -> tuple[list[Array], Array]:
    within = _norm_dtype(arrays)
    coefficient, norm = _coefficient(_each(kernels.squared, arrays, within=within)[2], max_norm, within)
    return _each(kernels.scaled, arrays, coefficient)[0], norm


def _each(kernel: _Kernel, arrays: list[Array], *operands: Array, **options: Any) -> _Columns:
    """What *kernel* tells of each array: the results, and the flags and the sums, each of shape () or (n,), in order."""
    if _is_traced(arrays, *operands):
        return _each_alone(kernel, arrays, *operands, **options)
    columns: _Columns = [], [], []
    for start in range(0, len(arrays), _AT_ONCE):
        some = arrays[start : start + _AT_ONCE]
        at_once = len(arrays) > _AT_ONCE and _is_known((kernel, *options.values()), some)
        each = _rows if at_once else _each_alone
        for column, more in zip(columns, each(kernel, some, *operands, **options), strict=True):
            column.extend(more)
    return columns


def _each_alone(kernel: _Kernel, arrays: list[Array], *operands: Array, **options: Any) -> _Columns:
    rows = [_row(kernel, array, *operands, **options) for array in arrays]
    values, flags, sums = ([row[index] for row in rows if row[index] is not None] for index in range(3))
    return values, flags, sums


@partial(jax.jit, static_argnums=0, static_argnames=("dtype", "within"))
def _rows(kernel: _Kernel, arrays: list[Array], *operands: Array, **options: Any) -> _Columns:
    """`_each` of some hundred arrays, as one program."""
    values, flags, sums = _each_alone(kernel, arrays, *operands, **options)
    return values, [jnp.stack(flags)] if flags else [], [jnp.stack(sums)] if sums else []


@partial(jax.jit, static_argnums=0, static_argnames=("dtype", "within"))
def _row(kernel: _Kernel, array: Array, *operands: Array, **options: Any) -> kernels.Row:
    """One array. Within a program, what is compiled for one serves all of its shape."""
    return kernel(array, *operands, **options)


@jax.jit
def _all(flags: list[Flag]) -> Flag:
    return jnp.all(jnp.concatenate([jnp.reshape(flag, -1) for flag in flags])) if flags else jnp.ones((), bool)


@partial(jax.jit, static_argnums=1)
def _root(sums: list[Array], within: str) -> Array:
    """The root of the sums, added up one by one."""
    return _unlifted_root(_total(sums, within), within)


@partial(jax.jit, static_argnums=1)
def _roots(sums: list[Array], within: str) -> Array:
    """The root of each."""
    return jax.vmap(lambda one: _unlifted_root(one, within))(_in_one(sums))


@partial(jax.jit, static_argnums=2)
def _coefficient(sums: list[Array], limit: Array, within: str) -> tuple[Array, Array]:
    """Return the coefficient of clipping, in float64, and the norm: both of shape ()."""
    total, down = _total(sums, within), LIFTS[within].down
    norm = _unlifted_root(total, within)
    beyond = kernels.in_dtype(jnp.sqrt(total[0]) * (down / total[1]), within)
    return jnp.where(jnp.isinf(norm), _ratio(beyond, limit * down), _ratio(norm, limit)), norm


def _total(sums: list[Array], within: str) -> Array:
    nothing = jnp.asarray([0.0, LIFTS[within].up])
    return jax.lax.scan(lambda total, one: (kernels.plus(total, one, within), None), nothing, _in_one(sums))[0]


def _unlifted_root(total: Array, within: str) -> Array:
    """The root of a sum of squares as `kernels.plus` has it, in *within*."""
    square, lift = total
    if within == "float32":
        return kernels.in_dtype(jnp.sqrt(square) / lift, within)
    last = jnp.where(lift > 1, kernels.LAST_LIFT, 1.0)
    return divide(jnp.sqrt(square) / (lift / last), last)


def _ratio(norm: Array, limit: Array) -> Array:
    """As `core.norms.clip_coefficient`, in float64: each step is rounded to the dtype of *norm*."""
    within = norm.dtype.name
    limit = kernels.in_dtype(jnp.minimum(limit, FLOATS[within].largest), within)
    rounded = partial(kernels.rounded, dtype=within)
    largest, wanted = (kernels.in_dtype(number, "float64") for number in (jnp.where(norm > limit, norm, limit), limit))
    return rounded(wanted / rounded(largest + rounded(jnp.float64(CLIP_EPSILON))))


def _in_one(sums: list[Array]) -> Array:
    """Sums as `kernels.plus` has them, of shape (2,) or (n, 2), as one array of shape (n, 2)."""
    return jnp.concatenate([jnp.zeros((0, 2)), *(jnp.reshape(one, (-1, 2)) for one in sums)])


def _is_traced(arrays: list[Array], *operands: Any) -> bool:
    return any(isinstance(array, jax.core.Tracer) for array in (*arrays, *operands))


def _is_known(what: tuple[Hashable, ...], arrays: list[Array]) -> bool:
    """Whether this is asked often of the same *what* and arrays of the same shapes and dtypes."""
    times = _times(what, tuple((array.shape, array.dtype) for array in arrays))
    times.append(None)
    return len(times) == _OFTEN


@lru_cache(maxsize=1024)
def _times(what: tuple[Hashable, ...], kinds: tuple[Hashable, ...]) -> deque[None]:  # noqa: ARG001
    """As many as `_is_known` was asked of these, up to that."""
    return deque(maxlen=_OFTEN)


def _number(scale: Scale) -> Array:
    """*scale* as an array; a Python number is one of float64, to be rounded where it is used."""
    return np.float64(scale) if isinstance(scale, int | float) else scale


def _norm_dtype(arrays: list[Array]) -> str:
    return accumulation_dtype([name_of(array.dtype) for array in arrays])


def _check_dtype(dtype: str | None) -> None:
    if dtype == "float64" and not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        raise TypeError("dtype must be 'float32' or None on JAX without jax_enable_x64, got 'float64'")


def _opened(value: Any) -> Opened | None:
    """What a container that is registered with JAX holds, and what rebuilds it; None where *value* is none."""
    children, structure = jax.tree_util.tree_flatten(value, is_leaf=lambda node: node is not value)
    return None if jax.tree_util.treedef_is_leaf(structure) else (children, partial(jax.tree_util.tree_unflatten, structure))


register_container(_opened)
