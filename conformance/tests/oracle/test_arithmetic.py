"""Tests of single operations against NumPy, which implements IEEE 754."""

import math
from fractions import Fraction

import numpy as np
import pytest
from ampscale_conformance.model.floats import encode
from ampscale_conformance.oracle.arithmetic import difference, product, quotient, root, total

SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 2.0**-149, -(2.0**-149), 2.0**127, -(2.0**127)]
OPERATIONS = [
    (product, np.multiply),
    (quotient, np.divide),
    (difference, np.subtract),
    (lambda left, right, dtype: total([left, right], dtype), np.add),
]


def operands():
    """Return the left and the right operands: random bit patterns, random numbers of similar size, and all pairs of `SPECIAL`."""
    patterns = np.random.default_rng(1).integers(0, 2**32, (2, 1500), dtype=np.uint64).astype(np.uint32).view(np.float32)
    close = np.random.default_rng(2).standard_normal((2, 1500)).astype(np.float32)
    special = np.asarray([[left, right] for left in SPECIAL for right in SPECIAL], np.float32).T
    return np.concatenate([patterns, close, special], axis=1)


@pytest.mark.parametrize(("operation", "reference"), OPERATIONS, ids=["product", "quotient", "difference", "sum"])
def test_an_operation_is_rounded_once(operation, reference):
    """Results equal NumPy's float32 bit for bit, for infinities, NaN, zeros of both signs and subnormals too."""
    left, right = operands()
    with np.errstate(all="ignore"):
        results = reference(left, right)
    for a, b, expected in zip(left.tolist(), right.tolist(), results, strict=True):
        actual = operation(a, b, "float32")
        if np.isnan(expected):
            assert math.isnan(actual), (a, b)
        else:
            assert encode(actual, "float32") == int(expected.view(np.uint32)), (a, b)


def test_a_sum_of_many_is_rounded_once():
    """
    2**24 + 1 + 1 would be 2**24 if each sum were rounded. Opposite numbers cancel in any order.

    An empty sum is zero, and the sum of infinities of both signs is NaN.
    """
    assert total([2.0**24, 1.0, 1.0], "float32") == 2**24 + 2
    assert total([2.0**127, 2.0**127, -(2.0**127)], "float32") == 2.0**127
    assert total([], "float32") == 0
    assert math.isnan(total([math.inf, 1.0, -math.inf], "float32"))


@pytest.mark.parametrize(("dtype", "scalar_type"), [("float32", np.float32), ("float64", np.float64)])
def test_a_root_is_rounded_once(dtype, scalar_type):
    """The values are random bit patterns, squares, and the largest number."""
    patterns = np.random.default_rng(3).integers(0, 2**64, 4000, dtype=np.uint64).view(scalar_type)
    values = np.abs(
        np.concatenate([patterns[np.isfinite(patterns)], np.arange(200, dtype=scalar_type) ** 2, [np.finfo(scalar_type).max]])
    )
    for value, expected in zip(values.tolist(), np.sqrt(values.astype(scalar_type)).tolist(), strict=True):
        assert float(root(value, dtype)) == expected, value.hex()


def test_a_root_near_a_tie_is_rounded_to_the_nearer_number():
    """The root of (1 + 2**-24)**2 plus epsilon is above a tie, minus epsilon below it. inf and NaN are unchanged."""
    tie, epsilon = (1 + Fraction(1, 2**24)) ** 2, Fraction(1, 2**300)
    assert [root(value, "float32") for value in (tie, tie - epsilon, tie + epsilon)] == [1, 1, 1 + Fraction(1, 2**23)]
    assert root(math.inf, "float32") == math.inf
    assert math.isnan(root(math.nan, "float32"))
