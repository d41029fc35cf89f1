"""
What every backend means by the verbs, said once: NumPy's definitions, bit for bit, for any values of any format.

Norms may differ by two units in the last place, since the order of a sum is the library's. CuPy runs where there is a device.
"""

import math
import operator
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from libraries import NAMES, ON_DEVICE, on
from strategies import DTYPES, LARGEST, SMALLEST, SMALLEST_NORMAL, alike, arrays, same, scales

import ampscale
from ampscale.core import machine, norms, overflow, scaling
from ampscale.core.dtypes import compute_dtype, name_of
from ampscale.core.trees import leaves, map_leaves

SHAPES = st.sampled_from([(), (0,), (5,), (2, 3)])  # few, since JAX compiles for each
EVERYWHERE = on(*NAMES, *ON_DEVICE)
FACTORS = st.one_of(scales, st.integers(-149, 127).map(lambda exponent: 2.0**exponent))
DTYPE = st.sampled_from([None, "float32", "float64"])


def trees(*formats):
    """A list or dict of arrays of these formats, some of them missing, nested once; one array at least, which tells whose."""
    leaf = st.none() | st.sampled_from(formats).flatmap(lambda name: arrays(name, SHAPES))
    dicts = st.dictionaries(st.sampled_from("wb"), st.lists(leaf, max_size=2), max_size=2)
    return (st.lists(leaf, max_size=3) | dicts).filter(leaves)


def given_trees(library, *more):
    """Runs a function of a tree of NumPy's arrays, in the formats of *library*, and of examples of *more*."""
    return given(trees(*library.dtypes), *more)


def check(library, wanted, got):
    """The arrays of *got*, this library's, have the bits of *wanted*, NumPy's; subnormal numbers too."""
    assert same(library.to_numpy(got), wanted)


@pytest.mark.clause("BACKENDS-bit-identical", "SCALING-scale", "SCALING-unscale-divides", "SCALING-round-once", "SCALING-widen")
@EVERYWHERE
def test_scaling_and_unscaling_round_once(library):
    """
    The product and the quotient are IEEE 754's in float32 or float64, rounded once, subnormal numbers too.

    Where a wider dtype is asked for, the quotient keeps what it would have lost.
    """

    @given_trees(library, scales, DTYPE, st.booleans())
    def holds(tree, factor, dtype, as_array):
        theirs, number = library.from_numpy(tree), np.float32(factor)
        ours = library.array(factor) if as_array else factor
        check(library, scaling.scale(tree, number), ampscale.scale(theirs, ours))
        check(library, scaling.unscale(tree, number, dtype), ampscale.unscale(theirs, ours, dtype))

    holds()


@pytest.mark.clause(
    "BACKENDS-bit-identical",
    "OVERFLOW-all-finite",
    "OVERFLOW-both-sides",
    "OVERFLOW-same-everywhere",
    "OVERFLOW-fused",
    "OVERFLOW-in-place",
)
@EVERYWHERE
def test_both_sides_of_unscaling_are_checked(library):
    """
    The flag is that of NumPy, before and after, and so are the values.

    Where arrays can be written to, the given ones can hold the result; where not, nothing is lost silently.
    """

    @given_trees(library, FACTORS)
    def holds(tree, factor):
        theirs = library.from_numpy(tree)
        wanted = overflow.unscale_and_check(tree, np.float32(factor))
        check(library, wanted, ampscale.unscale_and_check(theirs, factor))
        check(library, overflow.all_finite(tree), ampscale.all_finite(theirs))
        check(library, tree, theirs)
        if library.writable:
            check(library, wanted, ampscale.unscale_and_check(theirs, factor, out=theirs))
            check(library, wanted[0], theirs)
        else:
            with pytest.raises(TypeError, match="can be changed"):
                ampscale.unscale_and_check(theirs, factor, out=theirs)

    holds()


def close(norm, other):
    """Whether two norms are of one dtype and differ by at most two units in the last place."""
    norm, other = np.asarray(norm), np.asarray(other)
    if norm.dtype != other.dtype or not np.isfinite([norm, other]).all():
        return alike(norm, other)
    return abs(norm - other) <= unit_of(max(norm, other)) * 2


def unit_of(norm):
    """The unit in the last place; NumPy has none of the largest number."""
    return 2 * np.spacing(norm / 2) if norm > 1 else np.spacing(norm)


@pytest.mark.clause(
    "BACKENDS-bit-identical",
    "NORMS-global",
    "NORMS-local",
    "NORMS-accumulation-dtype",
    "NORMS-fused",
    "NORMS-clip",
    "NORMS-clip-round-once",
)
@EVERYWHERE
def test_norms_agree_to_two_units(library):
    """The global norm, alone and beside the unscaling, and that of each array; clipped values are NumPy's, given the norm."""

    @given(trees(*library.dtypes) | trees(*set(library.dtypes) - {"float64"}), st.floats(2.0**-10, 2.0**10))
    def holds(tree, limit):
        theirs = library.from_numpy(tree)
        with np.errstate(all="ignore"):
            wanted, each = norms.global_norm(tree), norms.local_norms(tree)
        clipped, norm = ampscale.clip_by_global_norm(theirs, limit)
        for got in (norm, ampscale.global_norm(theirs), ampscale.unscale_check_and_norm(theirs, 1.0)[2]):
            assert close(library.get(got), wanted)
        got = library.get(ampscale.local_norms(theirs))
        assert got.shape == each.shape
        assert all(map(close, got, each))
        if np.isfinite(wanted) or not overflow.all_finite(tree):
            check(library, map_leaves(partial(clip_one, coefficient_of(library.get(norm), limit)), tree), clipped)

    holds()


