"""Norms of gradients, and clipping by the global norm."""

import math
from fractions import Fraction

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from libraries import on, with_dtypes
from strategies import DTYPES, LARGEST, SMALLEST, alike, arrays, same, scales

from ampscale.core.dtypes import name_of
from ampscale.core.norms import clip_by_global_norm, global_norm, local_norms, sizes, unscale_check_and_norm
from ampscale.core.overflow import unscale_and_check
from ampscale.core.trees import leaves

F32 = np.float32
BELOW_ONE = F32(1) / (F32(1) + F32(1e-6))  # the coefficient under a limit of 1


def small_arrays(name, limit, shape=hnp.array_shapes(max_dims=2, max_side=2)):  # noqa: B008
    """Arrays of a few values far from overflow and underflow, also when they are squared."""
    elements = st.floats(1 / limit, limit, width=16) | st.floats(-limit, -1 / limit, width=16) | st.just(0.0)
    return hnp.arrays(np.float64, shape, elements=elements).map(lambda values: values.astype(DTYPES[name]))


def small_trees(library, least=0, dtypes=()):
    """Lists of such arrays for a library; beyond NumPy's of one shape, since some compile for each."""
    shape = {} if library.name == "numpy" else {"shape": (3,)}
    leaf = st.sampled_from(dtypes or library.dtypes).flatmap(lambda name: small_arrays(name, 64, **shape))
    return st.lists(leaf, min_size=least, max_size=3)


def float_of(library, array):
    """The value of an array of shape (): the library's, or NumPy's where there was no array to tell."""
    return float(array if isinstance(array, np.ndarray) else library.to_numpy(array))


@pytest.mark.clause("NORMS-global")
@given(st.data())
def test_the_global_norm_is_the_root_of_all_squares(library, data):
    """Against exact fractions, the norm is off by no more than two steps of its dtype."""
    tree = data.draw(small_trees(library))
    norm = global_norm(library.from_numpy(tree))
    exact = math.sqrt(sum(Fraction(float(value)) ** 2 for leaf in tree for value in leaf.ravel()))
    step = np.spacing(np.dtype(name_of(norm.dtype)).type(exact))
    assert abs(float_of(library, norm) - exact) <= 2 * step


@pytest.mark.clause("NORMS-local", "NORMS-sizes")
@given(st.data())
def test_there_is_one_local_norm_and_one_size_an_array(library, data):
    """Each array has a norm of its own, in the order of the tree, and its count of elements as int64."""
    values = data.draw(small_trees(library, least=1))
    tree = library.from_numpy(values)
    norms = library.to_numpy(local_norms(tree))
    assert np.allclose(norms, [float_of(library, global_norm(leaf)) for leaf in tree], rtol=2.0**-22, atol=0)
    assert local_norms(tree).dtype == global_norm(tree).dtype
    assert alike(library.to_numpy(sizes(tree)), np.asarray([leaf.size for leaf in values], np.int64))


@pytest.mark.clause("NORMS-local", "NORMS-global", "NORMS-shape", "NORMS-sizes", "NORMS-complex", "NORMS-empty")
def test_norms_can_be_checked_by_hand(library):
    """A three and a four have the norm 5, in two arrays or as parts of a complex number; no arrays have no local norms."""
    tree = {"b": library.array([[3.0]]), "a": [None, library.array([0.0, 4.0])]}
    assert alike(library.to_numpy(local_norms(tree)), np.asarray([3, 4], F32))
    assert alike(library.to_numpy(global_norm(tree)), np.asarray(5, F32))
    assert alike(library.to_numpy(sizes(tree)), np.asarray([1, 2]))
    assert float_of(library, global_norm(library.array([3 + 4j], "complex64"))) == 5
    assert float_of(library, local_norms([library.array([0j, 5 + 12j], "complex128")])[0]) == 13
    assert alike(local_norms([]), np.zeros(0, F32))
    assert alike(sizes([None]), np.zeros(0, np.int64))


