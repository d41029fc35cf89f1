"""Scaling and unscaling against the exact rational arithmetic of the suite's oracle, bit for bit."""

import numpy as np
import pytest
from ampscale_conformance.model.arrays import to_bits
from ampscale_conformance.oracle import tensors
from hypothesis import given
from hypothesis import strategies as st
from strategies import scales

any_scales = scales | scales.map(np.float32) | st.floats(2.0**-126, 2.0**127).map(np.asarray)


def converted(library, factor):
    """Convert a scale to an array of the library. Python numbers are unchanged, and for NumPy all scales."""
    return factor if library.name == "numpy" or isinstance(factor, float) else library.from_numpy(np.asarray(factor))


@pytest.mark.clause(
    *("SCALING-scale", "SCALING-unscale-divides", "SCALING-reciprocal"),
    *("SCALING-round-once", "SCALING-round-trip", "SCALING-scale-float32"),
)
@given(st.data(), any_scales)
def test_results_equal_the_definition(library, data, factor):
    """Products and quotients are computed in float32 or float64, and then rounded once to the dtype of the array."""
    array = data.draw(library.arrays())
    for call, definition in ((library.scale, tensors.scale), (library.unscale, tensors.unscale)):
        result = library.to_numpy(call(library.from_numpy(array), converted(library, factor)))
        assert tensors.same(to_bits(result), definition(to_bits(array), float(factor)))
