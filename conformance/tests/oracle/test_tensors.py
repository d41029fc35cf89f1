"""Tests of scaling and unscaling on bits, against ampscale on NumPy."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from ampscale_conformance.model.arrays import to_bits
from ampscale_conformance.model.bits import Bits
from ampscale_conformance.oracle.tensors import array, from_numbers, numbers, same, scale, unscale
from strategies import DTYPES

import ampscale

FLOATS = {**DTYPES, "complex64": np.dtype(np.complex64), "complex128": np.dtype(np.complex128)}
SCALES = [1.0, 3.0, 1.1, 2.0**16, 2.0**-100, 2.0**126]


def random_leaf(name):
    """Return an array of 300 random bit patterns and of special values."""
    dtype = FLOATS[name]
    raw = np.random.default_rng(4).integers(0, 256, 300 * dtype.itemsize, dtype=np.uint8)
    special = [math.inf, -math.inf, math.nan, 0.0, -0.0, float(ml_dtypes.finfo(dtype).smallest_subnormal)]
    return np.concatenate([raw.view(dtype), np.array(special, dtype)])


@pytest.mark.parametrize("name", FLOATS)
def test_scaled_leaves_equal_those_of_ampscale(name):
    """The leaves contain a subnormal, infinities and NaN. The scale is rounded to float32 for dtypes narrower than float64."""
    leaf = random_leaf(name)
    for factor in SCALES:
        with np.errstate(all="ignore"):
            scaled, unscaled = ampscale.scale(leaf, factor), ampscale.unscale(leaf, factor)
        assert same(scale(to_bits(leaf), factor), to_bits(scaled)), factor
        assert same(unscale(to_bits(leaf), factor), to_bits(unscaled)), factor
    for dtype in ("float32", "float64"):
        with np.errstate(all="ignore"):
            expected = ampscale.unscale(leaf, 2.0**20, dtype)
        assert same(unscale(to_bits(leaf), 2.0**20, dtype), to_bits(expected)), dtype


@pytest.mark.parametrize("name", FLOATS)
def test_numbers_convert_back_to_their_leaf(name):
    """All NaNs become the same NaN."""
    bits = to_bits(random_leaf(name))
    assert same(from_numbers(name, bits.shape, numbers(bits)), bits)


def test_integers_and_bools_cannot_be_scaled():
    for leaf in (array("int32", [1]), array("bool", True)):
        with pytest.raises(TypeError, match="dtype must be one of"):
            scale(leaf, 2.0)


def test_an_array_is_created_from_numbers():
    """A shape is filled in row-major order."""
    assert array("float32", [1, Fraction(1, 3)]) == Bits("float32", (2,), (0x3F800000, 0x3EAAAAAB))
    assert array("float16", 1.0) == Bits("float16", (), (0x3C00,))
    assert array("float16", [1.0, 2.0, 3.0, 4.0], (2, 2)) == Bits("float16", (2, 2), (0x3C00, 0x4000, 0x4200, 0x4400))
    assert array("int32", [-1, 2**31 - 1]).bits == (0xFFFFFFFF, 0x7FFFFFFF)
    assert array("int64", -(2**63)).bits == (1 << 63,)
    assert array("bool", [True, False]).bits == (1, 0)
    assert array("complex64", [1 + 2j, -3.0]).bits == (0x3F80000040000000, 0xC040000000000000)
    assert array("float32", []).shape == (0,)


def test_arrays_are_compared_by_their_bits():
    """Any NaN equals any other NaN, and zeros of opposite signs differ."""
    one_nan = Bits("float16", (1,), (0x7E00,))
    assert same(one_nan, Bits("float16", (1,), (0xFC01,)))
    for left, right in (
        (one_nan, Bits("float16", (1,), (0x7C00,))),
        (Bits("float16", (1,), (0x0000,)), Bits("float16", (1,), (0x8000,))),
        (one_nan, Bits("bfloat16", (1,), (0x7FC0,))),
        (Bits("float16", (1,), (0x3C00,)), Bits("float16", (), (0x3C00,))),
        (Bits("int32", (1,), (1,)), Bits("int32", (1,), (2,))),
        (array("complex64", [complex(math.nan, 1)]), array("complex64", [complex(math.nan, 2)])),
    ):
        assert not same(left, right), (left, right)