@pytest.mark.clause("NORMS-accumulation-dtype", "NORMS-shape")
@with_dtypes(*DTYPES)
def test_narrow_values_are_widened_before_they_are_squared(library, dtype):
    """Squares that 16 bits cannot hold do not overflow, and those that 16 bits would lose are not lost."""
    wide = "float64" if dtype == "float64" else "float32"
    assert alike(library.to_numpy(global_norm(library.array([384, 512], dtype))), np.asarray(640, wide))
    small = 2.0**-14 if dtype == "float16" else 2.0**-20
    assert alike(library.to_numpy(global_norm([library.array([small], dtype)])), np.asarray(small, wide))
    many = float_of(library, global_norm(library.array(np.ones(3000), dtype)))
    assert many == pytest.approx(math.sqrt(3000), rel=1e-6)


@pytest.mark.clause("NORMS-accumulation-dtype")
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_one_wide_leaf_makes_all_norms_wide(library, dtype):
    """Beside a float64 or a complex128 leaf, the squares of float32 leaves are float64 as well."""
    tree = [library.array([1e30]), library.array([0.0], dtype)]
    assert global_norm(tree).dtype == local_norms(tree).dtype == library.xp.float64
    assert float_of(library, global_norm(tree)) == F32(1e30)


@pytest.mark.clause("NORMS-empty")
def test_the_norm_of_nothing_is_zero(library):
    """Without elements the global norm is 0, and clipping has nothing to clip."""
    for tree in (None, [], {"a": None}, np.zeros(0, np.float32), [np.zeros((2, 0))]):
        nothing = library.from_numpy(tree)
        assert float_of(library, global_norm(nothing)) == 0
        assert global_norm(nothing).shape == ()
        clipped, norm = clip_by_global_norm(nothing, 1.0)
        assert float_of(library, norm) == 0
        assert repr(library.to_numpy(clipped)) == repr(library.to_numpy(nothing))


@pytest.mark.clause("NORMS-clip", "NORMS-clip-before", "NORMS-clip-round-once")
@given(st.data(), st.floats(2.0**-10, 2.0**12))
def test_clipping_multiplies_by_one_coefficient(library, data, limit):
    """It is computed step by step in the dtype of the norm; each leaf is multiplied wide and rounded once; no norm is raised."""
    tree = data.draw(small_trees(library, least=1, dtypes=[data.draw(st.sampled_from(library.dtypes))]))
    clipped, norm = library.to_numpy(clip_by_global_norm(library.from_numpy(tree), limit))
    wide = norm.dtype.type
    coefficient = min(wide(1), wide(limit) / (max(norm[()], wide(limit)) + wide(1e-6)))
    assert alike(norm, library.to_numpy(global_norm(library.from_numpy(tree))))
    for before, after in zip(tree, clipped, strict=True):
        assert alike(after, (before.astype(wide) * coefficient).astype(before.dtype))
    slack = 1 + 2.0**-7  # each value may have been rounded up to bfloat16
    assert float_of(library, global_norm(library.from_numpy(clipped))) <= min(norm, limit * slack)


@pytest.mark.clause("NORMS-clip-round-once")
@given(arrays("float32", (3,)), st.floats(2.0**-10, 1))
def test_narrow_leaves_are_multiplied_in_float32(library, array, limit):
    """Beside a float64 leaf the coefficient is float64; for a float32 leaf it is rounded, so that any library can follow."""
    tree = [library.from_numpy(array), library.array([7.0], "float64")]
    clipped, norm = library.to_numpy(clip_by_global_norm(tree, limit))
    with np.errstate(all="ignore"):
        coefficient = np.float32(min(1.0, limit / ((norm if norm > limit else limit) + 1e-6)))
        wanted = library.as_computed(library.as_computed(array) * library.as_computed(coefficient))
    assert alike(clipped[0], wanted)


@pytest.mark.clause("NORMS-clip-under-limit")
def test_gradients_under_the_limit_shrink_a_little(library):
    """The coefficient is below 1 also where nothing exceeds the limit: half, for a limit as small as the epsilon."""
    shrunk = clip_by_global_norm(library.array([0.3]), 1.0)[0]
    assert alike(library.to_numpy(shrunk), np.asarray([0.2999997138977051], F32))
    tiny = clip_by_global_norm(library.array([2.0**-30]), 1e-6)[0]
    assert alike(library.to_numpy(tiny), np.asarray([2.0**-31], F32))


