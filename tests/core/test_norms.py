"""Norms of gradients, and clipping by the global norm."""

import math
from fractions import Fraction

import array_api_strict
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from libraries import with_dtypes
from strategies import DTYPES, LARGEST, alike, arrays, names

from ampscale.core.norms import clip_by_global_norm, global_norm, local_norms, sizes, square_sums

F32 = np.float32
BELOW_ONE = F32(1) / (F32(1) + F32(1e-6))  # clipping coefficient for a norm below the limit, if the limit is 1


def small_arrays(name):
    """Generate arrays of a few values: zeros, and magnitudes from 1/64 to 64, whose squares fit into every format."""
    elements = st.floats(1 / 64, 64, width=16) | st.floats(-64, -1 / 64, width=16) | st.just(0.0)
    values = hnp.arrays(np.float64, hnp.array_shapes(max_dims=2, max_side=2), elements=elements)
    return values.map(lambda values: values.astype(DTYPES[name]))


@pytest.mark.clause("NORMS-global", "NORMS-local", "NORMS-sizes")
@given(st.lists(names.flatmap(small_arrays), min_size=1, max_size=3))
def test_norms_are_roots_of_sums_of_squares(tree):
    """The error of a norm is at most two units in the last place. All norms have one dtype. The sizes are exact."""
    local = local_norms(tree)
    squares = [sum(Fraction(float(value)) ** 2 for value in leaf.ravel()) for leaf in tree]
    for norm, square in zip([global_norm(tree), *local], [sum(squares), *squares], strict=True):
        assert abs(norm - math.sqrt(square)) <= 2 * np.spacing(norm.dtype.type(math.sqrt(square)))
    assert local.dtype == global_norm(tree).dtype
    assert alike(sizes(tree), np.asarray([leaf.size for leaf in tree], np.int64))


@pytest.mark.clause("NORMS-local", "NORMS-global", "NORMS-shape", "NORMS-sizes", "NORMS-complex", "NORMS-empty")
def test_three_and_four_have_the_norm_five(library):
    """The numbers are in two arrays, or parts of a complex number. `sizes` counts values. None has neither norm nor size."""
    tree = {"b": library.array([[3.0]]), "a": [None, library.array([0.0, 4.0])]}
    assert alike(library.to_numpy(local_norms(tree)), np.asarray([3, 4], F32))
    assert alike(library.to_numpy(global_norm(tree)), np.asarray(5, F32))
    assert alike(library.to_numpy(sizes(tree)), np.asarray([1, 2]))
    assert library.item(global_norm(library.array([3 + 4j], "complex64"))) == 5
    assert library.item(local_norms([library.array([0j, 5 + 12j], "complex128")])[0]) == 13
    assert alike(local_norms([]), np.zeros(0, F32))
    assert alike(sizes([None]), np.zeros(0, np.int64))


@pytest.mark.clause("NORMS-accumulation-dtype", "NORMS-shape")
@with_dtypes(*DTYPES)
def test_16_bit_values_are_widened_before_they_are_squared(library, dtype):
    """Squares beyond the range of 16 bits neither overflow nor underflow, and a sum of 3,000 ones is not rounded to 16 bits."""
    norm_dtype = "float64" if dtype == "float64" else "float32"
    assert alike(library.to_numpy(global_norm(library.array([384, 512], dtype))), np.asarray(640, norm_dtype))
    small = 2.0**-14 if dtype == "float16" else 2.0**-20
    assert alike(library.to_numpy(global_norm([library.array([small], dtype)])), np.asarray(small, norm_dtype))
    many = library.item(global_norm(library.array(np.ones(3000), dtype)))
    assert many == pytest.approx(math.sqrt(3000), rel=1e-6)


