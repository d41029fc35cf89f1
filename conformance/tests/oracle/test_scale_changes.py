"""What a growth and a backoff make of a scale, to the last bit."""

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
def test_a_divisor_is_what_the_scaler_was_given(digits, behind_the_point):
    """
    A number of up to 15 digits comes back from its reciprocal, here and in the package.

    1 / (1 / 49) is 49.00000000000001 in float64.
    """
    number = max(1.0, float(Fraction(digits, 10**behind_the_point)))
    assert divisor(1 / number) == LossScaleRule(backoff_factor=1 / number, dtype="float64").backoff_divisor == number


@given(st.floats(2.0**-1022, 1.0))
def test_a_divisor_has_the_factor_as_its_reciprocal_and_no_more_digits_than_it_needs(factor):
    """Wherever any float64 near 1 / factor has; else it is 1 / factor."""
    found, plain = divisor(factor), 1 / factor
    near = [plain, math.nextafter(plain, 0), math.nextafter(plain, math.inf)]
    right = [number for number in near if 1 / number == factor]
    if right:
        assert 1 / found == factor
        assert digits_of(found) == min(17, *map(digits_of, right))
    else:
        assert found == plain


def digits_of(number):
    """How many decimal digits tell it from its neighbours."""
    return len(f"{Decimal(repr(number)):e}".partition("e")[0].replace(".", "").rstrip("0"))


def test_a_factor_is_rounded_first_and_the_product_once():
    """7 times 1.1: see PADDLE-arithmetic and TORCH-arithmetic."""
    assert multiplied(7.0, 1.1, "float32", False) == (float.fromhex("0x1.eccccep+2"), ("MACHINE-arithmetic",))
    assert multiplied(7.0, 1.1, "float32", True) == (float.fromhex("0x1.eccccc0000000p+2"), ("MACHINE-float64-factor",))
    assert multiplied(7.0, 2.0, "float32", True) == (14.0, ())


def test_a_division_rounds_the_divisor():
    """In float32 1.1 is another number than in float64."""
    assert divided(10.0, 1 / 3, "float32", False) == (float.fromhex("0x1.aaaaaap+1"), ("MACHINE-divide-on-backoff",))
    assert divided(3.0, 1 / 1.1, "float32", False).scale == float.fromhex("0x1.5d1746p+1")


def test_a_wide_move_is_rounded_to_float64_and_then_to_the_scale():
    """Here the first rounding makes a tie for the second; rounded once, the last bit would be another."""
    scale, factor, after = map(float.fromhex, ("0x1.f6908e0000000p+1", "0x1.60fc4fb2163e9p+2", "0x1.5a7b0c0000000p+4"))
    assert multiplied(scale, factor, "float32", True).scale == np.float32(np.float64(scale) * factor) == after
    scale, factor, after = map(float.fromhex, ("0x1.71f90a0000000p+6", "0x1.8a58183832399p-7", "0x1.1cf44c0000000p+0"))
    assert divided(scale, factor, "float32", True).scale == np.float32(np.float64(scale) / divisor(factor)) == after


@pytest.mark.parametrize("move", [multiplied, divided])
@pytest.mark.parametrize("scale", [0.0, math.inf])
def test_zero_and_infinity_stay(move, scale):
    """Nothing brings a scale back from there."""
    assert move(scale, 0.5, "float32", False) == (scale, ())
