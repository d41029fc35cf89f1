"""
JAX kernels, each for one array: they scale, unscale, check, sum squares and count values.

XLA's CPU compiler makes a separate loop for each result, and does not vectorize a sum if its loop also computes the values. On a
CPU, checks and sums therefore read the finished array, in vector lanes.
"""

from collections.abc import Callable
from functools import partial, reduce
from operator import add, and_
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...core import statistics
from ...core.dtypes import COMPLEX_PARTS, INTEGERS, compute_dtype, unscaled_dtype
from ...core.norms import LIFTS
from ...core.scaling import Operation, real_parts
from ...core.typing import Array, Flag
from .ieee754 import as_stored, divide, multiply, narrowed, widened
from .mapped_axes import is_explicitly_sharded

PIECES = 4  # pieces of an array that one iteration of a loop processes; in a sum, each has one value per lane
SLICES = 8  # parts into which a bfloat16 array is cut before the loop, see `_sum_in_lanes`
LANES = 2**12  # maximum number of lanes, of eight bytes each
MIN_LOOP_SIZE = 2**11  # minimum number of values of an array that is processed in a loop
# Part of the lift `up` that is applied first and removed last, by operations that support subnormal numbers: it makes the
# smallest float64 normal. XLA's CPU code flushes subnormal numbers to zero.
LAST_LIFT = 2.0**150


class Row(NamedTuple):
    """Results of a kernel for one array; None for each result that the kernel does not compute."""

    value: Array | None = None  # array of the shape of the argument
    finite: Flag | None = None  # bool, shape ()
    squares: Array | None = None  # float64: sum of the squares, as `plus` takes it
    counts: Array | None = None  # int32: a row of statistics, or a histogram


def scaled(leaf: Array, factor: Array) -> Row:
    """Multiply *leaf* by *factor*, float32 or float64 of shape ()."""
    return Row(_applied(multiply, leaf, factor, leaf.dtype.name))


def unscaled(leaf: Array, scale: Array, dtype: str | None) -> Row:
    """Divide *leaf* by *scale*; the result has the `unscaled_dtype`."""
    return Row(_quotients(leaf, scale, dtype))


def checked(leaf: Array, scale: Array, dtype: str | None) -> Row:
    """Divide like `unscaled`, and check the result."""
    value = _quotients(leaf, scale, dtype)
    return Row(value, _still_finite(leaf, scale, value))


def checked_and_squared(leaf: Array, scale: Array, dtype: str | None, norm_dtype: str) -> Row:
    """Divide and check like `checked`, and sum the squares for a norm in *norm_dtype*."""
    value = _quotients(leaf, scale, dtype)
    sums = _sums(value, norm_dtype)
    # The float64 square of a finite float32 number is finite. Except for float64, finite sums therefore mean finite values.
    is_float64 = compute_dtype(value.dtype.name) == "float64"
    finite = _still_finite(leaf, scale, value) if is_float64 else reduce(and_, map(jnp.isfinite, sums))
    return Row(value, finite, _added(sums, norm_dtype))


def is_finite(leaf: Array) -> Row:
    """Check that *leaf*, of any dtype, contains no infinity and no NaN."""
    if leaf.dtype.name in INTEGERS:
        return Row(finite=jnp.ones((), bool))
    return Row(finite=jax.lax.platform_dependent(as_stored(leaf), cpu=_finite_in_pieces, default=_plainly_finite))


def squared(leaf: Array, norm_dtype: str) -> Row:
    """Sum the squares of *leaf* for a norm in *norm_dtype*."""
    return Row(squares=_added(_sums(leaf, norm_dtype), norm_dtype))


def counted(leaf: Array) -> Row:
    """Count the values of *leaf* as `core.statistics.statistics` does."""
    with jax.enable_x64(True):
        return Row(counts=statistics.row_of(_magnitudes(leaf), statistics.bit_codes(real_parts(leaf)[0].dtype.name)))


