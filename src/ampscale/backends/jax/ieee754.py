"""
IEEE 754 products and quotients on JAX.

XLA's CPU code takes subnormal numbers for zero, in float32 below 2**-126. Conversions between float16, bfloat16 and
float32, `isfinite` and `where` are exact. So here float32 is computed in float64, where none of its numbers is
subnormal, without a division per value; and tiny float64 numbers are lifted, and their last bits rounded as integers.
On other devices the library's own product and quotient are taken as they are.
"""

import operator
from functools import partial

import jax
import jax.numpy as jnp

from ...core.scaling import Operation
from ...core.typing import Array

LIFT = 500  # powers of two, by which tiny float64 numbers are lifted out of the subnormal ones and their neighbourhood


def multiply(left: Array, right: Array) -> Array:
    """*left* times *right*: both float32 or both float64, of shapes that broadcast; rounded once."""
    return _computed(operator.mul, left, right)


def divide(left: Array, right: Array) -> Array:
    """*left* divided by *right*: both float32 or both float64, of shapes that broadcast; rounded once."""
    return _computed(operator.truediv, left, right)


def widened(array: Array) -> Array:
    """*array*, float32, as float64, subnormal numbers too. Within ``jax.enable_x64(True)``."""
    magnitude, unit = _magnitude(array)
    tiny = jnp.where(jnp.signbit(array), -magnitude, magnitude) * 2.0**-149
    return jnp.where(unit < 1, tiny, array.astype(jnp.float64))


def narrowed(array: Array) -> Array:
    """*array*, float64, rounded to float32, to subnormal numbers too. Within ``jax.enable_x64(True)``."""
    small = jnp.abs(array) < 2.0**-126
    tiny = _with_sign(jnp.where(small, jnp.abs(array), 0), jnp.signbit(array))
    return jnp.where(small, tiny, array.astype(jnp.float32))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
@partial(jax.jit, static_argnums=0)
def _computed(operation: Operation, left: Array, right: Array) -> Array:
    exact = _in_float64 if left.dtype == jnp.float32 else _lifted
    return jax.lax.platform_dependent(left, right, cpu=partial(exact, operation), default=partial(_plain, operation))


@_computed.defjvp
def _derivative(operation: Operation, values: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    """The library's own: a number that is put together from bits has none."""
    _, tangent = jax.jvp(partial(_plain, operation), values, tangents)
    return _computed(operation, *values), tangent


def _plain(operation: Operation, left: Array, right: Array) -> Array:
    """The library's own. XLA divides by a constant or a broadcast scalar by its reciprocal, so here it cannot see one."""
    hidden = jnp.where(jnp.isnan(left), left, right) if operation is operator.truediv else right
    return operation(left, hidden)


def _in_float64(operation: Operation, left: Array, right: Array) -> Array:
    """
    A float32 result that is rounded twice is as if rounded once: float64 has more than twice its digits.

    A quotient is the product with the reciprocal, wrong by at most 2**-52 of it, and then without its last two bits. What is
    halfway between two float32 numbers, or subnormal ones, is met again so; any other quotient is 2**-49 of it or more away.
    """
    with jax.enable_x64(True):
        factor = jnp.abs(widened(right))
        factor = 1 / factor if operation is operator.truediv else factor
        magnitude, unit = _magnitude(left)
        result = magnitude * (unit * factor)
        if operation is operator.truediv:
            bits = jax.lax.bitcast_convert_type(result, jnp.int64)
            result = jax.lax.bitcast_convert_type((bits + 2) & ~3, jnp.float64)
        return _with_sign(result, jnp.signbit(left) ^ jnp.signbit(right))


def _magnitude(array: Array) -> tuple[Array, Array]:
    """Two float64 numbers whose product is the absolute value of *array*, float32; the second is 1 or the smallest float32."""
    bits = jax.lax.bitcast_convert_type(array, jnp.int32) & 0x7FFFFFFF
    tiny = bits < 0x00800000
    value = jnp.where(tiny, bits.astype(jnp.float32), jax.lax.bitcast_convert_type(bits, jnp.float32))
    return value.astype(jnp.float64), jnp.where(tiny, 2.0**-149, 1.0)


def _with_sign(magnitude: Array, negative: Array) -> Array:
    """*magnitude*, float64 and not negative, rounded to float32, and a sign. A tiny one is counted in units, as an integer."""
    small = magnitude < 2.0**-126
    value = jnp.where(small, jnp.rint(magnitude * 2.0**149), magnitude).astype(jnp.float32)
    units = jax.lax.bitcast_convert_type(value + jnp.float32(2.0**23), jnp.int32) - 0x4B000000  # the last 24 bits of it
    bits = jnp.where(small, units, jax.lax.bitcast_convert_type(value, jnp.int32))
    return jax.lax.bitcast_convert_type(jnp.where(negative, bits | jnp.int32(-(2**31)), bits), jnp.float32)


def _lifted(operation: Operation, left: Array, right: Array) -> Array:
    """float64, for a positive *right* within 2**-200 and 2**200; beyond, tiny results are XLA's, which is zero."""
    bits = jax.lax.bitcast_convert_type(jnp.abs(left), jnp.int64)
    subnormal = bits.astype(jnp.float64) * 2.0 ** (LIFT - 1074)
    high = jnp.where(bits < 1 << 52, subnormal, jnp.abs(left) * 2.0**LIFT)
    result = _plain(operation, high, right)
    units = _nearest(result * 2.0 ** (1074 - LIFT), _rest(operation, high, right, result))
    small = jax.lax.bitcast_convert_type(units.astype(jnp.int64), jnp.float64)
    tiny = jnp.where(result < 2.0 ** (LIFT - 1022), small, result * 2.0**-LIFT)
    lifted = (jnp.abs(left) < 2.0**-800) & (right > 2.0**-200) & (right < 2.0**200)
    return jnp.where(lifted, jnp.where(jnp.signbit(left), -tiny, tiny), _plain(operation, left, right))


def _nearest(units: Array, rest: Array) -> Array:
    """*units* plus something of the sign of *rest*, too small to matter but in a tie, as an integer; ties to even."""
    below = jnp.floor(units)
    tie = (units - below == 0.5) & (rest != 0)
    return jnp.where(tie, jnp.where(rest > 0, below + 1, below), jnp.rint(units))


def _rest(operation: Operation, left: Array, right: Array, result: Array) -> Array:
    """The exact result minus the rounded one, or something of its sign."""
    return _error(left, right, result) if operation is operator.mul else -_error(result, right, left)


def _error(left: Array, right: Array, product: Array) -> Array:
    """
    *left* times *right*, minus a *product* that is next to it, exactly (Dekker 1971).

    Each partial product fits, so it is all the same if XLA multiplies and adds in one instruction.
    """
    (high, low), (upper, lower) = _halves(left), _halves(right)
    return ((high * upper - product) + high * lower + low * upper) + low * lower


def _halves(array: Array) -> tuple[Array, Array]:
    """Two numbers of 26 significant bits each, which add up to *array*, positive."""
    bits = jax.lax.bitcast_convert_type(array, jnp.int64)
    high = jax.lax.bitcast_convert_type((bits + (1 << 26)) & ~((1 << 27) - 1), jnp.float64)
    return high, array - high
