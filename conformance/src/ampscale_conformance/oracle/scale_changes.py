"""What a growth and a backoff make of a scale: one product or quotient, and its rounding."""

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from ..model.floats import encode, rounded


class Move(NamedTuple):
    """A scale after a move, and the clauses without which it would be another one."""

    scale: float
    clauses: tuple[str, ...]


@lru_cache(65536)
def multiplied(scale: float, factor: float, dtype: str, wide: bool) -> Move:
    """A scale times a factor: MACHINE-arithmetic, MACHINE-float64-factor."""
    if math.isinf(scale) or scale == 0:
        return Move(scale, ())
    narrow = rounded(Fraction(scale) * Fraction(rounded(factor, dtype)), dtype)
    if not wide:
        return Move(narrow, _inexact(narrow, Fraction(scale) * Fraction(factor)))
    product = rounded(rounded(Fraction(scale) * Fraction(factor), "float64"), dtype)
    return Move(product, () if product == narrow else ("MACHINE-float64-factor",))


@lru_cache(65536)
def divided(scale: float, factor: float, dtype: str, wide: bool) -> Move:
    """A scale divided by the number whose reciprocal the factor is: MACHINE-divide-on-backoff."""
    if math.isinf(scale) or scale == 0:
        return Move(scale, ())
    by = divisor(factor)
    if wide:
        quotient = rounded(rounded(Fraction(scale) / Fraction(by), "float64"), dtype)
    else:
        quotient = rounded(Fraction(scale) / Fraction(rounded(by, dtype)), dtype)
    product = multiplied(scale, factor, dtype, wide)
    return Move(quotient, product.clauses if quotient == product.scale else ("MACHINE-divide-on-backoff",))


def backed_off(scale: float, rule: Any) -> Move:
    """A scale after a backoff, within no bounds yet."""
    return (divided if rule.divide_on_backoff else multiplied)(scale, rule.backoff_factor, rule.dtype, rule.float64_factor)


@lru_cache(1024)
def divisor(factor: float) -> float:
    """
    The number whose reciprocal the factor is: of several the one with the fewest decimal digits, and of those the nearest to it.

    Where no float64 has that reciprocal, it is 1 / factor, rounded.
    """
    exact, wanted = 1 / Fraction(factor), encode(factor, "float64")
    for digits in range(1, 17):  # 17 digits tell all numbers apart
        for decimal in _decimals(exact, digits):
            candidate = rounded(decimal, "float64")
            if encode(1 / Fraction(candidate), "float64") == wanted:
                return candidate
    return rounded(exact, "float64")


def _decimals(value: Fraction, digits: int) -> list[Fraction]:
    """The two numbers of so many decimal digits on both sides of a value of at least 1, the nearer one first."""
    step = Fraction(10) ** (len(str(math.floor(value))) - digits)
    below = value // step * step
    return sorted([below, below + step], key=lambda decimal: abs(decimal - value))


def _inexact(scale: float, exact: Fraction) -> tuple[str, ...]:
    return () if math.isinf(scale) or scale == exact else ("MACHINE-arithmetic",)
