"""Growth and backoff of a scale: one product or quotient, and its rounding."""

import math
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from ..model.floats import encode, rounded


class ScaleChange(NamedTuple):
    """Changed scale, and the clauses without which it would differ."""

    scale: float
    clauses: tuple[str, ...]


@lru_cache(65536)
def multiplied(scale: float, factor: float, dtype: str, float64: bool) -> ScaleChange:
    """Return a scale times a factor (MACHINE-arithmetic, MACHINE-float64-factor)."""
    if math.isinf(scale) or scale == 0:
        return ScaleChange(scale, ())
    product = rounded(Fraction(scale) * Fraction(rounded(factor, dtype)), dtype)
    if not float64:
        is_rounded = math.isfinite(product) and product != Fraction(scale) * Fraction(factor)
        return ScaleChange(product, ("MACHINE-arithmetic",) if is_rounded else ())
    float64_product = rounded(rounded(Fraction(scale) * Fraction(factor), "float64"), dtype)
    return ScaleChange(float64_product, () if float64_product == product else ("MACHINE-float64-factor",))


@lru_cache(65536)
def divided(scale: float, factor: float, dtype: str, float64: bool) -> ScaleChange:
    """Return a scale divided by the divisor of the factor (MACHINE-divide-on-backoff)."""
    if math.isinf(scale) or scale == 0:
        return ScaleChange(scale, ())
    exact_divisor = divisor(factor)
    if float64:
        quotient = rounded(rounded(Fraction(scale) / Fraction(exact_divisor), "float64"), dtype)
    else:
        quotient = rounded(Fraction(scale) / Fraction(rounded(exact_divisor, dtype)), dtype)
    product = multiplied(scale, factor, dtype, float64)
    return ScaleChange(quotient, product.clauses if quotient == product.scale else ("MACHINE-divide-on-backoff",))


@lru_cache(1024)
def divisor(factor: float) -> float:
    """
    Return the number with the fewest decimal digits whose reciprocal is the factor; of several, the nearest to 1 / factor.

    If no float64 has this reciprocal, return 1 / factor, rounded.
    """
    exact, target = 1 / Fraction(factor), encode(factor, "float64")
    for digits in range(1, 17):  # 17 digits distinguish all float64 numbers
        for decimal in _decimals(exact, digits):
            candidate = rounded(decimal, "float64")
            if encode(1 / Fraction(candidate), "float64") == target:
                return candidate
    return rounded(exact, "float64")


def _decimals(value: Fraction, digits: int) -> list[Fraction]:
    """Return the two numbers of *digits* decimal digits around *value*, the nearer one first. *value* is at least 1."""
    last_digit = Fraction(10) ** (len(str(math.floor(value))) - digits)  # value of one unit of the last digit
    below = value // last_digit * last_digit
    return sorted([below, below + last_digit], key=lambda decimal: abs(decimal - value))
