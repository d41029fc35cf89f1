"""Floating-point formats, compared with NumPy and with Python's float."""

import math
from fractions import Fraction

import numpy as np
import pytest
from ampscale_conformance.model.floats import FORMATS, decode, encode, rounded
from hypothesis import given
from hypothesis import strategies as st
from strategies import DTYPES

SHORT = ["float16", "bfloat16"]


def patterns(name, count=None):
    """Return every pattern of a format, or *count* random patterns and the extreme fractions of every exponent."""
    exponent_bits, fraction_bits = FORMATS[name]
    bits = 1 + exponent_bits + fraction_bits
    if count is None:
        return list(range(1 << bits))
    fractions = (0, 1, (1 << fraction_bits) - 1)
    edges = [(top << fraction_bits) | low for top in range(1 << (1 + exponent_bits)) for low in fractions]
    drawn = np.random.default_rng(0).integers(0, 1 << bits, count, dtype=np.uint64)
    return edges + drawn.tolist()


def as_floats(name, bit_patterns):
    """Return NumPy's values of patterns as Python floats, which represent every number of every format exactly."""
    size = DTYPES[name].itemsize
    with np.errstate(invalid="ignore"):  # NumPy warns of signaling NaNs
        return np.asarray(bit_patterns, f"u{size}").view(DTYPES[name]).astype(np.float64).tolist()


def is_same_number(number, expected):
    """Return True if an exact number equals a float, including the sign of zero."""
    if math.isnan(expected):
        return math.isnan(number)
    return number == expected and math.copysign(1, float(number)) == math.copysign(1, expected)


SETS = [("float16", None), ("bfloat16", 4000), ("float32", 4000), ("float64", 2000)]


@pytest.mark.parametrize(("name", "count"), SETS)
def test_decode_agrees_with_numpy_and_encode_inverts_it(name, count):
    """NaNs become the quiet NaN. Finite numbers except -0.0 are exact fractions."""
    bit_patterns, quiet_nan = patterns(name, count), encode(math.nan, name)
    for pattern, expected in zip(bit_patterns, as_floats(name, bit_patterns), strict=True):
        number = decode(pattern, name)
        assert is_same_number(number, expected), hex(pattern)
        assert encode(number, name) == encode(float(number), name) == (pattern if number == number else quiet_nan), hex(pattern)
        assert isinstance(number, Fraction) == (math.isfinite(expected) and expected.hex() != "-0x0.0p+0")


@pytest.mark.parametrize("name", SHORT)
def test_encode_rounds_to_nearest_even(name):
    """The values are midpoints between neighbors, even between the largest number and infinity, and values next to midpoints."""
    infinity = encode(math.inf, name)
    above_the_last = Fraction(2) ** 2 ** (FORMATS[name][0] - 1)
    for low in [*range(64), *range(64, infinity - 64, 7), *range(infinity - 64, infinity)]:
        lower = Fraction(decode(low, name))
        upper = Fraction(decode(low + 1, name)) if low + 1 < infinity else above_the_last
        middle, epsilon = (lower + upper) / 2, Fraction(1, 2**200)
        assert encode(middle, name) == (low if low % 2 == 0 else low + 1)
        assert encode(middle - epsilon, name) == low
        assert encode(middle + epsilon, name) == low + 1


@given(st.from_regex(r"-?[0-9]{1,30}\.[0-9]{1,30}(e-?[0-9]{1,3})?", fullmatch=True))
def test_rounded_agrees_with_pythons_decimal_parser(text):
    """Python rounds decimal numbers to nearest."""
    expected = float(text)
    assert rounded(Fraction(text), "float64") == expected


@pytest.mark.parametrize("name", FORMATS)
def test_rounding_overflows_half_a_unit_above_the_largest_number(name):
    """A number slightly below that limit becomes the largest finite one."""
    infinity = encode(math.inf, name)
    largest = decode(infinity - 1, name)
    unit = largest - decode(infinity - 2, name)
    limit = largest + unit / 2
    assert rounded(limit - Fraction(1, 1000), name) == largest
    assert rounded(limit, name) == math.inf
    assert rounded(-limit, name) == -math.inf
    assert rounded(10**400, name) == math.inf


def test_rounding_keeps_infinities_nan_and_the_sign_of_zero():
    """The result is a Python float, even for an int."""
    assert [rounded(value, "float32") for value in (math.inf, -math.inf)] == [math.inf, -math.inf]
    assert math.isnan(rounded(math.nan, "float32"))
    assert math.copysign(1, rounded(-0.0, "float32")) == -1
    assert math.copysign(1, rounded(0, "float32")) == 1
    assert type(rounded(3, "float32")) is float
