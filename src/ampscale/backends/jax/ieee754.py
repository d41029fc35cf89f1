"""
IEEE 754 products and quotients on JAX.

XLA's CPU code flushes subnormal numbers to zero, in float32 those below 2**-126. Conversions between float16, bfloat16 and
float32, `isfinite` and `where` are exact. float32 operations are therefore computed in float64, where no float32 number is
subnormal, and divisions as multiplications by a reciprocal. Tiny float64 numbers are scaled by a power of two, and their last
bits are rounded as integers.

XLA's CUDA code handles subnormal numbers. Its float32 quotients can be 1 ulp off, so they are computed in float64 too. It also
removes conversions to 16 bits and back; see `as_stored`. On other devices, JAX's own operations are used.
"""

import operator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ...core.scaling import Operation
from ...core.typing import Array

LIFT = 500  # binary exponent of the factor that makes tiny float64 numbers normal, with room for intermediate results


def multiply(left: Array, right: Array) -> Array:
    """Return *left* times *right*, rounded once. Both arrays are float32 or both float64, and their shapes broadcast."""
    return _computed(operator.mul, left, right)


def divide(left: Array, right: Array) -> Array:
    """Return *left* divided by *right*, rounded once. Both arrays are float32 or both float64, and their shapes broadcast."""
    return _computed(operator.truediv, left, right)


def widened(array: Array) -> Array:
    """Convert float32 *array* to float64, including subnormal numbers. Requires ``jax.enable_x64(True)``."""
    multiple, unit = _magnitude(array)
    tiny = jnp.where(jnp.signbit(array), -multiple, multiple) * 2.0**-149
    return jnp.where(unit < 1, tiny, array.astype(jnp.float64))


def narrowed(array: Array) -> Array:
    """Round float64 *array* to float32, including subnormal numbers. Requires ``jax.enable_x64(True)``."""
    is_tiny = jnp.abs(array) < 2.0**-126
    tiny = _with_sign(jnp.where(is_tiny, jnp.abs(array), 0), jnp.signbit(array))
    return jnp.where(is_tiny, tiny, array.astype(jnp.float32))


@jax.custom_jvp
def as_stored(array: Array) -> Array:
    """
    Return *array*. If it is a 16-bit array that the same program computes, force XLA to round it to its dtype.

    On a GPU, XLA would otherwise compute with the unrounded float32 values. `jax.lax.reduce_precision` would replace subnormal
    float16 numbers by zeros.
    """
    if array.dtype not in (jnp.float16, jnp.bfloat16):
        return array
    return jax.lax.platform_dependent(array, cpu=lambda array: array, default=_opaque)


as_stored.defjvps(lambda tangent, *_: tangent)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
@partial(jax.jit, static_argnums=0)
def _computed(operation: Operation, left: Array, right: Array) -> Array:
    """Apply *operation*, a multiplication or a division, with the code for the platform on which it runs."""
    on_cpu = _in_float64 if left.dtype == jnp.float32 else _lifted
    on_cuda = {"cuda": _cuda_quotient} if left.dtype == jnp.float32 and operation is operator.truediv else {}
    return jax.lax.platform_dependent(left, right, cpu=partial(on_cpu, operation), **on_cuda, default=partial(_plain, operation))


