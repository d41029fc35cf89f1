"""The overflow check, unscaling and checking in one, and the two detectors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import DTYPES, LARGEST, SMALLEST, alike, any_arrays, arrays, names, same, scales, trees

from ampscale.core.overflow import GradientScan, StatusRegister, all_finite, unscale_and_check
from ampscale.core.scaling import unscale
from ampscale.core.trees import leaves, map_leaves

INF, NAN = float("inf"), float("nan")


@pytest.mark.clause("OVERFLOW-all-finite", "OVERFLOW-none")
@given(trees())
def test_all_finite_looks_at_every_element(tree):
    """It is True exactly where no element of any leaf is infinite or NaN."""
    assert bool(all_finite(tree)) == all(np.isfinite(leaf).all() for leaf in leaves(tree))


@pytest.mark.clause("OVERFLOW-all-finite")
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("bad", [INF, -INF, NAN, -NAN])
@pytest.mark.parametrize("place", range(6))
def test_one_bad_element_is_enough(name, bad, place):
    """Wherever it stands in a tree, and in whatever dtype, one infinity or NaN is an overflow."""
    values = np.ones(6, DTYPES[name])
    assert all_finite([values[:4], {"w": values[4:]}])
    values[place] = bad
    assert not all_finite([values[:4], {"w": values[4:]}])


@pytest.mark.clause("OVERFLOW-answer", "OVERFLOW-empty")
@pytest.mark.parametrize("tree", [[1.0], [], [[]], None, [[1.0, 2.0], [NAN]]], ids=repr)
def test_the_answer_is_a_bool_array_of_shape_nothing(xp, tree):
    """Also of a tree without arrays, the answer is an array: a bool of shape ()."""
    answer = all_finite(tree and [xp.asarray(leaf, dtype=xp.float32) for leaf in tree])
    assert type(answer) is (type(xp.ones(1)) if tree else np.ndarray)
    assert alike(answer, np.asarray(not tree or tree[-1] != [NAN]))


@pytest.mark.clause("OVERFLOW-elementwise")
@pytest.mark.parametrize("name", DTYPES)
def test_large_values_are_not_added_up(name):
    """Two values are finite although their sum is not."""
    largest = LARGEST[name]
    assert all_finite([np.asarray([largest, largest]), np.asarray([largest])])


@pytest.mark.clause("OVERFLOW-edges")
@pytest.mark.parametrize("name", DTYPES)
def test_the_edges_of_a_dtype_are_finite(name):
    """The largest value, its negative and the subnormals are finite."""
    assert all_finite(np.asarray([LARGEST[name], -LARGEST[name], SMALLEST[name], -SMALLEST[name], -0.0], DTYPES[name]))


@pytest.mark.clause("OVERFLOW-integers")
def test_integers_are_finite(xp):
    """Integers and bools are finite whatever they hold, and do not hide a NaN beside them."""
    integers = [xp.asarray([2**31 - 1, -(2**31)], dtype=xp.int32), xp.asarray([255], dtype=xp.uint8), xp.asarray(False)]
    assert all_finite(integers)
    assert not all_finite([*integers, xp.asarray([NAN])])


@pytest.mark.clause("OVERFLOW-complex")
@pytest.mark.parametrize("bad", [complex(1, INF), complex(-INF, 1), complex(NAN, 1), complex(1, NAN)], ids=repr)
def test_a_complex_number_is_finite_where_both_parts_are(xp, bad):
    """One bad part spoils the number."""
    for dtype in (xp.complex64, xp.complex128):
        assert all_finite(xp.asarray([1 + 2j], dtype=dtype))
        assert not all_finite(xp.asarray([1 + 2j, bad], dtype=dtype))


@pytest.mark.clause("OVERFLOW-empty", "OVERFLOW-none")
@pytest.mark.parametrize("tree", [None, [], {"a": (None, [])}, np.zeros((3, 0), np.float32)], ids=repr)
def test_nothing_is_finite(tree):
    """A statement about all of nothing is true: of no arrays, of Nones and of arrays without elements."""
    unscaled, finite = unscale_and_check(tree, 2.0)
    assert all_finite(tree)
    assert finite
    assert repr(unscaled) == repr(tree)


@pytest.mark.clause("OVERFLOW-union")
@given(trees(), trees())
def test_a_check_can_be_made_in_pieces(left, right):
    """Two trees are finite together where each is."""
    assert bool(all_finite([left, right])) == (bool(all_finite(left)) and bool(all_finite(right)))


@pytest.mark.clause("OVERFLOW-fused")
@given(trees(), scales)
def test_unscaling_and_checking_is_both(tree, factor):
    """The fused verb returns what unscaling returns, and whether that is finite."""
    unscaled, finite = unscale_and_check(tree, factor)
    assert same(unscaled, unscale(tree, factor))
    assert bool(finite) == bool(all_finite(unscale(tree, factor)))


@pytest.mark.clause("OVERFLOW-both-sides")
@given(trees(), scales)
def test_the_check_sees_both_sides(tree, factor):
    """What was not finite before unscaling, or is not after, is an overflow."""
    unscaled, finite = unscale_and_check(tree, factor)
    assert bool(finite) == (bool(all_finite(tree)) and bool(all_finite(unscaled)))


@pytest.mark.clause("OVERFLOW-both-sides")
def test_a_division_that_overflows_is_an_overflow(xp):
    """A scale below 1 can make a finite gradient infinite."""
    assert not unscale_and_check(xp.asarray([3e38], dtype=xp.float32), 0.25)[1]


@pytest.mark.clause("OVERFLOW-check-order")
@given(any_arrays, st.floats(1, 2.0**127, width=32))
def test_from_a_scale_of_1_the_order_does_not_matter(array, factor):
    """Checking before unscaling and checking after give the same answer."""
    assert bool(all_finite(array)) == bool(unscale_and_check(array, factor)[1])


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
def test_another_tree_can_take_the_result(xp):
    """With another tree as out, that one is written and returned, and the gradients stay."""
    tree, out = [xp.asarray([4.0, 6.0])], [xp.zeros(2)]
    unscaled, _ = unscale_and_check(tree, 2.0, out=out)
    assert unscaled is out
    assert alike(out[0], np.asarray([2.0, 3.0]))
    assert alike(tree[0], np.asarray([4.0, 6.0]))


@pytest.mark.clause("OVERFLOW-no-host-read")
def test_the_check_reads_nothing_on_the_host(accelerator):
    """Unscaling and checking runs on arrays that cannot be read, and answers where they are."""
    xp, device = accelerator
    _, finite = unscale_and_check([xp.asarray([NAN], device=device), xp.asarray([1.0], device=device)], 2.0)
    assert finite.device == device


@pytest.mark.clause("OVERFLOW-gradient-scan")
@pytest.mark.parametrize("token", [GradientScan().start(None), None, np.zeros(8)], ids=["its-own", "none", "any"])
def test_a_gradient_scan_looks_at_the_end_alone(xp, token):
    """It sees the output, whatever passed by before, and needs no token of its own."""
    scan = GradientScan()
    scan.observe(token, xp.asarray([NAN]))
    assert scan.finite(token, xp.asarray([1.0]))
    assert not scan.finite(token, xp.asarray([INF]))


@pytest.mark.clause("OVERFLOW-status-register")
def test_a_status_register_remembers(xp):
    """What was not finite since the start is an overflow, also where the output is finite again; a start clears it."""
    register, good = StatusRegister(), xp.asarray([1.0])
    token = register.start(good)
    assert register.finite(token, good)
    register.observe(token, xp.asarray([NAN]))
    register.observe(token, good)
    assert not register.finite(token, good)
    assert register.finite(register.start(good), good)
    assert not register.finite(register.start(good), xp.asarray([INF]))


@pytest.mark.clause("OVERFLOW-status-register")
def test_a_status_register_takes_a_foreign_token():
    """A token of another make remembers nothing, so that the output alone decides."""
    register = StatusRegister()
    register.observe(None, np.asarray([NAN]))
    assert register.finite(None, np.asarray([1.0]))
    assert not register.finite(None, np.asarray([NAN]))
