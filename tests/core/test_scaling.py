"""Scaling and unscaling: accepted inputs, and results against the exact rational arithmetic of the suite's oracle."""

import numpy as np
import pytest
from ampscale_conformance.model.arrays import to_bits
from ampscale_conformance.oracle import tensors
from hypothesis import given
from hypothesis import strategies as st
from libraries import on, with_dtypes
from strategies import DTYPES, SMALLEST_NORMAL, alike, any_arrays, arrays, same, scales, trees

import ampscale
from ampscale.core.scaling import from_real_parts, real_parts, scale, unscale
from ampscale.core.trees import leaves

CALLS = (scale, unscale)


@pytest.mark.clause("SCALING-scale", "SCALING-unscale-divides", "SCALING-reciprocal")
@pytest.mark.clause("SCALING-round-once", "SCALING-round-trip", "SCALING-scale-float32")
@given(any_arrays, scales | scales.map(np.float32) | st.floats(2.0**-126, 2.0**127).map(np.asarray))
def test_results_equal_the_definition(array, factor):
    """Products and quotients are computed in float32 or float64, and then rounded once to the dtype of the array."""
    for call, definition in ((scale, tensors.scale), (unscale, tensors.unscale)):
        assert tensors.same(to_bits(call(array, factor)), definition(to_bits(array), float(factor)))


@pytest.mark.clause("SCALING-inputs")
@pytest.mark.parametrize("call", [ampscale.scale, ampscale.unscale])
def test_complex_masked_arrays_keep_their_mask(call):
    """A masked value is left unchanged."""
    masked = np.ma.masked_array([2 + 4j, np.nan, 6j], [False, True, False], np.complex64)
    result = call(masked, 2.0)
    assert type(result) is np.ma.MaskedArray
    assert result.dtype == np.complex64
    assert result.mask.tolist() == [False, True, False]
    assert result.compressed().tolist() == call(masked.compressed(), 2.0).tolist()


@pytest.mark.clause("SCALING-complex")
@on("numpy", "torch")  # other libraries combine the parts by a complex product; JAX's backend has its own code
def test_parts_can_be_separated_and_joined(library):
    """Signs of zeros and infinities are kept. Flat parts in float64 are joined to an array of complex64."""
    array = library.array([[complex(-0.0, 2.0), complex(1.0, np.inf), complex(-np.inf, -0.0)]], "complex64")
    values = library.to_numpy(array)
    parts = [library.array(part.reshape(-1), "float64") for part in (values.real, values.imag)]
    for result in (from_real_parts(real_parts(array), array), from_real_parts(parts, array)):
        assert alike(library.to_numpy(result), values)


@pytest.mark.clause("SCALING-scale-type")
@pytest.mark.parametrize("call", CALLS)
def test_all_types_of_scale_give_the_same_result(library, call):
    """A scale is a number, even an int of more than 64 bits, or a float32 or float64 array of shape () or (1,)."""
    values, number = library.array([[1.5, 2.5]]), 2.0**100
    others = [library.array(value, dtype) for value in (number, [number]) for dtype in ("float32", "float64")]
    expected = library.to_numpy(call(values, number))
    assert expected.shape == (1, 2)
    assert all(alike(library.to_numpy(call(values, factor)), expected) for factor in [2**100, *others])


@pytest.mark.clause("SCALING-dtype-kept", "SCALING-new-arrays", "SCALING-nonfinite")
@given(trees(), scales)
def test_every_leaf_keeps_its_dtype_and_shape(tree, factor):
    """A tree may mix dtypes; non-finite values stay non-finite; the arguments are unchanged."""
    originals = [array.copy() for array in leaves(tree)]
    for call in CALLS:
        for original, result in zip(originals, leaves(call(tree, factor)), strict=True):
            assert (type(result), result.dtype, result.shape) == (np.ndarray, original.dtype, original.shape)
            with np.errstate(invalid="ignore"):  # ml_dtypes warns about signaling NaNs
                assert not np.any(np.isfinite(result) & ~np.isfinite(original))
        assert same(leaves(tree), originals)


@pytest.mark.clause("SCALING-new-arrays")
@with_dtypes(*DTYPES)
def test_results_are_new_arrays(library, dtype):
    """Even with a scale of 1, a write to the result leaves the argument unchanged."""
    original = np.asarray([1, -0.0, np.inf, np.nan], DTYPES[dtype])
    for call in CALLS:
        array = library.from_numpy(original)
        result = call([array], 1.0)[0]
        assert alike(library.to_numpy(result), original)
        if library.writable:
            result[...] = library.array(np.full(4, 7), dtype)
        assert alike(library.to_numpy(array), original)


@pytest.mark.clause("SCALING-layout")
def test_all_memory_layouts_are_accepted(library):
    """Arrays are transposed, strided, empty or 0-d; on NumPy also reversed, read-only or scalars."""
    for call in CALLS:
        for dtype in library.dtypes:
            whole = library.array(np.arange(24).reshape(4, 6), dtype)
            views = [whole.T, whole[1:3, ::2], whole[1, 1], whole[:0, :]]
            if library.name == "numpy":
                frozen = whole.copy()
                frozen.flags.writeable = False
                views += [whole[::2, ::-3], frozen, whole[1, 1, ...]]
            for view in views:
                result, expected = call(view, 3.0), call(library.from_numpy(library.to_numpy(view)), 3.0)
                assert alike(library.to_numpy(result), library.to_numpy(expected))
                assert isinstance(result, type(whole))


@pytest.mark.clause("SCALING-widen")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_unscaling_widens_to_the_given_dtype(library, dtype):
    """Wider arrays keep their dtype."""
    widened = unscale([library.array([3.0], name) for name in library.dtypes], 2.0, dtype=dtype)
    expected = ["float64" if "float64" in (name, dtype) else "float32" for name in library.dtypes]
    assert same(library.to_numpy(widened), [np.asarray([1.5], name) for name in expected])


@pytest.mark.clause("SCALING-widen")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_widened_gradient_is_not_rounded_to_16_bits(dtype):
    """A quotient that is subnormal in 16 bits keeps all digits of float32."""
    values = np.asarray([SMALLEST_NORMAL[dtype], 3], DTYPES[dtype])
    assert alike(unscale(values, 48.0, dtype="float32"), values.astype(np.float32) / np.float32(48))


@pytest.mark.clause("SCALING-complex", "SCALING-dtype-kept")
@pytest.mark.parametrize(("dtype", "part"), [("complex64", "float32"), ("complex128", "float64")])
def test_both_parts_of_a_complex_number_are_scaled(library, dtype, part):
    """Each part equals the result for an array of real numbers."""
    for call in CALLS:
        result = library.to_numpy(call(library.array([5 + 7j, complex(0, -1)], dtype), 3.0))
        assert result.dtype == dtype
        assert alike(result.real, library.to_numpy(call(library.array([5.0, 0.0], part), 3.0)))
        assert alike(result.imag, library.to_numpy(call(library.array([7.0, -1.0], part), 3.0)))


@pytest.mark.clause("SCALING-complex")
@given(arrays("float32", (2, 4)), scales)
def test_parts_of_a_complex_number_are_independent(parts, factor):
    """An infinity, a NaN or a negative zero in one part does not affect the other part."""
    for call in CALLS:
        assert alike(call(parts.view(np.complex64), factor).view(np.float32), call(parts, factor))
