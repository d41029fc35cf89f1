"""Hypothesis strategies for arrays, trees and rules, and the comparison of arrays bit by bit."""

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ampscale.core.rule import LossScaleRule
from ampscale.core.rule_constants import EVENTS
from ampscale.core.trees import leaves

DTYPES = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}
LARGEST = {name: ml_dtypes.finfo(dtype).max for name, dtype in DTYPES.items()}
SMALLEST_NORMAL = {name: ml_dtypes.finfo(dtype).smallest_normal for name, dtype in DTYPES.items()}
SMALLEST = {name: ml_dtypes.finfo(dtype).smallest_subnormal for name, dtype in DTYPES.items()}

names = st.sampled_from(sorted(DTYPES))
scales = st.floats(2.0**-126, float(LARGEST["float32"]), width=32)
shapes = hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=4)


def alike(left, right):
    """Return True if two arrays have the same dtype, shape and bits; all NaNs count as equal."""
    left, right = np.asarray(left), np.asarray(right)
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.dtype.kind == "c":
        return alike(left.real, right.real) and alike(left.imag, right.imag)
    signs = [np.signbit(array) & ~np.isnan(array) for array in (left, right)]
    return np.array_equal(left, right, equal_nan=True) and np.array_equal(*signs)


def same(left, right):
    """Return True if the leaves of two trees are pairwise `alike`."""
    left, right = leaves(left), leaves(right)
    return len(left) == len(right) and all(map(alike, left, right))


def arrays(name, shape=shapes):
    """Generate arrays of any bit patterns of a format, including zeros, subnormals, infinities and NaNs of either sign."""
    dtype = DTYPES[name]
    special = np.asarray([0, SMALLEST[name], LARGEST[name], np.inf, np.nan], dtype)
    pattern = np.dtype(f"uint{8 * dtype.itemsize}")
    elements = hnp.from_dtype(pattern) | st.sampled_from([int(bits) for bits in special.view(pattern)])
    return hnp.arrays(pattern, shape, elements=elements).map(lambda bits: bits.view(dtype))


def bit_patterns(name):
    """Return all bit patterns of a 16-bit format, or 65,536 patterns of a wider format, with all signs and exponents."""
    bits, width = np.arange(1 << 16, dtype=np.uint64), 8 * DTYPES[name].itemsize
    spread = bits << np.uint64(width - 16) | (bits if width > 16 else np.uint64(0))
    return spread.astype(f"uint{width}").view(DTYPES[name])


any_arrays = names.flatmap(arrays)


def trees(leaf=any_arrays):
    """Generate nested tuples, lists and dicts of arrays and None."""
    return st.recursive(
        leaf | st.none(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        ),
        max_leaves=5,
    )


@st.composite
def rules(draw):
    """Generate rules with any constants; scales range from the smallest subnormal to the largest number of the dtype."""
    dtype = draw(st.sampled_from(["float32", "float64"]))
    smallest, largest = float(SMALLEST[dtype]), float(LARGEST[dtype])
    init = draw(st.floats(smallest, largest) | st.floats(0.25, 2.0**20) | st.sampled_from([smallest, 2 * smallest, largest / 2]))
    lower_bounds = st.none() | st.sampled_from([1, 0.5, 0.3, 0.1]).map(lambda share: max(share * init, smallest))
    upper_bounds = st.none() | st.sampled_from([1, 2, 3, 10]).map(lambda times: min(times * init, largest))
    min_scale, max_scale = draw(lower_bounds), draw(upper_bounds)
    growth = st.sampled_from([1.0, 1.1, 2.0, 3.0]) | st.floats(1, 2.0**70) | st.floats(1, 2.0**70, width=32)
    tolerance = draw(st.none() | st.sampled_from([0.1, 0.25, 1 / 3, 0.5, 1.0]) | st.floats(1e-3, 1.5))
    return LossScaleRule(
        init_scale=init,
        growth_factor=draw(growth),
        backoff_factor=draw(
            st.sampled_from([1.0, 0.5, 0.7, 1 / 3, 1 / 49]) | st.floats(2.0**-70, 1) | st.floats(2.0**-70, 1, width=32)
        ),
        growth_interval=draw(st.integers(1, 4)),
        hysteresis=draw(st.integers(1, 3)) if tolerance is None else 1,
        min_scale=min_scale,
        max_scale=max_scale,
        reset_bad_steps_on=tuple(draw(st.sets(st.sampled_from(EVENTS)))),
        divide_on_backoff=draw(st.booleans()),
        skip_infinite_growth=draw(st.booleans()),
        initial_good_steps=draw(st.integers(-3, 3)),
        dtype=dtype,
        float64_factor=draw(st.booleans()),
        warmup_growth_factor=draw(st.none() | growth),
        block_at_bounds=(min_scale, max_scale) != (None, None) and draw(st.booleans()),
        overflow_tolerance=tolerance,
        raise_at_min_scale=min_scale is not None and draw(st.booleans()),
        raise_at_or_below=draw(lower_bounds),
        delayed_update=draw(st.booleans()),
    )
