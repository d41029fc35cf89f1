"""The overflow check, unscaling and checking in one, and the two detectors."""

import array_api_strict
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from libraries import SIXTEEN_BITS, on, with_dtypes
from strategies import DTYPES, LARGEST, SMALLEST, alike, arrays, names, same, scales

from ampscale.core.overflow import all_finite, unscale_and_check
from ampscale.core.scaling import unscale
from ampscale.core.trees import leaves, map_leaves
from ampscale.core.validation import check_out

INF, NAN = float("inf"), float("nan")


def found(library, flag):
    """The flag as a Python bool; of nothing it is NumPy's, whatever the library."""
    return bool(flag if isinstance(flag, np.ndarray) else library.to_numpy(flag))


@pytest.mark.clause("OVERFLOW-all-finite", "OVERFLOW-none")
@given(st.data())
def test_all_finite_looks_at_every_element(library, data):
    """It is True exactly where no element of any leaf is infinite or NaN."""
    tree = data.draw(library.trees())
    with np.errstate(invalid="ignore"):  # ml_dtypes warns of a signalling NaN
        wanted = all(np.isfinite(leaf).all() for leaf in leaves(library.to_numpy(tree)))
    assert found(library, all_finite(tree)) == wanted


@pytest.mark.clause("OVERFLOW-all-finite")
@with_dtypes(*DTYPES)
@pytest.mark.parametrize("bad", [INF, -INF, NAN, -NAN])
def test_one_bad_element_is_enough(library, dtype, bad):
    """Wherever it stands in a tree, and in whatever dtype, one infinity or NaN is an overflow."""
    good = library.array(np.ones(6), dtype)
    assert library.to_numpy(all_finite([good[:4], {"w": good[4:]}]))
    for place in range(6):
        values = library.array(np.where(np.arange(6) == place, bad, 1), dtype)
        assert not library.to_numpy(all_finite([values[:4], {"w": values[4:]}]))


@pytest.mark.clause("OVERFLOW-answer", "OVERFLOW-empty")
@pytest.mark.parametrize("tree", [[1.0], [], [[]], None, [[1.0, 2.0], [NAN]]], ids=repr)
def test_the_answer_is_a_bool_array_of_shape_nothing(library, tree):
    """Also of a tree without arrays, the answer is an array: a bool of shape ()."""
    answer = all_finite(tree and [library.array(leaf) for leaf in tree])
    assert type(answer) is (type(library.array(1)) if tree else np.ndarray)
    assert alike(library.to_numpy(answer) if tree else answer, np.asarray(not tree or tree[-1] != [NAN]))


@pytest.mark.clause("OVERFLOW-elementwise")
@with_dtypes(*DTYPES)
def test_large_values_are_not_added_up(library, dtype):
    """Two values are finite although their sum is not."""
    largest = LARGEST[dtype]
    assert library.to_numpy(all_finite([library.array([largest, largest], dtype), library.array([largest], dtype)]))


@pytest.mark.clause("OVERFLOW-edges")
@with_dtypes(*DTYPES)
def test_the_edges_of_a_dtype_are_finite(library, dtype):
    """The largest value, its negative and the subnormals are finite."""
    edges = [LARGEST[dtype], -LARGEST[dtype], SMALLEST[dtype], -SMALLEST[dtype], -0.0]
    assert library.to_numpy(all_finite(library.array(edges, dtype)))


@pytest.mark.clause("OVERFLOW-all-finite", "OVERFLOW-edges")
@with_dtypes(*SIXTEEN_BITS)
def test_every_16_bit_pattern_is_judged(library, dtype):
    """All finite values together are finite, and each infinity and NaN, signalling ones too, is an overflow, in silence."""
    patterns = np.arange(2**16, dtype=np.uint16).view(DTYPES[dtype])
    finite = np.abs(patterns.astype(np.float32)) <= np.float32(LARGEST[dtype])
    assert library.to_numpy(all_finite(library.from_numpy(patterns[finite])))
    for pattern in patterns[~finite]:
        assert not library.to_numpy(all_finite(library.from_numpy(np.asarray(pattern))))


@pytest.mark.clause("OVERFLOW-integers")
def test_integers_are_finite(library):
    """Integers and bools are finite whatever they hold, and do not hide a NaN beside them."""
    integers = [library.array([2**31 - 1, -(2**31)], "int32"), library.array([255], "uint8"), library.array(False, "bool")]
    assert library.to_numpy(all_finite(integers))
    assert not library.to_numpy(all_finite([*integers, library.array([NAN])]))


@pytest.mark.clause("OVERFLOW-complex")
@pytest.mark.parametrize("bad", [complex(1, INF), complex(-INF, 1), complex(NAN, 1), complex(1, NAN)], ids=repr)
def test_a_complex_number_is_finite_where_both_parts_are(library, bad):
    """One bad part spoils the number."""
    for dtype in ("complex64", "complex128"):
        assert library.to_numpy(all_finite(library.array([1 + 2j], dtype)))
        assert not library.to_numpy(all_finite(library.array([1 + 2j, bad], dtype)))


