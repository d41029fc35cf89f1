"""Floating-point arithmetic by its definition: exact on fractions, then rounded to nearest with ties to even."""

import math
import operator
from fractions import Fraction

FORMATS = {"float16": (11, 16), "bfloat16": (8, 128), "float32": (24, 128), "float64": (53, 1024)}


def rounded(value, name):
    """
    Return the number of the format *name* that is nearest to a fraction.

    The result is infinite if the fraction exceeds the largest number of the format by at least half a unit in the last place.
    """
    if value == 0:
        return 0.0
    digits, top = FORMATS[name]  # significant bits, and the exponent of the first power of two that overflows
    exponent = max(_exponent(abs(value)), 2 - top)
    step = Fraction(2) ** (exponent - digits + 1)
    nearest = round(value / step) * step  # Python's round ties to even
    if abs(nearest) >= 2**top:
        return math.inf if value > 0 else -math.inf
    return float(nearest)


def product(value, scale, name):
    """Multiply *value* by a scale in float32 (in float64 if *name* is "float64"), and round the result to the format *name*."""
    return _computed(operator.mul, value, scale, name)


def quotient(value, scale, name):
    """Divide *value* by a scale, in the dtypes of `product`."""
    return _computed(operator.truediv, value, scale, name)


def _computed(operation, value, scale, name):
    if not math.isfinite(value):
        return value
    compute_dtype = "float64" if name == "float64" else "float32"
    result = rounded(operation(Fraction(value), Fraction(rounded(Fraction(scale), compute_dtype))), compute_dtype)
    return math.copysign(result if math.isinf(result) else rounded(Fraction(result), name), value)


def _exponent(value):
    """Return the largest e for which 2**e does not exceed a positive fraction."""
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if Fraction(2) ** guess <= value else guess - 1
