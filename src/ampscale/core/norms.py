"""
Norms of gradients, and clipping by the global norm.

The square of a value can overflow or underflow even if the norm does not. If the norm computed without precaution is
infinite or tiny, all values are therefore lifted: they are multiplied by a power of two, the lift, and the norm of the lifted
values is divided by the lift. Otherwise the lift is 1.

Spec: NORMS-global, NORMS-local, NORMS-sizes, NORMS-accumulation-dtype, NORMS-magnitudes, NORMS-clip, NORMS-clip-under-limit,
NORMS-clip-before, NORMS-clip-magnitudes, NORMS-clip-nan.
"""

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add, truediv
from typing import NamedTuple

import array_api_compat

from .dtypes import COMPLEX_PARTS, FLOATS, accumulation_dtype, name_of
from .namespaces import device_of, namespace_of, quiet
from .overflow import unscale_and_check, write
from .scaling import Operation, in_dtype, real_parts, scale
from .trees import leaves
from .typing import Array, Flag, Scale, Tree

CLIP_EPSILON = 1e-6


class Lifts(NamedTuple):
    """Lifts for the norms of one dtype, and the norm below which values are lifted up."""

    down: float  # for infinite norms, so that no square overflows
    up: float  # for tiny norms, so that the square of the smallest subnormal number becomes normal
    least: float  # norms below this are tiny; underflow changes larger norms by less than half a unit in the last place


LIFTS = {"float32": Lifts(2.0**-100, 2.0**88, 2.0**-40), "float64": Lifts(2.0**-600, 2.0**600, 2.0**-400)}


class LiftedNorm(NamedTuple):
    """Norm of values that were multiplied by a power of two, so that even a norm outside the range of its dtype fits."""

    value: Array  # shape ()
    lift: Array  # the power of two; shape (), dtype of *value*


def global_norm(tree: Tree) -> Array:
    """
    Return the Euclidean norm of all values of *tree*, an array of shape (). The norm of a tree without arrays is zero.

    The dtype is float32, or float64 if *tree* contains float64 or complex128. Values are squared in that dtype, so 16-bit arrays
    do not overflow. The squares of each array are summed in float64, and the sum is rounded. These rounded sums are added in the
    order of the arrays.
    """
    arrays = leaves(tree)
    return unlifted(_lifted_norm(arrays, norm_dtype(arrays)))


def local_norms(tree: Tree) -> Array:
    """Compute the Euclidean norm of each array of *tree*: shape (number of arrays,), in the dtype of `global_norm`."""
    xp, arrays = namespace_of(tree), leaves(tree)
    dtype = norm_dtype(arrays)
    norms = [unlifted(_lifted_norm([leaf], dtype)) for leaf in arrays]
    return xp.stack(norms) if norms else xp.zeros(0, dtype=xp.float32)


def sizes(tree: Tree) -> Array:
    """Return the number of values in each array of *tree*, shape (number of arrays,): int64, or int32 if int64 is missing."""
    xp = namespace_of(tree)
    counts = [math.prod(leaf.shape) for leaf in leaves(tree)]
    return xp.asarray(counts, dtype=xp.result_type(xp.int64), device=device_of(tree))


def clip_by_global_norm(tree: Tree, max_norm: float, out: Tree = None) -> tuple[Tree, Array]:
    """
    Clip *tree* by its global norm; return the result and the norm before clipping.

    The coefficient is ``max_norm / (max(norm, max_norm) + 1e-6)``: 1 or slightly less for a norm below the limit. If a
    value is infinite and none is NaN, the coefficient is 0; a NaN norm counts as *max_norm*. Finite values stay finite.
    *max_norm* may be outside the range of the norm's dtype. The arguments are those of `ampscale.clip_by_global_norm`.
    """
    arrays = leaves(tree)
    lifted = _lifted_norm(arrays, norm_dtype(arrays))
    clipped = scale(tree, coefficient_of(lifted, max_norm))
    return (clipped if out is None else write(out, clipped)), unlifted(lifted)


