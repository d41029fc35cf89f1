"""
What is done to float32 or float64 values, block by block: divide, look for infinities and NaNs, add up squares.

A block stays in the second cache between two operations on it. Every array here has shape (n,), is contiguous and not empty.
Nothing depends on where it lies. The loops over blocks do as little as they can: between two blocks of a megabyte the
interpreter itself is out of the cache.

Spec: SCALING-reciprocal, OVERFLOW-both-sides, NORMS-accumulate-wide.
"""

import math
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..core.typing import Array

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
BLOCK = 1 << 18  # numbers
PAGE = 1 << 10  # numbers, float32 ones
CHECKED_ROW = 1 << 12  # numbers; a BLAS may start threads of its own for a product of more than 10,000
SUMMED_ROW = 1 << 8  # numbers, so few that their squares can be added up in float32: a norm is right to two units
SHORTEST_ROW = 32  # below, a row costs more than its numbers


def _matmul_rows(left: Array, right: Array, out: Array) -> None:
    np.matmul(left[:, None, :], right[:, :, None], out[:, None, None])


_multiply_rows = getattr(np, "vecdot", _matmul_rows)  # (left, right, out): NumPy has it from 2.0


class Factor(NamedTuple):
    """``operation(values, number)`` is the result, rounded once, for values of the number's dtype."""

    operation: np.ufunc
    number: Array  # shape ()
    shrinks: bool  # it subtracts from exponents, and does nothing else where the result is no subnormal number


@lru_cache
def factor_host(number: float, dtype: Any, *, divides: bool) -> Factor:
    """To divide values of *dtype* by *number*, or multiply them: by the reciprocal where that is exact."""
    factor = np.array(number, dtype)
    mantissa, exponent = math.frexp(float(factor))
    largest = int(np.finfo(dtype).maxexp) - 1
    if not divides or mantissa != 0.5 or not -largest < exponent - 1 < largest:
        return Factor(np.divide if divides else np.multiply, factor, shrinks=False)
    return Factor(np.multiply, np.array(math.ldexp(1.0, 1 - exponent), dtype), shrinks=exponent > 0)


def check_host(source: Array, target: Array, factor: Factor | None = None) -> bool:
    """Applies *factor*, if there is one, and says whether no result is an infinity or a NaN."""
    full = source.size // BLOCK * BLOCK
    product = _check_blocks_host(source[:full], target[:full], factor) if full else 0.0
    if full < source.size:
        rest = target[full:]
        if factor is not None:
            factor.operation(source[full:], factor.number, rest)
        product += _product_host(rest)
    return math.isfinite(product) or _look_host(target)


def add_up_host(source: Array, target: Array, factor: Factor | None, dtype: Any) -> tuple[bool, float]:
    """As `check_host`, and the sum of the squares of the results, which are taken in *dtype*, float32 or float64."""
    if source.dtype != FLOAT32 or dtype != FLOAT32 or not rows_are_accurate_host():
        return _add_up_as_defined_host(source, target, factor, dtype)
    full = source.size // BLOCK * BLOCK
    square = _add_up_blocks_host(source[:full], target[:full], factor) if full else 0.0
    if full < source.size:
        rest = target[full:]
        if factor is not None:
            factor.operation(source[full:], factor.number, rest)
        square += _add_up_rows_host(rest)
    return (True, square) if _is_safe(square, source.size) else _add_up_as_defined_host(target, target, None, dtype)


