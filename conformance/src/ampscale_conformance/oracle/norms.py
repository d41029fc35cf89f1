"""Norms and clipping, with exactly the roundings of spec/40-norms.md."""

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

from ..model.bits import Bits, arrays, map_tree
from ..model.floats import Number, rounded
from .arithmetic import product, quotient, root, significant, sum_of, total
from .tensors import computed, computed_in, numbers

EPSILON = 1e-6
LARGEST = {"float32": (2 - 2.0**-23) * 2.0**127, "float64": (2 - 2.0**-52) * 2.0**1023}


def global_norm(tree: Any) -> float:
    """
    Return the norm of all elements of a tree of `Bits` in `norm_dtype(tree)` (NORMS-accumulation-dtype, NORMS-magnitudes).

    If no square and no sum is rounded, this is the exact norm, rounded once. Raises a TypeError for integers and bools.
    """
    return rounded(_norm(tree, norm_dtype(tree)), norm_dtype(tree))


def local_norms(tree: Any) -> list[float]:
    """Return the norm of each array in tree order, as numbers of `norm_dtype(tree)`."""
    dtype = norm_dtype(tree)
    return [rounded(_norm([leaf], dtype), dtype) for leaf in arrays(tree)]


def clip(tree: Any, max_norm: float) -> tuple[Any, float]:
    """
    Clip a tree of `Bits` by its global norm; return the result and the norm before clipping.

    *max_norm* is positive and finite. Raises a TypeError for integers and bools.
    """
    norm, dtype = _norm(tree, norm_dtype(tree)), norm_dtype(tree)
    coefficient = clip_coefficient(norm, max_norm, dtype)
    return map_tree(lambda leaf: computed(leaf, coefficient, None, product), tree), rounded(norm, dtype)


def clip_coefficient(norm: Number, max_norm: float, dtype: str) -> Number:
    """
    Return the number by which clipping multiplies a tree. Each operation is rounded to *dtype*, the dtype of the norm.

    *norm* has the precision of *dtype* and an unlimited exponent. If it exceeds the range of *dtype*, `EPSILON` is not
    added, because the sum would equal the norm. *max_norm* is positive and finite.
    """
    if norm != math.inf and rounded(norm, dtype) == math.inf:
        limit = significant(Fraction(max_norm), dtype)
        return quotient(limit, max(norm, limit), dtype)
    limit = rounded(min(max_norm, LARGEST[dtype]), dtype)
    larger = norm if norm > limit else limit  # the limit if the norm is NaN
    return quotient(limit, total([larger, rounded(EPSILON, dtype)], dtype), dtype)


def norm_dtype(tree: Any) -> str:
    """Return float64 if any array is float64 or complex128, otherwise float32."""
    return "float64" if any(computed_in(leaf.dtype) == "float64" for leaf in arrays(tree)) else "float32"


@lru_cache(1024)  # a step needs each sum for the norm and for clipping
def square_sum(leaf: Bits, dtype: str) -> Number:
    """Return the sum of an array's squares. Each square is rounded to *dtype*, and their sum to float64 and then to *dtype*."""
    squares = [significant(value * value, dtype) for value in numbers(leaf)]
    return significant(significant(_sum(squares), "float64"), dtype)


def _norm(tree: Any, dtype: str) -> Number:
    """Return the norm with the precision of *dtype* and an unlimited exponent."""
    squares = [square_sum(leaf, dtype) for leaf in arrays(tree)]
    square: Number = Fraction(0)
    for term in squares:
        square = significant(_sum([square, term]), dtype)
    if square == 0 or isinstance(square, float):
        return square
    exponent = (square.numerator.bit_length() - square.denominator.bit_length()) // 2  # of the root
    return Fraction(root(square / Fraction(4) ** exponent, dtype)) * Fraction(2) ** exponent


def _sum(terms: list[Number]) -> Number:
    """Return the exact sum of non-negative numbers. Infinities and NaN follow IEEE 754."""
    non_finite = [term for term in terms if isinstance(term, float) and term != 0]  # finite floats are squares of -0.0
    return sum(non_finite) if non_finite else Fraction(*sum_of(terms))