def magnitudes(name):
    """Finite arrays of a format: of any bits, and of one magnitude, from the smallest subnormal number to the largest."""
    power = st.integers(*(int(np.frexp(float(edge[name]))[1]) for edge in (SMALLEST, LARGEST)))
    even = power.map(lambda exponent: np.ldexp([0.5, -0.75, 0.996], exponent).astype(DTYPES[name]))
    return (arrays(name, st.just((3,))) | even).map(lambda leaf: np.where(np.isfinite(leaf), leaf, leaf.dtype.type(0)))


def exact_norm(tree):
    """As a fraction, with 3,000 digits after the point."""
    square = sum((Fraction(float(value)) ** 2 for leaf in tree for value in leaf), Fraction(0))
    return Fraction(math.isqrt(int(square * 4**3000)), 2**3000)


def is_near(norm, exact):
    """Whether a norm is the exact one to two units; one that is infinite has none in its dtype."""
    if np.isinf(norm):
        return exact > np.finfo(norm.dtype).max
    return abs(Fraction(float(norm)) - exact) <= 2 * Fraction(float(unit_of(norm)))


def norms_hold(library, dtypes):
    """Of trees of *dtypes*: the norms are the exact ones to two units, and clipping leaves what its formula gives."""
    smallest = SMALLEST_NORMAL if library.flushes_subnormals else SMALLEST
    tenfold = st.floats(-300, 300).map(lambda power: 10.0**power)

    @given(st.lists(st.sampled_from(dtypes).flatmap(magnitudes), min_size=1, max_size=2), tenfold | st.floats(1e-3, 1e3))
    def hold(tree, limit):
        theirs, exact = library.from_numpy(tree), exact_norm(tree)
        clipped, norm = library.to_numpy(ampscale.clip_by_global_norm(theirs, limit))
        for got in (ampscale.global_norm(theirs), ampscale.unscale_check_and_norm(theirs, 1.0)[2]):
            assert same(library.get(got), norm)
        assert is_near(norm, exact)
        assert all(map(is_near, library.get(ampscale.local_norms(theirs)), (exact_norm([leaf]) for leaf in tree)))
        assert overflow.all_finite(clipped)
        wanted = exact * Fraction(limit) / (max(exact, Fraction(limit)) + Fraction(1e-6))
        units = [Fraction(float(smallest[name_of(leaf.dtype)])) for leaf in (*tree, norm)]
        assert abs(exact_norm(clipped) - wanted) <= wanted / 2**7 + 3 * sum(units) + exact * units[-1]

    hold()


@pytest.mark.clause("NORMS-magnitudes", "NORMS-clip-magnitudes", "NORMS-local", "NORMS-fused")
@EVERYWHERE
def test_norms_hold_at_every_magnitude(library):
    """Under limits from 1e-300 to 1e300; on JAX without 64 bits as well."""
    norms_hold(library, library.dtypes)
    if library.name == "jax":
        import jax

        with jax.enable_x64(False):
            norms_hold(library, [name for name in library.dtypes if name != "float64"])


def coefficient_of(norm, limit):
    """MindFormers', each step in the dtype of the norm."""
    limit, epsilon = norm.dtype.type(limit), norm.dtype.type(1e-6)
    with np.errstate(all="ignore"):
        return limit / ((norm[()] if norm > limit else limit) + epsilon)


def clip_one(coefficient, leaf):
    """*leaf* times the coefficient, in the dtype of its arithmetic, rounded once."""
    with np.errstate(all="ignore"):
        return np.asarray(
            scaling.apply_factor(operator.mul, leaf, np.asarray(coefficient), compute_dtype(name_of(leaf.dtype)), leaf.dtype)
        )


RULES = [
    ampscale.presets.mindspore(2.0**10, 3, 2),
    ampscale.presets.torch(growth_factor=1.1, backoff_factor=0.7, growth_interval=3),
    ampscale.presets.paddle_document(),
    ampscale.LossScaleRule(
        2.0**127, growth_interval=1, hysteresis=2, min_scale=1.0, max_scale=2.0**127, reset_bad_steps_on=("growth",)
    ),
    ampscale.LossScaleRule(7.0, growth_factor=3.0, backoff_factor=1 / 3, growth_interval=2, divide_on_backoff=True),
]


@pytest.mark.clause("BACKENDS-bit-identical", "MACHINE-pure")
@EVERYWHERE
@given(rule=st.sampled_from(RULES), steps=st.lists(st.booleans(), min_size=6, max_size=12))
def test_a_scale_moves_alike(library, rule, steps):
    """The same overflows give the same scales and counts, bit for bit, and the state stays where it is."""
    ours, theirs = rule.init(), rule.init(like=library.array(0.0))
    assert isinstance(theirs, machine.LossScaleState)
    for finite in steps:
        ours, theirs = machine.transition(rule, ours, finite)[0], rule.update(theirs, library.array(finite, "bool"))
        check(library, list(ours), list(theirs))


def test_the_suite_sees_one_bit():
    """Arrays that differ in one bit, in the sign of a zero or in a dtype are not the same."""
    for left, right in (([1.0], [np.nextafter(np.float32(1), 2)]), ([0.0], [-0.0])):
        assert not same([np.asarray(left, np.float32)], [np.asarray(right, np.float32)])
    assert not same([np.asarray(1, DTYPES["float16"])], [np.asarray(1, DTYPES["bfloat16"])])
