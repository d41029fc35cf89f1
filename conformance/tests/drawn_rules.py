"""Hypothesis strategies for valid rules with all fields."""

import dataclasses

from hypothesis import strategies as st

from ampscale import LossScaleRule

FACTORS = [1.0, 1.1, 1.5, 2.0, 3.0, 7.0, 1.001, 2.0**40]
STARTS = [1.0, 3.0, 10.0, 1000.3, 2.0**16, 2.0**126, 2.0**-120, 1e-40, 3e38]


def rule_or_none(**fields):
    """Return a rule, or None if the fields cannot be combined."""
    try:
        return LossScaleRule(**fields)
    except ValueError:
        return None


# Rules that count overflows: `overflow_tolerance` is None.
COUNTING = st.builds(
    rule_or_none,
    init_scale=st.sampled_from(STARTS),
    growth_factor=st.sampled_from(FACTORS),
    backoff_factor=st.sampled_from([1 / factor for factor in FACTORS] + [0.7, 0.999]),
    growth_interval=st.integers(1, 4),
    hysteresis=st.integers(1, 3),
    min_scale=st.none() | st.sampled_from([2.0**-126, 0.9, 1.0]),
    max_scale=st.none() | st.sampled_from([1000.3, 2.0**17, 3.3e38]),
    reset_bad_steps_on=st.lists(st.sampled_from(["finite", "growth", "backoff"]), unique=True).map(tuple),
    divide_on_backoff=st.booleans(),
    skip_infinite_growth=st.booleans(),
    initial_good_steps=st.integers(-2, 2),
    dtype=st.sampled_from(["float32", "float64"]),
    float64_factor=st.booleans(),
    warmup_growth_factor=st.none() | st.sampled_from(FACTORS),
    block_at_bounds=st.booleans(),
    raise_at_min_scale=st.booleans(),
    raise_at_or_below=st.none() | st.sampled_from([0.5, 1.0, 100.0]),
    delayed_update=st.booleans(),
).filter(lambda rule: rule is not None)
RULES = COUNTING | st.builds(
    dataclasses.replace, COUNTING, overflow_tolerance=st.sampled_from([0.1, 0.3, 1 / 3, 0.5, 1.0]), hysteresis=st.just(1)
)
