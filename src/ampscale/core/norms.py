"""
Norms of gradients, and clipping by the global one.

The square of a value can overflow or underflow even if the norm does not. If the unlifted norm is infinite or tiny, all
values are therefore lifted: multiplied by a power of two, which is exact, and the norm is divided by it again. Otherwise the
power is 1.

Spec: NORMS-global, NORMS-local, NORMS-sizes, NORMS-accumulation-dtype, NORMS-magnitudes, NORMS-clip, NORMS-clip-under-limit,
NORMS-clip-before, NORMS-clip-magnitudes, NORMS-clip-nan.
"""

import math
from functools import reduce
from operator import add, mul
from typing import NamedTuple

import array_api_compat

from .dtypes import COMPLEX_PARTS, FLOATS, accumulation_dtype, compute_dtype, name_of
from .namespaces import namespace_of, quiet
from .overflow import unscale_and_check
from .scaling import apply_factor, in_dtype
from .trees import leaves, map_leaves
from .typing import Array, Flag, Scale, Tree

CLIP_EPSILON = 1e-6


class Lifts(NamedTuple):
    """Powers of two that lift values before they are squared in a dtype."""

    down: float  # for infinite norms: no square overflows any more
    up: float  # for tiny norms: the square of the smallest subnormal number becomes normal
    least: float  # norms below this are tiny; for others, underflow costs less than half a unit in the last place


LIFTS = {"float32": Lifts(2.0**-100, 2.0**88, 2.0**-40), "float64": Lifts(2.0**-600, 2.0**600, 2.0**-400)}


def global_norm(tree: Tree) -> Array:
    """
    Compute the Euclidean norm of all values of *tree* together.

    Args:
        tree: Floating-point or complex arrays of any shape.

    Returns:
        An array of shape (): float32, or float64 if *tree* contains float64 or complex128. Values are squared in that dtype,
        so 16-bit arrays do not overflow; the squares of each array are summed in float64 and the sum is rounded; the sums
        are added in the order of the arrays. Zero for a tree without arrays.
    """
    return _divided(*_lifted_norm(leaves(tree), _dtype_of(tree)))


def local_norms(tree: Tree) -> Array:
    """
    Compute the Euclidean norm of each array of *tree*.

    Returns:
        An array of shape (number of arrays,) in the order of the tree; dtype as for `global_norm`.
    """
    xp, dtype = namespace_of(tree), _dtype_of(tree)
    norms = [_divided(*_lifted_norm([leaf], dtype)) for leaf in leaves(tree)]
    return xp.stack(norms) if norms else xp.zeros(0, dtype=xp.float32)


def sizes(tree: Tree) -> Array:
    """Return the number of values in each array of *tree*: shape (number of arrays,), int64 or the library's widest integer."""
    xp = namespace_of(tree)
    return xp.asarray([math.prod(leaf.shape) for leaf in leaves(tree)], dtype=xp.result_type(xp.int64))


def clip_by_global_norm(tree: Tree, max_norm: float) -> tuple[Tree, Array]:
    """
    Clip *tree* by its global norm; return the result and the norm before clipping.

    The coefficient is ``max_norm / (max(norm, max_norm) + 1e-6)``, slightly less than 1 for a norm below the limit. If a
    value is infinite, the coefficient is 0; a NaN norm counts as *max_norm*. Finite values stay finite.

    Args:
        tree: Floating-point or complex arrays of any shape; a 16-bit array is multiplied in float32 and rounded once.
        max_norm: Upper bound of the norm; positive and finite, also outside the range of the norm's dtype.

    Returns:
        A tree of new arrays with the dtypes of *tree*, and the result of `global_norm`.
    """
    lifted, lift = _lifted_norm(leaves(tree), _dtype_of(tree))
    norm, down = _divided(lifted, lift), LIFTS[name_of(lifted.dtype)].down
    xp = array_api_compat.array_namespace(norm)
    with quiet(xp):
        # Compare the lifted norm and limit if the norm itself exceeds the largest number of its dtype.
        from_lifted = clip_coefficient(lifted, max_norm * down)
        coefficient = xp.where(xp.isinf(norm), from_lifted, clip_coefficient(norm, max_norm))
        return map_leaves(lambda leaf: _multiplied(leaf, coefficient), tree), norm


