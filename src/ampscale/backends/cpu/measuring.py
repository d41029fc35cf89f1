# mypy: ignore-errors
# ruff: noqa: ARG001, ARG005
# As in `kernels`, numba infers the types, and prescribes the arguments of intrinsics.
"""
Compiled kernel that collects the statistics of the values that it divides or multiplies.

Each block of values is read several times, from the cache after the first time. The first loop finds the smallest and the largest
magnitude. Other loops count small and non-finite values, in blocks that contain any. The last loop writes the results.

Spec: BACKENDS-bit-identical, STATISTICS-columns, STATISTICS-before-unscaling.
"""

import numpy as np
from numba import carray, njit, types
from numba.extending import intrinsic

from ...core.statistics import NO_LARGEST, NO_SMALLEST
from .kernels import as_stored, compiled, magnitude, narrow, pointer, prefetch_block, result_of, widen


@intrinsic
def minus(typingctx, left, right):
    """Return *left* minus *right*, both unsigned integers of one width, modulo 2 to the power of that width."""
    return left(left, right), lambda c, b, s, a: b.sub(a[0], a[1])


@intrinsic
def plus_flag(typingctx, total, flag):
    """Return *total*, an unsigned integer, plus 1 if *flag* is True. The sum has the width of *total*."""
    return total(total, types.boolean), lambda c, b, s, a: b.add(a[0], b.zext(a[1], a[0].type))


@njit(nogil=True, inline="always")
def _extremes(source):
    """Return the smallest and the largest magnitude. Infinities and NaNs are larger than all finite magnitudes."""
    smallest = largest = magnitude(source[0])
    for i in range(source.size):
        bits = magnitude(source[i])
        smallest = bits if bits < smallest else smallest
        largest = bits if bits > largest else largest
    return smallest, largest


@njit(nogil=True, inline="always")
def _count_small(source, subnormal, underflow, one):
    """
    Count small magnitudes.

    The counters are as wide as the values, so that LLVM counts in all lanes of a vector. Unsigned integers wrap around: a zero
    minus 1 is the largest number, so no branch excludes zeros.

    Returns:
        Numbers of zeros, of magnitudes below *subnormal*, and of those up to *underflow*; smallest non-zero magnitude, minus 1.
    """
    zeros = below_subnormal = to_underflow = minus(one, one)  # 0, as wide as the values
    smallest_minus_1 = minus(zeros, one)  # the largest number of this width
    for i in range(source.size):
        bits = magnitude(source[i])
        bits_minus_1 = minus(bits, one)
        zeros = plus_flag(zeros, bits < one)
        below_subnormal = plus_flag(below_subnormal, bits < subnormal)
        to_underflow = plus_flag(to_underflow, bits <= underflow)
        smallest_minus_1 = bits_minus_1 if bits_minus_1 < smallest_minus_1 else smallest_minus_1
    return zeros, below_subnormal, to_underflow, smallest_minus_1


@njit(nogil=True, inline="always")
def _largest_minus_infinity(source, infinity):
    """Return the largest finite magnitude, minus *infinity*: finite ones wrap around, and so exceed infinity and NaN."""
    largest = minus(infinity, infinity)
    for i in range(source.size):
        bits_minus_infinity = minus(magnitude(source[i]), infinity)
        largest = bits_minus_infinity if bits_minus_infinity > largest else largest
    return largest


@njit(nogil=True, inline="always")
def _measure_block(source, codes, row):
    """
    Add the counts of small magnitudes to *row*.

    Returns:
        Smallest non-zero magnitude, minus 1; largest finite magnitude, minus infinity; and True if all values are finite.
    """
    subnormal, underflow, infinity, one = codes
    smallest, largest = _extremes(source)
    smallest_minus_1, largest_minus_infinity = minus(smallest, one), minus(largest, infinity)
    if smallest < subnormal:
        zeros, below_subnormal, to_underflow, smallest_minus_1 = _count_small(source, subnormal, underflow, one)
        row[1] += np.int64(zeros)
        row[2] += np.int64(below_subnormal)
        row[3] += np.int64(to_underflow)
    if largest >= infinity:
        largest_minus_infinity = _largest_minus_infinity(source, infinity)
    return smallest_minus_1, largest_minus_infinity, largest < infinity


@njit(nogil=True, inline="always")
def _write(source, target, like, factor, divisor):
    """Write the results to *target*."""
    for i in range(source.size):
        target[i] = result_of(source[i], like, factor, divisor)


