"""
What is done to float32 or float64 values, block by block: divide, look for infinities and NaNs, add up squares.

A block stays in the second cache between two operations on it. Every array here has shape (n,), is contiguous and not empty.
Nothing depends on where it lies. The loop over blocks does as little as it can: between two blocks the interpreter itself is
out of the nearest cache.

Spec: SCALING-reciprocal, OVERFLOW-both-sides, NORMS-accumulate-wide.
"""

import math
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..core.typing import Array

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
BLOCK = 1 << 17  # numbers
CHECKED_ROW = 1 << 13  # numbers; a BLAS may start threads of its own for a product of more than 10,000
PAIR = 2 * CHECKED_ROW
SUMMED_ROW = 1 << 8  # numbers, so few that their squares can be added up in float32: a norm is right to two units
SHORTEST_ROW = 32  # below, a row costs more than its numbers


def _matmul_rows(left: Array, right: Array, out: Array) -> None:
    np.matmul(left[:, None, :], right[:, :, None], out[:, None, None])


_multiply_rows = getattr(np, "vecdot", _matmul_rows)  # (left, right, out): NumPy has it from 2.0


class Factor(NamedTuple):
    """``operation(values, number)`` is the result, rounded once, for values of the number's dtype."""

    operation: np.ufunc
    number: Array  # shape ()


@lru_cache
def factor_host(number: float, dtype: Any, *, divides: bool) -> Factor:
    """To divide values of *dtype* by *number*, or multiply them: by the reciprocal where that is exact."""
    factor = np.array(number, dtype)
    mantissa, exponent = math.frexp(float(factor))
    largest = int(np.finfo(dtype).maxexp) - 1
    if not divides or mantissa != 0.5 or not -largest < exponent - 1 < largest:
        return Factor(np.divide if divides else np.multiply, factor)
    return Factor(np.multiply, np.array(math.ldexp(1.0, 1 - exponent), dtype))


def check_host(source: Array, target: Array, factor: Factor | None = None) -> bool:
    """Applies *factor*, if there is one, and says whether no result is an infinity or a NaN."""
    size = source.size
    full = size // BLOCK * BLOCK
    if full < size and factor is not None:
        factor.operation(source[full:], factor.number, target[full:])
    if not full:
        product = _product_host(target)
    else:
        product = float(_products_host(source[:full], target[:full], factor, CHECKED_ROW, paired=True).sum())
        last = -(-(size - full) // PAIR) * PAIR  # some of it was looked at already, which is quicker than to do without
        product += float(_paired(target[size - last :]).sum())
    return math.isfinite(product) or _look_host(target)


def add_up_host(source: Array, target: Array, factor: Factor | None, dtype: Any) -> tuple[bool, float]:
    """As `check_host`, and the sum of the squares of the results, which are taken in *dtype*, float32 or float64."""
    if source.dtype != FLOAT32 or dtype != FLOAT32 or not rows_are_accurate_host():
        return _add_up_as_defined_host(source, target, factor, dtype)
    full = source.size // BLOCK * BLOCK
    square = 0.0
    if full:
        products = _products_host(source[:full], target[:full], factor, SUMMED_ROW, paired=False)
        square = float(np.add.reduce(products, axis=None, dtype=FLOAT64))
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
        rows = block.reshape(-1, width)
        squares = np.add.reduceat(_row_products(rows, rows).astype(FLOAT64), starts // width)
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
    return bool((abs(_row_products(rows, rows) / exact - 1) < 2.0**-23).all())


def _products_host(source: Array, target: Array, factor: Factor | None, width: int, *, paired: bool) -> Array:
    """
    Applies *factor* to whole blocks.

    Returns:
        Sums of products, each of *width* results: with themselves, or where *paired*, with those half a block further on.
    """
    rows = target.reshape(-1, 1 + paired, BLOCK // width // (1 + paired), width)
    lefts, rights = rows[:, 0], rows[:, -1]
    products = np.empty(lefts.shape[:-1], target.dtype)
    if factor is None:
        _multiply_rows(lefts, rights, products)
        return products
    befores, afters = source.reshape(-1, BLOCK), target.reshape(-1, BLOCK)
    for before, after, left, right, product in zip(befores, afters, lefts, rights, products, strict=True):
        factor.operation(before, factor.number, after)
        _multiply_rows(left, right, product)
    return products


def _product_host(flat: Array) -> float:
    """A sum of products in which every value is a factor: finite only where all of them are, not always where all are."""
    half = (flat.size + 1) // 2
    left, right = flat[:half], flat[flat.size - half :]
    full = half // CHECKED_ROW * CHECKED_ROW
    product = float(np.dot(left[full:], right[full:]))
    if full:
        product += float(_row_products(left[:full].reshape(-1, CHECKED_ROW), right[:full].reshape(-1, CHECKED_ROW)).sum())
    return product


def _paired(flat: Array) -> Array:
    """As `_product_host`, for a multiple of `PAIR` values, and by row."""
    left, right = flat.reshape(2, -1, CHECKED_ROW)
    return _row_products(left, right)


def _add_up_rows_host(flat: Array) -> float:
    """The sum of the squares of float32 values, in rows and what is left of them."""
    full = flat.size // SUMMED_ROW * SUMMED_ROW
    last = flat[full:]
    square = float(np.dot(last, last))
    if full:
        rows = flat[:full].reshape(-1, SUMMED_ROW)
        square += float(np.add.reduce(_row_products(rows, rows), dtype=FLOAT64))
    return square


def _row_products(left: Array, right: Array) -> Array:
    """The sum of the products in each row."""
    products = np.empty(len(left), left.dtype)
    _multiply_rows(left, right, products)
    return products


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
