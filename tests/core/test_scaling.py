"""Scaling and unscaling: what goes in, what comes out, and in which precision."""

import math

import numpy as np
import pytest
from exact import FORMATS
from hypothesis import given
from hypothesis import strategies as st
from libraries import SIXTEEN_BITS, Library, on, with_dtypes
from strategies import DTYPES, SMALLEST_NORMAL, alike, arrays, powers_of_two, same, scales

from ampscale.core.trees import leaves

BOTH = pytest.mark.parametrize("verb", [Library.scale, Library.unscale])


@pytest.mark.clause("SCALING-scale")
def test_scaling_multiplies_every_leaf(library):
    """Each element of each array is multiplied by the scale."""
    tree = {"w": library.array([1.0, -2.0]), "b": [library.array(3.0, "float64")]}
    scaled = library.to_numpy(library.scale(tree, 4.0))
    assert alike(scaled["w"], np.asarray([4, -8], np.float32))
    assert alike(scaled["b"][0], np.asarray(12.0))


@pytest.mark.clause("SCALING-unscale-divides")
def test_unscaling_is_a_division(library):
    """Five divided by three is rounded once, which five times a third is not."""
    quotient = library.to_numpy(library.unscale(library.array([5.0]), 3.0))
    assert alike(quotient, np.asarray([float.fromhex("0x1.aaaaaap+0")], np.float32))


@pytest.mark.clause("SCALING-scale-type")
@BOTH
def test_any_kind_of_scale_means_the_same(library, verb):
    """A number, and an array of shape () or (1,) in float32 or float64, give the same result and no new dimension."""
    values = library.array([[1.5, 2.5]])
    others = [library.array(number, dtype) for number in (8.0, [8.0]) for dtype in ("float32", "float64")]
    wanted = library.to_numpy(verb(library, values, 8.0))
    assert wanted.shape == (1, 2)
    assert all(alike(library.to_numpy(verb(library, values, factor)), wanted) for factor in [8, *others])


@pytest.mark.clause("SCALING-dtype-kept")
@BOTH
@given(st.data())
def test_every_leaf_keeps_its_dtype_shape_and_library(library, verb, data):
    """Arrays of different dtypes stand in one tree, and each comes out as it went in."""
    tree = data.draw(library.trees())
    before, after = leaves(tree), leaves(verb(library, tree, 2.0))
    assert [(leaf.dtype, leaf.shape, type(leaf)) for leaf in after] == [(leaf.dtype, leaf.shape, type(leaf)) for leaf in before]


@pytest.mark.clause("SCALING-new-arrays")
@BOTH
@given(st.data())
def test_the_results_are_new_arrays(library, verb, data):
    """Also a scale of 1 gives an array of its own, which can be written to, and the input is as it was."""
    before = data.draw(library.arrays())
    array = library.from_numpy(before)
    result = verb(library, [array], 1.0)[0]
    assert alike(library.to_numpy(result), before)
    if library.writable:
        result[...] = library.array(np.full(before.shape, 7), before.dtype.name)
    assert alike(library.to_numpy(array), before)


@pytest.mark.clause("SCALING-layout")
@on("numpy")
@BOTH
@pytest.mark.parametrize("name", DTYPES)
def test_any_memory_layout_is_accepted(library, verb, name):
    """Transposed, strided, read-only, empty and 0-d arrays, and NumPy's scalars, are arrays like any other."""
    whole = np.arange(24).reshape(4, 6).astype(DTYPES[name])
    frozen = whole.copy()
    frozen.flags.writeable = False
    for view in (whole.T, whole[::2, ::-3], frozen, whole[:0], whole[1, 1, ...], whole[1, 1]):
        assert alike(verb(library, view, 3.0), verb(library, np.array(view), 3.0))
        assert isinstance(verb(library, view, 3.0), np.ndarray)


@pytest.mark.clause("SCALING-layout")
@BOTH
@with_dtypes("float16", "float32")
def test_views_are_arrays_like_any_other(library, dtype, verb):
    """A turned array, and a part of one, have the values that a copy has."""
    whole = library.array(np.arange(24).reshape(4, 6), dtype)
    for view in (whole.T, whole[1:3, ::2], whole[1, 1], whole[:0, :]):
        copy = library.from_numpy(library.to_numpy(view))
        assert alike(library.to_numpy(verb(library, view, 3.0)), library.to_numpy(verb(library, copy, 3.0)))


