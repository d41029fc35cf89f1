"""
Kernels for float16 and bfloat16 values: a table of the results for all 65,536 values, computed once by the core's definition.

Integer arithmetic is twice as fast as the table if values are divided by a power of two, which nearly all loss scales are.
"""

import math
import operator
from collections.abc import Callable
from functools import lru_cache, partial
from threading import local
from typing import Any, NamedTuple

import numpy as np

from ...core.dtypes import name_of
from ...core.namespaces import quiet
from ...core.scaling import apply_factor
from ...core.typing import Array

STEP = 1 << 16  # values at a time; they and their scratch memory stay in the L2 cache
SIGN = np.uint16(0x8000)
MAGNITUDE = np.uint16(0x7FFF)
INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80}  # bits of infinity; those of a NaN are larger

Bits = Any  # uint16, shape (n,), contiguous


class HalfOp(NamedTuple):
    """Operation on every 16-bit value: division or multiplication in float32, rounded once."""

    dtype: Any  # float16 or bfloat16
    divides: bool  # False to multiply
    factor: float  # float32 represents it exactly

    def apply_host(self, source: Bits, target: Bits, *, uses_table: bool) -> bool:
        """
        Write the results for *source* into *target*, which may be the same array; return True if all of them are finite.

        With *uses_table*, results that integer arithmetic cannot compute are looked up, which pays off for many values.
        """
        shift, finite = self._shift_host(), True
        for start in range(0, source.size, STEP):
            bits, out = source[start : start + STEP], target[start : start + STEP]
            if shift is not None and shift(bits, out):
                continue
            if uses_table:
                index = _scratch(bits.size).index
                index[...] = bits
                np.take(_table(*self), index, out=out, mode="wrap")  # mode="raise" would buffer the output
            else:
                out[...] = _defined(bits, *self)
            finite = are_finite_host(out, self.dtype) and finite
        return finite

    def _shift_host(self) -> Callable[[Bits, Bits], bool] | None:
        """
        Return integer arithmetic for this operation; None if there is none.

        It returns True if it has computed all results, which are then finite, and False if it has written nothing.
        """
        mantissa, exponent = math.frexp(self.factor)
        least, shift = (11, _shift_float16_host) if name_of(self.dtype) == "float16" else (1, _shift_bfloat16_host)
        return partial(shift, exponent - 1) if self.divides and mantissa == 0.5 and exponent > least else None


def are_finite_host(bits: Bits, dtype: Any) -> bool:
    """Return True if all values are finite: of either sign, infinities and NaNs have the largest bits."""
    infinity = INFINITY[name_of(dtype)]
    return not bits.size or bool(bits.view(np.int16).max() < infinity and bits.max() < infinity + 0x8000)


def magnitudes_host(bits: Bits, dtype: Any) -> Array:
    """Return the absolute values of up to `STEP` *bits* as float32, in scratch memory that the next call here overwrites."""
    large, *_, sums, _ = _scratch(bits.size)
    np.bitwise_and(bits, MAGNITUDE, out=large)
    values: Array = sums.view(np.float32)
    if name_of(dtype) == "float16" and large.max() >= INFINITY["float16"]:
        values[...] = large.view(dtype)
        return values
    sums[...] = large
    if name_of(dtype) == "bfloat16":
        sums <<= np.uint32(16)
        return values
    sums <<= np.uint32(13)
    values *= np.float32(2.0**112)  # exponents of float16 are biased by 15, those of float32 by 127
    return values


def _shift_float16_host(k: int, bits: Bits, out: Bits) -> bool:
    """
    Divide by 2**k, k > 10.

    A result of 2**-13 or more has the same fraction and a smaller exponent. Smaller results are multiples of 2**-24, and a
    float32 addition rounds to them, because next to 0.5 the float32 numbers are multiples of 2**-24. To save an operation, all
    numbers here are larger by a factor of 2**(k - 80). A subnormal value is treated as just below 2**-14: both become zero.
    """
    large, small, rounded, limits, sums, _ = _scratch(bits.size)
    np.bitwise_or(bits, SIGN, out=large)  # reads as a format with 6 exponent bits, with an exponent larger by 32
    if large.max() >= 0x8000 + INFINITY["float16"]:
        return False
    limit = min(0x8000 + ((k + 2) << 10), 0xFFFF)  # its result is 2**-13
    if limits[0] != limit:
        _of_thread.scratch.limits[...] = limit
    np.minimum(large, limits, out=small)  # NumPy is fast only if both operands are arrays
    sums[...] = small
    sums <<= np.uint32(13)
    floats = sums.view(np.float32)
    floats += np.float32(math.ldexp(1.0, k - 81) + math.ldexp(1.0, k - 89))  # the second term becomes the 0x8000 of `small`
    rounded[...] = sums  # keeps the last 16 bits
    np.subtract(bits, small, out=out)
    out += rounded
    return True


def _shift_bfloat16_host(k: int, bits: Bits, out: Bits) -> bool:
    """Divide by 2**k, k > 0, if every result is zero or normal, so that only the exponents change."""
    magnitude, change, *_ = _scratch(bits.size)
    np.bitwise_and(bits, MAGNITUDE, out=magnitude)
    if magnitude.max() >= INFINITY["bfloat16"]:
        return False
    change[...] = k << 7
    np.minimum(magnitude, change, out=change)  # no change for a zero
    magnitude -= np.uint16(1)  # a zero becomes the largest
    if magnitude.min() < ((k + 1) << 7) - 1:
        return False
    np.subtract(bits, change, out=out)
    return True


class _Scratch(NamedTuple):
    """Scratch memory for `STEP` values at a time. Newly allocated memory would not be in the cache."""

    large: Array
    small: Array
    rounded: Array
    limits: Array  # one value, repeated, which seldom changes
    sums: Array
    index: Array


_of_thread = local()


def _scratch(size: int) -> _Scratch:
    """Return the scratch memory of this thread for *size* values."""
    if not hasattr(_of_thread, "scratch"):
        dtypes = (np.uint16, np.uint16, np.uint16, np.uint16, np.uint32, np.intp)
        _of_thread.scratch = _Scratch(*(np.zeros(STEP, dtype) for dtype in dtypes))
    whole: _Scratch = _of_thread.scratch
    return whole if size == STEP else _Scratch(*(array[:size] for array in whole))


@lru_cache(maxsize=4)
def _table(dtype: Any, divides: bool, factor: float) -> Bits:
    """Return the results for all 65,536 bit patterns, in order."""
    return _defined(np.arange(1 << 16, dtype=np.uint16), dtype, divides, factor)


def _defined(bits: Bits, dtype: Any, divides: bool, factor: float) -> Bits:
    operation = operator.truediv if divides else operator.mul
    with quiet(np):
        return apply_factor(operation, bits.view(dtype), factor, "float32", dtype).view(np.uint16)
