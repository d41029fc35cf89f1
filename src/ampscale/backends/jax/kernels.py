"""
What the verbs do to one array on JAX: scaled, unscaled, checked, measured.

XLA's CPU code puts one result into one loop, and adds up a sum of anything computed one number after the other. So a
check or a sum is taken from the finished array there, in lanes side by side, some hundred kilobytes at a time.
"""

from collections.abc import Callable
from functools import partial, reduce
from operator import add, and_
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...core.dtypes import COMPLEX_PARTS, INTEGERS, compute_dtype
from ...core.norms import LIFTS, Lifts
from ...core.scaling import Operation, unscaled_dtype
from ...core.typing import Array, Flag
from .ieee754 import divide, multiply, narrowed, widened

PIECES = 4  # that are taken in each round, of as many values as there are lanes
SLICES = 8  # that an array is cut into where a loop takes none
LANES = 2**12  # at most, of eight bytes each
STRAIGHT = 2**11  # values that are not worth a loop
LAST_LIFT = 2.0**150  # lifts the smallest float64 out of the subnormal ones, which XLA's CPU code takes for zero


class Row(NamedTuple):
    """What a kernel tells of an array; None for what it was not asked."""

    value: Array | None = None  # the array of the result, in place of the given one
    finite: Flag | None = None  # bool, shape ()
    squares: Array | None = None  # float64, shape (2,): the sum of the squares of lifted values, and the lift; see `plus`


def scaled(leaf: Array, factor: Array) -> Row:
    """*leaf* times *factor*, float32 or float64 of shape ()."""
    return Row(_applied(multiply, leaf, factor, leaf.dtype.name))


def unscaled(leaf: Array, scale: Array, dtype: str | None) -> Row:
    """*leaf* divided by *scale*, in its `unscaled_dtype`."""
    return Row(_applied(divide, leaf, scale, unscaled_dtype(leaf.dtype.name, dtype)))


def checked(leaf: Array, scale: Array, dtype: str | None) -> Row:
    """`unscaled`, and whether all of that is finite."""
    value = _applied(divide, leaf, scale, unscaled_dtype(leaf.dtype.name, dtype))
    return Row(value, _still_finite(leaf, scale, value))


def measured(leaf: Array, scale: Array, dtype: str | None, within: str) -> Row:
    """`checked`, and what it adds to a norm in the dtype *within*. The square of a finite number of 32 bits is finite in 64."""
    value = _applied(divide, leaf, scale, unscaled_dtype(leaf.dtype.name, dtype))
    sums = _sums(value, within)
    is_wide = compute_dtype(value.dtype.name) == "float64"
    finite = _still_finite(leaf, scale, value) if is_wide else reduce(and_, [jnp.isfinite(sum_[0]) for sum_ in sums])
    return Row(value, finite, _added(sums, within))


def is_finite(leaf: Array) -> Row:
    """Whether *leaf*, of any dtype, holds neither an infinity nor a NaN."""
    if leaf.dtype.name in INTEGERS:
        return Row(finite=jnp.ones((), bool))
    return Row(finite=jax.lax.platform_dependent(leaf, cpu=_finite_in_pieces, default=_plainly_finite))


def squared(leaf: Array, within: str) -> Row:
    """What *leaf* adds to a norm in the dtype *within*."""
    return Row(squares=_added(_sums(leaf, within), within))


def parts(leaf: Array) -> list[Array]:
    """*leaf*, or its real and its imaginary part."""
    return [jnp.real(leaf), jnp.imag(leaf)] if leaf.dtype.name in COMPLEX_PARTS else [leaf]


def rounded(array: Array, dtype: str) -> Array:
    """*array*, float64, rounded to the values of *dtype*."""
    return widened(narrowed(array)) if dtype == "float32" else array