@pytest.mark.clause("NORMS-empty")
def test_norm_of_an_empty_tree_is_zero(library):
    """The tree has no arrays, or arrays without elements; clipping returns it unchanged."""
    for tree in (None, [], {"a": None}, np.zeros(0, np.float32), [np.zeros((2, 0))]):
        empty_tree = library.from_numpy(tree)
        assert library.item(global_norm(empty_tree)) == 0
        assert global_norm(empty_tree).shape == ()
        clipped, norm = clip_by_global_norm(empty_tree, 1.0)
        assert library.item(norm) == 0
        assert repr(library.to_numpy(clipped)) == repr(library.to_numpy(empty_tree))
    assert square_sums([]).tolist() == [0.0, 0.0]


@pytest.mark.clause("NORMS-clip", "NORMS-clip-before", "NORMS-clip-under-limit", "NORMS-clip-round-once")
@given(names.flatmap(lambda name: st.lists(small_arrays(name), min_size=1, max_size=3)), st.floats(2.0**-10, 2.0**12))
def test_clipping_multiplies_by_one_coefficient_and_rounds_once(tree, limit):
    """The coefficient has the dtype of the returned norm. The new norm is at most that norm and, up to rounding, the limit."""
    clipped, norm = clip_by_global_norm(tree, limit)
    number = norm.dtype.type
    coefficient = min(number(1), number(limit) / (max(norm[()], number(limit)) + number(1e-6)))
    assert alike(norm, global_norm(tree))
    for array, result in zip(tree, clipped, strict=True):
        assert alike(result, (array.astype(number) * coefficient).astype(array.dtype))
    slack = 1 + 2.0**-7  # since rounding to bfloat16 can increase each value
    assert global_norm(clipped) <= min(norm, limit * slack)


@pytest.mark.clause("NORMS-clip-round-once")
@given(arrays("float32", (3,)), st.floats(2.0**-10, 1))
def test_float32_leaves_are_multiplied_in_float32(array, limit):
    """If another leaf is float64, the coefficient is float64; for a float32 leaf it is rounded to float32 first."""
    clipped, norm = clip_by_global_norm([array, np.asarray([7.0])], limit)
    larger = norm if norm > limit else limit  # the limit if the norm is NaN
    with np.errstate(all="ignore"):
        assert alike(clipped[0], array * np.float32(min(1.0, limit / (larger + 1e-6))))


@pytest.mark.clause("NORMS-magnitudes", "NORMS-clip-magnitudes")
@with_dtypes("float32", "float64")
def test_gradients_whose_norm_exceeds_its_dtype_are_clipped(library, dtype):
    """The norm is infinite. After clipping, four or 65,536 of the largest numbers have the limit as their norm."""
    largest = float(LARGEST[dtype])
    for limit, pairs in ((2.0**20, 2), (largest, 2), (2.0**20, 2**15)):
        clipped, norm = library.to_numpy(clip_by_global_norm(library.array([largest, -largest] * pairs, dtype), limit))
        assert norm == math.inf
        assert clipped[:2].tolist() == pytest.approx([limit / math.sqrt(2 * pairs), -limit / math.sqrt(2 * pairs)], rel=1e-6)


@pytest.mark.clause("NORMS-clip-nan")
def test_clipping_replaces_an_infinity_by_nan(library):
    """Finite values become zero if another value is infinite; a NaN norm counts as the limit."""
    clipped, norm = library.to_numpy(clip_by_global_norm(library.array([math.inf, 1]), 1.0))
    assert norm == math.inf
    assert alike(clipped, np.asarray([math.nan, 0], F32))
    clipped, norm = library.to_numpy(clip_by_global_norm(library.array([math.nan, 1]), 1.0))
    assert math.isnan(norm)
    assert alike(clipped, np.asarray([math.nan, BELOW_ONE], F32))


@pytest.mark.clause("NORMS-shape")
def test_norms_are_on_the_device_of_the_arrays():
    """The clipped arrays are on this device, too."""
    device = array_api_strict.Device("device1")
    tree = [array_api_strict.asarray([3.0, 4.0], device=device)]
    clipped, norm = clip_by_global_norm(tree, 1.0)
    assert {array.device for array in (*clipped, norm, local_norms(tree))} == {device}