def coefficient_of(lifted: LiftedNorm, max_norm: float, divide: Operation = truediv) -> Array:
    """Return the coefficient of `clip_by_global_norm`, even for a norm that exceeds the largest number of its dtype."""
    norm, down = unlifted(lifted), LIFTS[name_of(lifted.value.dtype)].down
    xp = array_api_compat.array_namespace(norm)
    with quiet(xp):
        from_lifted = clip_coefficient(lifted.value, max_norm * down, divide)
        return xp.where(xp.isinf(norm), from_lifted, clip_coefficient(norm, max_norm, divide))


def clip_coefficient(norm: Array, max_norm: float, divide: Operation = truediv) -> Array:
    """
    Return the coefficient of `clip_by_global_norm`: shape (), each operation rounded to the dtype of *norm*.

    A *max_norm* above the largest number of that dtype is replaced by the largest number. Adding 1e-6 does not change this
    number, so the coefficient is 1 for every finite norm.
    """
    xp = array_api_compat.array_namespace(norm)
    limit = xp.full_like(norm, min(1.0 * max_norm, FLOATS[name_of(norm.dtype)].largest))  # torch rejects ints beyond 64 bits
    with quiet(xp):
        return divide(limit, xp.where(norm > limit, norm, limit) + xp.full_like(norm, CLIP_EPSILON))


def unscale_check_and_norm(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag, Array]:
    """Return the results of `unscale_and_check`, and the `global_norm` of the unscaled values after rounding."""
    unscaled, finite = unscale_and_check(tree, scale, out, dtype)
    xp = namespace_of(finite)
    norm = global_norm(unscaled) if leaves(unscaled) else xp.zeros_like(finite, dtype=xp.float32)
    return unscaled, finite, norm


def norm_dtype(arrays: Iterable[Array]) -> str:
    """Return the dtype in which the squares of *arrays* are taken and added: the dtype of their norm."""
    return accumulation_dtype([name_of(dtype) for dtype in {array.dtype for array in arrays}])


def root(square: Array) -> Array:
    """Return the square root, computed in float64, since torch's float32 root can differ in the last place."""
    xp = array_api_compat.array_namespace(square)
    return xp.astype(xp.sqrt(xp.astype(square, xp.float64)), square.dtype)


def square_sums(tree: Tree, copies: Sequence[int] = ()) -> Array:
    """
    Return the sums of squares for this rank's part of a tree. The ranks add up their sums and pass the total to `norm_of_sums`.

    Args:
        tree: Floating-point or complex arrays of any shape.
        copies: For each array, the number of ranks that have the same values. The squares are divided by this number. Default: 1.

    Returns:
        A float64 array of shape (2 + number of real and imaginary parts,). The first value is the sum of the squares of
        all numbers after multiplication by `Lifts.down`, the second value after multiplication by `Lifts.up`. Each further value
        is the sum of the squares of one real or imaginary part, without a lift.
    """
    xp, arrays = namespace_of(tree), leaves(tree)
    if not arrays:
        return xp.zeros(2, dtype=xp.float64)
    dtype = norm_dtype(arrays)
    counts = copies or [1] * len(arrays)
    parts = [part for leaf in arrays for part in real_parts(leaf)]
    shares = [1 / count for leaf, count in zip(arrays, counts, strict=True) for _ in real_parts(leaf)]
    weights = xp.asarray(shares, dtype=xp.float64, device=device_of(tree))
    down, up, _ = LIFTS[dtype]

    def sums(values: Iterable[Array]) -> Array:
        return xp.stack([xp.sum(array * array, dtype=xp.float64) for array in values]) * weights

    with quiet(xp):
        if dtype == "float32":  # lift the sum, since the float64 square of a float32 number neither overflows nor underflows
            total = xp.sum(sums(in_dtype(part, "float64") for part in parts))
            lifted = [total * down**2, total * up**2]
        else:
            lifted = [xp.sum(sums(in_dtype(part, dtype) * lift for part in parts)) for lift in (down, up)]
        return xp.concat([xp.stack(lifted), sums(in_dtype(part, dtype) for part in parts)])