@pytest.mark.clause("NORMS-clip", "NORMS-clip-before", "NORMS-complex")
def test_the_returned_norm_is_the_one_before_clipping(library):
    """Three and four under a limit of 1 return 5, and have the norm 1 afterwards; both parts of a complex number are clipped."""
    tree = {"a": library.array([3.0]), "b": (library.array([4.0]), None)}
    clipped, norm = clip_by_global_norm(tree, 1.0)
    assert alike(library.to_numpy(norm), np.asarray(5, F32))
    assert float_of(library, global_norm(clipped)) == pytest.approx(1, abs=1e-6)
    assert clipped["b"][1] is None
    clipped, _ = clip_by_global_norm(library.array([3 + 4j], "complex64"), 5.0)
    factor = F32(5) / (F32(5) + F32(1e-6))
    assert alike(library.to_numpy(clipped), np.asarray([complex(F32(3) * factor, F32(4) * factor)], np.complex64))


@pytest.mark.clause("NORMS-magnitudes", "NORMS-clip-magnitudes")
@with_dtypes("float32", "float64")
def test_a_norm_beyond_its_dtype_is_infinite_and_clips(library, dtype):
    """The norm of four or of many of the largest numbers; clipped, they have the limit's."""
    largest = float(LARGEST[dtype])
    for limit, pairs in ((2.0**20, 2), (largest, 2), (2.0**20, 2**15)):
        clipped, norm = library.to_numpy(clip_by_global_norm(library.array([largest, -largest] * pairs, dtype), limit))
        assert norm == math.inf
        assert clipped[:2].tolist() == pytest.approx([limit / math.sqrt(2 * pairs), -limit / math.sqrt(2 * pairs)], rel=1e-6)


@pytest.mark.clause("NORMS-clip-nan")
def test_an_infinity_becomes_nan(library):
    """Beside it finite values become zeros; a NaN norm counts as the limit."""
    clipped, norm = library.to_numpy(clip_by_global_norm(library.array([math.inf, 1]), 1.0))
    assert norm == math.inf
    assert alike(clipped, np.asarray([math.nan, 0], F32))
    clipped, norm = library.to_numpy(clip_by_global_norm(library.array([math.nan, 1]), 1.0))
    assert math.isnan(norm)
    assert alike(clipped, np.asarray([math.nan, BELOW_ONE], F32))


@pytest.mark.clause("NORMS-fused")
@settings(max_examples=30)
@given(st.data(), scales)
def test_three_answers_are_those_of_the_separate_calls(library, data, factor):
    """Unscaling, checking and measuring at once gives what the calls give one by one."""
    tree = data.draw(library.trees().filter(leaves))
    unscaled, finite, norm = library.to_numpy(unscale_check_and_norm(tree, factor))
    wanted, flag = unscale_and_check(tree, factor)
    assert same(unscaled, library.to_numpy(wanted))
    assert alike(finite, library.to_numpy(flag))
    assert alike(norm, library.to_numpy(global_norm(wanted)))


@pytest.mark.clause("NORMS-fused")
@pytest.mark.parametrize("in_place", [False, True])
@on("numpy", "strict16", "torch", "jax")
def test_the_norm_is_that_of_the_rounded_values(library, in_place):
    """A gradient that underflows when it is unscaled counts as zero, as it will for the optimizer; in place as well."""
    tree = [library.array([SMALLEST["float16"], 6], "float16")]
    answers = unscale_check_and_norm(tree, 2.0, out=tree if in_place and library.writable else None)
    assert alike(library.to_numpy(answers[2]), np.asarray(3, F32))


@pytest.mark.clause("NORMS-shape")
def test_norms_lie_where_the_arrays_lie():
    """Norms and clipped arrays are on the device of the gradients."""
    device = array_api_strict.Device("device1")
    tree = [array_api_strict.asarray([3.0, 4.0], device=device)]
    clipped, norm = clip_by_global_norm(tree, 1.0)
    assert {array.device for array in (*clipped, norm, local_norms(tree))} == {device}
