"""Norms and clipping, with the roundings that spec/40-norms.md names and no other."""

from typing import Any

from ..model.bits import Bits, arrays, map_tree
from ..model.floats import Number, rounded
from .arithmetic import product, quotient, root, total
from .tensors import computed_in, from_numbers, numbers

EPSILON = 1e-6


def global_norm(tree: Any) -> float:
    """
    The norm of all elements of a tree of `Bits`, as NORMS-accumulate-wide has it.

    Returns:
        A number of the format `norm_dtype(tree)`. Where no square and no sum is rounded it is the exact norm, rounded once.

    Raises:
        TypeError: An array holds integers or bools.
    """
    dtype = norm_dtype(tree)
    square: Number = 0.0
    for leaf in arrays(tree):
        square = total([square, square_sum(leaf, dtype)], dtype)
    return float(root(square, dtype))


def local_norms(tree: Any) -> list[float]:
    """The norm of each array, in the order of the tree; numbers of `norm_dtype(tree)`."""
    dtype = norm_dtype(tree)
    return [float(root(square_sum(leaf, dtype), dtype)) for leaf in arrays(tree)]


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
    norm = global_norm(tree)
    coefficient = clip_coefficient(norm, max_norm, norm_dtype(tree))
    return map_tree(lambda leaf: multiplied(leaf, coefficient), tree), norm


def clip_coefficient(norm: float, max_norm: float, dtype: str) -> Number:
    """What a tree of this norm is multiplied by; each operation is rounded in the dtype of the norm."""
    limit = rounded(max_norm, dtype)
    larger = norm if norm > limit else limit  # a NaN is not larger
    return quotient(limit, total([larger, rounded(EPSILON, dtype)], dtype), dtype)


def norm_dtype(tree: Any) -> str:
    """Float64 where any array is float64 or complex128, and else float32."""
    return "float64" if any(computed_in(leaf.dtype) == "float64" for leaf in arrays(tree)) else "float32"


def square_sum(leaf: Bits, dtype: str) -> Number:
    """The sum of an array's squares: each square is of the dtype, their sum is float64, and rounded to the dtype."""
    wide = total([product(value, value, dtype) for value in numbers(leaf)], "float64")
    return total([wide], dtype)


def multiplied(leaf: Bits, factor: Number) -> Bits:
    """An array times any number, which is rounded to where the product is taken; the product is rounded to the array's dtype."""
    within = computed_in(leaf.dtype)
    held = rounded(factor, within)
    return from_numbers(leaf.dtype, leaf.shape, [product(value, held, within) for value in numbers(leaf)])
