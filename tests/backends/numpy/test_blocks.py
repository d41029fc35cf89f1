"""Kernels of the fused NumPy pass: all 16-bit patterns, factors and row lengths."""

import operator
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import DTYPES, alike, scales

from ampscale.backends.numpy import blocks, half_tables
from ampscale.core.scaling import apply_factor

PATTERNS = np.arange(1 << 16, dtype=np.uint16)
EVERY_FORMAT = pytest.mark.parametrize("name", ["float16", "bfloat16"])
POWERS = [2.0**k for k in (-126, -100, *range(-30, 41), 100, 126, 127)]


def defined(bits, name, factor, divides=True):
    """Return the result of the core's definition."""
    operation = operator.truediv if divides else operator.mul
    with np.errstate(all="ignore"):
        return apply_factor(operation, bits.view(DTYPES[name]), factor, "float32", DTYPES[name])


def finite_bits(name):
    return PATTERNS[np.isfinite(PATTERNS.view(DTYPES[name]).astype(np.float32))]


@pytest.mark.clause("BACKENDS-bit-identical", "SCALING-round-once", "SCALING-reciprocal")
@EVERY_FORMAT
def test_powers_of_two_divide_every_pattern_as_defined(name):
    """Results come from integer arithmetic or a table, in place too."""
    for bits, factor in product((finite_bits(name), PATTERNS), POWERS):
        op, out = half_tables.HalfOp(DTYPES[name], True, factor), np.empty_like(bits)
        expected = defined(bits, name, factor)
        assert op.apply_host(bits, out, uses_table=True) == np.isfinite(expected.astype(np.float32)).all()
        assert alike(out.view(DTYPES[name]), expected), factor
        out = bits.copy()
        op.apply_host(out, out, uses_table=True)
        assert alike(out.view(DTYPES[name]), expected), factor


@pytest.mark.clause("BACKENDS-bit-identical", "SCALING-round-once")
@EVERY_FORMAT
@given(factor=scales, divides=st.booleans(), uses_table=st.booleans())
def test_any_factor_divides_and_multiplies_every_pattern_as_defined(name, factor, divides, uses_table):
    """Results come from a table, or from the definition if there are too few values for one."""
    op, out = half_tables.HalfOp(DTYPES[name], divides, factor), np.empty_like(PATTERNS)
    finite = op.apply_host(PATTERNS, out, uses_table=uses_table)
    assert alike(out.view(DTYPES[name]), defined(PATTERNS, name, factor, divides))
    assert not finite


@pytest.mark.clause("BACKENDS-bit-identical", "SCALING-round-once")
def test_integer_arithmetic_divides_float16():
    """Results are normal or subnormal. With an infinity or a NaN, nothing is written."""
    values = PATTERNS.view(np.float16)
    for k, largest in product([10, 11, 12, 16, 20, 29, 30, 31, 126], [2.0**-10, 1.0, 65504.0]):
        with np.errstate(invalid="ignore"):
            bits = PATTERNS[np.abs(values) <= np.float16(largest)]
        out = np.empty_like(bits)
        assert half_tables.HalfOp(np.dtype(np.float16), True, 2.0**k).apply_host(bits, out, uses_table=False)
        assert alike(out.view(np.float16), defined(bits, "float16", 2.0**k))
        if k > 10:
            assert half_tables._shift_float16_host(k, bits, out)
            for bad in (0x7C00, 0x7C01, 0x7FFF, 0xFC00, 0xFFFF):
                copy = out.copy()
                assert not half_tables._shift_float16_host(k, np.append(bits[1:], np.uint16(bad)), out)
                assert alike(out, copy)


@pytest.mark.clause("BACKENDS-bit-identical", "SCALING-round-once")
def test_integer_arithmetic_divides_bfloat16_if_results_are_zero_or_normal():
    """Any other value makes it return False."""
    magnitude = PATTERNS & 0x7FFF
    for k in (1, 2, 16, 100, 127):
        bits = PATTERNS[((magnitude >= (k + 1) << 7) & (magnitude < 0x7F80)) | (magnitude == 0)]
        out = np.empty_like(bits)
        assert half_tables._shift_bfloat16_host(k, bits, out)
        assert alike(out.view(DTYPES["bfloat16"]), defined(bits, "bfloat16", 2.0**k))
        for bad in (1, ((k + 1) << 7) - 1, 0x8001, 0x8000 + ((k + 1) << 7) - 1, 0x7F80, 0x7FFF, 0xFF80):
            assert not half_tables._shift_bfloat16_host(k, np.append(bits[1:], np.uint16(bad)), out)


@EVERY_FORMAT
def test_every_non_finite_pattern_is_detected(name):
    """Each is placed among finite values; all finite patterns together are finite."""
    good = finite_bits(name)
    assert half_tables.are_finite_host(good, DTYPES[name])
    assert half_tables.are_finite_host(good[:0], DTYPES[name])
    for bad in sorted({*PATTERNS.tolist()} - {*good.tolist()}):
        assert not half_tables.are_finite_host(np.array([0, bad, 0x8000], np.uint16), DTYPES[name])


@EVERY_FORMAT
def test_magnitudes_are_exact(name):
    """Patterns are all, or only the finite ones."""
    with np.errstate(all="ignore"):
        for bits in (PATTERNS, finite_bits(name)):
            values = np.abs(bits.view(DTYPES[name]).astype(np.float32))
            assert alike(half_tables.magnitudes_host(bits, DTYPES[name]), values)


@pytest.mark.clause("SCALING-reciprocal", "BACKENDS-bit-identical")
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_only_exact_reciprocals_replace_divisions(dtype):
    """Exact are those of powers of two if neither the power nor its reciprocal is subnormal."""
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
def test_row_width_is_the_longest_that_divides_the_size(size):
    """Widths are 32 to 256, or 0 if there is none."""
    assert blocks._row_width(size) == max((width for width in range(32, 257) if size % width == 0), default=0)
