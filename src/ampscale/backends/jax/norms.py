"""
Norms of several arrays, given sums of squares in the form of `kernels.plus`. All functions require ``jax.enable_x64(True)``.

Spec: NORMS-global, NORMS-local, NORMS-magnitudes, NORMS-clip, NORMS-clip-magnitudes.
"""

from functools import partial

import jax
import jax.numpy as jnp

from ...core.dtypes import FLOATS
from ...core.norms import CLIP_EPSILON, LIFTS, LiftedNorm
from ...core.typing import Array
from . import kernels
from .ieee754 import divide

_UNROLL = 8  # additions per loop iteration; the overhead of an iteration equals dozens of additions


@partial(jax.jit, static_argnums=1)
def root(sums: list[Array], norm_dtype: str) -> Array:
    """Return the square root, in *norm_dtype*, of the total of *sums*, added in order."""
    return _unlifted_root(_total(sums, norm_dtype), norm_dtype)


@partial(jax.jit, static_argnums=1)
def roots(sums: list[Array], norm_dtype: str) -> Array:
    """Return the square root, in *norm_dtype*, of each of *sums*."""
    return jax.vmap(partial(_unlifted_root, norm_dtype=norm_dtype))(_stacked(sums, norm_dtype))


@partial(jax.jit, static_argnums=2)
def coefficient(sums: list[Array], limit: Array, norm_dtype: str) -> tuple[Array, Array]:
    """Return the clipping coefficient in float64, and the norm in *norm_dtype*: both of shape ()."""
    norm, lowered_norm = _norm_and_lowered(sums, norm_dtype)
    from_lowered = _clip_coefficient(lowered_norm, limit * LIFTS[norm_dtype].down)
    return jnp.where(jnp.isinf(norm), from_lowered, _clip_coefficient(norm, limit)), norm


def lifted_norm(sums: list[Array], norm_dtype: str) -> LiftedNorm:
    """Return the norm as a `LiftedNorm`, which is finite even if the norm exceeds the range of its dtype."""
    norm, lowered_norm = _norm_and_lowered(sums, norm_dtype)
    is_infinite = jnp.isinf(norm)
    lift = jnp.where(is_infinite, LIFTS[norm_dtype].down, 1.0).astype(norm_dtype)
    return LiftedNorm(jnp.where(is_infinite, lowered_norm, norm), lift)


def _norm_and_lowered(sums: list[Array], norm_dtype: str) -> tuple[Array, Array]:
    """Return the norm, and the norm times the power of two `LIFTS[norm_dtype].down`, both in *norm_dtype*."""
    total = _total(sums, norm_dtype)
    square, lift = (total, 1.0) if norm_dtype == "float32" else total
    lowered = kernels.in_dtype(jnp.sqrt(square) * (LIFTS[norm_dtype].down / lift), norm_dtype)
    return _unlifted_root(total, norm_dtype), lowered


def _total(sums: list[Array], norm_dtype: str) -> Array:
    """Return the total of *sums*, added in order, in the form of `kernels.plus`."""
    zero = jnp.asarray(0.0 if norm_dtype == "float32" else [0.0, LIFTS[norm_dtype].up])
    add = partial(kernels.plus, norm_dtype=norm_dtype)
    total, _ = jax.lax.scan(lambda total, item: (add(total, item), None), zero, _stacked(sums, norm_dtype), unroll=_UNROLL)
    return total


def _unlifted_root(total: Array, norm_dtype: str) -> Array:
    """Return the square root, in *norm_dtype*, of a sum of squares as `kernels.plus` returns it."""
    if norm_dtype == "float32":
        return kernels.in_dtype(jnp.sqrt(kernels.in_float32_precision(total)), norm_dtype)
    square, lift = total
    # Remove the last part of the lift by an operation that supports subnormal results.
    last = jnp.where(lift > 1, kernels.LAST_LIFT, 1.0)
    return divide(jnp.sqrt(square) / (lift / last), last)


def _clip_coefficient(norm: Array, limit: Array) -> Array:
    """Implement `core.norms.clip_coefficient` in float64, rounding each step to the dtype of *norm*."""
    norm_dtype = norm.dtype.name
    limit = kernels.in_dtype(jnp.minimum(limit, FLOATS[norm_dtype].largest), norm_dtype)
    rounded = partial(kernels.rounded, dtype=norm_dtype)
    larger, limit = (kernels.in_dtype(number, "float64") for number in (jnp.where(norm > limit, norm, limit), limit))
    return rounded(divide(limit, rounded(larger + rounded(jnp.float64(CLIP_EPSILON)))))


def _stacked(sums: list[Array], norm_dtype: str) -> Array:
    """Return *sums*, arrays of one or several sums in the form of `kernels.plus`, as one array."""
    shape = () if norm_dtype == "float32" else (2,)
    return jnp.concatenate([jnp.zeros((0, *shape)), *(jnp.reshape(total, (-1, *shape)) for total in sums)])