def histogram(leaf: Array) -> Row:
    """Count the values of *leaf* by exponent as `core.statistics.exponent_histogram` does."""
    with jax.enable_x64(True):
        bins = statistics.bins_of_bits(_magnitudes(leaf), real_parts(leaf)[0].dtype, _bits)
        return Row(counts=jnp.zeros(statistics.BINS + 1, jnp.int32).at[bins].add(1)[:-1])  # without zeros, infinities and NaNs


def rounded(array: Array, dtype: str) -> Array:
    """Round float64 *array* to *dtype*, and return the result as float64."""
    return widened(narrowed(array)) if dtype == "float32" else array


def plus(left: Array, right: Array, norm_dtype: str) -> Array:
    """
    Return the sum of two sums of squares, each float64.

    If *norm_dtype* is "float32", both have shape (). They and the result are rounded to float32 precision, with the exponent
    range of float64. If it is "float64", both have shape (2,): the sum of the squares of values that were multiplied by a power
    of two, so that no square overflows or underflows, and this power of two, the lift.
    """
    if norm_dtype == "float32":
        return in_float32_precision(in_float32_precision(left) + in_float32_precision(right))
    lift = jnp.minimum(left[1], right[1])
    left_ratio, right_ratio = _ratio(lift, left[1]), _ratio(lift, right[1])
    return jnp.stack([left[0] * left_ratio * left_ratio + right[0] * right_ratio * right_ratio, lift])


def in_dtype(array: Array, name: str) -> Array:
    """Convert a real array to float32 or float64, including subnormal numbers; float64 is rounded to float32."""
    if array.dtype.name == name:
        return array
    if name == "float32":
        return narrowed(array) if array.dtype.name == "float64" else array.astype(jnp.float32)
    return widened(array.astype(jnp.float32))


def in_float32_precision(array: Array) -> Array:
    """Round *array*, float64, to the precision of float32, keeping the exponent range of float64."""
    return jax.lax.reduce_precision(array, 11, 23)


def _magnitudes(leaf: Array) -> Array:
    """Return the bit patterns of the real numbers of *leaf*, without the sign. Requires ``jax.enable_x64(True)``."""
    bits = [_bits(as_stored(part)) for part in real_parts(leaf)]
    return (bits[0] if len(bits) == 1 else jnp.stack(bits)) & np.iinfo(bits[0].dtype).max


def _bits(array: Array) -> Array:
    return jax.lax.bitcast_convert_type(array, f"int{8 * array.dtype.itemsize}")


def _quotients(leaf: Array, scale: Array, dtype: str | None) -> Array:
    return _applied(divide, leaf, scale, unscaled_dtype(leaf.dtype.name, dtype))


def _applied(operation: Operation, leaf: Array, factor: Array, dtype: str) -> Array:
    """Apply *operation* in the compute dtype of *leaf*, rounding once to *dtype*. A complex number counts as two real ones."""
    work_dtype = compute_dtype(leaf.dtype.name)
    with jax.enable_x64(True):
        number = in_dtype(jnp.reshape(factor, ()), work_dtype)
    if leaf.dtype.name in COMPLEX_PARTS:
        pairs = operation(jnp.stack(real_parts(leaf), axis=-1), number)  # one array, so that XLA makes one loop
        return jax.lax.complex(pairs[..., 0], pairs[..., 1])
    result = operation(as_stored(leaf).astype(work_dtype), number)
    if dtype != "float64" or work_dtype == "float64":
        return as_stored(result.astype(dtype))
    with jax.enable_x64(True):
        return widened(result)