@njit(nogil=True, inline="always")
def _exponent(bits, fraction_bits, lowest):
    """Return the exponent of a non-zero, finite magnitude. *lowest* is the exponent of the magnitude whose bits are 1."""
    units = np.int64(bits)
    if units >> fraction_bits:
        return (units >> fraction_bits) + (lowest + fraction_bits - 1)
    exponent = lowest - 1
    while units:
        units >>= 1
        exponent += 1
    return exponent


@njit(nogil=True, inline="always")
def _count_non_finite(results, infinite_result, factor, divisor, row):
    """Count the infinities and the NaNs of *results* in *row*. Unless these are the sources, store them with `as_stored`."""
    for i in range(results.size):
        bits = magnitude(results[i])
        row[4] += bits == infinite_result
        row[5] += bits > infinite_result
        if factor is not None or divisor is not None:
            results[i] = as_stored(results[i])


@njit(nogil=True, inline="always")
def _complete(row, size, smallest_minus_1, largest_minus_infinity, codes, fraction_bits, lowest):
    """Write the size and the exponents to *row*, and subtract the zeros from the other counts of small magnitudes."""
    _, _, infinity, one = codes
    zero = minus(one, one)
    row[0] = size
    row[2] -= row[1]
    row[3] -= row[1]
    row[6], row[7] = NO_SMALLEST, NO_LARGEST
    # The extremes are those of `_measure_block`. Subtracting `minus(zero, x)` adds x.
    if smallest_minus_1 < minus(infinity, one):
        row[6] = _exponent(minus(smallest_minus_1, minus(zero, one)), fraction_bits, lowest)
    if largest_minus_infinity > minus(zero, infinity):
        row[7] = _exponent(minus(largest_minus_infinity, minus(zero, infinity)), fraction_bits, lowest)


@compiled
def measure_spans(sources, targets, sizes, kind, like, factor, divisor, codes, fraction_bits, lowest, block, rows):
    """
    Do what `run_spans` does without sums, and write the statistics of the sources to *rows*: contiguous, int32,
    shape (n, 8), initially 0.

    A value must not grow: *factor* is at most 1, or *divisor* at least 1. Then infinities and NaNs among the results are those
    of the sources, and can be counted afterwards. Sources and targets must have the same dtype.

    The arguments up to *divisor* are those of `run_spans`. For the dtype of the sources, *codes* are four numbers: the codes
    of 2**-14, 2**-25 and infinity as in `core.statistics.bit_codes`, and 1. *fraction_bits* is the number of fraction bits, and
    *lowest* the exponent of the smallest positive number. In large arrays, *block* values, up to 2**14, are measured at a time;
    in small ones twice as many, since each loop over a block has a fixed cost.
    """
    zero = minus(codes[3], codes[3])  # as wide as the values
    infinite_result = magnitude(narrow(widen(like) + np.float32(np.inf), like))
    first_row = np.int64(rows.ctypes.data)  # not `rows[k]`, whose references numba counts with atomic instructions
    finite = True
    for k in range(sources.size):
        row = carray(pointer(first_row, 8 * k, np.int32(0)), 8)
        next_source, next_size = (sources[k + 1], sizes[k + 1]) if k + 1 < sources.size else (0, 0)
        smallest_minus_1 = minus(zero, codes[3])  # the largest number of this width
        largest_minus_infinity = zero
        is_finite = True
        step = block if sizes[k] > 4 * block else 2 * block
        for start in range(0, sizes[k], step):
            count = min(sizes[k] - start, step)
            source = carray(pointer(sources[k], start, kind), count)
            target = carray(pointer(targets[k], start, like), count)
            prefetch_block(sources[k], sizes[k], next_source, next_size, start, count, target.itemsize)
            low, high, block_is_finite = _measure_block(source, codes, row)
            smallest_minus_1 = low if low < smallest_minus_1 else smallest_minus_1
            largest_minus_infinity = high if high > largest_minus_infinity else largest_minus_infinity
            is_finite &= block_is_finite
            if factor is None and divisor is None:
                continue
            if sources[k] == targets[k]:  # pass one array twice, for the reason given in `run_spans`
                _write(target, target, like, factor, divisor)
            else:
                _write(source, target, like, factor, divisor)
        if not is_finite:
            finite = False
            _count_non_finite(carray(pointer(targets[k], 0, like), sizes[k]), infinite_result, factor, divisor, row)
        _complete(row, sizes[k], smallest_minus_1, largest_minus_infinity, codes, fraction_bits, lowest)
    return finite
