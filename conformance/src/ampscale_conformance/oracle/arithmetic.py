"""Exact arithmetic, rounded once to a floating-point format. Infinities and NaN follow IEEE 754."""

import math
from collections.abc import Iterable
from fractions import Fraction

from ..model.floats import Number, decode, encode_ratio, is_finite, is_negative


def product(left: Number, right: Number, dtype: str) -> Number:
    """Return the product, rounded once to a format."""
    if not (is_finite(left) and is_finite(right)):
        return float(left) * float(right)
    (top, bottom), (other_top, other_bottom) = left.as_integer_ratio(), right.as_integer_ratio()
    return nearest(top * other_top, bottom * other_bottom, dtype, is_negative(left) != is_negative(right))


def quotient(left: Number, right: Number, dtype: str) -> Number:
    """Return the quotient, rounded once to a format. A division by zero gives an infinity or NaN."""
    minus = is_negative(left) != is_negative(right)
    if is_finite(left) and is_finite(right) and right != 0:
        (top, bottom), (other_top, other_bottom) = left.as_integer_ratio(), right.as_integer_ratio()
        numerator = abs(top * other_bottom)
        return nearest(-numerator if minus else numerator, abs(bottom * other_top), dtype, minus)
    if right != 0:
        return float(left) / float(right)
    return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, -1 if minus else 1)


def total(numbers: Iterable[Number], dtype: str) -> Number:
    """Return the sum, rounded once to a format, without intermediate rounding. Zeros of different signs add up to +0."""
    terms = list(numbers)
    if not all(map(is_finite, terms)):
        return sum(float(term) for term in terms if not is_finite(term))
    return nearest(*sum_of(terms), dtype, bool(terms) and all(map(is_negative, terms)))


def sum_of(terms: Iterable[Number]) -> tuple[int, int]:
    """Return the exact sum of finite numbers as a numerator and a denominator, which may have common factors."""
    ratios = [term.as_integer_ratio() for term in terms]
    denominator = math.lcm(*(bottom for _, bottom in ratios))
    return sum(top * (denominator // bottom) for top, bottom in ratios), denominator


def difference(left: Number, right: Number, dtype: str) -> Number:
    """Return the difference, rounded once to a format."""
    negated = -0.0 if right == 0 and not is_negative(right) else -right  # a Fraction has no negative zero
    return total([left, negated], dtype)


def root(square: Number, dtype: str) -> Number:
    """Return the square root of a non-negative number, rounded once to a format."""
    if square == 0 or not is_finite(square):
        return square
    numerator, denominator = Fraction(square).as_integer_ratio()
    # Compute at least 128 bits. A remainder adds half a unit of the last bit, so that the result is not mistaken for a tie.
    shift = 2 * max(0, 256 - numerator.bit_length() + denominator.bit_length())
    scaled, remainder = divmod(numerator << shift, denominator)
    whole = math.isqrt(scaled)
    inexact = bool(remainder) or whole * whole != scaled
    return nearest(2 * whole + inexact, 2 << (shift // 2), dtype, False)


def significant(value: Number, dtype: str) -> Number:
    """Return *value* rounded to the precision of a format with an unlimited exponent; infinities, NaN and zeros are unchanged."""
    if isinstance(value, float) or value == 0:
        return value
    numerator, denominator = value.as_integer_ratio()
    exponent = abs(numerator).bit_length() - denominator.bit_length()
    mantissa = nearest(numerator << max(-exponent, 0), denominator << max(exponent, 0), dtype, False)
    return Fraction(mantissa) * Fraction(2) ** exponent


def nearest(numerator: int, denominator: int, dtype: str, minus: bool) -> Number:
    """Return a quotient of integers, rounded once to a format; if *minus* is True, a zero is -0.0."""
    return decode(encode_ratio(numerator, denominator, dtype, minus), dtype)