def _still_finite(leaf: Array, scale: Array, value: Array) -> Flag:
    """
    Check that *value*, which is *leaf* divided by *scale*, is finite.

    On a CPU, check *leaf* instead if *scale* >= 1, because the division of a finite number then does not overflow.
    """

    def on_cpu(leaf: Array, scale: Array, value: Array) -> Flag:
        """Check *value* in a branch, because XLA would otherwise compute it again for the check."""
        if value.size < MIN_LOOP_SIZE:
            return _finite_in_pieces(value)
        return jax.lax.cond(scale >= 1, lambda: _finite_in_pieces(leaf), lambda: _finite_in_pieces(value))

    return jax.lax.platform_dependent(
        leaf, jnp.reshape(scale, ()), value, cpu=on_cpu, default=lambda _, __, value: _plainly_finite(value)
    )


def _plainly_finite(array: Array) -> Flag:
    return jnp.all(jnp.isfinite(array))


def _finite_in_pieces(array: Array) -> Flag:
    """Check that *array* is finite. XLA stores a flag per loop iteration, so checking several pieces at once saves stores."""
    if is_explicitly_sharded(array):
        return _plainly_finite(array)
    flags = []
    for part in real_parts(array):
        flat = part.reshape(-1)
        pieces = PIECES if flat.size >= MIN_LOOP_SIZE else 1
        size = -(-flat.size // pieces)
        starts = [min(piece * size, flat.size - size) for piece in range(pieces)]  # the last piece can overlap the previous one
        flags.append(jnp.all(reduce(and_, [jnp.isfinite(flat[start : start + size]) for start in starts])))
    return reduce(and_, flags)


def _ratio(lift: Array, other: Array) -> Array:
    """
    Return *lift* / *other*. Both are `down`, 1 or `up`, and *lift* is at most *other*.

    For `down` / `up`, return `down`. Both make the sum with the lift `up` negligible, but XLA would square the exact quotient
    before multiplying by it, and the square would underflow.
    """
    return jnp.where(other > lift, LIFTS["float64"].down, 1.0)


def _sums(leaf: Array, norm_dtype: str) -> list[Array]:
    """Return the sums of the squares of the `real_parts` of *leaf*, in the form of `plus`, not yet rounded to *norm_dtype*."""
    with jax.enable_x64(True):
        return [_sum_of_squares(as_stored(part), norm_dtype) for part in real_parts(leaf)]


def _added(sums: list[Array], norm_dtype: str) -> Array:
    """Return the total of *sums*, added in order by `plus`."""
    with jax.enable_x64(True):
        return reduce(partial(plus, norm_dtype=norm_dtype), sums)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _sum_of_squares(array: Array, norm_dtype: str) -> Array:
    """
    Return the sum of the squares of *array*, in the form of `plus`, not yet rounded to *norm_dtype*.

    If the plain sum of float64 squares is infinite or tiny, scale the values and sum again.
    """
    if norm_dtype == "float32":
        return _sum(array, _float32_squares)
    down, up, least = LIFTS["float64"]
    plain = _sum(array, _float64_squares)
    is_large, is_tiny = plain == jnp.inf, plain < least * least
    lift = jnp.where(is_large, down, jnp.where(is_tiny, up, 1.0))
    lifted_sum = partial(_sum, array, partial(_lifted_squares, is_large=is_large))
    return jnp.stack([jax.lax.cond(is_large | is_tiny, lifted_sum, lambda: plain), lift])


@_sum_of_squares.defjvp
def _derivative(norm_dtype: str, values: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """
    Return the sum of the squares and its derivative along the tangent, both in the form of `plus`.

    The values and the tangent are multiplied by the lift of the sum, so that their products neither overflow nor underflow. The
    lift is constant except at jumps, so its own derivative is zero.
    """
    (array,), (tangent,) = values, tangents
    with jax.enable_x64(True):
        result = _sum_of_squares(array, norm_dtype)
        lift = 1.0 if norm_dtype == "float32" else jax.lax.stop_gradient(result[1])
        slope = 2 * jnp.sum((in_dtype(array, "float64") * lift) * (tangent.astype(jnp.float64) * lift))
        return result, slope if norm_dtype == "float32" else jnp.stack([slope, jnp.zeros_like(slope)])


def _float64_squares(array: Array) -> Array:
    values = in_dtype(array, "float64")
    return values * values


def _float32_squares(array: Array) -> Array:
    """
    Return the squares in float64, rounded to float32 if they are normal in float32.

    XLA's CPU code flushes float32 numbers below 2**-126 to zero. Squares below this bound are therefore computed in float64, and
    values below it are converted as integers.
    """
    values = array.astype(jnp.float32)
    bits = jax.lax.bitcast_convert_type(values, jnp.int32) & 0x7FFFFFFF
    is_tiny = bits < 0x00800000  # zero or subnormal
    exact = jnp.where(is_tiny, bits.astype(jnp.float64) * 2.0**-149, values.astype(jnp.float64))
    is_common = (bits - 0x20000000).astype(jnp.uint32) < 0x3F800000  # absolute values from 2**-63 to 2**64, in one comparison
    return jnp.where(is_common, (values * values).astype(jnp.float64), exact * exact)


def _lifted_squares(array: Array, is_large: Flag) -> Array:
    """Return the float64 squares of the values after multiplication by the lift: `down` if *is_large* is True, else `up`."""
    values = in_dtype(array, "float64")
    lifts = LIFTS["float64"]
    lifted_up = multiply(values, jnp.float64(LAST_LIFT)) * (lifts.up / LAST_LIFT)
    lifted = jnp.where(is_large, values * lifts.down, lifted_up)
    return lifted * lifted


def _sum(array: Array, function: Callable[[Array], Array]) -> Array:
    """Return the float64 sum of ``function(array)``."""
    on_cpu = partial(_sum_in_lanes, function=function)
    return jax.lax.platform_dependent(array, cpu=on_cpu, default=lambda array: jnp.sum(function(array)))


def _sum_in_lanes(array: Array, function: Callable[[Array], Array]) -> Array:
    """Compute the same sum as `_sum`, in vector lanes for CPUs."""
    if is_explicitly_sharded(array):
        return jnp.sum(function(array))
    flat = array.reshape(-1)
    if flat.size < MIN_LOOP_SIZE:
        return jnp.sum(function(flat))
    if flat.dtype != jnp.bfloat16:
        return jnp.sum(_lane_sums(flat, function))
    size = flat.size // SLICES  # a loop that slices bfloat16 would first convert the whole array to float32
    slices = [flat[index * size : (index + 1) * size] for index in range(SLICES)]
    sums = reduce(add, map(function, slices))  # sums over the slices, elementwise: *size* values
    return _sum_in_lanes(sums, lambda values: values) + jnp.sum(function(flat[SLICES * size :]))


def _lane_sums(flat: Array, function: Callable[[Array], Array]) -> Array:
    """
    Return the sums of ``function(flat)`` in a few thousand lanes.

    The loop keeps XLA from fusing these additions with other operations. If too few values remain, the last iteration starts
    earlier, and values that were already added count as zero.
    """
    lanes = min(LANES, 1 << ((flat.size // PIECES).bit_length() - 1))
    size = lanes * PIECES

    def iteration(index: Array, sums: Array) -> Array:
        start = jnp.minimum(index * size, flat.size - size)
        for piece in range(PIECES):
            results = function(jax.lax.dynamic_slice(flat, (start + piece * lanes,), (lanes,)))
            if flat.size % size != 0:
                offset = jax.lax.iota(np.int32, lanes) + piece * lanes
                results = jnp.where(offset >= (index * size - start).astype(np.int32), results, 0)
            sums = sums + results
        return sums

    zeros = jnp.zeros_like(flat[:lanes], dtype=float)  # made from *flat*, so that both vary over the same axes in `jax.shard_map`
    return jax.lax.fori_loop(0, -(-flat.size // size), iteration, zeros)
