"""Products, quotients, sums and roots of a format's numbers: exact, and then rounded once; infinities and NaN as IEEE 754."""

import math
from collections.abc import Iterable
from fractions import Fraction

from ..model.floats import Number, decode, encode, is_negative


def product(left: Number, right: Number, dtype: str) -> Number:
    """The product, rounded once to a format."""
    if not (math.isfinite(left) and math.isfinite(right)):
        return float(left) * float(right)
    return nearest(Fraction(left) * Fraction(right), dtype, is_negative(left) != is_negative(right))


def quotient(left: Number, right: Number, dtype: str) -> Number:
    """The quotient, rounded once to a format; by zero an infinity, or NaN."""
    minus = is_negative(left) != is_negative(right)
    if math.isfinite(left) and math.isfinite(right) and right != 0:
        return nearest(Fraction(left) / Fraction(right), dtype, minus)
    if right != 0:
        return float(left) / float(right)
    return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, -1 if minus else 1)


def total(numbers: Iterable[Number], dtype: str) -> Number:
    """The sum of all, rounded once to a format. No number is rounded on the way, and zeros of both signs add to plain zero."""
    terms = list(numbers)
    if not all(map(math.isfinite, terms)):
        return sum(float(term) for term in terms if not math.isfinite(term))
    return nearest(sum((Fraction(term) for term in terms), Fraction(0)), dtype, bool(terms) and all(map(is_negative, terms)))


def difference(left: Number, right: Number, dtype: str) -> Number:
    """The difference, rounded once to a format."""
    return total([left, -0.0 if right == 0 and not is_negative(right) else -right], dtype)


def root(square: Number, dtype: str) -> Number:
    """The square root of what is not negative, rounded once to a format."""
    if square == 0 or not math.isfinite(square):
        return square
    numerator, denominator = Fraction(square).as_integer_ratio()
    # Taken to 128 bits or more; what lies below the last of them shows as half of it, which no format takes for a tie.
    shift = 2 * max(0, 256 - numerator.bit_length() + denominator.bit_length())
    scaled, rest = divmod(numerator << shift, denominator)
    whole = math.isqrt(scaled)
    inexact = bool(rest) or whole * whole != scaled
    return nearest(Fraction(2 * whole + inexact, 2 << shift // 2), dtype, False)


def significant(value: Number, dtype: str) -> Number:
    """*value* rounded to the digits of a format, as if its exponents had no bounds; infinities, NaN and zeros as they are."""
    if value == 0 or not isinstance(value, Fraction):
        return value
    power = Fraction(2) ** (abs(value.numerator).bit_length() - value.denominator.bit_length())
    return Fraction(nearest(value / power, dtype, value < 0)) * power


def nearest(value: Fraction, dtype: str, minus: bool) -> Number:
    """An exact result in a format; *minus* is the sign that a zero takes."""
    if value == 0:
        return -0.0 if minus else value
    return decode(encode(value, dtype), dtype)