@pytest.mark.clause("OVERFLOW-empty", "OVERFLOW-none")
@pytest.mark.parametrize("tree", [None, [], {"a": (None, [])}, np.zeros((3, 0), np.float32)], ids=repr)
def test_nothing_is_finite(library, tree):
    """A statement about all of nothing is true: of no arrays, of Nones and of arrays without elements."""
    nothing = library.from_numpy(tree)
    unscaled, finite = unscale_and_check(nothing, 2.0)
    assert found(library, all_finite(nothing))
    assert found(library, finite)
    assert repr(library.to_numpy(unscaled)) == repr(tree)


@pytest.mark.clause("OVERFLOW-union")
@given(st.data())
def test_a_check_can_be_made_in_pieces(library, data):
    """Two trees are finite together where each is."""
    left, right = data.draw(library.trees()), data.draw(library.trees())
    both = found(library, all_finite(left)) and found(library, all_finite(right))
    assert found(library, all_finite([left, right])) == both


@pytest.mark.clause("OVERFLOW-fused")
@given(st.data(), scales)
def test_unscaling_and_checking_is_both(library, data, factor):
    """The fused verb returns what unscaling returns, and whether that is finite."""
    tree = data.draw(library.trees())
    unscaled, finite = unscale_and_check(tree, factor)
    assert same(library.to_numpy(unscaled), library.to_numpy(unscale(tree, factor)))
    assert found(library, finite) == found(library, all_finite(unscale(tree, factor)))


@pytest.mark.clause("OVERFLOW-both-sides")
@given(st.data(), scales)
def test_the_check_sees_both_sides(library, data, factor):
    """What was not finite before unscaling, or is not after, is an overflow."""
    tree = data.draw(library.trees())
    unscaled, finite = unscale_and_check(tree, factor)
    assert found(library, finite) == (found(library, all_finite(tree)) and found(library, all_finite(unscaled)))


@pytest.mark.clause("OVERFLOW-both-sides")
def test_a_division_that_overflows_is_an_overflow(library):
    """A scale below 1 can make a finite gradient infinite."""
    assert not library.to_numpy(unscale_and_check(library.array([3e38]), 0.25)[1])


@pytest.mark.clause("OVERFLOW-check-order")
@given(st.data(), st.floats(1, 2.0**127, width=32))
def test_from_a_scale_of_1_the_order_does_not_matter(library, data, factor):
    """Checking before unscaling and checking after give the same answer."""
    array = library.from_numpy(data.draw(library.arrays()))
    assert found(library, all_finite(array)) == found(library, unscale_and_check(array, factor)[1])


@pytest.mark.clause("OVERFLOW-in-place")
@given(names.flatmap(lambda name: arrays(name, (4, 3))), scales)
def test_unscaling_in_place_overwrites_the_gradients(array, factor):
    """With out=tree the same tree comes back, its arrays hold the results, and a strided array will do."""
    tree = {"w": array.copy(), "v": [array.T.copy()[::2, ::-1], None]}
    wanted = unscale(map_leaves(np.copy, tree), factor)
    targets = leaves(tree)
    unscaled, finite = unscale_and_check(tree, factor, out=tree)
    assert unscaled is tree
    assert all(now is target for now, target in zip(leaves(tree), targets, strict=True))
    assert same(targets, wanted)
    assert bool(finite) == bool(all_finite(wanted))


@pytest.mark.clause("OVERFLOW-in-place")
@on("numpy", "strict", "strict16", "torch")
def test_another_tree_can_take_the_result(library):
    """With another tree as out, that one is written and returned, and the gradients stay."""
    tree, out = [library.array([4.0, 6.0])], [library.array([0.0, 0.0])]
    unscaled, _ = unscale_and_check(tree, 2.0, out=out)
    assert unscaled is out
    assert alike(library.to_numpy(out[0]), np.asarray([2, 3], np.float32))
    assert alike(library.to_numpy(tree[0]), np.asarray([4, 6], np.float32))


@pytest.mark.clause("OVERFLOW-in-place")
@on("numpy", "strict", "strict16", "torch")
def test_any_library_that_can_be_written_to_unscales_in_place(library):
    """The arrays stay the same arrays, each in its dtype, and hold what unscaling gives, in a view of a larger array too."""
    larger = [library.array(np.arange(8).reshape(4, 2), dtype) for dtype in library.dtypes]
    tree = [leaf[1:3, :] for leaf in larger]
    wanted = library.to_numpy(unscale(tree, 3.0))
    unscaled, finite = unscale_and_check(tree, 3.0, out=tree)
    assert unscaled is tree
    assert library.to_numpy(finite)
    assert same(library.to_numpy(tree), wanted)
    assert same(library.to_numpy([leaf[1:3, :] for leaf in larger]), wanted)


@pytest.mark.clause("OVERFLOW-in-place-checked")
@on("jax")
def test_arrays_that_cannot_be_written_to_are_refused(library):
    """Where no array can be changed, none is taken to hold a result."""
    with pytest.raises(TypeError, match="must be an array that can be changed"):
        check_out([library.array([0.0])], [library.array([1.0])])


@pytest.mark.clause("OVERFLOW-answer")
def test_the_answer_lies_where_the_arrays_lie():
    """The flag is on the device of the gradients."""
    device = array_api_strict.Device("device1")
    tree = [array_api_strict.asarray([1.0, value], device=device) for value in (2.0, 3.0)]
    assert all_finite(tree).device == unscale_and_check(tree, 2.0)[1].device == device
