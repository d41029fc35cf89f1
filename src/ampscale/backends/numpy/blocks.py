"""
What is done to float32 or float64 values, block by block: divide, look for infinities and NaNs, add up squares.

A block stays in the second cache between two operations on it. Every array here has shape (n,), is contiguous and not empty.
Nothing depends on where it lies.

While a block is worked on, the interpreter falls out of the cache, and comes back from memory piece by piece. So all views are
made before the first block is touched, and between two blocks there is nothing but two calls.

Spec: SCALING-reciprocal, OVERFLOW-both-sides, NORMS-accumulation-dtype.
"""

import math
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...core.typing import Array

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
BLOCK = 1 << 17  # numbers
CHECKED_ROW = 1 << 13  # numbers; a BLAS may start threads of its own for a product of more than 10,000
SUMMED_ROW = 1 << 8  # numbers, so few that their squares can be added up in float32: a norm is right to two units
SHORTEST_ROW = 32  # below, a row costs more than its numbers


def _matmul_rows(left: Array, right: Array) -> Array:
    return np.matmul(left[:, None, :], right[:, :, None])[:, 0, 0]


_multiply_rows = getattr(np, "vecdot", _matmul_rows)  # (left, right): NumPy has it from 2.0


class Factor(NamedTuple):
    """``operation(values, number)`` is the result, rounded once, for values of the number's dtype."""

    operation: np.ufunc
    number: Array  # shape ()


class Blocks(NamedTuple):
    """
    An array, cut into blocks.

    Two views of each block have rows of results that are multiplied with one another, and each row's products are added up. To
    sum squares both are the block; to check, they are its halves.
    """

    befores: list[Array]  # shape (n,)
    afters: list[Array]  # shape (n,); where nothing is written, or in place, the befores
    lefts: list[Array]  # shape (rows, numbers in a row)
    rights: list[Array]
    rest: Array  # shape (n,): the results at the end that are in no row


@lru_cache
def factor_host(number: float, dtype: Any, *, divides: bool) -> Factor:
    """To divide values of *dtype* by *number*, or multiply them: by the reciprocal where that is exact."""
    factor = np.array(number, dtype)
    mantissa, exponent = math.frexp(float(factor))
    largest = int(np.finfo(dtype).maxexp) - 1
    if not divides or mantissa != 0.5 or not -largest < exponent - 1 < largest:
        return Factor(np.divide if divides else np.multiply, factor)
    return Factor(np.multiply, np.array(math.ldexp(1.0, 1 - exponent), dtype))


