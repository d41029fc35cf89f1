"""
16-bit numbers, of which there are only 65,536: what becomes of each is worked out once, by the core's definition, and looked up.

Where the factor is a power of two and a gradient is divided by it, which is nearly always, integer arithmetic is twice as fast.
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

STEP = 1 << 16  # numbers at a time: they and the scratch for them stay in the second cache
SIGN = np.uint16(0x8000)
MAGNITUDE = np.uint16(0x7FFF)
INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80}  # the bits; those of a NaN are larger

Bits = Any  # uint16, shape (n,), contiguous


class Half(NamedTuple):
    """What is done with every value: ``operation(value, factor)`` in float32, rounded once."""

    dtype: Any  # float16 or bfloat16
    divides: bool  # else it multiplies
    factor: float  # one that float32 holds

    def apply_host(self, source: Bits, target: Bits, *, many: bool) -> bool:
        """
        Writes the results for *source* into *target*, which may be the same, and says whether all of them are finite.

        *many* says that there are enough of them, here and elsewhere, to make a table for.
        """
        shift, finite = self._shift_host(), True
        for start in range(0, source.size, STEP):
            bits, out = source[start : start + STEP], target[start : start + STEP]
            if shift is not None and shift(bits, out):
                continue
            if many:
                index = _scratch(bits.size).index
                index[...] = bits
                np.take(_table(*self), index, out=out, mode="wrap")  # "raise" would go through a copy
            else:
                out[...] = _defined(bits, *self)
            finite = are_finite_host(out, self.dtype) and finite
        return finite

    def _shift_host(self) -> Callable[[Bits, Bits], bool] | None:
        """Integer arithmetic that does the same, or does nothing and returns False; it leaves no infinity or NaN."""
        mantissa, exponent = math.frexp(self.factor)
        least, shift = (11, _shift_float16_host) if name_of(self.dtype) == "float16" else (1, _shift_bfloat16_host)
        return partial(shift, exponent - 1) if self.divides and mantissa == 0.5 and exponent > least else None


def are_finite_host(bits: Bits, dtype: Any) -> bool:
    """Whether none of *bits* is an infinity or a NaN: with a sign or without, they are those from the infinity's up."""
    infinity = INFINITY[name_of(dtype)]
    return not bits.size or bool(bits.view(np.int16).max() < infinity and bits.max() < infinity + 0x8000)


def magnitudes_host(bits: Bits, dtype: Any) -> Array:
    """The magnitudes of up to `STEP` *bits* as float32, in memory that the next call of anything here uses again."""
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
    values *= np.float32(2.0**112)  # float16's exponents count from -15, those of float32 from -127
    return values


def _shift_float16_host(k: int, bits: Bits, out: Bits) -> bool:
    """
    Divides by 2**k, k > 10.

    Results from 2**-13 up are the same fraction with a smaller exponent. Those below are multiples of 2**-24, and a float32
    addition rounds to them: next to 0.5 they are the float32 numbers. (Only, everything here is larger by 2**(k - 80), since
    that takes one operation less. And what is subnormal already counts as just less than 2**-14: either way it becomes zero.)
    """
    large, small, rounded, limits, sums, _ = _scratch(bits.size)
    np.bitwise_or(bits, SIGN, out=large)  # read as a float16, one with 6 bits of exponent, 32 more than it was
    if large.max() >= 0x8000 + INFINITY["float16"]:
        return False
    limit = min(0x8000 + ((k + 2) << 10), 0xFFFF)  # becomes 2**-13
    if limits[0] != limit:
        _of_thread.scratch.limits[...] = limit
    np.minimum(large, limits, out=small)  # NumPy is fast with two arrays alone
    sums[...] = small
    sums <<= np.uint32(13)
    floats = sums.view(np.float32)
    floats += np.float32(math.ldexp(1.0, k - 81) + math.ldexp(1.0, k - 89))  # the latter becomes the 0x8000 of `small`
    rounded[...] = sums  # the last 16 bits
    np.subtract(bits, small, out=out)
    out += rounded
    return True


def _shift_bfloat16_host(k: int, bits: Bits, out: Bits) -> bool:
    """Divides by 2**k, k > 0, where every result is zero or as precise as what it comes from: only the exponents change."""
    magnitude, change, *_ = _scratch(bits.size)
    np.bitwise_and(bits, MAGNITUDE, out=magnitude)
    if magnitude.max() >= INFINITY["bfloat16"]:
        return False
    change[...] = k << 7
    np.minimum(magnitude, change, out=change)  # of a zero, nothing
    magnitude -= np.uint16(1)  # a zero becomes the largest
    if magnitude.min() < ((k + 1) << 7) - 1:
        return False
    np.subtract(bits, change, out=out)
    return True


class _Scratch(NamedTuple):
    """Memory for `STEP` numbers at a time. New memory would be new to the processor's cache as well."""

    large: Array
    small: Array
    rounded: Array
    limits: Array  # all the same, which changes seldom
    sums: Array
    index: Array


_of_thread = local()


def _scratch(size: int) -> _Scratch:
    """That of this thread, for so many numbers."""
    if not hasattr(_of_thread, "scratch"):
        dtypes = (np.uint16, np.uint16, np.uint16, np.uint16, np.uint32, np.intp)
        _of_thread.scratch = _Scratch(*(np.zeros(STEP, dtype) for dtype in dtypes))
    whole: _Scratch = _of_thread.scratch
    return whole if size == STEP else _Scratch(*(part[:size] for part in whole))


@lru_cache(maxsize=4)
def _table(dtype: Any, divides: bool, factor: float) -> Bits:
    """The results for all 65,536 bit patterns, in order."""
    return _defined(np.arange(1 << 16, dtype=np.uint16), dtype, divides, factor)


def _defined(bits: Bits, dtype: Any, divides: bool, factor: float) -> Bits:
    operation = operator.truediv if divides else operator.mul
    with quiet(np):
        return apply_factor(operation, bits.view(dtype), factor, "float32", dtype).view(np.uint16)
