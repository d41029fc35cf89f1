"""Tests of the arithmetic of growth and backoff, bit for bit."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from ampscale_conformance.oracle.scale_changes import divided, divisor, multiplied
from hypothesis import given
from hypothesis import strategies as st

from ampscale import LossScaleRule


@given(st.integers(1, 10**15), st.integers(0, 14))
def test_a_divisor_of_few_digits_is_recovered_from_its_reciprocal(digits, decimals):
    """
    Numbers of up to 15 digits are recovered, in the oracle and in ampscale.

    In float64, 1 / (1 / 49) is 49.00000000000001.
    """
    number = max(1.0, float(Fraction(digits, 10**decimals)))
    assert divisor(1 / number) == LossScaleRule(backoff_factor=1 / number, dtype="float64").backoff_divisor == number


@given(st.floats(2.0**-1022, 1.0))
def test_a_divisor_has_the_fewest_digits(factor):
    """The candidates are 1 / factor and its neighbors. If no candidate has the reciprocal *factor*, the divisor is 1 / factor."""
    actual, plain = divisor(factor), 1 / factor
    candidates = [plain, math.nextafter(plain, 0), math.nextafter(plain, math.inf)]
    exact = [number for number in candidates if 1 / number == factor]
    if exact:
        assert 1 / actual == factor
        assert digits_of(actual) == min(17, *map(digits_of, exact))
    else:
        assert actual == plain


def digits_of(number):
    """Return the number of significant decimal digits of the shortest representation."""
    return len(f"{Decimal(repr(number)):e}".partition("e")[0].replace(".", "").rstrip("0"))


def test_a_factor_is_rounded_first_and_the_product_once():
    """The example 7 times 1.1 is from PADDLE-arithmetic and TORCH-arithmetic."""
    assert multiplied(7.0, 1.1, "float32", float64=False) == (float.fromhex("0x1.eccccep+2"), ("MACHINE-arithmetic",))
    assert multiplied(7.0, 1.1, "float32", float64=True) == (float.fromhex("0x1.eccccc0000000p+2"), ("MACHINE-float64-factor",))
    assert multiplied(7.0, 2.0, "float32", float64=True) == (14.0, ())


def test_a_division_rounds_the_divisor():
    """The numbers 1.1 in float32 and in float64 differ."""
    assert divided(10.0, 1 / 3, "float32", float64=False) == (float.fromhex("0x1.aaaaaap+1"), ("MACHINE-divide-on-backoff",))
    assert divided(3.0, 1 / 1.1, "float32", float64=False).scale == float.fromhex("0x1.5d1746p+1")


def test_a_float64_factor_rounds_to_float64_and_then_to_the_dtype():
    """The first rounding creates a tie for the second one; a single rounding would give another last bit."""
    scale, factor, new_scale = map(float.fromhex, ("0x1.f6908e0000000p+1", "0x1.60fc4fb2163e9p+2", "0x1.5a7b0c0000000p+4"))
    assert multiplied(scale, factor, "float32", float64=True).scale == np.float32(np.float64(scale) * factor) == new_scale
    scale, factor, new_scale = map(float.fromhex, ("0x1.71f90a0000000p+6", "0x1.8a58183832399p-7", "0x1.1cf44c0000000p+0"))
    assert divided(scale, factor, "float32", float64=True).scale == np.float32(np.float64(scale) / divisor(factor)) == new_scale


@pytest.mark.parametrize("change", [multiplied, divided])
@pytest.mark.parametrize("scale", [0.0, math.inf])
def test_a_scale_of_zero_or_infinity_is_unchanged(change, scale):
    """No factor leads back to a finite nonzero scale."""
    assert change(scale, 0.5, "float32", float64=False) == (scale, ())
