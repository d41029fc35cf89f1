"""Means and decisions over ranks."""

import math

import pytest
from ampscale_conformance.oracle.tensors import array, same
from spec_vectors.replicas import agreed, mean


@pytest.mark.parametrize(
    ("ranks", "wanted"),
    [
        ([[8.0], [24.0]], [16.0]),
        ([[1.0, 2.0], [3.0, 2.0], [5.0, 5.0]], [3.0, 3.0]),
        ([[60000.0], [60000.0]], [60000.0]),  # whose sum float16 does not hold
        ([[1.0], [1.0], [0.0]], [2 / 3]),
        ([[math.inf], [-math.inf]], [math.nan]),
        ([[math.inf], [1.0]], [math.inf]),
        ([[1.0], [-math.inf]], [-math.inf]),
        ([[math.nan], [1.0]], [math.nan]),
        ([[-0.0], [-0.0]], [-0.0]),
        ([[-0.0], [0.0]], [0.0]),
        ([[1.0], [-1.0]], [0.0]),
    ],
)
def test_a_mean_is_exact_and_rounded_once(ranks, wanted):
    """In the dtype that came, and never finite where a rank is not."""
    (found,) = mean([[array("float16", values)] for values in ranks])
    assert same(found, array("float16", wanted))


def test_every_array_has_its_own_mean():
    """Dtypes and shapes are kept."""
    ranks = [[array("float32", [[1.0]]), array("complex64", 2j)], [array("float32", [[2.0]]), array("complex64", 4.0)]]
    assert mean(ranks) == [array("float32", [[1.5]]), array("complex64", 2 + 1j)]


@pytest.mark.parametrize(
    ("flags", "wanted"), [([True, True], True), ([True, False], False), ([False, True], False), ([True], True)]
)
def test_one_overflow_stops_all(flags, wanted):
    """Whoever saw it."""
    assert agreed(flags) is wanted
