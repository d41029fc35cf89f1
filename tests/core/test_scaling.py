"""Scaling and unscaling: what goes in, what comes out, and in which precision."""

import math

import numpy as np
import pytest
from exact import FORMATS
from hypothesis import given
from hypothesis import strategies as st
from strategies import DTYPES, SMALLEST_NORMAL, alike, any_arrays, arrays, names, powers_of_two, scales, trees

from ampscale.core.scaling import scale, unscale
from ampscale.core.trees import leaves

BOTH = pytest.mark.parametrize("verb", [scale, unscale])


@pytest.mark.clause("SCALING-scale")
def test_scaling_multiplies_every_leaf(xp):
    """Each element of each array is multiplied by the scale."""
    tree = {"w": xp.asarray([1.0, -2.0], dtype=xp.float32), "b": [xp.asarray(3.0, dtype=xp.float64)]}
    scaled = scale(tree, 4.0)
    assert alike(scaled["w"], np.asarray([4, -8], np.float32))
    assert alike(scaled["b"][0], np.asarray(12.0))


@pytest.mark.clause("SCALING-unscale-divides")
def test_unscaling_is_a_division(xp):
    """Five divided by three is rounded once, which five times a third is not."""
    assert alike(unscale(xp.asarray([5.0], dtype=xp.float32), 3.0), np.asarray([float.fromhex("0x1.aaaaaap+0")], np.float32))


@pytest.mark.clause("SCALING-scale-type")
@BOTH
def test_any_kind_of_scale_means_the_same(xp, verb):
    """A number, and an array of shape () or (1,) in float32 or float64, give the same result and no new dimension."""
    values = xp.asarray([[1.5, 2.5]], dtype=xp.float32)
    others = [xp.asarray(number, dtype=dtype) for number in (8.0, [8.0]) for dtype in (xp.float32, xp.float64)]
    assert all(alike(verb(values, factor), verb(values, 8.0)) for factor in [8, *others])


@pytest.mark.clause("SCALING-dtype-kept")
@BOTH
@given(trees())
def test_every_leaf_keeps_its_dtype_and_shape(verb, tree):
    """Arrays of different dtypes stand in one tree, and each comes out as it went in."""
    before, after = leaves(tree), leaves(verb(tree, 2.0))
    assert [(leaf.dtype, leaf.shape) for leaf in after] == [(leaf.dtype, leaf.shape) for leaf in before]


@pytest.mark.clause("SCALING-new-arrays")
@BOTH
@given(any_arrays)
def test_the_results_are_new_arrays(verb, array):
    """Also a scale of 1 gives an array of its own, and the input is as it was."""
    before = array.copy()
    result = verb([array], 1.0)[0]
    assert alike(result, before)
    assert not np.shares_memory(result, array)
    result[...] = 7
    assert alike(array, before)


@pytest.mark.clause("SCALING-layout")
@BOTH
@pytest.mark.parametrize("name", DTYPES)
def test_any_memory_layout_is_accepted(verb, name):
    """Transposed, strided, read-only, empty and 0-d arrays, and NumPy's scalars, are arrays like any other."""
    whole = np.arange(24).reshape(4, 6).astype(DTYPES[name])
    frozen = whole.copy()
    frozen.flags.writeable = False
    for view in (whole.T, whole[::2, ::-3], frozen, whole[:0], whole[1, 1, ...], whole[1, 1]):
        assert alike(verb(view, 3.0), verb(np.array(view), 3.0))
        assert isinstance(verb(view, 3.0), np.ndarray)


@pytest.mark.clause("SCALING-scale-float32", "SCALING-round-once")
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("factor", [2.0**25, np.asarray(2.0**25, np.float32), np.asarray([2.0**25])], ids=["number", "f4", "f8"])
def test_a_scale_beyond_float16_spares_16_bit_arrays(name, factor):
    """Zeros stay zeros, and a quotient that 16 bits can hold is that quotient, although 2**25 is no float16."""
    values = np.asarray([0, 2.0**15, -(2.0**12)], DTYPES[name])
    assert alike(unscale(values, factor), np.asarray([0, 2.0**-10, -(2.0**-13)], DTYPES[name]))
    assert alike(scale(np.asarray([0, 2.0**-14], DTYPES[name]), factor), np.asarray([0, 2.0**11], DTYPES[name]))


@pytest.mark.clause("SCALING-widen")
def test_unscaling_can_widen(xp):
    """Narrower arrays come out in the wanted dtype, wider ones keep theirs."""
    tree = [xp.asarray([3.0], dtype=xp.float32), xp.asarray([3.0], dtype=xp.float64)]
    assert [leaf.dtype for leaf in unscale(tree, 2.0, dtype="float64")] == [xp.float64, xp.float64]
    assert [leaf.dtype for leaf in unscale(tree, 2.0, dtype="float32")] == [xp.float32, xp.float64]


@pytest.mark.clause("SCALING-widen")
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_a_widened_gradient_is_not_rounded_to_16_bits(name):
    """A quotient that underflows in 16 bits is whole in float32."""
    values = np.asarray([SMALLEST_NORMAL[name], 3], DTYPES[name])
    assert alike(unscale(values, 48.0, dtype="float32"), values.astype(np.float32) / np.float32(48))


@pytest.mark.clause("SCALING-complex", "SCALING-dtype-kept")
@BOTH
def test_both_parts_of_a_complex_number_are_scaled(xp, verb):
    """The parts of a complex array are scaled like floats of their width."""
    for dtype, part in ((xp.complex64, xp.float32), (xp.complex128, xp.float64)):
        real, imag = xp.asarray([5.0, 0.0], dtype=part), xp.asarray([7.0, -1.0], dtype=part)
        result = verb(xp.asarray([5 + 7j, complex(0, -1)], dtype=dtype), 3.0)
        assert result.dtype == dtype
        assert alike(xp.real(result), verb(real, 3.0))
        assert alike(xp.imag(result), verb(imag, 3.0))


@pytest.mark.clause("SCALING-complex")
@BOTH
@given(arrays("float32", (2, 4)), scales)
def test_the_parts_of_a_complex_number_do_not_meet(verb, parts, factor):
    """An infinity, a NaN or a negative zero in one part says nothing about the other."""
    values = parts.view(np.complex64)
    assert alike(np.ascontiguousarray(verb(values, factor)).view(np.float32), verb(parts, factor))


@pytest.mark.clause("SCALING-nonfinite")
@BOTH
@given(any_arrays, scales)
def test_no_scale_makes_a_value_finite(verb, array, factor):
    """An infinity or a NaN is neither multiplied nor divided away."""
    assert not np.any(np.isfinite(verb(array, factor)) & ~np.isfinite(array))


@pytest.mark.clause("SCALING-round-trip")
@given(names.flatmap(lambda name: st.tuples(st.just(name), arrays(name))), powers_of_two)
def test_a_round_trip_is_exact(named, factor):
    """Scaling by a power of two and unscaling gives every bit back where nothing over- or underflows on the way."""
    name, array = named
    array = array[np.isfinite(array)]
    top = FORMATS[name][1]
    exponent = np.frexp(array.astype(np.float64))[1] + math.frexp(factor)[1] - 1  # of the scaled value
    kept = array[(array == 0) | ((exponent >= 3 - top) & (exponent <= top))]
    assert alike(unscale(scale(kept, factor), factor), kept)
