"""Floating-point arithmetic by definition: on fractions, rounded to nearest with ties to even."""

import math
import operator
from fractions import Fraction

FORMATS = {"float16": (11, 16), "bfloat16": (8, 128), "float32": (24, 128), "float64": (53, 1024)}


def rounded(value, name):
    """The number of a format that lies nearest to a fraction; infinite from half a step past the largest."""
    if value == 0:
        return 0.0
    digits, top = FORMATS[name]  # significant digits, and the power of two that is just too large
    exponent = max(_exponent(abs(value)), 2 - top)
    step = Fraction(2) ** (exponent - digits + 1)
    nearest = round(value / step) * step  # Python's round ties to even
    if abs(nearest) >= 2**top:
        return math.inf if value > 0 else -math.inf
    return float(nearest)


def product(value, scale, name):
    """*value* of the format *name* times a scale: in float32, or float64 for float64, and then in *name*."""
    return _computed(operator.mul, value, scale, name)


def quotient(value, scale, name):
    """*value* of the format *name* divided by a scale, likewise."""
    return _computed(operator.truediv, value, scale, name)


def _computed(operation, value, scale, name):
    if not math.isfinite(value):
        return value
    wide = "float64" if name == "float64" else "float32"
    result = rounded(operation(Fraction(value), Fraction(rounded(Fraction(scale), wide))), wide)
    return math.copysign(result if math.isinf(result) else rounded(Fraction(result), name), value)


def _exponent(value):
    """The largest e for which 2**e is not above a positive fraction."""
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if Fraction(2) ** guess <= value else guess - 1
