"""Binary floating-point formats by definition: from a bit pattern to the exact number, and back with one rounding."""

import math
from fractions import Fraction
from functools import lru_cache

# Bits of the exponent and of the fraction; a sign bit stands before both.
FORMATS = {"float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "float64": (11, 52)}

Number = Fraction | float
Written = Fraction | float | int


def decode(pattern: int, dtype: str) -> Number:
    """The number that a bit pattern is: a Fraction; inf, -inf, nan and -0.0 as floats. A ValueError if it has more bits."""
    exponent_bits, fraction_bits = format_of(dtype)
    if not 0 <= pattern < 1 << width(dtype):
        raise ValueError(f"a {dtype} has {width(dtype)} bits, got {pattern:#x}")
    negative, magnitude = divmod(pattern, 1 << exponent_bits + fraction_bits)
    exponent, fraction = divmod(magnitude, 1 << fraction_bits)
    if exponent == (1 << exponent_bits) - 1:
        return math.nan if fraction else (-math.inf if negative else math.inf)
    if magnitude == 0:
        return -0.0 if negative else Fraction(0)
    if exponent:
        fraction += 1 << fraction_bits
    value = fraction * _power_of_two(max(exponent, 1) - 1 + lowest_exponent(dtype))
    return -value if negative else value


def encode(value: Written, dtype: str) -> int:
    """
    The bit pattern of the format's number nearest to *value*, of two the even one; from half a step past the largest, infinity.

    NaN is the quiet one without a sign.
    """
    exponent_bits, fraction_bits = format_of(dtype)
    infinity = (1 << exponent_bits) - 1 << fraction_bits
    sign = 1 << exponent_bits + fraction_bits
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return infinity | 1 << fraction_bits - 1
        return infinity if value > 0 else infinity | sign
    numerator, denominator = value.as_integer_ratio()
    magnitude = min(_magnitude(abs(numerator), denominator, dtype), infinity)
    return magnitude | sign if is_negative(value) else magnitude


def rounded(value: Written, dtype: str) -> float:
    """*value* rounded once to one of `FORMATS`, as a Python float, which holds every number of every format here."""
    return float(decode(encode(value, dtype), dtype))


def format_of(dtype: str) -> tuple[int, int]:
    """Bits of the exponent and of the fraction; a ValueError for what is none of `FORMATS`."""
    if dtype not in FORMATS:
        raise ValueError(f"dtype must be one of {list(FORMATS)}, got {dtype!r}")
    return FORMATS[dtype]


def width(dtype: str) -> int:
    """Bits of a number."""
    return 1 + sum(format_of(dtype))


def lowest_exponent(dtype: str) -> int:
    """Of which power of two every number of the format is a multiple: -24 for float16."""
    exponent_bits, fraction_bits = format_of(dtype)
    return 2 - (1 << exponent_bits - 1) - fraction_bits


def is_negative(value: Written) -> bool:
    """Whether there is a minus before it, -0.0 included."""
    return math.copysign(1.0, value) < 0 if isinstance(value, float) else value < 0


def _magnitude(numerator: int, denominator: int, dtype: str) -> int:
    """The pattern of a number that is not negative, with no upper end to the exponent."""
    if numerator == 0:
        return 0
    fraction_bits, lowest = FORMATS[dtype][1], lowest_exponent(dtype)
    exponent = numerator.bit_length() - denominator.bit_length()  # of the leading bit, or one more
    if numerator << max(-exponent, 0) < denominator << max(exponent, 0):
        exponent -= 1
    step = max(exponent - fraction_bits, lowest)  # the exponent of the last bit
    # With its leading bit counted in, a fraction that is rounded up to the next power of two carries into the exponent.
    return (step - lowest << fraction_bits) + _nearest(numerator << max(-step, 0), denominator << max(step, 0))


def _nearest(numerator: int, denominator: int) -> int:
    """The whole number nearest to a quotient, of two the even one."""
    whole, rest = divmod(numerator, denominator)
    return whole + (2 * rest > denominator or (2 * rest == denominator and whole % 2 == 1))


@lru_cache(4096)
def _power_of_two(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)
