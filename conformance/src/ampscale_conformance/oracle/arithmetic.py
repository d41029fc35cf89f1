"""Exact arithmetic, rounded once to a floating-point format. Infinities and NaN follow IEEE 754."""

import math
from collections.abc import Iterable
from fractions import Fraction

from ..model.floats import Number, decode, encode, is_negative


def product(left: Number, right: Number, dtype: str) -> Number:
    """Return the product, rounded once to a format."""
    if not (math.isfinite(left) and math.isfinite(right)):
        return float(left) * float(right)
    return nearest(Fraction(left) * Fraction(right), dtype, is_negative(left) != is_negative(right))


def quotient(left: Number, right: Number, dtype: str) -> Number:
    """Return the quotient, rounded once to a format. A division by zero gives an infinity or NaN."""
    minus = is_negative(left) != is_negative(right)
    if math.isfinite(left) and math.isfinite(right) and right != 0:
        return nearest(Fraction(left) / Fraction(right), dtype, minus)
    if right != 0:
        return float(left) / float(right)
    return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, -1 if minus else 1)


def total(numbers: Iterable[Number], dtype: str) -> Number:
    """Return the sum, rounded once to a format, without intermediate rounding. Zeros of different signs add up to +0."""
    terms = list(numbers)
    if not all(map(math.isfinite, terms)):
        return sum(float(term) for term in terms if not math.isfinite(term))
    return nearest(sum((Fraction(term) for term in terms), Fraction(0)), dtype, bool(terms) and all(map(is_negative, terms)))


def difference(left: Number, right: Number, dtype: str) -> Number:
    """Return the difference, rounded once to a format."""
    return total([left, -0.0 if right == 0 and not is_negative(right) else -right], dtype)


def root(square: Number, dtype: str) -> Number:
    """Return the square root of a non-negative number, rounded once to a format."""
    if square == 0 or not math.isfinite(square):
        return square
    numerator, denominator = Fraction(square).as_integer_ratio()
    # Compute at least 128 bits. A remainder adds half a unit of the last bit, so that the result is not mistaken for a tie.
    shift = 2 * max(0, 256 - numerator.bit_length() + denominator.bit_length())
    scaled, remainder = divmod(numerator << shift, denominator)
    whole = math.isqrt(scaled)
    inexact = bool(remainder) or whole * whole != scaled
    return nearest(Fraction(2 * whole + inexact, 2 << shift // 2), dtype, False)


def significant(value: Number, dtype: str) -> Number:
    """Return *value* rounded to the precision of a format with an unlimited exponent; infinities, NaN and zeros are unchanged."""
    if value == 0 or not isinstance(value, Fraction):
        return value
    power = Fraction(2) ** (abs(value.numerator).bit_length() - value.denominator.bit_length())
    return Fraction(nearest(value / power, dtype, value < 0)) * power


def nearest(value: Fraction, dtype: str, minus: bool) -> Number:
    """Return an exact result rounded to a format; if *minus* is True, a zero is -0.0."""
    if value == 0:
        return -0.0 if minus else value
    return decode(encode(value, dtype), dtype)