def plus(one: Array, other: Array, within: str) -> Array:
    """
    Return the sum of two sums of squares, each float64 of shape (2,): of values that were multiplied by a power of two, and that
    power, the lift. It is rounded to the digits of *within*, and has the exponents of float64.
    """
    lift = jnp.minimum(one[1], other[1])
    left, right = (square * ratio * ratio for square, ratio in ((sum_[0], _ratio(lift, sum_[1])) for sum_ in (one, other)))
    return jnp.stack([_in_digits(left + right, within), lift])


def in_dtype(array: Array, name: str) -> Array:
    """*array*, real, as float32 or float64, subnormal numbers too; float32 from float64 is rounded."""
    if array.dtype.name == name:
        return array
    if name == "float32":
        return narrowed(array) if array.dtype.name == "float64" else array.astype(jnp.float32)
    return widened(array.astype(jnp.float32))


def _applied(operation: Operation, leaf: Array, factor: Array, dtype: str) -> Array:
    """*operation* on *leaf* and *factor* in the dtype of arithmetic, rounded once to *dtype*; a complex leaf part by part."""
    within = compute_dtype(leaf.dtype.name)
    with jax.enable_x64(True):
        number = in_dtype(jnp.reshape(factor, ()), within)
    if leaf.dtype.name in COMPLEX_PARTS:
        pairs = operation(jnp.stack(parts(leaf), axis=-1), number)  # at once, since that is one loop
        return jax.lax.complex(pairs[..., 0], pairs[..., 1])
    result = operation(leaf.astype(within), number)
    if dtype != "float64" or within == "float64":
        return result.astype(dtype)
    with jax.enable_x64(True):
        return widened(result)


def _still_finite(leaf: Array, scale: Array, value: Array) -> Flag:
    """Whether *value*, which is *leaf* divided by *scale*, is finite; from 1 up that is whether *leaf* is."""

    def on_cpu(leaf: Array, scale: Array, value: Array) -> Flag:
        """To look at *value* XLA would compute it once more, unless it is handed to a branch."""
        if value.size < STRAIGHT:
            return _finite_in_pieces(value)
        return jax.lax.cond(scale >= 1, lambda: _finite_in_pieces(leaf), lambda: _finite_in_pieces(value))

    return jax.lax.platform_dependent(
        leaf, jnp.reshape(scale, ()), value, cpu=on_cpu, default=lambda _, __, value: _plainly_finite(value)
    )


def _plainly_finite(array: Array) -> Flag:
    return jnp.all(jnp.isfinite(array))