@_computed.defjvp
def _derivative(operation: Operation, values: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return the result, and the tangent of JAX's own operation, because operations on bits have no derivative."""
    _, tangent = jax.jvp(partial(_plain, operation), values, tangents)
    return _computed(operation, *values), tangent


def _plain(operation: Operation, left: Array, right: Array) -> Array:
    """Return the result of JAX's own operation."""
    # Hide a constant or broadcast divisor from XLA, which would multiply by its reciprocal instead.
    hidden = jnp.where(jnp.isnan(left), left, right) if operation is operator.truediv else right
    return operation(left, hidden)


def _opaque(array: Array) -> Array:
    """Return *array* after an operation on its bits that XLA cannot remove. Only the NaN 0x7F..F changes, to another NaN."""
    bits = jax.lax.bitcast_convert_type(array, f"int{8 * array.dtype.itemsize}")
    return jax.lax.bitcast_convert_type(jnp.minimum(bits, np.iinfo(bits.dtype).max - 1), array.dtype)


def _cuda_quotient(left: Array, right: Array) -> Array:
    """Return a float32 quotient, computed as in `_in_float64`. XLA would replace a float64 division by a float32 division."""
    with jax.enable_x64(True):
        quotient = _opaque(left).astype(jnp.float64) * (1 / right.astype(jnp.float64))
        return _opaque(_in_51_bits(quotient).astype(jnp.float32))


def _in_51_bits(array: Array) -> Array:
    """Round float64 *array* to 51 significant bits instead of 53; see `_in_float64`."""
    bits = jax.lax.bitcast_convert_type(array, jnp.int64)
    return jax.lax.bitcast_convert_type((bits + 2) & ~3, jnp.float64)


def _in_float64(operation: Operation, left: Array, right: Array) -> Array:
    """
    Return a float32 product or quotient, computed in float64 and then rounded to float32.

    The exact product of two float32 numbers fits into float64, so it is rounded only once. A quotient is computed as the product
    of *left* and the reciprocal of *right*, with a relative error of at most 2**-52, and rounded to 51 bits. This rounding
    restores exact ties between two float32 numbers, normal or subnormal; every other quotient differs from a tie by at least
    2**-49 of its value, so the error does not change the float32 number to which it is rounded.
    """
    with jax.enable_x64(True):
        factor = jnp.abs(widened(right))
        factor = 1 / factor if operation is operator.truediv else factor
        multiple, unit = _magnitude(left)
        result = multiple * (unit * factor)
        if operation is operator.truediv:
            result = _in_51_bits(result)
        return _with_sign(result, jnp.signbit(left) ^ jnp.signbit(right))


def _magnitude(array: Array) -> tuple[Array, Array]:
    """Return the absolute values of float32 *array* as multiples of a unit, and the units: 2**-149 for tiny values, else 1."""
    bits = jax.lax.bitcast_convert_type(array, jnp.int32) & 0x7FFFFFFF
    is_tiny = bits < 0x00800000  # zero or subnormal
    multiple = jnp.where(is_tiny, bits.astype(jnp.float32), jax.lax.bitcast_convert_type(bits, jnp.float32))
    return multiple.astype(jnp.float64), jnp.where(is_tiny, 2.0**-149, 1.0)


def _with_sign(magnitude: Array, is_negative: Array) -> Array:
    """Round non-negative float64 *magnitude* to float32, also below 2**-126, and negate it where *is_negative* is True."""
    is_tiny = magnitude < 2.0**-126
    # Subnormal results are integer multiples of 2**-149.
    value = jnp.where(is_tiny, jnp.rint(magnitude * 2.0**149), magnitude).astype(jnp.float32)
    units = jax.lax.bitcast_convert_type(value + jnp.float32(2.0**23), jnp.int32) - 0x4B000000  # the bits of 2.0**23
    bits = jnp.where(is_tiny, units, jax.lax.bitcast_convert_type(value, jnp.int32))
    return jax.lax.bitcast_convert_type(jnp.where(is_negative, bits | jnp.int32(-(2**31)), bits), jnp.float32)


def _lifted(operation: Operation, left: Array, right: Array) -> Array:
    """
    Return a float64 product or quotient. *right* is not negative, and is not subnormal in a quotient.

    If *left* or the result is tiny, *left* is lifted by a power of two, so that no subnormal number is lost.
    """
    if operation is operator.mul:  # a clipping coefficient can be subnormal, and then *left* is large or the product is zero
        is_subnormal = right < 2.0**-1022
        left, right = jnp.where(is_subnormal, left * 2.0**-LIFT, left), jnp.where(is_subnormal, _lifted_subnormal(right), right)
    bits = jax.lax.bitcast_convert_type(jnp.abs(left), jnp.int64)
    high = jnp.where(bits < 1 << 52, _lifted_subnormal(left), jnp.abs(left) * 2.0**LIFT)
    result = _plain(operation, high, right)
    units = _nearest(result * 2.0 ** (1074 - LIFT), _residual(operation, high, right, result))
    small = jax.lax.bitcast_convert_type(units.astype(jnp.int64), jnp.float64)
    tiny = jnp.where(result < 2.0 ** (LIFT - 1022), small, result * 2.0**-LIFT)
    use_lift = ((jnp.abs(left) < 2.0**-800) | (result < 2.0 ** (LIFT - 1000))) & (right >= 2.0**-1022)
    return jnp.where(use_lift, jnp.where(jnp.signbit(left), -tiny, tiny), _plain(operation, left, right))


def _lifted_subnormal(array: Array) -> Array:
    """Return the absolute value of *array*, float64 zeros or subnormal numbers, times 2**LIFT."""
    return jax.lax.bitcast_convert_type(jnp.abs(array), jnp.int64).astype(jnp.float64) * 2.0 ** (LIFT - 1074)


def _nearest(units: Array, residual: Array) -> Array:
    """Round *units* + *residual* to an integer, ties to even. *residual* is negligible unless *units* is a tie."""
    below = jnp.floor(units)
    is_broken_tie = (units - below == 0.5) & (residual != 0)  # *units* is halfway, and *residual* decides
    return jnp.where(is_broken_tie, jnp.where(residual > 0, below + 1, below), jnp.rint(units))


def _residual(operation: Operation, left: Array, right: Array, result: Array) -> Array:
    """Return the exact result minus the rounded *result*, or a number of the same sign."""
    return _error(left, right, result) if operation is operator.mul else -_error(result, right, left)


def _error(left: Array, right: Array, product: Array) -> Array:
    """
    Return *left* times *right* minus their rounded *product*, exactly (Dekker 1971).

    Each partial product is exact, so the result is the same if XLA fuses multiplications with additions.
    """
    (high, low), (upper, lower) = _halves(left), _halves(right)
    return ((high * upper - product) + high * lower + low * upper) + low * lower


def _halves(array: Array) -> tuple[Array, Array]:
    """Split positive *array* into two numbers of 26 significant bits each, whose sum is *array*."""
    bits = jax.lax.bitcast_convert_type(array, jnp.int64)
    high = jax.lax.bitcast_convert_type((bits + (1 << 26)) & ~((1 << 27) - 1), jnp.float64)
    return high, array - high
