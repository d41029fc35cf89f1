"""Norms and clipping, with the roundings that spec/40-norms.md names and no other."""

import math
from fractions import Fraction
from typing import Any

from ..model.bits import Bits, arrays, map_tree
from ..model.floats import Number, rounded
from .arithmetic import nearest, product, quotient, root, significant, total
from .tensors import computed_in, from_numbers, numbers

EPSILON = 1e-6
LARGEST = {"float32": (2 - 2.0**-23) * 2.0**127, "float64": (2 - 2.0**-52) * 2.0**1023}


def global_norm(tree: Any) -> float:
    """
    The norm of all elements of a tree of `Bits`, as NORMS-accumulation-dtype and NORMS-magnitudes have it.

    Returns:
        A number of the format `norm_dtype(tree)`. Where no square and no sum is rounded it is the exact norm, rounded once.

    Raises:
        TypeError: An array holds integers or bools.
    """
    return rounded(_norm(tree, norm_dtype(tree)), norm_dtype(tree))


def local_norms(tree: Any) -> list[float]:
    """The norm of each array, in the order of the tree; numbers of `norm_dtype(tree)`."""
    dtype = norm_dtype(tree)
    return [rounded(_norm([leaf], dtype), dtype) for leaf in arrays(tree)]


def sizes(tree: Any) -> list[int]:
    """The number of elements of each array, in the order of the tree."""
    return [len(leaf.bits) for leaf in arrays(tree)]


def clip(tree: Any, max_norm: float) -> tuple[Any, float]:
    """
    A tree of `Bits` clipped by its global norm, and the norm before.

    Args:
        tree: Floats and complex numbers.
        max_norm: Positive and finite.

    Raises:
        TypeError: An array holds integers or bools.
    """
    norm, dtype = _norm(tree, norm_dtype(tree)), norm_dtype(tree)
    coefficient = clip_coefficient(norm, max_norm, dtype)
    return map_tree(lambda leaf: multiplied(leaf, coefficient), tree), rounded(norm, dtype)


def clip_coefficient(norm: Number, max_norm: float, dtype: str) -> Number:
    """
    What a tree is multiplied by; each operation is rounded in the dtype of the norm.

    Args:
        norm: In the digits of *dtype*, with any exponent. Beside one that is beyond its range the epsilon is nothing.
        max_norm: Positive and finite.
        dtype: That of the norm.
    """
    if rounded(norm, dtype) == math.inf != norm:
        beyond = significant(Fraction(max_norm), dtype)
        return nearest(Fraction(beyond) / max(Fraction(norm), Fraction(beyond)), dtype, False)
    limit = rounded(min(max_norm, LARGEST[dtype]), dtype)
    larger = norm if norm > limit else limit  # a NaN is not larger
    return quotient(limit, total([larger, rounded(EPSILON, dtype)], dtype), dtype)


def norm_dtype(tree: Any) -> str:
    """Float64 where any array is float64 or complex128, and else float32."""
    return "float64" if any(computed_in(leaf.dtype) == "float64" for leaf in arrays(tree)) else "float32"


def square_sum(leaf: Bits, dtype: str) -> Number:
    """The sum of an array's squares: each has the digits of the dtype, their sum those of float64, and then of the dtype."""
    squares = [significant(value * value, dtype) for value in numbers(leaf)]
    return significant(significant(_sum(squares), "float64"), dtype)


def _norm(tree: Any, dtype: str) -> Number:
    """The norm in the digits of a format, with any exponent."""
    squares = [square_sum(leaf, dtype) for leaf in arrays(tree)]
    square: Number = Fraction(0)
    for one in squares:
        square = significant(_sum([square, one]), dtype)
    if square == 0 or isinstance(square, float):
        return square
    half = (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    return Fraction(root(square / Fraction(4) ** half, dtype)) * Fraction(2) ** half


def _sum(terms: list[Number]) -> Number:
    """The exact sum of numbers that are not negative; of infinities and NaN as IEEE 754."""
    others = [term for term in terms if isinstance(term, float)]
    return sum(others) if others else sum((Fraction(term) for term in terms), Fraction(0))


def multiplied(leaf: Bits, factor: Number) -> Bits:
    """An array times any number, which is rounded to where the product is taken; the product is rounded to the array's dtype."""
    within = computed_in(leaf.dtype)
    held = rounded(factor, within)
    return from_numbers(leaf.dtype, leaf.shape, [product(value, held, within) for value in numbers(leaf)])