def _finite_in_pieces(array: Array) -> Flag:
    """Several pieces at once, since what is found of each value is written down before it is looked at again."""
    flags = []
    for part in parts(array):
        flat = part.reshape(-1)
        pieces = PIECES if flat.size >= STRAIGHT else 1
        size = -(-flat.size // pieces)
        starts = [min(piece * size, flat.size - size) for piece in range(pieces)]  # some values are looked at twice
        flags.append(jnp.all(reduce(and_, [jnp.isfinite(flat[start : start + size]) for start in starts])))
    return reduce(and_, flags)


def _ratio(lift: Array, own: Array) -> Array:
    """*lift* divided by *own*, a lift too; where both are extreme, something as negligible. XLA would square a quotient first."""
    return jnp.where(own > lift, LIFTS["float64"].down, 1.0)


def _sums(leaf: Array, within: str) -> list[Array]:
    """The sum of the squares of each part of *leaf*, as `plus` takes them, not rounded."""
    with jax.enable_x64(True):
        return [_sum_of_squares(part, within) for part in parts(leaf)]


def _added(sums: list[Array], within: str) -> Array:
    with jax.enable_x64(True):
        return reduce(partial(plus, within=within), [jnp.stack([_in_digits(sum_[0], within), sum_[1]]) for sum_ in sums])


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _sum_of_squares(array: Array, within: str) -> Array:
    """
    As `plus` takes it. A plain sum that is infinite or tiny is taken again, lifted.

    Squares of float32 numbers need no lift in float64; but XLA's CPU code takes the subnormal ones for zero in the plain sum.
    """
    plain = _sum(array, partial(_squares, within=within))
    down, up, least = LIFTS["float64"] if within == "float64" else Lifts(1.0, 1.0, 2.0**-100)
    large, tiny = plain == jnp.inf, plain < least * least
    again = partial(_sum, array, partial(_lifted_squares, large=large, within=within))
    lift = jnp.where(large, down, jnp.where(tiny, up, 1.0))
    return jnp.stack([jax.lax.cond(large | tiny, again, lambda: plain), lift])


@_sum_of_squares.defjvp
def _derivative(within: str, values: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (array,), (tangent,) = values, tangents
    with jax.enable_x64(True):
        result = _sum_of_squares(array, within)
        lift = jax.lax.stop_gradient(result[1])
        slope = 2 * jnp.sum((in_dtype(array, "float64") * lift) * (tangent.astype(jnp.float64) * lift))
        return result, jnp.stack([slope, jnp.zeros_like(slope)])


def _squares(array: Array, within: str) -> Array:
    """
    Float64, in the digits of *within* where they are normal there.

    XLA's CPU code takes a product below 2**-126 for zero in float32, and has it in float64.
    """
    if within == "float64":
        exact = in_dtype(array, "float64")
        return exact * exact
    values = array.astype(jnp.float32)
    narrow, exact = (values * values).astype(jnp.float64), values.astype(jnp.float64)
    common = (jnp.abs(values) >= 2.0**-63) & (jnp.abs(values) < 2.0**64)
    return jnp.where(common, narrow, exact * exact)


def _lifted_squares(array: Array, large: Flag, within: str) -> Array:
    """Float64: the squares of what is divided by a power of two if it is *large*, and multiplied by one if it is tiny."""
    values = in_dtype(array, "float64")
    if within == "float64":
        up = multiply(values, jnp.float64(LAST_LIFT)) * (LIFTS[within].up / LAST_LIFT)
        values = jnp.where(large, values * LIFTS[within].down, up)
    return values * values


def _in_digits(array: Array, within: str) -> Array:
    """*array*, float64, rounded to the digits of *within*, with the exponents of float64."""
    return jax.lax.reduce_precision(array, 11, 23) if within == "float32" else array


def _sum(array: Array, function: Callable[[Array], Array]) -> Array:
    """The sum of what *function* makes of each value, in float64."""
    on_cpu = partial(_sum_in_lanes, function=function)
    return jax.lax.platform_dependent(array, cpu=on_cpu, default=lambda array: jnp.sum(function(array)))


def _sum_in_lanes(array: Array, function: Callable[[Array], Array]) -> Array:
    """As `_sum`."""
    flat = array.reshape(-1)
    if flat.size < STRAIGHT:
        return jnp.sum(function(flat))
    if flat.dtype != jnp.bfloat16:
        return jnp.sum(_rounds(flat, function))
    size = flat.size // SLICES  # XLA would have all of it in float32 before it takes slices in a loop
    shorter = reduce(add, [function(flat[piece * size : (piece + 1) * size]) for piece in range(SLICES)])
    return _sum_in_lanes(shorter, lambda sums: sums) + jnp.sum(function(flat[SLICES * size :]))


def _rounds(flat: Array, function: Callable[[Array], Array]) -> Array:
    """
    Sums of what *function* makes of *flat*, in a few thousand lanes.

    In rounds of a loop, which XLA cannot join with what comes before or after. The last round begins early where there is
    too little left for it, and what was there before counts as zero.
    """
    lanes = min(LANES, 1 << ((flat.size // PIECES).bit_length() - 1))
    size = lanes * PIECES

    def one_round(index: Array, sums: Array) -> Array:
        start = jnp.minimum(index * size, flat.size - size)
        for piece in range(PIECES):
            results = function(jax.lax.dynamic_slice(flat, (start + piece * lanes,), (lanes,)))
            if flat.size % size != 0:
                place = jax.lax.iota(np.int32, lanes) + piece * lanes
                results = jnp.where(place >= (index * size - start).astype(np.int32), results, 0)
            sums = sums + results
        return sums

    return jax.lax.fori_loop(0, -(-flat.size // size), one_round, jnp.zeros(lanes))
