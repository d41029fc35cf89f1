"""
Public functions on every backend: results have the bits of the core's definitions on NumPy, for random bits of every format.

Norms may differ by two units in the last place, because libraries sum in different orders. CuPy's tests require a device.
"""

import math
import operator
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from libraries import NAMES, ON_DEVICE, close, on, unit_of
from strategies import DTYPES, LARGEST, SMALLEST, SMALLEST_NORMAL, alike, arrays, same, scales

import ampscale
from ampscale.core import norms, overflow, scaling
from ampscale.core.dtypes import name_of
from ampscale.core.trees import leaves, map_leaves

SHAPES = st.sampled_from([(), (0,), (5,), (2, 3)])  # few, because JAX compiles for each shape
EVERYWHERE = on(*NAMES, *ON_DEVICE)
FACTORS = st.one_of(scales, st.integers(-149, 127).map(lambda exponent: 2.0**exponent))
DTYPE = st.sampled_from([None, "float32", "float64"])


def trees(*formats):
    """Return a strategy for nested lists and dicts of arrays of these formats and None, with at least one array."""
    leaf = st.none() | st.sampled_from(formats).flatmap(lambda name: arrays(name, SHAPES))
    dicts = st.dictionaries(st.sampled_from("wb"), st.lists(leaf, max_size=2), max_size=2)
    return (st.lists(leaf, max_size=3) | dicts).filter(leaves)


def examples(library, *strategies):
    """
    Return hypothesis's `given` for these strategies.

    JAX, which compiles a program for each structure, and libraries that use the definitions of the core get fewer examples.
    """
    count = 10 if library.name in ("jax", "strict", "strict16") else 40
    return lambda test: settings(max_examples=count)(given(*strategies)(test))


def check(library, expected, actual):
    """Assert that a tree of this library equals a tree of NumPy bit for bit."""
    assert same(library.to_numpy(actual), expected)


@pytest.mark.clause("BACKENDS-bit-identical", "SCALING-scale", "SCALING-unscale-divides", "SCALING-round-once", "SCALING-widen")
@EVERYWHERE
def test_scaling_and_unscaling_round_once(library):
    """Results are those of IEEE 754 in float32 or float64, rounded once, including subnormal numbers and wider dtypes."""

    @examples(library, trees(*library.dtypes), scales, DTYPE, st.booleans())
    def holds(tree, factor, dtype, as_array):
        library_tree, number = library.from_numpy(tree), np.float32(factor)
        library_scale = library.array(factor) if as_array else factor
        check(library, scaling.scale(tree, number), ampscale.scale(library_tree, library_scale))
        check(library, scaling.unscale(tree, number, dtype), ampscale.unscale(library_tree, library_scale, dtype))

    holds()


@pytest.mark.clause("BACKENDS-bit-identical", "OVERFLOW-all-finite", "OVERFLOW-both-sides")
@pytest.mark.clause("OVERFLOW-same-everywhere", "OVERFLOW-fused", "OVERFLOW-in-place")
@EVERYWHERE
def test_unscale_and_check_equals_numpy(library):
    """Flags and values are equal, even if only unscaling gives an infinity. Immutable arrays as *out* raise an error."""

    @examples(library, trees(*library.dtypes), FACTORS)
    def holds(tree, factor):
        library_tree = library.from_numpy(tree)
        expected = overflow.unscale_and_check(tree, np.float32(factor))
        check(library, expected, ampscale.unscale_and_check(library_tree, factor))
        check(library, overflow.all_finite(tree), ampscale.all_finite(library_tree))
        check(library, tree, library_tree)
        if library.writable:
            check(library, expected, ampscale.unscale_and_check(library_tree, factor, out=library_tree))
            check(library, expected[0], library_tree)
        else:
            with pytest.raises(TypeError, match="must be a mutable array"):
                ampscale.unscale_and_check(library_tree, factor, out=library_tree)

    holds()


@pytest.mark.clause("BACKENDS-bit-identical", "NORMS-global", "NORMS-local", "NORMS-accumulation-dtype")
@pytest.mark.clause("NORMS-fused", "NORMS-clip", "NORMS-clip-round-once", "OVERFLOW-in-place")
@EVERYWHERE
def test_norms_agree_to_two_units(library):
    """Global and local norms are compared. Clipped values equal those of NumPy for the same norm, even in place."""

    @examples(library, trees(*library.dtypes) | trees(*set(library.dtypes) - {"float64"}), st.floats(2.0**-10, 2.0**10))
    def holds(tree, limit):
        library_tree = library.from_numpy(tree)
        with np.errstate(all="ignore"):
            expected, expected_local = norms.global_norm(tree), norms.local_norms(tree)
        clipped, norm = ampscale.clip_by_global_norm(library_tree, limit)
        for actual in (norm, ampscale.global_norm(library_tree), ampscale.unscale_check_and_norm(library_tree, 1.0)[2]):
            assert close(library.get(actual), expected)
        assert close(library.get(ampscale.local_norms(library_tree)), expected_local)
        if np.isfinite(expected) or not overflow.all_finite(tree):
            check(library, map_leaves(partial(clip_one, coefficient_of(library.get(norm), limit)), tree), clipped)
        if library.writable:
            assert close(library.get(ampscale.unscale_check_and_norm(library_tree, 1.0, out=library_tree)[2]), expected)
            result, norm_before = ampscale.clip_by_global_norm(library_tree, limit, out=library_tree)
            assert result is library_tree
            assert alike(library.get(norm_before), library.get(norm))
            check(library, library.to_numpy(clipped), library_tree)
        else:
            with pytest.raises(TypeError, match="must be a mutable array"):
                ampscale.clip_by_global_norm(library_tree, limit, out=library_tree)

    holds()