def norm_of_sums(sums: Array, tree: Tree) -> LiftedNorm:
    """
    Return the global norm, given the total of the `square_sums` of all ranks, added in float64.

    For norms that need no lift, the result equals the norm of the whole tree bit for bit, unless adding in a different order
    changes how a float64 sum is rounded to float32. Other norms differ by at most one unit in the last place. *tree* is this
    rank's part, whose dtypes determine the dtype of the norm.
    """
    xp, arrays = array_api_compat.array_namespace(sums), leaves(tree)
    dtype = getattr(xp, norm_dtype(arrays))
    with quiet(xp):
        parts = iter(xp.astype(sums[2:], dtype))
        # Add the two parts of each complex array first, as `global_norm` does.
        squares = [next(parts) + next(parts) if name_of(leaf.dtype) in COMPLEX_PARTS else next(parts) for leaf in arrays]
        plain = root(reduce(add, squares))
        lift = _lift(plain)
        lifted = xp.astype(xp.sqrt(xp.where(xp.isinf(plain), sums[0], sums[1])), dtype)
        return LiftedNorm(xp.where(lift == 1, plain, lifted), lift)


def unlifted(lifted: LiftedNorm) -> Array:
    """
    Return the norm without a lift, in its dtype; infinity if the norm is out of range.

    Divide in float64, since some libraries replace a subnormal float32 quotient by zero.
    """
    xp, value = array_api_compat.array_namespace(lifted.value), lifted.value
    dtype = xp.result_type(xp.float64)  # float32 on JAX without jax_enable_x64, where subnormal norms are not lifted
    with quiet(xp):
        quotient = xp.astype(xp.astype(value, dtype) / xp.astype(lifted.lift, dtype), value.dtype)
        return xp.where(lifted.lift == xp.ones_like(lifted.lift), value, quotient)


def _lifted_norm(arrays: list[Array], dtype: str) -> LiftedNorm:
    """Return the norm of all values, lifted if the norm without a lift is infinite or tiny."""
    xp = namespace_of(arrays)
    if not arrays:
        return LiftedNorm(xp.asarray(0.0, dtype=xp.float32), xp.asarray(1.0, dtype=xp.float32))
    with quiet(xp):
        lift = _lift(root(reduce(add, [_square_sum(leaf, dtype) for leaf in arrays])))
        return LiftedNorm(root(reduce(add, [_square_sum(leaf, dtype, lift) for leaf in arrays])), lift)


def _lift(norm: Array) -> Array:
    """Return the power of two by which to multiply values whose unlifted norm is *norm*."""
    xp = array_api_compat.array_namespace(norm)
    down, up, least = LIFTS[name_of(norm.dtype)]
    lift = xp.where(norm < xp.full_like(norm, least), xp.full_like(norm, up), xp.ones_like(norm))
    return xp.where(xp.isinf(norm), xp.full_like(norm, down), lift)


def _square_sum(leaf: Array, dtype: str, lift: Array | None = None) -> Array:
    """Multiply *leaf* by *lift*, square in *dtype*, and return the sum: computed in float64, and rounded to *dtype*."""
    xp = array_api_compat.array_namespace(leaf)
    if name_of(leaf.dtype) in COMPLEX_PARTS:
        return reduce(add, [_square_sum(part, dtype, lift) for part in real_parts(leaf)])
    values = in_dtype(leaf, dtype) if lift is None else in_dtype(leaf, dtype) * lift
    return xp.astype(xp.sum(values * values, dtype=xp.float64), getattr(xp, dtype))
