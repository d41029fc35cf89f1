"""Norms, and clipping by the global one."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from strategies import DTYPES, SMALLEST, alike, arrays, names, same, scales, trees

from ampscale.core.norms import clip_by_global_norm, global_norm, local_norms, sizes, unscale_check_and_norm
from ampscale.core.overflow import unscale_and_check

F32 = np.float32
BELOW_ONE = F32(1) / (F32(1) + F32(1e-6))  # the coefficient under a limit of 1


def small_arrays(name, limit):
    """Arrays of a few values far from overflow and underflow, also when they are squared."""
    elements = st.floats(1 / limit, limit, width=16) | st.floats(-limit, -1 / limit, width=16) | st.just(0.0)
    return hnp.arrays(np.float64, hnp.array_shapes(max_dims=2, max_side=2), elements=elements).map(
        lambda values: values.astype(DTYPES[name])
    )


small_trees = st.lists(names.flatmap(lambda name: small_arrays(name, 64)), max_size=3)


@pytest.mark.clause("NORMS-global")
@given(small_trees)
def test_the_global_norm_is_the_root_of_all_squares(tree):
    """Against exact fractions, the norm is off by no more than two steps of its dtype."""
    norm = global_norm(tree)
    exact = math.sqrt(sum(Fraction(float(value)) ** 2 for leaf in tree for value in leaf.ravel()))
    assert abs(float(norm) - exact) <= 2 * np.spacing(norm.dtype.type(exact))


@pytest.mark.clause("NORMS-local", "NORMS-sizes")
@given(small_trees)
def test_there_is_one_local_norm_and_one_size_an_array(tree):
    """Each array has a norm of its own, in the order of the tree, and its count of elements as int64."""
    assert np.allclose(local_norms(tree), [float(global_norm(leaf)) for leaf in tree], rtol=2.0**-22, atol=0)
    assert local_norms(tree).dtype == global_norm(tree).dtype
    assert alike(sizes(tree), np.asarray([leaf.size for leaf in tree], np.int64))


@pytest.mark.clause("NORMS-local", "NORMS-global", "NORMS-shape", "NORMS-sizes")
def test_norms_can_be_checked_by_hand(xp):
    """A three and a four, in two arrays: their norms, their common norm, their sizes; a square root is taken."""
    tree = {"b": xp.asarray([[3.0]], dtype=xp.float32), "a": [None, xp.asarray([0.0, 4.0], dtype=xp.float32)]}
    assert alike(local_norms(tree), np.asarray([3, 4], F32))
    assert alike(global_norm(tree), np.asarray(5, F32))
    assert alike(sizes(tree), np.asarray([1, 2]))


@pytest.mark.clause("NORMS-accumulate-wide", "NORMS-shape")
@pytest.mark.parametrize("name", DTYPES)
def test_narrow_values_are_widened_before_they_are_squared(name):
    """Squares that 16 bits cannot hold do not overflow, and those that 16 bits would lose are not lost."""
    dtype = "float64" if name == "float64" else "float32"
    assert alike(global_norm(np.asarray([384, 512], DTYPES[name])), np.asarray(640, dtype))
    assert alike(global_norm([np.asarray([2.0**-20], DTYPES["bfloat16"])]), np.asarray(2.0**-20, F32))
    assert float(global_norm(np.full(3000, 1, DTYPES[name]))) == pytest.approx(math.sqrt(3000), rel=1e-6)


@pytest.mark.clause("NORMS-accumulate-wide")
def test_one_wide_leaf_makes_all_norms_wide(xp):
    """Beside a float64 or a complex128 leaf, the squares of float32 leaves are float64 as well."""
    narrow = xp.asarray([1e30], dtype=xp.float32)
    for dtype in (xp.float64, xp.complex128):
        tree = [narrow, xp.asarray([0.0], dtype=dtype)]
        assert global_norm(tree).dtype == local_norms(tree).dtype == xp.float64
        assert float(global_norm(tree)) == float(narrow[0])


@pytest.mark.clause("NORMS-empty")
@pytest.mark.parametrize("tree", [None, [], {"a": None}, np.zeros(0, np.float16), [np.zeros((2, 0))]], ids=repr)
def test_the_norm_of_nothing_is_zero(tree):
    """Without elements the global norm is 0, and clipping has nothing to clip."""
    assert global_norm(tree) == 0
    assert global_norm(tree).shape == ()
    clipped, norm = clip_by_global_norm(tree, 1.0)
    assert norm == 0
    assert repr(clipped) == repr(tree)


@pytest.mark.clause("NORMS-complex")
def test_a_complex_number_has_two_squares(xp):
    """The norm of a complex array is that of its parts."""
    assert float(global_norm(xp.asarray([3 + 4j], dtype=xp.complex64))) == 5
    assert float(local_norms([xp.asarray([0j, 5 + 12j], dtype=xp.complex128)])[0]) == 13


@pytest.mark.clause("NORMS-clip", "NORMS-clip-before", "NORMS-clip-round-once")
@given(names.flatmap(lambda name: st.lists(small_arrays(name, 64), max_size=3)), st.floats(2.0**-10, 2.0**12))
def test_clipping_multiplies_by_one_coefficient(tree, limit):
    """The coefficient is computed step by step in the dtype of the norm; each leaf is multiplied wide and rounded once."""
    clipped, norm = clip_by_global_norm(tree, limit)
    wide = norm.dtype.type
    coefficient = min(wide(1), wide(limit) / (max(norm[()], wide(limit)) + wide(1e-6)))
    assert alike(norm, global_norm(tree))
    for before, after in zip(tree, clipped, strict=True):
        assert alike(after, (before.astype(wide) * coefficient).astype(before.dtype))


@pytest.mark.clause("NORMS-clip-round-once")
@given(arrays("float32", (3,)), st.floats(2.0**-10, 1))
def test_narrow_leaves_are_multiplied_in_the_dtype_of_the_coefficient(array, limit):
    """Beside a float64 leaf the coefficient is float64, and a float32 leaf is rounded only after it was multiplied."""
    with np.errstate(all="ignore"):
        tree = [array, np.asarray([7.0])]
        clipped, norm = clip_by_global_norm(tree, limit)
        coefficient = min(1.0, limit / ((norm if norm > limit else limit) + 1e-6))
        assert alike(clipped[0], (array.astype(np.float64) * coefficient).astype(np.float32))


@pytest.mark.clause("NORMS-clip")
@given(small_trees, st.floats(2.0**-10, 2.0**12))
def test_clipping_never_raises_a_norm(tree, limit):
    """Afterwards no array has a larger norm than before, and all together are at the limit or below it."""
    clipped, norm = clip_by_global_norm(tree, limit)
    slack = 1 + 2.0**-7  # each value may have been rounded up to bfloat16
    assert np.all(local_norms(clipped) <= local_norms(tree))
    assert float(global_norm(clipped)) <= min(float(norm), limit * slack)


@pytest.mark.clause("NORMS-clip-under-limit")
def test_gradients_under_the_limit_shrink_a_little(xp):
    """The coefficient is below 1 also where nothing exceeds the limit: half, for a limit as small as the epsilon."""
    gradients = xp.asarray([0.3], dtype=xp.float32)
    assert alike(clip_by_global_norm(gradients, 1.0)[0], np.asarray([0.2999997138977051], F32))
    tiny = xp.asarray([2.0**-30], dtype=xp.float32)
    assert alike(clip_by_global_norm(tiny, 1e-6)[0], np.asarray([2.0**-31], F32))


@pytest.mark.clause("NORMS-clip", "NORMS-clip-before")
def test_the_returned_norm_is_the_one_before_clipping(xp):
    """Three and four under a limit of 1 return 5, and have the norm 1 afterwards."""
    tree = {"a": xp.asarray([3.0], dtype=xp.float32), "b": (xp.asarray([4.0], dtype=xp.float32), None)}
    clipped, norm = clip_by_global_norm(tree, 1.0)
    assert alike(norm, np.asarray(5, F32))
    assert float(global_norm(clipped)) == pytest.approx(1, abs=1e-6)
    assert clipped["b"][1] is None


@pytest.mark.clause("NORMS-clip-infinite")
def test_an_infinite_norm_makes_finite_values_zero(xp):
    """Where only the norm overflows, gradients become zeros; an infinity becomes NaN."""
    clipped, norm = clip_by_global_norm(xp.asarray([1e20, -1e20], dtype=xp.float32), 1.0)
    assert float(norm) == math.inf
    assert alike(clipped, np.asarray([0.0, -0.0], F32))
    assert alike(clip_by_global_norm(xp.asarray([math.inf, 1], dtype=xp.float32), 1.0)[0], np.asarray([math.nan, 0], F32))


@pytest.mark.clause("NORMS-clip-nan")
def test_a_nan_norm_counts_as_the_limit(xp):
    """Beside a NaN the other values are multiplied as under the limit."""
    clipped, norm = clip_by_global_norm(xp.asarray([math.nan, 1], dtype=xp.float32), 1.0)
    assert math.isnan(norm)
    assert alike(clipped, np.asarray([math.nan, BELOW_ONE], F32))


@pytest.mark.clause("NORMS-complex", "NORMS-clip")
def test_complex_gradients_are_clipped(xp):
    """Both parts are multiplied, and the dtype is kept."""
    clipped, _ = clip_by_global_norm(xp.asarray([3 + 4j], dtype=xp.complex64), 5.0)
    factor = F32(5) / (F32(5) + F32(1e-6))
    assert alike(clipped, np.asarray([complex(F32(3) * factor, F32(4) * factor)], np.complex64))


@pytest.mark.clause("NORMS-fused")
@given(trees(), scales)
def test_three_answers_are_those_of_the_separate_calls(tree, factor):
    """Unscaling, checking and measuring at once gives what the calls give one by one."""
    unscaled, finite, norm = unscale_check_and_norm(tree, factor)
    wanted, flag = unscale_and_check(tree, factor)
    assert same(unscaled, wanted)
    assert bool(finite) == bool(flag)
    assert alike(norm, global_norm(wanted))


@pytest.mark.clause("NORMS-fused")
def test_the_norm_is_that_of_the_rounded_values():
    """A gradient that underflows when it is unscaled counts as zero, as it will for the optimizer; in place as well."""
    tree = [np.asarray([SMALLEST["float16"], 6], np.float16)]
    assert alike(unscale_check_and_norm(tree, 2.0, out=tree)[2], np.asarray(3, F32))


def test_norms_read_nothing_on_the_host(accelerator):
    """Norms and clipping run on arrays that cannot be read, and answer where they are."""
    xp, device = accelerator
    tree = [xp.asarray([3.0, 4.0], device=device)]
    clipped, norm = clip_by_global_norm(tree, 1.0)
    assert {array.device for array in (*clipped, norm, local_norms(tree))} == {device}
