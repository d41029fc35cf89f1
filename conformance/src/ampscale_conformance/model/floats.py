"""Exact conversion between numbers and the bit patterns of binary floating-point formats, with one rounding."""

import math
import struct
from fractions import Fraction
from functools import lru_cache

# Widths of the exponent and of the fraction in bits; one sign bit precedes them.
FORMATS = {"float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "float64": (11, 52)}
_CODES = {"float16": ">e", "float32": ">f", "float64": ">d"}  # of the module struct

Number = Fraction | float
Roundable = Fraction | float | int


@lru_cache(2**16)  # cases have few distinct patterns
def decode(pattern: int, dtype: str) -> Number:
    """Return the number with this bit pattern: a Fraction, or a float for inf, -inf, nan and -0.0."""
    number = decode_float(pattern, dtype)
    return Fraction(number) if math.isfinite(number) and (number or not is_negative(number)) else number


@lru_cache(2**16)
def decode_float(pattern: int, dtype: str) -> float:
    """Return the number as a Python float, which is exact in every format."""
    if dtype == "bfloat16":  # the upper half of a float32
        pattern, dtype = pattern << 16, "float32"
    (number,) = struct.unpack(_CODES[dtype], pattern.to_bytes(width(dtype) // 8))
    return float(number)


def encode(value: Roundable, dtype: str) -> int:
    """
    Return the bit pattern of the nearest number of the format; ties go to the even one.

    Values at least half a unit beyond the largest number become infinities. NaN becomes the quiet NaN with sign bit 0.
    """
    if is_finite(value):
        numerator, denominator = value.as_integer_ratio()
        return encode_ratio(numerator, denominator, dtype, not numerator and is_negative(value))
    if math.isnan(value):
        return infinity(dtype) | (1 << (FORMATS[dtype][1] - 1))
    return infinity(dtype) if value > 0 else infinity(dtype) | sign_bit(dtype)


def encode_ratio(numerator: int, denominator: int, dtype: str, minus: bool) -> int:
    """Return the bit pattern of a quotient of integers, rounded as by `encode`; if *minus* is True, a zero is -0.0."""
    magnitude = min(infinity(dtype), _magnitude(abs(numerator), denominator, dtype))
    is_minus = numerator < 0 or (minus and not numerator)
    return magnitude | sign_bit(dtype) if is_minus else magnitude


def is_power_of_two(number: float) -> bool:
    """Return True for a positive power of two, also one with a negative exponent."""
    return math.frexp(number)[0] == 0.5


def rounded(value: Roundable, dtype: str) -> float:
    """Return *value* rounded once to a format."""
    return decode_float(encode(value, dtype), dtype)


def width(dtype: str) -> int:
    """Return the width of a number in bits."""
    return 1 + sum(FORMATS[dtype])


@lru_cache
def infinity(dtype: str) -> int:
    """Return the bit pattern of infinity: all bits of the exponent are 1. The patterns of NaNs are larger."""
    exponent_bits, fraction_bits = FORMATS[dtype]
    return ((1 << exponent_bits) - 1) << fraction_bits


@lru_cache
def sign_bit(dtype: str) -> int:
    """Return the bit pattern of -0.0, in which only the sign bit is 1."""
    return 1 << (width(dtype) - 1)


@lru_cache
def lowest_exponent(dtype: str) -> int:
    """Return the exponent of the smallest subnormal number, of which all numbers are multiples: -24 for float16."""
    exponent_bits, fraction_bits = FORMATS[dtype]
    return 2 - (1 << (exponent_bits - 1)) - fraction_bits


def is_finite(value: Roundable) -> bool:
    """Return True for a number other than inf, -inf and nan."""
    return not isinstance(value, float) or math.isfinite(value)


def is_negative(value: Roundable) -> bool:
    """Return True if the sign is negative, as it is for -0.0."""
    return math.copysign(1.0, value) < 0 if isinstance(value, float) else value.numerator < 0


def _magnitude(numerator: int, denominator: int, dtype: str) -> int:
    """Return the bit pattern of a non-negative number, rounded to nearest even without an upper limit on the exponent."""
    if numerator == 0:
        return 0
    fraction_bits, lowest = FORMATS[dtype][1], lowest_exponent(dtype)
    exponent = numerator.bit_length() - denominator.bit_length()  # exponent of the leading bit, or one more
    if (numerator << max(-exponent, 0)) < (denominator << max(exponent, 0)):
        exponent -= 1
    last_exponent = max(exponent - fraction_bits, lowest)  # exponent of the last fraction bit
    # The leading bit is added to the exponent field, so a fraction that rounds up to the next power of two carries correctly.
    divisor = denominator << max(last_exponent, 0)
    fraction, remainder = divmod(numerator << max(-last_exponent, 0), divisor)
    rounds_up = 2 * remainder > divisor or (2 * remainder == divisor and fraction % 2 == 1)
    return ((last_exponent - lowest) << fraction_bits) + fraction + rounds_up
