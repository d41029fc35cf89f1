"""Check for overflows, alone and fused with unscaling."""

from itertools import product

import array_api_strict
import numpy as np
import pytest
from hypothesis import given
from libraries import on, with_dtypes
from strategies import DTYPES, LARGEST, SMALLEST, alike, same, scales, trees

import ampscale
from ampscale.core.overflow import all_finite, unscale_and_check
from ampscale.core.scaling import unscale
from ampscale.core.trees import leaves, map_leaves

INF, NAN = float("inf"), float("nan")


@pytest.mark.clause("OVERFLOW-all-finite", "OVERFLOW-none", "OVERFLOW-union")
@given(trees(), trees())
def test_all_finite_checks_every_element(left, right):
    """The result is True if and only if no element of one tree, or of two trees, is infinite or NaN."""
    with np.errstate(invalid="ignore"):  # ml_dtypes warns about signaling NaNs
        expected = [all(np.isfinite(leaf).all() for leaf in leaves(tree)) for tree in (left, right)]
    assert [all_finite(left), all_finite(right), all_finite([left, right])] == [*expected, all(expected)]


@pytest.mark.clause("OVERFLOW-all-finite", "OVERFLOW-answer", "OVERFLOW-elementwise", "OVERFLOW-edges")
@with_dtypes(*DTYPES)
def test_one_non_finite_element_makes_a_tree_non_finite(library, dtype):
    """The largest values, whose sum overflows, and subnormal values are finite; the non-finite element has any index."""
    large, small = LARGEST[dtype], SMALLEST[dtype]
    edges = np.asarray([large, large, -large, small, -small, -0.0], DTYPES[dtype])
    array = library.array(edges, dtype)
    assert alike(library.to_numpy(all_finite([array[:4], {"w": array[4:]}])), np.asarray(True))
    for index, bad in product(range(6), (INF, -INF, NAN, -NAN)):
        values = edges.copy()
        values[index] = bad
        array = library.array(values, dtype)
        assert alike(library.to_numpy(all_finite([array[:4], {"w": array[4:]}])), np.asarray(False)), (index, bad)


@pytest.mark.clause("OVERFLOW-integers", "OVERFLOW-complex")
def test_integers_are_finite_and_complex_numbers_if_both_parts_are(library):
    """Integers and bools are finite whatever their values, and do not hide a NaN beside them."""
    integers = [library.array([2**31 - 1, -(2**31)], "int32"), library.array([255], "uint8"), library.array(False, "bool")]
    assert library.to_numpy(all_finite(integers))
    assert not library.to_numpy(all_finite([*integers, library.array([NAN])]))
    for dtype in ("complex64", "complex128"):
        assert library.to_numpy(all_finite(library.array([1 + 2j], dtype)))
        for bad in (complex(1, INF), complex(-INF, 1), complex(NAN, 1), complex(1, NAN)):
            assert not library.to_numpy(all_finite(library.array([1 + 2j, bad], dtype))), bad


@pytest.mark.clause("OVERFLOW-answer", "OVERFLOW-empty", "OVERFLOW-none")
def test_trees_without_values_are_finite(library):
    """The result is an array of the library, or of NumPy for a tree without arrays."""
    empty = library.from_numpy(np.zeros((3, 0), np.float32))
    for tree, array_type in ((empty, type(empty)), (None, np.ndarray), ([], np.ndarray), ({"a": (None, [])}, np.ndarray)):
        unscaled, finite = unscale_and_check(tree, 2.0)
        all_are_finite = all_finite(tree)
        assert type(all_are_finite) is array_type
        assert library.item(all_are_finite)
        assert library.item(finite)
        assert repr(library.to_numpy(unscaled)) == repr(library.to_numpy(tree))


@pytest.mark.clause("BACKENDS-arrays-decide", "OVERFLOW-empty")
def test_without_arrays_the_flag_and_the_norm_are_arrays_of_the_library_of_the_scale(library):
    """So the flag can be passed to `rule.update`. The norm is a float32 zero."""
    rule = ampscale.LossScaleRule()
    state = rule.init(like=library.array([1.0], "float32"))
    for tree in (None, {"frozen": None}):
        _, finite, norm = ampscale.unscale_check_and_norm(tree, state.scale)
        assert type(finite) is type(norm) is type(state.scale)
        assert (library.item(finite), library.item(norm), norm.dtype == state.scale.dtype) == (True, 0.0, True)
        assert library.item(rule.update(state, ampscale.unscale_and_check(tree, state.scale)[1]).good_steps) == 1


@pytest.mark.clause("OVERFLOW-fused", "OVERFLOW-both-sides", "OVERFLOW-check-order")
@given(trees(), scales)
def test_fused_check_equals_the_separate_checks(tree, factor):
    """A value that is non-finite before or after unscaling is an overflow; with scales of at least 1 both checks agree."""
    unscaled, finite = unscale_and_check(tree, factor)
    finite_before, finite_after = all_finite(tree), all_finite(unscaled)
    assert same(unscaled, unscale(tree, factor))
    assert finite == (finite_before and finite_after)
    if factor >= 1:
        assert finite_before == finite_after


@pytest.mark.clause("OVERFLOW-both-sides")
def test_division_that_overflows_is_an_overflow(library):
    """A scale below 1 can make a finite gradient infinite."""
    assert not library.to_numpy(unscale_and_check(library.array([3e38]), 0.25)[1])


@pytest.mark.clause("OVERFLOW-in-place")
@pytest.mark.parametrize("value", [5.0, INF])
@on("numpy", "strict", "strict16", "torch")
def test_mutable_arrays_are_unscaled_in_place(library, value):
    """If *out* is another tree, *tree* is unchanged. The arrays of *tree* are views of larger ones, in each dtype."""
    numbers = np.asarray([0, 1, 2, 3, 4, value, 6, 7]).reshape(4, 2)
    larger = [library.array(numbers, dtype) for dtype in library.dtypes]
    tree = [None, *(leaf[1:3, :] for leaf in larger)]
    out = map_leaves(library.xp.zeros_like, tree)
    copy = library.to_numpy(tree)
    expected = library.to_numpy(unscale(tree, 3.0))
    assert unscale_and_check(tree, 3.0, out=out)[0] is out
    assert same(library.to_numpy(out), expected)
    assert same(library.to_numpy(tree), copy)
    unscaled, finite = unscale_and_check(tree, 3.0, out=tree)
    assert unscaled is tree
    assert library.to_numpy(finite) == (value == 5)
    assert same(library.to_numpy([None, *(leaf[1:3, :] for leaf in larger)]), expected)


@pytest.mark.clause("OVERFLOW-answer")
def test_flag_is_on_the_device_of_the_arrays():
    """The flag is that of the check alone, or of the fused check."""
    device = array_api_strict.Device("device1")
    tree = [array_api_strict.asarray([1.0, value], device=device) for value in (2.0, 3.0)]
    assert all_finite(tree).device == unscale_and_check(tree, 2.0)[1].device == device
