"""Single operations beside NumPy's, which are IEEE 754's."""

import math
from fractions import Fraction

import numpy as np
import pytest
from ampscale_conformance.model.floats import encode
from ampscale_conformance.oracle.arithmetic import difference, nearest, product, quotient, root, total

SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 2.0**-149, -(2.0**-149), 2.0**127, -(2.0**127)]
OPERATIONS = [
    (product, np.multiply),
    (quotient, np.divide),
    (difference, np.subtract),
    (lambda left, right, dtype: total([left, right], dtype), np.add),
]


def pairs():
    """Any patterns of float32, numbers of like size, and every pair of the special ones."""
    drawn = np.random.default_rng(1).integers(0, 2**32, (2, 1500), dtype=np.uint64).astype(np.uint32).view(np.float32)
    close = np.random.default_rng(2).standard_normal((2, 1500)).astype(np.float32)
    special = np.asarray([[one, other] for one in SPECIAL for other in SPECIAL], np.float32).T
    return np.concatenate([drawn, close, special], axis=1)


@pytest.mark.parametrize(("operation", "wanted"), OPERATIONS, ids=["product", "quotient", "difference", "sum"])
def test_an_operation_is_rounded_once(operation, wanted):
    """Bit for bit as NumPy's float32, with infinities, NaN, zeros of both signs and subnormals."""
    left, right = pairs()
    with np.errstate(all="ignore"):
        results = wanted(left, right)
    for one, other, result in zip(left.tolist(), right.tolist(), results, strict=True):
        computed = operation(one, other, "float32")
        if np.isnan(result):
            assert math.isnan(computed), (one, other)
        else:
            assert encode(computed, "float32") == int(result.view(np.uint32)), (one, other)


def test_a_sum_of_many_is_rounded_once():
    """2**24 + 1 + 1 is 2**24 where each sum is rounded; opposite numbers cancel wherever they stand."""
    assert total([2.0**24, 1.0, 1.0], "float32") == 2**24 + 2
    assert total([2.0**127, 2.0**127, -(2.0**127)], "float32") == 2.0**127
    assert total([], "float32") == 0
    assert math.isnan(total([math.inf, 1.0, -math.inf], "float32"))


def test_a_zero_takes_the_sign_that_is_said():
    """A fraction has none of its own."""
    assert [math.copysign(1, float(nearest(Fraction(0), "float32", minus))) for minus in (True, False)] == [-1, 1]


@pytest.mark.parametrize(("dtype", "kind"), [("float32", np.float32), ("float64", np.float64)])
def test_a_root_is_rounded_once(dtype, kind):
    """Squares, subnormals, drawn numbers and the largest ones."""
    drawn = np.random.default_rng(3).integers(0, 2**64, 4000, dtype=np.uint64).view(kind)
    values = np.abs(np.concatenate([drawn[np.isfinite(drawn)], np.arange(200, dtype=kind) ** 2, [np.finfo(kind).max]]))
    for value, wanted in zip(values.tolist(), np.sqrt(values.astype(kind)).tolist(), strict=True):
        assert float(root(value, dtype)) == wanted, value.hex()


def test_a_root_between_two_numbers_is_not_taken_for_a_tie():
    """The root of (1 + 2**-24)**2 plus a hair lies above the tie, less a hair below it; what is not finite is its own root."""
    middle, hair = (1 + Fraction(1, 2**24)) ** 2, Fraction(1, 2**300)
    assert [root(value, "float32") for value in (middle, middle - hair, middle + hair)] == [1, 1, 1 + Fraction(1, 2**23)]
    assert root(math.inf, "float32") == math.inf
    assert math.isnan(root(math.nan, "float32"))
