"""Scaling and unscaling on bits, beside the package's own on NumPy."""

import math
from fractions import Fraction

import numpy as np
import pytest
from ampscale_conformance.model.arrays import to_bits
from ampscale_conformance.model.bits import Bits
from ampscale_conformance.oracle.tensors import array, from_numbers, numbers, same, scale, unscale
from formats import DTYPES

import ampscale

FLOATS = {**DTYPES, "complex64": np.dtype(np.complex64), "complex128": np.dtype(np.complex128)}
SCALES = [1.0, 3.0, 1.1, 2.0**16, 2.0**-100, 2.0**126]


def drawn(name, count=700):
    """Any patterns; every exponent of a 16-bit format among them."""
    dtype = FLOATS[name]
    raw = np.random.default_rng(4).integers(0, 256, count * dtype.itemsize, dtype=np.uint8)
    return raw.view(dtype)


@pytest.mark.parametrize("name", FLOATS)
def test_a_leaf_is_scaled_as_the_package_scales_it(name):
    """Every dtype, with subnormals, infinities and NaN; the scale is rounded to float32 beside the narrower ones."""
    leaf = drawn(name, 300)
    for factor in SCALES:
        with np.errstate(all="ignore"):
            scaled, unscaled = ampscale.scale(leaf, factor), ampscale.unscale(leaf, factor)
        assert same(scale(to_bits(leaf), factor), to_bits(scaled)), factor
        assert same(unscale(to_bits(leaf), factor), to_bits(unscaled)), factor
    for wide in ("float32", "float64"):
        with np.errstate(all="ignore"):
            wanted = ampscale.unscale(leaf, 2.0**20, wide)
        assert same(unscale(to_bits(leaf), 2.0**20, wide), to_bits(wanted)), wide
    bits = to_bits(leaf)
    assert same(from_numbers(name, bits.shape, numbers(bits)), bits)  # with the one NaN for all


def test_what_cannot_be_scaled_is_refused():
    """A scale that is none, also where it becomes so in float32; integers and bools; results that are narrowed."""
    for factor in (0.0, -1.0, math.inf, math.nan, 1e39, 1e-50):
        with pytest.raises(ValueError, match="scale must be positive and finite in float32, got"):
            unscale(array("float16", [1.0]), factor)
    assert scale(array("float64", [1.0]), 1e39) == array("float64", [1e39])  # it takes part in float64
    for leaf in (array("int32", [1]), array("bool", True)):
        with pytest.raises(TypeError, match="dtype must be one of"):
            scale(leaf, 2.0)
    for dtype in ("float16", "int32"):
        with pytest.raises(ValueError, match="dtype must be 'float32' or 'float64' or None, got"):
            unscale(array("float32", [1.0]), 2.0, dtype)


def test_an_array_is_made_of_numbers():
    """Lists give the shape; a shape that is given takes the numbers row by row."""
    assert array("float32", [[1, 2], [3, Fraction(1, 3)]]) == Bits(
        "float32", (2, 2), (0x3F800000, 0x40000000, 0x40400000, 0x3EAAAAAB)
    )
    assert array("float16", 1.0) == Bits("float16", (), (0x3C00,))
    assert array("float64", [1.0, 2.0], (2, 1)).shape == (2, 1)
    assert array("int32", [-1, 2**31 - 1]).bits == (0xFFFFFFFF, 0x7FFFFFFF)
    assert array("int64", -(2**63)).bits == (1 << 63,)
    assert array("bool", [True, False]).bits == (1, 0)
    assert array("complex64", [1 + 2j, -3.0]).bits == (0x3F80000040000000, 0xC040000000000000)
    assert array("float32", [[], []]).shape == (2, 0)


@pytest.mark.parametrize(
    ("dtype", "values", "error", "words"),
    [
        ("float32", ["1"], TypeError, "must be made of numbers of its kind, got '1'"),
        ("float32", [True], TypeError, "must be made of numbers of its kind, got True"),
        ("float32", [1j], TypeError, "must be made of numbers of its kind, got 1j"),
        ("int32", [1.0], TypeError, "must be made of numbers of its kind, got 1.0"),
        ("bool", [1], TypeError, "must be made of numbers of its kind, got 1"),
        ("int32", [2**31], ValueError, "int32 holds integers from -2147483648 to 2147483647, got 2147483648"),
        ("float32", [[1.0], [1.0, 2.0]], ValueError, "lists must be equally long at every depth"),
    ],
)
def test_what_is_no_number_of_the_kind_is_refused(dtype, values, error, words):
    """Nothing is converted."""
    with pytest.raises(error, match=words):
        array(dtype, values)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (Bits("float16", (1,), (0x7E00,)), Bits("float16", (1,), (0xFC01,)), True),
        (Bits("float16", (1,), (0x7E00,)), Bits("float16", (1,), (0x7C00,)), False),
        (Bits("float16", (1,), (0x0000,)), Bits("float16", (1,), (0x8000,)), False),
        (Bits("float16", (1,), (0x7E00,)), Bits("bfloat16", (1,), (0x7FC0,)), False),
        (Bits("float16", (1,), (0x3C00,)), Bits("float16", (), (0x3C00,)), False),
        (Bits("int32", (1,), (1,)), Bits("int32", (1,), (2,)), False),
        (array("complex64", [complex(math.nan, 1)]), array("complex64", [complex(math.nan, 2)]), False),
    ],
)
def test_arrays_are_the_same_by_their_bits(one, other, alike):
    """Any NaN equals any NaN, and zeros differ by their sign."""
    assert same(one, other) is alike
