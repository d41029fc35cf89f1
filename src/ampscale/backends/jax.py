"""JAX: its own differentiation, any of its containers, and IEEE 754 where XLA's CPU code falls short of it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ..core import overflow, scaling
from ..core.dtypes import COMPLEX_PARTS, name_of, wide, widest
from ..core.norms import CLIP_EPSILON
from ..core.trees import Opened, leaves, map_leaves, open_with, rebuilt
from ..core.typing import Array, Flag, Namespace, Scale, Tree
from .jax_exact import divide, multiply, narrowed, widened

NAME = "jax"


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
        return loss_fn(rebuilt(params, values), *inputs)

    loss, backward = jax.vjp(of_leaves, leaves(params))

    def pullback(seed: Array) -> Tree:
        (gradients,) = backward(seed.astype(loss.dtype))
        return rebuilt(params, gradients)

    return loss, pullback


def scale(tree: Tree, scale: Scale) -> Tree:
    """As `core.scaling.scale`."""
    return _joined(tree, scaling.scale(_parted(tree), scale, multiply=multiply))


def unscale(tree: Tree, scale: Scale, dtype: str | None = None) -> Tree:
    """
    As `core.scaling.unscale`.

    Raises:
        TypeError: *dtype* is "float64", which JAX has with jax_enable_x64 only.
    """
    if dtype != "float64":
        return _joined(tree, scaling.unscale(_parted(tree), scale, dtype, divide=divide))
    if not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        raise TypeError("dtype must be 'float32' or None on JAX without jax_enable_x64, got 'float64'")
    return map_leaves(_as_float64, unscale(tree, scale, "float32"))


all_finite = overflow.all_finite


def unscale_and_check(
    tree: Tree,
    scale: Scale,
    out: Tree = None,  # noqa: ARG001
    dtype: str | None = None,
) -> tuple[Tree, Flag]:
    """As `core.overflow.unscale_and_check`; *out* is None, since JAX's arrays cannot be written to."""
    unscaled = unscale(tree, scale, dtype)
    return unscaled, all_finite(unscaled)


def unscale_check_and_norm(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag, Array]:
    """As `core.norms.unscale_check_and_norm`; *out* is None, since JAX's arrays cannot be written to."""
    unscaled, finite = unscale_and_check(tree, scale, out, dtype)
    return unscaled, finite, global_norm(unscaled)


def global_norm(tree: Tree) -> Array:
    """As `core.norms.global_norm`; without jax_enable_x64 too the sums are float64's."""
    dtype = _dtype_of(tree)
    with jax.enable_x64(True):
        sums = _square_sums(tree, dtype)
        return _root_of_sum(jnp.stack(sums), dtype) if sums else jnp.zeros((), jnp.float32)


def local_norms(tree: Tree) -> Array:
    """As `core.norms.local_norms`."""
    dtype = _dtype_of(tree)
    with jax.enable_x64(True):
        sums = _square_sums(tree, dtype)
        return _narrowed(jnp.sqrt(jnp.stack(sums)), dtype) if sums else jnp.zeros(0, jnp.float32)


def clip_by_global_norm(tree: Tree, max_norm: float) -> tuple[Tree, Array]:
    """As `core.norms.clip_by_global_norm`."""
    norm = global_norm(tree)
    factors = _coefficients(norm, max_norm)

    def clipped(leaf: Array) -> Array:
        within = wide(name_of(leaf.dtype))
        return scaling.applied(multiply, leaf, factors[within], within, leaf.dtype)

    return _joined(tree, map_leaves(clipped, _parted(tree))), norm


@jax.jit
def _coefficients(norm: Array, max_norm: float) -> dict[str, Array]:
    """What to multiply by, each step of it rounded to the dtype of *norm*; then in either dtype."""
    dtype = name_of(norm.dtype)
    limit = jnp.full_like(norm, max_norm)
    largest = jnp.where(norm > limit, norm, limit)
    with jax.enable_x64(True):
        rounded = partial(_rounded, dtype=dtype)
        coefficient = rounded(_as_float64(limit) / rounded(_as_float64(largest) + rounded(jnp.float64(CLIP_EPSILON))))
        return {"float32": narrowed(coefficient), "float64": coefficient}


def _square_sums(tree: Tree, dtype: str) -> list[Array]:
    """The sum of the squares of each array: float64, holding values of *dtype*."""
    return [_square_sum(leaf, dtype) for leaf in leaves(tree)]


@partial(jax.jit, static_argnums=1)
def _root_of_sum(sums: Array, dtype: str) -> Array:
    """The root of *sums*, added up one by one."""
    total, _ = jax.lax.scan(lambda total, one: (_rounded(total + one, dtype), None), jnp.float64(0), sums)
    return _narrowed(jnp.sqrt(total), dtype)


@partial(jax.jit, static_argnums=1)
def _square_sum(leaf: Array, dtype: str) -> Array:
    if _is_complex(leaf):
        return _rounded(_square_sum(jnp.real(leaf), dtype) + _square_sum(jnp.imag(leaf), dtype), dtype)
    values = _as_float64(leaf)
    return _rounded(jnp.sum(_rounded(values * values, dtype)), dtype)


def _rounded(array: Array, dtype: str) -> Array:
    """*array*, float64, rounded to the values of *dtype*."""
    return widened(narrowed(array)) if dtype == "float32" else array


def _narrowed(array: Array, dtype: str) -> Array:
    return narrowed(array) if dtype == "float32" else array


def _as_float64(leaf: Array) -> Array:
    """*leaf*, real or complex, with float64 for its numbers; complex numbers keep theirs."""
    if leaf.dtype == jnp.float64 or _is_complex(leaf):
        return leaf
    return widened(leaf.astype(jnp.float32))


def _parted(tree: Tree) -> Tree:
    """*tree* with the two parts of each complex array beside each other, in a last axis."""
    return map_leaves(lambda leaf: jnp.stack([leaf.real, leaf.imag], axis=-1) if _is_complex(leaf) else leaf, tree)


def _joined(tree: Tree, parts: Tree) -> Tree:
    """*parts*, those of each complex array of *tree* put together. JAX's view of pairs adds them up, and loses signs."""
    return map_leaves(lambda leaf, part: jax.lax.complex(part[..., 0], part[..., 1]) if _is_complex(leaf) else part, tree, parts)


def _is_complex(leaf: Array) -> bool:
    return name_of(leaf.dtype) in COMPLEX_PARTS


def _dtype_of(tree: Tree) -> str:
    return widest([name_of(leaf.dtype) for leaf in leaves(tree)])


def _opened(value: Any) -> Opened | None:
    """What a container that is registered with JAX holds, and what rebuilds it; None where *value* is none."""
    children, structure = jax.tree_util.tree_flatten(value, is_leaf=lambda node: node is not value)
    return None if jax.tree_util.treedef_is_leaf(structure) else (children, partial(jax.tree_util.tree_unflatten, structure))


open_with(_opened)
