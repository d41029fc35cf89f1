"""The formats by definition, beside NumPy's and Python's own."""

import math
from fractions import Fraction

import numpy as np
import pytest
from ampscale_conformance.model.floats import FORMATS, decode, encode, rounded
from formats import DTYPES
from hypothesis import given
from hypothesis import strategies as st

SHORT = ["float16", "bfloat16"]


def patterns(name, count=None):
    """Every pattern of a format; or so many drawn ones, and of every exponent and sign the two ends of the fraction."""
    exponent_bits, fraction_bits = FORMATS[name]
    bits = 1 + exponent_bits + fraction_bits
    if count is None:
        return list(range(1 << bits))
    fractions = (0, 1, (1 << fraction_bits) - 1)
    edges = [top << fraction_bits | low for top in range(1 << 1 + exponent_bits) for low in fractions]
    drawn = np.random.default_rng(0).integers(0, 1 << bits, count, dtype=np.uint64)
    return edges + drawn.tolist()


def as_floats(name, found):
    """NumPy's reading of patterns, as Python floats, which hold every number of every format."""
    size = DTYPES[name].itemsize
    with np.errstate(invalid="ignore"):  # NumPy warns of a NaN that signals
        return np.asarray(found, f"u{size}").view(DTYPES[name]).astype(np.float64).tolist()


def alike(number, wanted):
    """Whether an exact number is a float, signs of zero included."""
    if math.isnan(wanted):
        return math.isnan(number)
    return number == wanted and math.copysign(1, float(number)) == math.copysign(1, wanted)


SETS = [("float16", None), ("bfloat16", 4000), ("float32", 4000), ("float64", 2000)]


@pytest.mark.parametrize(("name", "count"), SETS)
def test_a_pattern_is_the_number_that_numpy_reads(name, count):
    """It goes back to its pattern as a fraction or as a float, every NaN to the quiet one; what has a fraction is exact."""
    found, quiet = patterns(name, count), encode(math.nan, name)
    for pattern, wanted in zip(found, as_floats(name, found), strict=True):
        number = decode(pattern, name)
        assert alike(number, wanted), hex(pattern)
        assert encode(number, name) == encode(float(number), name) == (pattern if number == number else quiet), hex(pattern)
        assert isinstance(number, Fraction) == (math.isfinite(wanted) and wanted.hex() != "-0x0.0p+0")


@pytest.mark.parametrize("name", SHORT)
def test_between_two_neighbours_the_nearer_one_is_taken_and_of_two_the_even_one(name):
    """Finite numbers of every exponent and the one above each, and the last one below infinity."""
    exponent_bits, fraction_bits = FORMATS[name]
    infinity = (1 << exponent_bits) - 1 << fraction_bits
    above_the_last = Fraction(2) ** (1 << exponent_bits - 1)
    for low in [*range(64), *range(64, infinity - 64, 7), *range(infinity - 64, infinity)]:
        one = Fraction(decode(low, name))
        other = Fraction(decode(low + 1, name)) if low + 1 < infinity else above_the_last
        middle, hair = (one + other) / 2, Fraction(1, 2**200)
        assert encode(middle, name) == (low if low % 2 == 0 else low + 1)
        assert encode(middle - hair, name) == low
        assert encode(middle + hair, name) == low + 1


@pytest.mark.parametrize(("wide", "name"), [("float64", "float32"), ("float64", "float16"), ("float32", "bfloat16")])
def test_numbers_of_a_wider_format_are_rounded_as_numpy_rounds_them(wide, name):
    """Numbers next to the ties and to the ends of the narrower format, and any others."""
    lower = [low for low in patterns(name, 4000) if math.isfinite(decode(low, name))]
    ties = [(decode(low, name), decode(low + 1, name)) for low in lower]
    middles = [float((one + other) / 2) for one, other in ties if math.isfinite(one) and math.isfinite(other)]
    near = [math.nextafter(middle, side) for middle in middles[::7] for side in (-math.inf, math.inf)]
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.asarray([*middles[::3], *near, *as_floats(wide, patterns(wide, 1500))]).astype(DTYPES[wide])
        narrow = values.astype(DTYPES[name])
    for value, wanted in zip(values.astype(np.float64).tolist(), narrow.astype(np.float64).tolist(), strict=True):
        assert alike(decode(encode(value, name), name), wanted), value.hex()
        assert alike(rounded(value, name), wanted), value.hex()


@given(st.from_regex(r"-?[0-9]{1,30}\.[0-9]{1,30}(e-?[0-9]{1,3})?", fullmatch=True))
def test_a_decimal_fraction_is_the_float_that_python_reads(text):
    """Python reads decimals rounded to nearest, and knows nothing of this."""
    wanted = float(text)
    assert rounded(Fraction(text), "float64") == wanted


@pytest.mark.parametrize("name", FORMATS)
def test_from_half_a_step_past_the_largest_it_is_infinite(name):
    """And a hair before that it is the largest."""
    infinity = encode(math.inf, name)
    largest = decode(infinity - 1, name)
    step = largest - decode(infinity - 2, name)
    past = largest + step / 2
    assert rounded(past - Fraction(1, 1000), name) == largest
    assert rounded(past, name) == math.inf
    assert rounded(-past, name) == -math.inf
    assert rounded(10**400, name) == math.inf


def test_rounding_keeps_what_has_no_digits():
    """Infinities, NaN and the sign of zero."""
    assert [rounded(value, "float32") for value in (math.inf, -math.inf)] == [math.inf, -math.inf]
    assert math.isnan(rounded(math.nan, "float32"))
    assert math.copysign(1, rounded(-0.0, "float32")) == -1
    assert math.copysign(1, rounded(0, "float32")) == 1
    assert type(rounded(3, "float32")) is float


def test_another_format_is_refused():
    """There are four; a pattern with more bits belongs to another one."""
    for call in (lambda: decode(0, "float8"), lambda: encode(0, "int32"), lambda: rounded(1.0, "complex64")):
        with pytest.raises(ValueError, match=r"dtype must be one of .*float16.*, got "):
            call()
    for pattern in (-1, 1 << 16):
        with pytest.raises(ValueError, match="a float16 has 16 bits, got"):
            decode(pattern, "float16")
