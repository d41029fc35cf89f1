"""
Norms of gradients, and clipping by the global one.

Spec: NORMS-global, NORMS-local, NORMS-sizes, NORMS-accumulate-wide, NORMS-clip, NORMS-clip-under-limit,
NORMS-clip-before, NORMS-clip-infinite, NORMS-clip-nan.
"""

import math
from functools import reduce
from operator import add, mul

import array_api_compat

from .dtypes import COMPLEX_PARTS, name_of, wide, widest
from .namespaces import namespace_of, quiet
from .overflow import unscale_and_check
from .scaling import applied, in_dtype
from .trees import leaves, map_leaves
from .typing import Array, Flag, Scale, Tree

CLIP_EPSILON = 1e-6


def global_norm(tree: Tree) -> Array:
    """
    The Euclidean norm of all values of *tree* together.

    Args:
        tree: Floating-point or complex arrays of any shape.

    Returns:
        Shape (); float32, or float64 where *tree* holds float64 or complex128. Squares are taken in that dtype, so
        16-bit arrays do not overflow; the squares of one array are summed in float64, and rounded; and the arrays'
        sums are added in their order. Zero for a tree without arrays.
    """
    xp = namespace_of(tree)
    sums = _square_sums(tree)
    if not sums:
        return xp.asarray(0.0, dtype=xp.float32)
    with quiet(xp):
        return root(reduce(add, sums))


def local_norms(tree: Tree) -> Array:
    """
    The Euclidean norm of each array of *tree*.

    Returns:
        Shape (number of arrays,), in the order of the tree; dtype as for `global_norm`.
    """
    xp = namespace_of(tree)
    sums = _square_sums(tree)
    return root(xp.stack(sums)) if sums else xp.zeros(0, dtype=xp.float32)


def sizes(tree: Tree) -> Array:
    """The number of values in each array of *tree*: shape (number of arrays,), int64 or the widest that the library has."""
    xp = namespace_of(tree)
    return xp.asarray([math.prod(leaf.shape) for leaf in leaves(tree)], dtype=xp.result_type(xp.int64))


def clip_by_global_norm(tree: Tree, max_norm: float) -> tuple[Tree, Array]:
    """
    *tree* scaled down to a global norm of about *max_norm*, and the norm it had.

    Args:
        tree: Floating-point or complex arrays of any shape; a 16-bit array is multiplied in float32 and rounded once.
        max_norm: Positive and finite.

    Returns:
        New arrays of the same dtypes, and the norm before clipping, as `global_norm` gives it. The coefficient is
        ``max_norm / (max(norm, max_norm) + 1e-6)``, which is just below 1 under the limit. An infinite norm
        makes finite values zero; a NaN norm counts as *max_norm*.
    """
    norm = global_norm(tree)
    coefficient = clip_coefficient(norm, max_norm)
    with quiet(array_api_compat.array_namespace(norm)):
        return map_leaves(lambda leaf: _multiplied(leaf, coefficient), tree), norm


def clip_coefficient(norm: Array, max_norm: float) -> Array:
    """Return the factor of `clip_by_global_norm`: shape (), each operation rounded to the dtype of *norm*."""
    xp = array_api_compat.array_namespace(norm)
    limit = xp.full_like(norm, max_norm)
    with quiet(xp):
        return limit / (xp.where(norm > limit, norm, limit) + xp.full_like(norm, CLIP_EPSILON))


def unscale_check_and_norm(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag, Array]:
    """
    `unscale_and_check`, and the global norm of what came out.

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


def _square_sums(tree: Tree) -> list[Array]:
    arrays = leaves(tree)
    dtype = widest([name_of(leaf.dtype) for leaf in arrays])
    with quiet(namespace_of(tree)):
        return [_square_sum(leaf, dtype) for leaf in arrays]


def _square_sum(leaf: Array, dtype: str) -> Array:
    xp = array_api_compat.array_namespace(leaf)
    if name_of(leaf.dtype) in COMPLEX_PARTS:
        return _square_sum(xp.real(leaf), dtype) + _square_sum(xp.imag(leaf), dtype)
    values = in_dtype(leaf, dtype)
    return xp.astype(xp.sum(values * values, dtype=xp.float64), getattr(xp, dtype))


def _multiplied(leaf: Array, coefficient: Array) -> Array:
    return applied(mul, leaf, coefficient, wide(name_of(leaf.dtype)), leaf.dtype)
