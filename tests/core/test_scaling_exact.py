"""Scaling and unscaling against exact rational arithmetic, bit for bit."""

from fractions import Fraction

import numpy as np
import pytest
from exact import FORMATS, product, quotient, rounded
from hypothesis import given
from hypothesis import strategies as st
from strategies import DTYPES, LARGEST, SMALLEST, alike, scales

any_scales = scales | scales.map(np.float32) | st.floats(2.0**-126, 2.0**127).map(np.asarray)


def converted(library, factor):
    """Convert a scale to an array of the library. Python numbers are unchanged, and for NumPy all scales."""
    return factor if library.name == "numpy" or isinstance(factor, float) else library.from_numpy(np.asarray(factor))


def expected(function, array, factor):
    """Return the results of *function*, which computes on Python numbers, for each element."""
    name = array.dtype.name
    results = [function(float(value), float(factor), name) for value in array.ravel()]
    return np.asarray(results, np.float64).reshape(array.shape).astype(array.dtype)


@pytest.mark.clause(
    *("SCALING-scale", "SCALING-unscale-divides", "SCALING-reciprocal"),
    *("SCALING-round-once", "SCALING-round-trip", "SCALING-scale-float32"),
)
@given(st.data(), any_scales)
def test_results_equal_the_definition(library, data, factor):
    """Products and quotients are computed in float32 or float64, and then rounded once to the dtype of the array."""
    array = data.draw(library.arrays())
    operand, scale = library.from_numpy(array), converted(library, factor)
    assert alike(library.to_numpy(library.scale(operand, scale)), expected(product, array, factor))
    assert alike(library.to_numpy(library.unscale(operand, scale)), expected(quotient, array, factor))


@pytest.mark.parametrize("name", FORMATS)
def test_exact_results_are_rounded_at_the_limits_of_a_format(name):
    """Ties round to even, at the largest and at the smallest values."""
    largest, smallest, half = Fraction(float(LARGEST[name])), Fraction(float(SMALLEST[name])), Fraction(1, 2)
    spacing = largest - Fraction(float(np.nextafter(LARGEST[name], DTYPES[name].type(0))))
    assert rounded(largest, name) == float(LARGEST[name])
    assert rounded(-largest - spacing * half, name) == -np.inf
    assert rounded(largest + spacing * Fraction(49, 100), name) == float(LARGEST[name])
    assert [rounded(smallest * half * count, name) / float(SMALLEST[name]) for count in (1, 2, 3, 5)] == [0, 1, 2, 2]
