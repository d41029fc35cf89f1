"""Global norms from the sums of squares of several ranks, added up in float64."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from libraries import on

from ampscale.core.norms import global_norm, norm_of_sums, square_sums, unlifted

pytestmark = on("numpy", "torch")  # libraries whose communicators add these sums up; JAX's has its own code
MAGNITUDES = {"float32": [1e-45, 1e-30, 2.0**-41, 1.0, 1e19, 1e37], "float64": [5e-324, 1e-200, 1.0, 1e160, 1e307]}


def norm_of_parts(library, parts, copies=()):
    """Return the norm of *parts*, a list of NumPy arrays for each rank; *copies* has the number of ranks with each array."""
    trees = [library.from_numpy(part) for part in parts]
    sums = [square_sums(tree, copies) for tree in trees]
    return library.to_numpy(unlifted(norm_of_sums(sum(sums[1:], start=sums[0]), trees[0])))


@st.composite
def split_arrays(draw, dtype):
    """Generate one to three arrays of one magnitude, and a list of their parts for each of four ranks; parts can be empty."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    magnitude = draw(st.sampled_from(MAGNITUDES[dtype]))
    arrays = [(rng.uniform(0.5, 1, 6) * magnitude).astype(dtype) for _ in range(draw(st.integers(1, 3)))]
    cuts = [sorted(draw(st.lists(st.integers(0, 6), min_size=3, max_size=3))) for _ in arrays]
    return arrays, [list(part) for part in zip(*map(np.split, arrays, cuts), strict=True)]


@pytest.mark.clause("REPLICAS-agreed-norm", "NORMS-magnitudes")
@pytest.mark.parametrize("dtype", MAGNITUDES)
@given(data=st.data())
def test_norm_of_parts_is_that_of_the_whole(library, dtype, data):
    """Values may be so large or small that their squares are infinite or zero. Norms differ by at most one unit."""
    arrays, parts = data.draw(split_arrays(dtype))
    whole = library.to_numpy(global_norm(library.from_numpy(arrays)))
    norm = norm_of_parts(library, parts)
    assert norm.dtype == whole.dtype
    assert abs(norm.astype(np.float64) - whole) <= np.spacing(whole)


@pytest.mark.clause("REPLICAS-agreed-norm")
@given(st.lists(st.integers(-1000, 1000), min_size=4, max_size=8))
def test_norm_of_parts_has_the_bits_of_the_whole_if_sums_are_exact(library, values):
    arrays = [np.float32(values), np.float32(values[::-1])]
    parts = [list(part) for part in zip(*(np.array_split(array, 3) for array in arrays), strict=True)]
    whole = library.to_numpy(global_norm(library.from_numpy(arrays)))
    assert norm_of_parts(library, parts).tobytes() == whole.tobytes()


def test_copies_divide_the_squares(library):
    """One array is on two ranks and the other is split."""
    parts = [[np.float32([3.0]), np.float32([4.0])], [np.float32([3.0]), np.float32([12.0])]]
    assert norm_of_parts(library, parts, copies=[2, 1]) == 13.0


def test_norm_of_parts_with_an_infinity_or_nan_is_not_finite(library):
    assert norm_of_parts(library, [[np.float32([np.inf])], [np.float32([1.0])]]) == np.inf
    assert np.isnan(norm_of_parts(library, [[np.float32([np.nan])], [np.float32([1.0])]]))
