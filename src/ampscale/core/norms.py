"""
Norms of gradients, and clipping by the global one.

A square can overflow or underflow where the norm does not. So where the plain norm is infinite or tiny, all values are lifted:
multiplied by a power of two, which changes no digit, and the norm is divided by it. Elsewhere the power is 1.

Spec: NORMS-global, NORMS-local, NORMS-sizes, NORMS-accumulation-dtype, NORMS-magnitudes, NORMS-clip, NORMS-clip-under-limit,
NORMS-clip-before, NORMS-clip-magnitudes, NORMS-clip-nan.
"""

import math
from functools import reduce
from operator import add, mul
from typing import NamedTuple

import array_api_compat

from .dtypes import COMPLEX_PARTS, FLOATS, name_of, wide, widest
from .namespaces import namespace_of, quiet
from .overflow import unscale_and_check
from .scaling import applied, in_dtype
from .trees import leaves, map_leaves
from .typing import Array, Flag, Scale, Tree

CLIP_EPSILON = 1e-6


class Lifts(NamedTuple):
    """Powers of two for norms in a dtype."""

    down: float  # for norms whose squares overflow: after it none does
    up: float  # for tiny norms: after it the square of the smallest subnormal number is normal
    least: float  # below it a plain norm is tiny; from it up, what underflow can lose is below half a unit


LIFTS = {"float32": Lifts(2.0**-100, 2.0**88, 2.0**-40), "float64": Lifts(2.0**-600, 2.0**600, 2.0**-400)}


def global_norm(tree: Tree) -> Array:
    """
    Return the Euclidean norm of all values of *tree* together.

    Args:
        tree: Floating-point or complex arrays of any shape.

    Returns:
        Shape (); float32, or float64 if *tree* holds float64 or complex128. Squares are taken in that dtype, so
        16-bit arrays do not overflow; the squares of one array are summed in float64, and rounded; and the arrays'
        sums are added in their order. Values of any magnitude are lifted so that no square overflows or underflows.
        Zero for a tree without arrays.
    """
    return _divided(*_lifted_norm(leaves(tree), _dtype_of(tree)))


def local_norms(tree: Tree) -> Array:
    """
    Return the Euclidean norm of each array of *tree*.

    Returns:
        Shape (number of arrays,), in the order of the tree; dtype and range as for `global_norm`.
    """
    xp, dtype = namespace_of(tree), _dtype_of(tree)
    each = [_divided(*_lifted_norm([leaf], dtype)) for leaf in leaves(tree)]
    return xp.stack(each) if each else xp.zeros(0, dtype=xp.float32)


def sizes(tree: Tree) -> Array:
    """Return the number of values in each array of *tree*: shape (number of arrays,), int64 or the library's widest integer."""
    xp = namespace_of(tree)
    return xp.asarray([math.prod(leaf.shape) for leaf in leaves(tree)], dtype=xp.result_type(xp.int64))


def clip_by_global_norm(tree: Tree, max_norm: float) -> tuple[Tree, Array]:
    """
    Return *tree* scaled down to a global norm of about *max_norm*, and the norm it had.

    Args:
        tree: Floating-point or complex arrays of any shape; a 16-bit array is multiplied in float32 and rounded once.
        max_norm: Positive and finite; also beyond the range of the norm's dtype.

    Returns:
        New arrays of the same dtypes, and the norm before clipping, as `global_norm` returns it. The coefficient is
        ``max_norm / (max(norm, max_norm) + 1e-6)``, which is just below 1 under the limit. Finite values stay finite. If
        a value is infinite the coefficient is 0; a NaN norm counts as *max_norm*.
    """
    lifted, lift = _lifted_norm(leaves(tree), _dtype_of(tree))
    norm, down = _divided(lifted, lift), LIFTS[name_of(lifted.dtype)].down
    xp = array_api_compat.array_namespace(norm)
    with quiet(xp):
        plain, beyond = clip_coefficient(norm, max_norm), clip_coefficient(lifted, max_norm * down)
        coefficient = xp.where(xp.isinf(norm), beyond, plain)
        return map_leaves(lambda leaf: _multiplied(leaf, coefficient), tree), norm


def clip_coefficient(norm: Array, max_norm: float) -> Array:
    """
    Return the factor of `clip_by_global_norm`: shape (), each operation rounded to the dtype of *norm*.

    A limit above the largest number of that dtype counts as that number, beside which 1e-6 is nothing: the factor is 1.
    """
    xp = array_api_compat.array_namespace(norm)
    limit = xp.full_like(norm, min(1.0 * max_norm, FLOATS[name_of(norm.dtype)].largest))  # torch takes no int beyond 64 bits
    with quiet(xp):
        return limit / (xp.where(norm > limit, norm, limit) + xp.full_like(norm, CLIP_EPSILON))


def unscale_check_and_norm(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag, Array]:
    """
    Return what `unscale_and_check` returns, and the global norm of the unscaled values.

    Returns:
        The unscaled tree, a bool of shape (), and the norm as `global_norm` gives it, of the unscaled values as
        they were rounded.
    """
    unscaled, finite = unscale_and_check(tree, scale, out, dtype)
    return unscaled, finite, global_norm(unscaled)


def root(square: Array) -> Array:
    """Return the square roots, rounded once. torch's float32 root is sometimes off by one in the last place."""
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
    """Return what to multiply values of a plain *norm* by."""
    xp = array_api_compat.array_namespace(norm)
    down, up, least = LIFTS[name_of(norm.dtype)]
    ordinary = xp.where(norm < xp.full_like(norm, least), xp.full_like(norm, up), xp.ones_like(norm))
    return xp.where(xp.isinf(norm), xp.full_like(norm, down), ordinary)


def _divided(norm: Array, lift: Array) -> Array:
    """Return *norm* divided by *lift*: in float64, since a float32 result may be subnormal."""
    xp = array_api_compat.array_namespace(norm)
    with quiet(xp):
        return xp.asarray(xp.astype(xp.astype(norm, xp.float64) / xp.astype(lift, xp.float64), norm.dtype))


def _dtype_of(tree: Tree) -> str:
    return widest([name_of(leaf.dtype) for leaf in leaves(tree)])


def _square_sum(leaf: Array, dtype: str, lift: Array | None = None) -> Array:
    xp = array_api_compat.array_namespace(leaf)
    if name_of(leaf.dtype) in COMPLEX_PARTS:
        return _square_sum(xp.real(leaf), dtype, lift) + _square_sum(xp.imag(leaf), dtype, lift)
    values = in_dtype(leaf, dtype) if lift is None else in_dtype(leaf, dtype) * lift
    return xp.astype(xp.sum(values * values, dtype=xp.float64), getattr(xp, dtype))


def _multiplied(leaf: Array, coefficient: Array) -> Array:
    return applied(mul, leaf, coefficient, wide(name_of(leaf.dtype)), leaf.dtype)