def magnitudes(name):
    """Return a strategy for finite arrays of a format: of random bits, or of one magnitude."""
    power = st.integers(*(int(np.frexp(float(edge[name]))[1]) for edge in (SMALLEST, LARGEST)))
    one_magnitude = power.map(lambda exponent: np.ldexp([0.5, -0.75, 0.996], exponent).astype(DTYPES[name]))
    return (arrays(name, st.just((3,))) | one_magnitude).map(lambda leaf: np.where(np.isfinite(leaf), leaf, leaf.dtype.type(0)))


def exact_norm(tree):
    """Return the norm as a fraction with 3,000 binary digits."""
    square = sum((Fraction(float(value)) ** 2 for leaf in tree for value in leaf), Fraction(0))
    return Fraction(math.isqrt(int(square * 4**3000)), 2**3000)


def is_near(norm, exact):
    """Return True if *norm* is at most two units in the last place from *exact*, or infinite and *exact* exceeds the dtype."""
    if np.isinf(norm):
        return exact > np.finfo(norm.dtype).max
    return abs(Fraction(float(norm)) - exact) <= 2 * Fraction(float(unit_of(norm)))


def norms_hold(library, dtypes):
    """Assert for trees of *dtypes* that norms are accurate to two units, and that norms after clipping agree with the formula."""
    smallest = SMALLEST_NORMAL if library.flushes_subnormals else SMALLEST
    powers_of_ten = st.floats(-300, 300).map(lambda power: 10.0**power)
    one_or_two = st.lists(st.sampled_from(dtypes).flatmap(magnitudes), min_size=1, max_size=2)

    @examples(library, one_or_two, powers_of_ten | st.floats(1e-3, 1e3))
    def hold(tree, limit):
        library_tree, exact = library.from_numpy(tree), exact_norm(tree)
        clipped, norm = library.to_numpy(ampscale.clip_by_global_norm(library_tree, limit))
        for actual in (ampscale.global_norm(library_tree), ampscale.unscale_check_and_norm(library_tree, 1.0)[2]):
            assert same(library.get(actual), norm)
        assert is_near(norm, exact)
        assert all(map(is_near, library.get(ampscale.local_norms(library_tree)), (exact_norm([leaf]) for leaf in tree)))
        assert overflow.all_finite(clipped)
        expected = exact * Fraction(limit) / (max(exact, Fraction(limit)) + Fraction(1e-6))
        units = [Fraction(float(smallest[name_of(leaf.dtype)])) for leaf in (*tree, norm)]
        assert abs(exact_norm(clipped) - expected) <= expected / 2**7 + 3 * sum(units) + exact * units[-1]

    hold()


@pytest.mark.clause("NORMS-magnitudes", "NORMS-clip-magnitudes", "NORMS-local", "NORMS-fused")
@EVERYWHERE
def test_norms_are_accurate_at_every_magnitude(library):
    """Clipping limits are 1e-300 to 1e300. JAX is also tested without jax_enable_x64."""
    norms_hold(library, library.dtypes)
    if library.name == "jax":
        import jax

        with jax.enable_x64(False):
            norms_hold(library, [name for name in library.dtypes if name != "float64"])


def coefficient_of(norm, limit):
    """Return the clipping coefficient of MindFormers, computed in the dtype of the norm."""
    limit, epsilon = norm.dtype.type(limit), norm.dtype.type(1e-6)
    with np.errstate(all="ignore"):
        return limit / ((norm[()] if norm > limit else limit) + epsilon)


def clip_one(coefficient, leaf):
    """Return *leaf* times the coefficient, in its compute dtype, rounded once."""
    with np.errstate(all="ignore"):
        return np.asarray(scaling.apply_factor(operator.mul, leaf, np.asarray(coefficient), leaf.dtype))


def test_same_detects_one_bit():
    """Arrays can differ in one bit, in the sign of a zero or in the dtype."""
    for left, right in (([1.0], [np.nextafter(np.float32(1), np.float32(2))]), ([0.0], [-0.0])):
        assert not same([np.asarray(left, np.float32)], [np.asarray(right, np.float32)])
    assert not same([np.asarray(1, DTYPES["float16"])], [np.asarray(1, DTYPES["bfloat16"])])
