"""Tests of norms and clipping against values computed by hand. The test vectors compare ampscale with the oracle."""

import math
import sys

import numpy as np
import pytest
from ampscale_conformance.oracle.arithmetic import product
from ampscale_conformance.oracle.norms import (
    clip,
    clip_coefficient,
    global_norm,
    local_norms,
    norm_dtype,
    square_sum,
)
from ampscale_conformance.oracle.tensors import array, computed, same


def test_squares_of_one_array_are_summed_exactly():
    """The exact sum is rounded at the end. The sums of several arrays are rounded at each addition."""
    assert global_norm([array("float32", [2.0**12, 1.0, 1.0, 1.0, 1.0])]) == 2.0**12 + 2.0**-11
    assert global_norm([array("float32", number) for number in (2.0**12, 1.0, 1.0, 1.0, 1.0)]) == 2.0**12


def test_squares_are_rounded_to_float32_and_their_sum_to_float64_first():
    """After these two roundings, the sum is rounded to float32."""
    for values, expected in (
        ([1 + 2.0**-12] * 3, 3 + 3 * 2.0**-11),  # each square loses its 2**-24
        ([1.0, 2.0**-12, 2.0**-30], 1.0),  # in float64, 2**-60 is lost when added to 1 + 2**-24, which is a tie of float32
        ([2.0**12, 1.0, 1.0], 2.0**24 + 2),
    ):
        assert square_sum(array("float32", values), "float32") == expected


def test_each_array_has_its_norm():
    """The order is that of the tree, and None is skipped."""
    tree = {"b": array("float32", [3.0, 4.0], (1, 2)), "a": [None, array("float16", [])], "c": array("float32", -2.0)}
    assert local_norms(tree) == [5.0, 0.0, 2.0]


def test_a_norm_is_float64_if_any_array_is():
    """Norms of 16-bit and float32 arrays are float32; complex128 counts as float64."""
    for dtypes, expected in (
        (["float16", "float32"], "float32"),
        (["float16", "float64"], "float64"),
        (["complex128"], "float64"),
    ):
        assert norm_dtype([array(dtype, [1.0]) for dtype in dtypes]) == expected


def test_coefficients_equal_values_computed_by_hand():
    """The coefficient is the limit divided by (the larger of norm and limit, plus 1e-6). A NaN norm counts as the limit."""
    for norm, limit, coefficient in (
        (math.inf, 1.0, 0.0),
        (math.nan, 1.0, float.fromhex("0x1.ffffep-1")),
        (1e-7, 1e-6, 0.5),
        (5.0, 5.0, float.fromhex("0x1.fffffap-1")),
    ):
        assert clip_coefficient(norm, limit, "float32") == coefficient


@pytest.mark.parametrize(("dtype", "scalar_type"), [("float32", np.float32), ("float64", np.float64)])
def test_each_operation_of_a_coefficient_is_rounded(dtype, scalar_type):
    """NumPy computes the expected values in the dtype of the norm."""
    random = np.random.default_rng(7)
    for norm, limit in 10.0 ** random.uniform(-8, 8, (200, 2)):
        expected = scalar_type(limit) / (max(scalar_type(norm), scalar_type(limit)) + scalar_type(1e-6))
        assert clip_coefficient(float(scalar_type(norm)), float(limit), dtype) == float(expected)


def test_squares_neither_overflow_nor_underflow():
    """3 * power and 4 * power have the norm 5 * power at the limits of the exponent range, in one array or in two."""
    for dtype, powers in (("float32", (2.0**100, 2.0**-100, 2.0**-149)), ("float64", (2.0**1000, 2.0**-1000, 2.0**-1074))):
        for power in powers:
            tree = [array(dtype, [3 * power]), array(dtype, [4 * power])]
            assert global_norm(tree) == 5 * power
            assert local_norms([array(dtype, [3 * power, -4 * power]), *tree]) == [5 * power, 3 * power, 4 * power]


@pytest.mark.parametrize(("dtype", "largest"), [("float32", (2 - 2.0**-23) * 2.0**127), ("float64", (2 - 2.0**-52) * 2.0**1023)])
def test_a_clip_coefficient_is_exact_for_norms_and_limits_above_the_largest_number(dtype, largest):
    """
    Four elements that are the largest number have twice that number as their norm; each is clipped to half the limit.

    A limit above the largest number clips nothing.
    """
    tree = [array(dtype, [largest] * 4)]
    assert global_norm(tree) == math.inf
    for limit, clipped in ((largest, largest / 2), (2.0**100, 2.0**99)):
        assert clip(tree, limit)[0][0] == array(dtype, [clipped] * 4)
    assert clip_coefficient(5.0, sys.float_info.max, dtype) == 1


def test_infinite_elements_become_nan():
    """Zero times infinity is NaN, and finite elements become zero."""
    clipped, norm = clip([array("float32", [math.inf, 1.0, -1.0])], 1.0)
    assert norm == math.inf
    assert same(clipped[0], array("float32", [math.nan, 0.0, -0.0]))


def test_a_coefficient_is_rounded_to_the_compute_dtype():
    """The compute dtype is that of the array. With an exact coefficient, the first result would be 0x3FD55555."""
    third = 1 / 3
    assert computed(array("float32", [5.0]), third, None, product).bits == (0x3FD55556,)
    assert computed(array("float64", [3.0]), third, None, product) == array("float64", [1.0])
    assert computed(array("float32", [2.0**-126]), third, None, product).bits == (0x002AAAAB,)