@pytest.mark.clause("SCALING-scale-float32", "SCALING-round-once")
@with_dtypes(*SIXTEEN_BITS)
@pytest.mark.parametrize("kind", ["number", "float32", "float64"])
def test_a_scale_beyond_float16_spares_16_bit_arrays(library, dtype, kind):
    """Zeros stay zeros, and a quotient that 16 bits can hold is that quotient, although 2**25 is no float16."""
    factor = 2.0**25 if kind == "number" else library.array(2.0**25 if kind == "float32" else [2.0**25], kind)
    values = library.unscale(library.array([0, 2.0**15, -(2.0**12)], dtype), factor)
    assert alike(library.to_numpy(values), np.asarray([0, 2.0**-10, -(2.0**-13)], DTYPES[dtype]))
    values = library.scale(library.array([0, 2.0**-14], dtype), factor)
    assert alike(library.to_numpy(values), np.asarray([0, 2.0**11], DTYPES[dtype]))


@pytest.mark.clause("SCALING-widen")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_unscaling_can_widen(library, dtype):
    """Narrower arrays come out in the wanted dtype, wider ones keep theirs."""
    widened = library.unscale([library.array([3.0], name) for name in library.dtypes], 2.0, dtype=dtype)
    wanted = ["float64" if "float64" in (name, dtype) else "float32" for name in library.dtypes]
    assert same(library.to_numpy(widened), [np.asarray([1.5], name) for name in wanted])


@pytest.mark.clause("SCALING-widen")
@with_dtypes(*SIXTEEN_BITS)
def test_a_widened_gradient_is_not_rounded_to_16_bits(library, dtype):
    """A quotient that underflows in 16 bits is whole in float32."""
    values = np.asarray([SMALLEST_NORMAL[dtype], 3], DTYPES[dtype])
    widened = library.unscale(library.from_numpy(values), 48.0, dtype="float32")
    assert alike(library.to_numpy(widened), values.astype(np.float32) / np.float32(48))


@pytest.mark.clause("SCALING-complex", "SCALING-dtype-kept")
@BOTH
@pytest.mark.parametrize(("dtype", "part"), [("complex64", "float32"), ("complex128", "float64")])
def test_both_parts_of_a_complex_number_are_scaled(library, verb, dtype, part):
    """The parts of a complex array are scaled like floats of their width."""
    result = library.to_numpy(verb(library, library.array([5 + 7j, complex(0, -1)], dtype), 3.0))
    assert result.dtype == dtype
    assert alike(result.real, library.to_numpy(verb(library, library.array([5.0, 0.0], part), 3.0)))
    assert alike(result.imag, library.to_numpy(verb(library, library.array([7.0, -1.0], part), 3.0)))


@pytest.mark.clause("SCALING-complex")
@on("numpy", "torch")  # the standard joins two parts by a product, where they meet; JAX's backend has its own way
@BOTH
@given(arrays("float32", (2, 4)), scales)
def test_the_parts_of_a_complex_number_do_not_meet(library, verb, parts, factor):
    """An infinity, a NaN or a negative zero in one part says nothing about the other."""
    result = library.to_numpy(verb(library, library.from_numpy(parts.view(np.complex64)), factor))
    assert alike(
        np.ascontiguousarray(result).view(np.float32), library.to_numpy(verb(library, library.from_numpy(parts), factor))
    )


@pytest.mark.clause("SCALING-nonfinite")
@BOTH
@given(st.data(), scales)
def test_no_scale_makes_a_value_finite(library, verb, data, factor):
    """An infinity or a NaN is neither multiplied nor divided away."""
    array = data.draw(library.arrays())
    result = library.to_numpy(verb(library, library.from_numpy(array), factor))
    with np.errstate(invalid="ignore"):  # ml_dtypes warns of a signalling NaN
        assert not np.any(np.isfinite(result) & ~np.isfinite(array))


@pytest.mark.clause("SCALING-round-trip")
@given(st.data(), powers_of_two)
def test_a_round_trip_is_exact(library, data, factor):
    """Scaling by a power of two and unscaling gives every bit back where nothing over- or underflows on the way."""
    name = data.draw(st.sampled_from(library.dtypes))
    array = data.draw(arrays(name, (4,)))
    top = FORMATS[name][1]
    exponent = np.frexp(array.astype(np.float64))[1] + math.frexp(factor)[1] - 1  # of the scaled value
    fits = np.isfinite(array) & (exponent >= 3 - top) & (exponent <= top)
    kept = np.where(fits, array, array.dtype.type(0))
    assert alike(library.to_numpy(library.unscale(library.scale(library.from_numpy(kept), factor), factor)), kept)