def blocks_to_check(source: Array, target: Array) -> Blocks:
    """Blocks in which each result is a factor: the products are finite only where all results are, and not always then."""
    full = source.size // BLOCK * BLOCK
    halves = target[:full].reshape(-1, 2, BLOCK // CHECKED_ROW // 2, CHECKED_ROW)
    lefts, rights = [*halves[:, 0]], [*halves[:, 1]]
    if full < source.size:
        left, right = _overlapping_halves(target[full:])
        lefts.append(left)
        rights.append(right)
    return _blocks(source, target, lefts, rights, target[:0])


def blocks_to_sum(source: Array, target: Array) -> Blocks:
    """Blocks of float32 values whose products are the squares of the results."""
    full, last = source.size // BLOCK * BLOCK, source.size // SUMMED_ROW * SUMMED_ROW
    rows = [*target[:full].reshape(-1, BLOCK // SUMMED_ROW, SUMMED_ROW)]
    if full < source.size:
        rows.append(target[full:last].reshape(-1, SUMMED_ROW))
    return _blocks(source, target, rows, rows, target[last:])


def run_host(blocks: Blocks, factor: Factor) -> Array:
    """Applies *factor*, and returns the products of all rows, each row's added up: shape (rows,)."""
    operation, number = factor
    products = []
    for before, after, left, right in zip(*blocks[:4], strict=True):
        operation(before, number, after)
        products.append(_multiply_rows(left, right))
    return np.concatenate(products)


def are_finite_host(products: Array, target: Array) -> bool:
    """Whether the results in *target* are finite, from the products of `blocks_to_check`."""
    return math.isfinite(float(products.sum())) or _look_host(target)


def square_host(products: Array, rest: Array, target: Array) -> tuple[bool, float]:
    """Whether the results in *target* are finite, and the sum of their squares, from the products of `blocks_to_sum`."""
    square = float(np.add.reduce(products, dtype=FLOAT64)) + float(np.dot(rest, rest))
    return (True, square) if _is_safe(square, target.size) else add_up_as_defined_host(target, target, None, FLOAT32)


def check_host(flat: Array) -> bool:
    """Whether no value is an infinity or a NaN."""
    return are_finite_host(_multiply_rows(*_overlapping_halves(flat)), flat)


def add_up_host(flat: Array, dtype: Any) -> tuple[bool, float]:
    """Whether no value is an infinity or a NaN, and the sum of the squares, which are taken in *dtype*, float32 or float64."""
    if not sums_by_row_host(flat.dtype, dtype):
        return add_up_as_defined_host(flat, flat, None, dtype)
    last = flat.size // SUMMED_ROW * SUMMED_ROW
    rows = flat[:last].reshape(-1, SUMMED_ROW)
    return square_host(_multiply_rows(rows, rows), flat[last:], flat)


def add_up_each_host(block: Array, sizes: list[int], dtype: Any) -> tuple[bool, Array]:
    """As `add_up_host`, and a sum for each of the arrays of *sizes*, none of them 0, that lie in *block* one after the other."""
    width, lengths = _row_width(math.gcd(*sizes)), np.array(sizes)
    starts = np.add.accumulate(lengths) - lengths
    if width and sums_by_row_host(block.dtype, dtype):
        rows = block.reshape(-1, width)
        squares = np.add.reduceat(_multiply_rows(rows, rows).astype(FLOAT64), starts // width)
        if _is_safe(squares, lengths).all():
            return True, squares
    squares = np.add.reduceat(np.multiply(block, block, dtype=dtype).astype(FLOAT64, copy=False), starts)
    return math.isfinite(squares.sum()) or bool(np.isfinite(block).all()), squares


def add_up_as_defined_host(source: Array, target: Array, factor: Factor | None, dtype: Any) -> tuple[bool, float]:
    """Applies *factor*, and adds up as `add_up_host` does, in the core's own steps."""
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


def sums_by_row_host(dtype: Any, within: Any) -> bool:
    """Whether squares of values of *dtype* may be added up by rows where the core adds squares of the dtype *within*."""
    return dtype == within == FLOAT32 and rows_are_accurate_host()


@cache
def rows_are_accurate_host() -> bool:
    """Whether this NumPy's BLAS adds up a row of equal squares, for which every rounding may err to one side, well enough."""
    values = np.linspace(1, 4, 1024, dtype=FLOAT32)
    rows = np.repeat(values, SUMMED_ROW).reshape(-1, SUMMED_ROW)
    exact = SUMMED_ROW * values.astype(FLOAT64) ** 2
    return bool((abs(_multiply_rows(rows, rows) / exact - 1) < 2.0**-23).all())


def total(squares: Iterable[float]) -> float:
    """The sum of numbers that are not negative, rounded once."""
    try:
        return math.fsum(squares)
    except OverflowError:
        return math.inf


def _blocks(source: Array, target: Array, lefts: list[Array], rights: list[Array], rest: Array) -> Blocks:
    befores = _cut(source)
    afters = befores if target is source else _cut(target)
    return Blocks(befores, afters, lefts, rights, rest)


def _cut(flat: Array) -> list[Array]:
    full = flat.size // BLOCK * BLOCK
    return [*flat[:full].reshape(-1, BLOCK), *([flat[full:]] if full < flat.size else [])]


def _overlapping_halves(flat: Array) -> tuple[Array, Array]:
    """Two views with rows that hold all values between them, a few of them twice."""
    half = (flat.size + 1) // 2
    rows = -(-half // CHECKED_ROW)
    width = -(-half // rows)
    return flat[: rows * width].reshape(rows, width), flat[flat.size - rows * width :].reshape(rows, width)


def _look_host(flat: Array) -> bool:
    """Whether no value is an infinity or a NaN; slower, for what products cannot tell."""
    return all(bool(np.isfinite(flat[start : start + BLOCK]).all()) for start in range(0, flat.size, BLOCK))


def _is_safe(square: Any, size: Any) -> Any:
    """
    Whether a sum of squares in float32 is the core's but for the order: nothing overflowed, and nothing that counts underflowed.

    In a sum of at least *size* times 2**-122 all that underflow can lose, *size* times 2**-150, is nothing.
    """
    return (square == 0) | ((size * 2.0**-122 < square) & (square < 2.0**126))


def _row_width(size: int) -> int:
    """The longest row, from `SHORTEST_ROW` to `SUMMED_ROW`, of which a whole number makes *size*; 0 where there is none."""
    fewest, most = -(-size // SUMMED_ROW), size // SHORTEST_ROW
    return next((size // rows for rows in range(fewest, most + 1) if size % rows == 0), 0)