def add_up_each_host(block: Array, sizes: list[int], dtype: Any) -> tuple[bool, Array]:
    """As `add_up_host`, and a sum for each of the arrays of *sizes*, none of them 0, that lie in *block* one after the other."""
    width, lengths = _row_width(math.gcd(*sizes)), np.array(sizes)
    starts = np.add.accumulate(lengths) - lengths
    if block.dtype == dtype == FLOAT32 and width and rows_are_accurate_host():
        squares = np.add.reduceat(_row_sums(block.reshape(-1, width)).astype(FLOAT64), starts // width)
        if _is_safe(squares, lengths).all():
            return True, squares
    squares = np.add.reduceat(np.multiply(block, block, dtype=dtype).astype(FLOAT64, copy=False), starts)
    return math.isfinite(squares.sum()) or bool(np.isfinite(block).all()), squares


@cache
def rows_are_accurate_host() -> bool:
    """Whether this NumPy's BLAS adds up a row of equal squares, for which every rounding may err to one side, well enough."""
    values = np.linspace(1, 4, 1024, dtype=FLOAT32)
    rows = np.repeat(values, SUMMED_ROW).reshape(-1, SUMMED_ROW)
    exact = SUMMED_ROW * values.astype(FLOAT64) ** 2
    return bool((abs(_row_sums(rows) / exact - 1) < 2.0**-23).all())


def _check_blocks_host(source: Array, target: Array, factor: Factor | None) -> float:
    """Applies *factor* to whole blocks; see `_product_host` for what is returned."""
    shape = (-1, 2, BLOCK // CHECKED_ROW // 2, CHECKED_ROW)
    befores, afters = source.reshape(shape), target.reshape(shape)
    products = np.empty((len(afters), shape[2]), target.dtype)
    for pages, before, after, product in zip(_pages(source), befores, afters, products, strict=True):
        np.dot(pages, pages)
        if factor is not None:
            factor.operation(before, factor.number, after)
        _multiply_rows(after[0], after[1], product)
    return float(products.sum())


def _add_up_blocks_host(source: Array, target: Array, factor: Factor | None) -> float:
    """
    Applies *factor* to whole blocks of float32 values, and adds up the squares of the results.

    Memory is faster to read than to change: where the squares before tell those after, they are added up before.
    """
    shape = (-1, BLOCK // SUMMED_ROW, SUMMED_ROW)
    befores, afters = source.reshape(shape), target.reshape(shape)
    sums = np.empty(afters.shape[:2], FLOAT32)
    before_tells = factor is not None and factor.shrinks
    for pages, before, after, row_sums in zip(_pages(source), befores, afters, sums, strict=True):
        np.dot(pages, pages)
        if before_tells:
            _multiply_rows(before, before, row_sums)
        if factor is not None:
            factor.operation(before, factor.number, after)
        if not before_tells:
            _multiply_rows(after, after, row_sums)
    square = float(np.add.reduce(sums, axis=None, dtype=FLOAT64))
    return square * float(factor.number) ** 2 if factor is not None and before_tells else square


def _pages(blocks: Array) -> Array:
    """
    A number from each page, for each block.

    Once they were touched the block comes faster, since a processor fetches ahead within a page alone.
    """
    return blocks[::PAGE].reshape(-1, BLOCK // PAGE)


def _product_host(flat: Array) -> float:
    """A sum of products in which every value is a factor: finite only where all of them are, not always where all are."""
    half = (flat.size + 1) // 2
    left, right = flat[:half], flat[flat.size - half :]
    rows = half // CHECKED_ROW
    full = rows * CHECKED_ROW
    product = float(np.dot(left[full:], right[full:]))
    if rows:
        products = np.empty(rows, flat.dtype)
        _multiply_rows(left[:full].reshape(rows, -1), right[:full].reshape(rows, -1), products)
        product += float(products.sum())
    return product


def _add_up_rows_host(flat: Array) -> float:
    """The sum of the squares of float32 values, in rows and what is left of them."""
    full = flat.size // SUMMED_ROW * SUMMED_ROW
    last = flat[full:]
    square = float(np.dot(last, last))
    if full:
        square += float(np.add.reduce(_row_sums(flat[:full].reshape(-1, SUMMED_ROW)), dtype=FLOAT64))
    return square


def _row_sums(rows: Array) -> Array:
    """The sums of the squares of float32 values in each row."""
    sums = np.empty(len(rows), FLOAT32)
    _multiply_rows(rows, rows, sums)
    return sums


def _look_host(flat: Array) -> bool:
    """Whether no value is an infinity or a NaN; slower, for what products cannot tell."""
    return all(bool(np.isfinite(flat[start : start + BLOCK]).all()) for start in range(0, flat.size, BLOCK))


def _is_safe(square: Any, size: Any) -> Any:
    """
    Whether a sum of squares in float32 is the core's but for the order: nothing overflowed, and nothing that counts underflowed.

    In a sum of at least *size* times 2**-122 all that underflow can lose, *size* times 2**-150, is nothing.
    """
    return (square == 0) | ((size * 2.0**-122 < square) & (square < 2.0**126))


def _add_up_as_defined_host(source: Array, target: Array, factor: Factor | None, dtype: Any) -> tuple[bool, float]:
    """As `add_up_host`, in the core's own steps."""
    step = BLOCK // 2
    squares = np.empty(min(step, target.size), dtype)
    sums = []
    for start in range(0, target.size, step):
        values = target[start : start + step]
        if factor is not None:
            factor.operation(source[start : start + step], factor.number, values)
        part = squares[: values.size]
        np.multiply(values, values, out=part, dtype=dtype)
        sums.append(float(np.add.reduce(part, dtype=FLOAT64)))
    square = total(sums)
    return math.isfinite(square) or _look_host(target), square


def total(squares: Iterable[float]) -> float:
    """The sum of numbers that are not negative, rounded once."""
    try:
        return math.fsum(squares)
    except OverflowError:
        return math.inf


def _row_width(size: int) -> int:
    """The longest row, from `SHORTEST_ROW` to `SUMMED_ROW`, of which a whole number makes *size*; 0 where there is none."""
    fewest, most = -(-size // SUMMED_ROW), size // SHORTEST_ROW
    return next((size // rows for rows in range(fewest, most + 1) if size % rows == 0), 0)
