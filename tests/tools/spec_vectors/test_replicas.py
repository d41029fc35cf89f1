"""Tests of the mean over replicas."""

import math

import pytest
from ampscale_conformance.oracle.tensors import array, same
from spec_vectors.replicas import mean


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        ([[8.0], [24.0]], [16.0]),
        ([[1.0, 2.0], [3.0, 2.0], [5.0, 5.0]], [3.0, 3.0]),
        ([[60000.0], [60000.0]], [60000.0]),  # float16 cannot hold their sum
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
def test_mean_is_exact_and_rounded_once(replicas, expected):
    """The result has the dtype of the arrays, and is non-finite if a value is."""
    (result,) = mean([[array("float16", values)] for values in replicas])
    assert same(result, array("float16", expected))


def test_mean_keeps_dtypes_and_shapes():
    """Each array has its own mean."""
    replicas = [[array("float32", [value], (1, 1)), array("complex64", other)] for value, other in ((1.0, 2j), (2.0, 4.0))]
    assert mean(replicas) == [array("float32", [1.5], (1, 1)), array("complex64", 2 + 1j)]
