"""
Kernels for float32 and float64 values: divide, check for infinities and NaNs, and sum squares, block by block.

A block stays in the L2 cache between two operations on it. Every array has shape (n,), and is contiguous and not empty. No
result depends on its address.

While a block is processed, the interpreter's own code and data are evicted from the cache, and must be read from memory again.
All views are therefore created before the first block is read, and only two calls are made for each block.

Spec: SCALING-reciprocal, OVERFLOW-both-sides, NORMS-accumulation-dtype.
"""

import math
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...core.typing import Array

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
BLOCK = 1 << 17  # values
CHECKED_ROW = 1 << 13  # values; a BLAS may start its own threads for a product of more than 10,000
SUMMED_ROW = 1 << 8  # values, so few that float32 sums of their squares keep a norm accurate to two units in the last place
SHORTEST_ROW = 32  # values; calls for shorter rows take longer than the arithmetic


def _matmul_rows(left: Array, right: Array) -> Array:
    return np.matmul(left[:, None, :], right[:, :, None])[:, 0, 0]


_multiply_rows = getattr(np, "vecdot", _matmul_rows)  # (left, right); NumPy has vecdot since 2.0


class Factor(NamedTuple):
    """Operand of a multiplication or division: ``operation(values, number)`` is rounded once, in the dtype of *number*."""

    operation: np.ufunc
    number: Array  # shape ()


class Blocks(NamedTuple):
    """
    Views of an array that is cut into blocks.

    For each block, the rows of its left view are multiplied with those of its right view (dot products). To sum squares, both
    views are the whole block; to check, they are its halves.
    """

    sources: list[Array]  # shape (n,)
    targets: list[Array]  # shape (n,); the sources themselves in place
    lefts: list[Array]  # shape (rows, values per row)
    rights: list[Array]
    remainder: Array  # shape (n,): results at the end that are in no row


@lru_cache
def factor_host(number: float, dtype: Any, *, divides: bool) -> Factor:
    """Return what divides values of *dtype* by *number* or multiplies them; an exact reciprocal replaces a division."""
    factor = np.array(number, dtype)
    mantissa, exponent = math.frexp(float(factor))
    largest = int(np.finfo(dtype).maxexp) - 1
    if not divides or mantissa != 0.5 or not -largest < exponent - 1 < largest:
        return Factor(np.divide if divides else np.multiply, factor)
    return Factor(np.multiply, np.array(math.ldexp(1.0, 1 - exponent), dtype))


