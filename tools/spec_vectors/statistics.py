"""Statistics of spec/45-statistics.md in exact arithmetic."""

import math
from collections import Counter
from fractions import Fraction

from ampscale_conformance.model.bits import Bits
from ampscale_conformance.oracle.tensors import numbers

SUBNORMAL, UNDERFLOW = Fraction(1, 2**14), Fraction(1, 2**25)
NO_SMALLEST, NO_LARGEST = 32767, -32768
LOWEST, HIGHEST = -150, 127  # exponents of the first and the last bin


def statistics(leaf: Bits) -> list[int]:
    """Return the columns of STATISTICS-columns for one array."""
    values, magnitudes = numbers(leaf), _magnitudes(leaf)
    exponents = list(map(_exponent, magnitudes))
    return [
        len(values),
        sum(value == 0 for value in values),
        sum(magnitude < SUBNORMAL for magnitude in magnitudes),
        sum(magnitude <= UNDERFLOW for magnitude in magnitudes),
        sum(math.isinf(value) for value in values),
        sum(math.isnan(value) for value in values),
        min(exponents, default=NO_SMALLEST),
        max(exponents, default=NO_LARGEST),
    ]


def histogram(leaf: Bits) -> dict[str, int]:
    """Return the number of finite, nonzero values in each bin that is not empty. The outer bins include all exponents beyond."""
    exponents = sorted(min(max(_exponent(magnitude), LOWEST), HIGHEST) for magnitude in _magnitudes(leaf))
    return {str(exponent): count for exponent, count in Counter(exponents).items()}


def _magnitudes(leaf: Bits) -> list[Fraction]:
    return [abs(Fraction(value)) for value in numbers(leaf) if math.isfinite(value) and value != 0]


def _exponent(magnitude: Fraction) -> int:
    bits = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    return bits if magnitude >= Fraction(2) ** bits else bits - 1
