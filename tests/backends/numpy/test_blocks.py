"""The kernels of NumPy's passes on their own: 16-bit values in all their patterns, factors, products."""

import operator
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import DTYPES, alike, scales

from ampscale.backends.numpy import blocks, half_tables
from ampscale.core.scaling import apply_factor

EVERY = np.arange(1 << 16, dtype=np.uint16)
SIXTEEN = pytest.mark.parametrize("name", ["float16", "bfloat16"])
POWERS = [2.0**k for k in (-126, -100, *range(-30, 41), 100, 126, 127)]


def defined(bits, name, factor, divides=True):
    """The bits that the core's definition gives."""
    operation = operator.truediv if divides else operator.mul
    with np.errstate(all="ignore"):
        return apply_factor(operation, bits.view(DTYPES[name]), factor, "float32", DTYPES[name])


def finite_bits(name):
    return EVERY[np.isfinite(EVERY.view(DTYPES[name]).astype(np.float32))]


@pytest.mark.clause("BACKENDS-bit-identical", "SCALING-round-once", "SCALING-reciprocal")
@SIXTEEN
def test_every_pattern_is_divided_by_powers_of_two(name):
    """With integer arithmetic or a table, and in place as well."""
    for bits, factor in product((finite_bits(name), EVERY), POWERS):
        half, out = half_tables.Half(DTYPES[name], True, factor), np.empty_like(bits)
        wanted = defined(bits, name, factor)
        assert half.apply_host(bits, out, many=True) == np.isfinite(wanted.astype(np.float32)).all()
        assert alike(out.view(DTYPES[name]), wanted), factor
        out = bits.copy()
        half.apply_host(out, out, many=True)
        assert alike(out.view(DTYPES[name]), wanted), factor


@pytest.mark.clause("BACKENDS-bit-identical", "SCALING-round-once")
@SIXTEEN
@given(factor=scales, divides=st.booleans(), many=st.booleans())
def test_every_pattern_is_divided_and_multiplied_by_any_factor(name, factor, divides, many):
    """By a table of all results, or by the definition where there are too few values for one."""
    half, out = half_tables.Half(DTYPES[name], divides, factor), np.empty_like(EVERY)
    finite = half.apply_host(EVERY, out, many=many)
    assert alike(out.view(DTYPES[name]), defined(EVERY, name, factor, divides))
    assert not finite


@pytest.mark.clause("BACKENDS-bit-identical", "SCALING-round-once")
def test_float16_is_divided_by_integer_arithmetic():
    """Whether there are results with full precision or not, and never where there is an infinity or a NaN."""
    values = EVERY.view(np.float16)
    for k, largest in product([10, 11, 12, 16, 20, 29, 30, 31, 126], [2.0**-10, 1.0, 65504.0]):
        with np.errstate(invalid="ignore"):
            bits = EVERY[np.abs(values) <= np.float16(largest)]
        out = np.empty_like(bits)
        assert half_tables.Half(np.dtype(np.float16), True, 2.0**k).apply_host(bits, out, many=False)
        assert alike(out.view(np.float16), defined(bits, "float16", 2.0**k))
        if k > 10:
            assert half_tables._shift_float16_host(k, bits, out)
            for bad in (0x7C00, 0x7C01, 0x7FFF, 0xFC00, 0xFFFF):
                before = out.copy()
                assert not half_tables._shift_float16_host(k, np.append(bits[1:], np.uint16(bad)), out)
                assert alike(out, before)


@pytest.mark.clause("BACKENDS-bit-identical", "SCALING-round-once")
def test_bfloat16_is_divided_by_integer_arithmetic_where_nothing_is_lost():
    """Zeros and results with full precision; every other value is found."""
    magnitude = EVERY & 0x7FFF
    for k in (1, 2, 16, 100, 127):
        bits = EVERY[((magnitude >= (k + 1) << 7) & (magnitude < 0x7F80)) | (magnitude == 0)]
        out = np.empty_like(bits)
        assert half_tables._shift_bfloat16_host(k, bits, out)
        assert alike(out.view(DTYPES["bfloat16"]), defined(bits, "bfloat16", 2.0**k))
        for bad in (1, ((k + 1) << 7) - 1, 0x8001, 0x8000 + ((k + 1) << 7) - 1, 0x7F80, 0x7FFF, 0xFF80):
            assert not half_tables._shift_bfloat16_host(k, np.append(bits[1:], np.uint16(bad)), out)


@SIXTEEN
def test_one_pattern_that_is_not_finite_is_seen(name):
    """Each of them among finite ones, of either sign; and no finite one is taken for such."""
    good = finite_bits(name)
    assert half_tables.are_finite_host(good, DTYPES[name])
    assert half_tables.are_finite_host(good[:0], DTYPES[name])
    for bad in sorted({*EVERY.tolist()} - {*good.tolist()}):
        assert not half_tables.are_finite_host(np.array([0, bad, 0x8000], np.uint16), DTYPES[name])


@SIXTEEN
def test_magnitudes_are_exact(name):
    """Every pattern alone, and among finite ones."""
    with np.errstate(all="ignore"):
        for bits in (EVERY, finite_bits(name)):
            values = np.abs(bits.view(DTYPES[name]).astype(np.float32))
            assert alike(half_tables.magnitudes_host(bits, DTYPES[name]), values)


@pytest.mark.clause("SCALING-reciprocal", "BACKENDS-bit-identical")
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_only_exact_reciprocals_are_multiplied_by(dtype):
    """Those of powers of two, none of both subnormal; everything else is divided by."""
    for k in range(-149, 128):
        factor = blocks.factor_host(2.0**k, np.dtype(dtype), divides=True)
        normal = dtype is np.float64 or -126 <= k <= 126
        assert factor.operation is (np.multiply if normal else np.divide), k
        assert factor.number == 2.0 ** (-k if normal else k)
        assert factor.number.dtype == dtype
    for number in (3.0, 1.5, 0.1, 2.0**20 + 1):
        assert blocks.factor_host(number, np.dtype(dtype), divides=True).operation is np.divide
        assert blocks.factor_host(number, np.dtype(dtype), divides=False).operation is np.multiply


@given(st.integers(1, 5000))
def test_a_row_divides_what_it_is_for(size):
    """And is the longest that does, neither too long nor too short."""
    assert blocks._row_width(size) == max((width for width in range(32, 257) if size % width == 0), default=0)