def blocks_to_check(source: Array, target: Array) -> Blocks:
    """Return blocks in which each result is a factor: finite row products imply that all results are finite, not vice versa."""
    full = source.size // BLOCK * BLOCK
    halves = target[:full].reshape(-1, 2, BLOCK // CHECKED_ROW // 2, CHECKED_ROW)
    lefts, rights = [*halves[:, 0]], [*halves[:, 1]]
    if full < source.size:
        left, right = _overlapping_halves(target[full:])
        lefts.append(left)
        rights.append(right)
    return _blocks(source, target, lefts, rights, target[:0])


def blocks_to_sum(source: Array, target: Array) -> Blocks:
    """Return blocks of float32 values whose row products are sums of the squares of the results."""
    full, last = source.size // BLOCK * BLOCK, source.size // SUMMED_ROW * SUMMED_ROW
    rows = [*target[:full].reshape(-1, BLOCK // SUMMED_ROW, SUMMED_ROW)]
    if full < source.size:
        rows.append(target[full:last].reshape(-1, SUMMED_ROW))
    return _blocks(source, target, rows, rows, target[last:])


def run_host(blocks: Blocks, factor: Factor) -> Array:
    """Apply *factor*, and return the dot products of all rows: shape (rows,)."""
    operation, number = factor
    products = []
    for source, target, left, right in zip(*blocks[:4], strict=True):
        operation(source, number, target)
        products.append(_multiply_rows(left, right))
    return np.concatenate(products)


def are_finite_host(products: Array, target: Array) -> bool:
    """Return True if all results in *target* are finite, given the row products of `blocks_to_check`."""
    return math.isfinite(float(products.sum())) or _all_finite_host(target)


def square_sum_host(products: Array, remainder: Array, target: Array) -> tuple[bool, float]:
    """Return a finite flag and the sum of squares of the results in *target*, given the row products of `blocks_to_sum`."""
    square = float(np.add.reduce(products, dtype=FLOAT64)) + float(np.dot(remainder, remainder))
    return (True, square) if _is_accurate(square, target.size) else sum_as_defined_host(target, target, None, FLOAT32)


def check_host(flat: Array) -> bool:
    """Return True if all values are finite."""
    return are_finite_host(_multiply_rows(*_overlapping_halves(flat)), flat)


def sum_host(flat: Array, dtype: Any) -> tuple[bool, float]:
    """Return a finite flag and the sum of the squares, which are taken in *dtype*, float32 or float64."""
    if not sums_by_row_host(flat.dtype, dtype):
        return sum_as_defined_host(flat, flat, None, dtype)
    last = flat.size // SUMMED_ROW * SUMMED_ROW
    rows = flat[:last].reshape(-1, SUMMED_ROW)
    return square_sum_host(_multiply_rows(rows, rows), flat[last:], flat)


def sum_each_host(block: Array, sizes: list[int], dtype: Any) -> tuple[bool, Array]:
    """Return a finite flag, and a sum as from `sum_host` for each of the arrays of *sizes*, all positive, that fill *block*."""
    width, lengths = _row_width(math.gcd(*sizes)), np.array(sizes)
    starts = np.add.accumulate(lengths) - lengths
    if width and sums_by_row_host(block.dtype, dtype):
        rows = block.reshape(-1, width)
        squares = np.add.reduceat(_multiply_rows(rows, rows).astype(FLOAT64), starts // width)
        if _is_accurate(squares, lengths).all():
            return True, squares
    squares = np.add.reduceat(np.multiply(block, block, dtype=dtype).astype(FLOAT64, copy=False), starts)
    return math.isfinite(squares.sum()) or bool(np.isfinite(block).all()), squares


def sum_as_defined_host(source: Array, target: Array, factor: Factor | None, dtype: Any) -> tuple[bool, float]:
    """Apply *factor*, and return what `sum_host` returns, computed in the steps of the core's definition."""
    step = BLOCK // 2
    squares = np.empty(min(step, target.size), dtype)
    sums = []
    for start in range(0, target.size, step):
        values = target[start : start + step]
        if factor is not None:
            factor.operation(source[start : start + step], factor.number, values)
        out = squares[: values.size]
        np.multiply(values, values, out=out, dtype=dtype)
        sums.append(float(np.add.reduce(out, dtype=FLOAT64)))
    square = total(sums)
    return math.isfinite(square) or _all_finite_host(target), square


def sums_by_row_host(dtype: Any, square_dtype: Any) -> bool:
    """Return True if squares of values of *dtype*, which the core takes in *square_dtype*, may be summed row by row."""
    return dtype == square_dtype == FLOAT32 and rows_are_accurate_host()


@cache
def rows_are_accurate_host() -> bool:
    """Return True if the BLAS sums a row of equal squares accurately: in such a row, all rounding errors can have one sign."""
    values = np.linspace(1, 4, 1024, dtype=FLOAT32)
    rows = np.repeat(values, SUMMED_ROW).reshape(-1, SUMMED_ROW)
    exact = SUMMED_ROW * values.astype(FLOAT64) ** 2
    return bool((abs(_multiply_rows(rows, rows) / exact - 1) < 2.0**-23).all())


def total(squares: Iterable[float]) -> float:
    """Return the sum of non-negative numbers, rounded once."""
    try:
        return math.fsum(squares)
    except OverflowError:
        return math.inf


def _blocks(source: Array, target: Array, lefts: list[Array], rights: list[Array], remainder: Array) -> Blocks:
    sources = _cut(source)
    targets = sources if target is source else _cut(target)
    return Blocks(sources, targets, lefts, rights, remainder)


def _cut(flat: Array) -> list[Array]:
    full = flat.size // BLOCK * BLOCK
    return [*flat[:full].reshape(-1, BLOCK), *([flat[full:]] if full < flat.size else [])]


def _overlapping_halves(flat: Array) -> tuple[Array, Array]:
    """Return two views with rows that contain all values between them, a few of them twice."""
    half = (flat.size + 1) // 2
    rows = -(-half // CHECKED_ROW)
    width = -(-half // rows)
    return flat[: rows * width].reshape(rows, width), flat[flat.size - rows * width :].reshape(rows, width)


def _all_finite_host(flat: Array) -> bool:
    """Return True if all values are finite. Slower than row products, but decides if a product of finite values overflows."""
    return all(bool(np.isfinite(flat[start : start + BLOCK]).all()) for start in range(0, flat.size, BLOCK))


def _is_accurate(square: Any, size: Any) -> Any:
    """
    Return True if a float32 sum of *size* squares differs from the core's only by the order of additions.

    That is so if no square overflows and none that matters underflows. Underflow loses at most *size* times 2**-150, which is
    negligible in a sum of more than *size* times 2**-122.
    """
    return (square == 0) | ((size * 2.0**-122 < square) & (square < 2.0**126))


def _row_width(size: int) -> int:
    """Return the longest row length from `SHORTEST_ROW` to `SUMMED_ROW` that divides *size*; 0 if there is none."""
    fewest, most = -(-size // SUMMED_ROW), size // SHORTEST_ROW
    return next((size // rows for rows in range(fewest, most + 1) if size % rows == 0), 0)
