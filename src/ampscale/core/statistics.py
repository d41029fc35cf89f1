"""
Reference definition of exponent histograms, and of statistics: how many values are zero, non-finite or too small for float16.

Magnitudes are compared with exact thresholds only. As the bit patterns of a floating-point format are in the order of its
magnitudes, the same functions process integer arrays of bit patterns, for libraries that flush subnormal numbers to zero.

Spec: STATISTICS-columns, STATISTICS-thresholds, STATISTICS-exponents, STATISTICS-complex, STATISTICS-histogram.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import array_api_compat

from .dtypes import COMPLEX_PARTS, FLOATS, compute_dtype, name_of
from .namespaces import as_array, device_of, namespace_of, quiet
from .overflow import unscale_and_check
from .scaling import in_dtype
from .trees import leaves
from .typing import Array, Flag, Scale, Tree

COLUMNS = ("size", "zeros", "subnormals", "underflows", "infinities", "nans", "smallest", "largest")
NO_SMALLEST, NO_LARGEST = 32767, -32768  # exponents of an array without finite, non-zero values
EMPTY = (0, 0, 0, 0, 0, 0, NO_SMALLEST, NO_LARGEST)  # statistics of an array without values
LOWEST, HIGHEST = -150, 127  # exponents of the first and the last bin
BINS = HIGHEST - LOWEST + 1
SUBNORMAL, UNDERFLOW = -14, -25  # exponents of the smallest normal float16, and of the largest number that float16 rounds to zero


class Codes(NamedTuple):
    """Codes of the magnitudes to compare with: numbers of a floating-point format, or its bit patterns without the sign."""

    subnormal: float  # code of 2**-14
    underflow: float  # code of 2**-25; 0 if all non-zero values of the format are larger
    infinity: float  # code of infinity; the codes of NaNs are larger, or are not comparable
    lowest: int  # exponent of the first of `powers`
    powers: tuple[float, ...]  # codes of all powers of two that the format represents, in ascending order; at most 2098


class Reductions(NamedTuple):
    """Reductions that return one value for one array, or one value for each of several concatenated arrays."""

    sizes: Array  # number of values of each array: int32
    count: Callable[[Array], Array]  # from bools to the number of those that are True: int32, of the shape of `sizes`
    smallest: Callable[[Array], Array]  # from magnitudes to the smallest
    largest: Callable[[Array], Array]  # from magnitudes to the largest


def statistics(tree: Tree) -> Array:
    """
    Return the statistics of the real numbers of each array of *tree*: int32, shape (number of arrays, 8).

    The columns are `COLUMNS`: the numbers of all values, of zeros, of non-zero magnitudes below 2**-14 and of at most 2**-25,
    of infinities, and of NaNs; and the exponents floor(log2(m)) of the smallest and the largest non-zero, finite magnitude m, or
    `NO_SMALLEST` and `NO_LARGEST`. A complex number counts as two real numbers.

    Raises:
        ValueError: An array has 2**31 or more real numbers.
    """
    arrays = leaves(tree)
    check_sizes(arrays)
    with quiet(namespace_of(tree)):
        rows = [row_of(magnitudes_of(array), number_codes(compute_dtype(name_of(array.dtype)))) for array in arrays]
    return stacked(rows, tree, len(COLUMNS))


def unscale_check_and_measure(tree: Tree, scale: Scale, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag, Array]:
    """Return the results of `unscale_and_check`, and the `statistics` of *tree* before the division."""
    measured = statistics(tree)
    return *unscale_and_check(tree, scale, out, dtype), measured


def exponent_histogram(tree: Tree) -> Array:
    """
    Count the non-zero, finite values of each array by their exponent floor(log2(m)), where m is the magnitude.

    Returns:
        int32, shape (number of arrays, `BINS`): one bin for each exponent from `LOWEST` to `HIGHEST`. Values with smaller
        exponents are counted in the first bin, and values with larger ones in the last.

    Raises:
        ValueError: An array has 2**31 or more real numbers.
    """
    arrays = leaves(tree)
    check_sizes(arrays)
    with quiet(namespace_of(tree)):
        rows = [histogram_of(magnitudes_of(array)) for array in arrays]
    return stacked(rows, tree, BINS)


def check_sizes(arrays: Sequence[Array]) -> None:
    """Raise a ValueError if one of *arrays* has 2**31 or more real numbers, which an int32 cannot count."""
    for array in arrays:
        check_size(math.prod(array.shape) * (2 if name_of(array.dtype) in COMPLEX_PARTS else 1))


def check_size(size: int) -> None:
    """Raise a ValueError if *size*, the number of real numbers of an array, is too large for an int32."""
    if size >= 2**31:
        raise ValueError(f"arrays must have fewer than 2**31 real numbers to be measured, got {size}")


@lru_cache
def number_codes(name: str) -> Codes:
    """Return the codes of magnitudes that are encoded as numbers of the dtype *name*, float32 or float64."""
    lowest, highest = _exponent_range(name)
    powers = tuple(math.ldexp(1.0, exponent) for exponent in range(lowest, highest + 1))
    return Codes(2.0**SUBNORMAL, 2.0**UNDERFLOW, math.inf, lowest, powers)


@lru_cache
def bit_codes(name: str) -> Codes:
    """Return the codes of the real dtype *name* as bit patterns without the sign: non-negative integers of a signed dtype."""
    fraction_bits = FLOATS[name].fraction_bits
    lowest, highest = _exponent_range(name)
    normal = lowest + fraction_bits  # exponent of the smallest normal number, whose pattern is 1 << fraction_bits

    def pattern(exponent: int) -> int:
        if exponent < normal:
            return 1 << exponent - lowest if exponent >= lowest else 0
        return (exponent - normal + 1) << fraction_bits

    powers = tuple(map(pattern, range(lowest, highest + 1)))
    return Codes(pattern(SUBNORMAL), pattern(UNDERFLOW), pattern(highest + 1), lowest, powers)


def magnitudes_of(array: Array) -> Array:
    """Return the absolute values of the real numbers of *array* in its compute dtype, float32 or float64."""
    xp = array_api_compat.array_namespace(array)
    if hasattr(array, "compressed"):  # a masked array of NumPy, whose masked values do not count
        array = array.compressed()
    if name_of(array.dtype) in COMPLEX_PARTS:
        array = xp.stack([xp.real(array), xp.imag(array)])
    return xp.abs(in_dtype(array, compute_dtype(name_of(array.dtype))))


def row_of(magnitudes: Array, codes: Codes) -> Array:
    """Return the statistics of *magnitudes*, which have the encoding of *codes*: int32, shape (8,)."""
    size = math.prod(magnitudes.shape)
    if not size:
        return int32(EMPTY, magnitudes)
    xp = array_api_compat.array_namespace(magnitudes)
    return rows_of(magnitudes, codes, Reductions(int32(size, magnitudes), _count, xp.min, xp.max))


def rows_of(magnitudes: Array, codes: Codes, reductions: Reductions) -> Array:
    """Return the statistics of one array, or of several concatenated ones: int32, shape (8,) or (number of arrays, 8)."""
    xp = array_api_compat.array_namespace(magnitudes)
    # Arrays of shape (), since libraries disagree on operations with Python numbers.
    zero, subnormal, underflow, infinity = (_code(code, magnitudes) for code in (0, *codes[:3]))
    is_finite = magnitudes < infinity
    smallest = reductions.smallest(xp.where(is_finite & (magnitudes > zero), magnitudes, infinity))
    largest = reductions.largest(xp.where(is_finite, magnitudes, zero))
    zeros = reductions.count(magnitudes == zero)
    columns = [
        reductions.sizes,
        zeros,
        reductions.count(magnitudes < subnormal) - zeros,
        reductions.count(magnitudes <= underflow) - zeros,
        reductions.count(magnitudes == infinity),
        reductions.sizes - reductions.count(magnitudes <= infinity),
        _exponents_of(smallest, codes, NO_SMALLEST),
        _exponents_of(largest, codes, NO_LARGEST),
    ]
    return xp.stack(columns, axis=-1)


def histogram_of(magnitudes: Array) -> Array:
    """Return the histogram of *magnitudes*, float32 or float64: int32, shape (BINS,)."""
    xp = array_api_compat.array_namespace(magnitudes)
    is_finite = magnitudes < _code(math.inf, magnitudes)
    bounds = [_code(2.0**exponent, magnitudes) for exponent in range(LOWEST + 1, HIGHEST + 1)]
    non_zero = magnitudes > _code(0, magnitudes)
    counts = [_count(is_finite & non_zero), *(_count(is_finite & (magnitudes >= bound)) for bound in bounds)]
    at_least = xp.stack([*counts, int32(0, magnitudes)])
    return at_least[:-1] - at_least[1:]


def bins_of_bits(bits: Array, dtype: Any, bits_of: Callable[[Array], Array]) -> Array:
    """
    Return the index of the histogram bin of each number, int32; `BINS` for zeros, infinities and NaNs.

    *bits* are patterns, without the sign, of numbers of the array library's *dtype*; *bits_of* returns those of an array.
    """
    xp = array_api_compat.array_namespace(bits)
    codes = bit_codes(name_of(dtype))
    fraction_bits = FLOATS[name_of(dtype)].fraction_bits
    normal = codes.lowest + fraction_bits  # exponent of the smallest normal number

    def exponents(patterns: Array) -> Array:
        return xp.astype((patterns >> fraction_bits) + (normal - 1), xp.int32)

    # The pattern of a subnormal number, as an integer, is the number divided by the smallest one. This quotient is a normal
    # number of the same dtype, and its pattern contains its exponent.
    multiples = xp.astype(bits, dtype)
    all_exponents = xp.where(bits < 1 << fraction_bits, exponents(bits_of(multiples)) + codes.lowest, exponents(bits))
    is_counted = (bits > 0) & (bits < codes.infinity)
    return xp.where(is_counted, xp.clip(all_exponents, LOWEST, HIGHEST) - LOWEST, int32(BINS, bits))


def stacked(rows: list[Array], tree: Tree, columns: int) -> Array:
    """Return *rows*, one for each array of *tree*, as one int32 array of shape (number of rows, *columns*)."""
    xp = namespace_of(tree)
    return xp.stack(rows) if rows else xp.zeros((0, columns), dtype=xp.int32, device=device_of(tree))


def int32(value: Any, like: Array) -> Array:
    """Return *value*, a number or a tuple of numbers, as an int32 array in the library and on the device of *like*."""
    return as_array(value, like, array_api_compat.array_namespace(like).int32)


def _exponent_range(name: str) -> tuple[int, int]:
    """Return the exponents of the smallest and the largest power of two of the dtype *name*."""
    float_format = FLOATS[name]
    return math.frexp(float_format.smallest_subnormal)[1] - 1, math.frexp(float_format.largest)[1] - 1


def _exponents_of(magnitudes: Array, codes: Codes, default: int) -> Array:
    """Return the exponents of *magnitudes*, and *default* for zero and infinity: int32 in the shape of *magnitudes*."""
    xp = array_api_compat.array_namespace(magnitudes)
    powers = _code(codes.powers, magnitudes)
    index = xp.sum(xp.astype(powers <= magnitudes[..., None], xp.int32), axis=-1, dtype=xp.int32)
    is_counted = (magnitudes > _code(0, magnitudes)) & (magnitudes < _code(codes.infinity, magnitudes))
    return xp.where(is_counted, index + int32(codes.lowest - 1, magnitudes), int32(default, magnitudes))


def _count(flags: Array) -> Array:
    xp = array_api_compat.array_namespace(flags)
    return xp.sum(xp.astype(flags, xp.int32), dtype=xp.int32)


def _code(value: Any, magnitudes: Array) -> Array:
    """Return a code, or a tuple of codes, as an array of the dtype and on the device of *magnitudes*."""
    return as_array(value, magnitudes, magnitudes.dtype)