def clip_coefficient(norm: Array, max_norm: float) -> Array:
    """
    Return the factor of `clip_by_global_norm`: shape (), each operation rounded to the dtype of *norm*.

    A limit above the largest number of that dtype is replaced by that number: adding 1e-6 does not change it, and the factor
    is 1.
    """
    xp = array_api_compat.array_namespace(norm)
    # Convert max_norm to a float, since torch rejects ints of more than 64 bits.
    limit = xp.full_like(norm, min(1.0 * max_norm, FLOATS[name_of(norm.dtype)].largest))
    with quiet(xp):
        return limit / (xp.where(norm > limit, norm, limit) + xp.full_like(norm, CLIP_EPSILON))


def unscale_check_and_norm(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag, Array]:
    """Return the results of `unscale_and_check`, and the `global_norm` of the unscaled values after rounding."""
    unscaled, finite = unscale_and_check(tree, scale, out, dtype)
    return unscaled, finite, global_norm(unscaled)


def root(square: Array) -> Array:
    """Return the square root, computed in float64: torch's float32 root can differ in the last place."""
    xp = array_api_compat.array_namespace(square)
    return xp.asarray(xp.astype(xp.sqrt(xp.astype(square, xp.float64)), square.dtype))


def _lifted_norm(arrays: list[Array], dtype: str) -> tuple[Array, Array]:
    """Return the norm in *dtype* of *arrays* times a power of two, and that power, both of shape ()."""
    xp = namespace_of(arrays)
    if not arrays:
        return xp.asarray(0.0, dtype=xp.float32), xp.asarray(1.0, dtype=xp.float32)
    with quiet(xp):
        lift = _lift(root(reduce(add, [_square_sum(leaf, dtype) for leaf in arrays])))
        return root(reduce(add, [_square_sum(leaf, dtype, lift) for leaf in arrays])), lift


def _lift(norm: Array) -> Array:
    """Return the power of two by which to multiply values whose unlifted norm is *norm*."""
    xp = array_api_compat.array_namespace(norm)
    down, up, least = LIFTS[name_of(norm.dtype)]
    lift = xp.where(norm < xp.full_like(norm, least), xp.full_like(norm, up), xp.ones_like(norm))
    return xp.where(xp.isinf(norm), xp.full_like(norm, down), lift)


def _divided(norm: Array, lift: Array) -> Array:
    """Divide *norm* by *lift*, in float64 since a float32 result may be subnormal."""
    xp = array_api_compat.array_namespace(norm)
    with quiet(xp):
        return xp.asarray(xp.astype(xp.astype(norm, xp.float64) / xp.astype(lift, xp.float64), norm.dtype))


def _dtype_of(tree: Tree) -> str:
    return accumulation_dtype([name_of(leaf.dtype) for leaf in leaves(tree)])


def _square_sum(leaf: Array, dtype: str, lift: Array | None = None) -> Array:
    xp = array_api_compat.array_namespace(leaf)
    if name_of(leaf.dtype) in COMPLEX_PARTS:
        return _square_sum(xp.real(leaf), dtype, lift) + _square_sum(xp.imag(leaf), dtype, lift)
    values = in_dtype(leaf, dtype) if lift is None else in_dtype(leaf, dtype) * lift
    return xp.astype(xp.sum(values * values, dtype=xp.float64), getattr(xp, dtype))


def _multiplied(leaf: Array, coefficient: Array) -> Array:
    return apply_factor(mul, leaf, coefficient, compute_dtype(name_of(leaf.dtype)), leaf.dtype)
