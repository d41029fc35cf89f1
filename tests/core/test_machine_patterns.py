"""The machine against a plain loop over Python's control flow, and what holds for all patterns of overflow."""

import operator
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from libraries import load
from strategies import same

from ampscale.core.constants import REFILLS
from ampscale.core.rule import LossScaleRule
from ampscale.core.trees import leaves, map_leaves

STEPS = 12
PATTERNS = (np.arange(2**STEPS)[:, None] >> np.arange(STEPS)) & 1 == 1  # one row a pattern; True is a finite step
TOP, BOTTOM = 2.0**126, 2.0**-145

RULES = {
    "default": LossScaleRule(growth_interval=3),
    "every-step": LossScaleRule(growth_interval=1, init_scale=TOP),
    "unguarded": LossScaleRule(growth_interval=1, init_scale=TOP, growth_guard=False),
    "down-to-nothing": LossScaleRule(growth_interval=4, init_scale=BOTTOM),
    "floor": LossScaleRule(growth_interval=2, init_scale=5.0, min_scale=1.0),
    "cap": LossScaleRule(growth_interval=2, init_scale=5.0, max_scale=16.0),
    "bounds": LossScaleRule(growth_interval=2, init_scale=5.0, min_scale=3.0, max_scale=7.0, hysteresis=2),
    "unguarded-cap": LossScaleRule(growth_interval=1, init_scale=TOP, max_scale=1.5 * TOP, growth_guard=False),
    "guarded-cap": LossScaleRule(growth_interval=2, init_scale=2 * TOP, max_scale=3 * TOP),
    "offset": LossScaleRule(growth_interval=3, growth_offset=-1, hysteresis=2),
    "divides": LossScaleRule(growth_interval=2, growth_factor=3, backoff_factor=1 / 3, backoff_divides=True, init_scale=10.0),
    "multiplies": LossScaleRule(growth_interval=2, growth_factor=3, backoff_factor=1 / 3, init_scale=10.0),
    "odd": LossScaleRule(growth_interval=2, growth_factor=1.1, backoff_factor=0.7, hysteresis=3, min_scale=1.0, init_scale=3.0),
    "wide": LossScaleRule(growth_interval=2, growth_factor=1.1, backoff_factor=0.7, init_scale=3.0, wide_factor=True),
    "wide-divides": LossScaleRule(
        growth_interval=2, growth_factor=3, backoff_factor=0.3, backoff_divides=True, init_scale=10.0, wide_factor=True
    ),
    "lag": LossScaleRule(growth_interval=2, lag=True, init_scale=10.0, backoff_factor=0.7),
    "lag-at-floor": LossScaleRule(growth_interval=3, lag=True, init_scale=4.0, min_scale=1.0, hysteresis=2, stop_at_floor=True),
    "gate": LossScaleRule(growth_interval=2, growth_factor=3, gate=True, init_scale=5.0, min_scale=3.0, max_scale=7.0),
    "gate-above": LossScaleRule(growth_interval=1, gate=True, init_scale=5.0, max_scale=7.0, hysteresis=2, refill=("growth",)),
    "gate-below": LossScaleRule(growth_interval=3, gate=True, init_scale=5.0, min_scale=3.0, growth_offset=-2),
    "rate": LossScaleRule(growth_interval=3, rate=0.25, refill=("backoff",)),
    "rate-and-growth": LossScaleRule(growth_interval=2, rate=0.5, refill=("growth", "backoff")),
    "rate-above-1": LossScaleRule(growth_interval=2, rate=1.5, refill=("backoff",)),
    "stop-at-floor": LossScaleRule(
        growth_interval=4, hysteresis=2, refill=("growth",), init_scale=4.0, min_scale=1.0, stop_at_floor=True
    ),
    "stop-below": LossScaleRule(growth_interval=4, init_scale=4.0, stop_below=0.5),
    "stop-below-and-patience": LossScaleRule(growth_interval=4, init_scale=4.0, stop_below=4.0, hysteresis=2),
    "first-growth": LossScaleRule(growth_interval=1, growth_factor=1.1, first_growth_factor=2.0, refill=(), init_scale=3.0),
    "first-growth-again": LossScaleRule(
        growth_interval=2, growth_factor=1.1, first_growth_factor=3.0, hysteresis=2, refill=("finite",)
    ),
    **{
        f"refill-{'-'.join(names) or 'never'}-{interval}": LossScaleRule(growth_interval=interval, hysteresis=2, refill=names)
        for interval in (1, 3)
        for names in [(), *((name,) for name in REFILLS), ("finite", "growth"), ("growth", "backoff"), REFILLS]
    },
}
DTYPES = ["float32", "int32", "int32", "int32", "float32"]
SUBNORMAL = {"down-to-nothing"}  # where a library's way with subnormals shows


def plain(rule, pattern, library):
    """
    The state after each step, by a loop that knows nothing of arrays but how the library takes subnormals.

    Five numbers: the scale in force, the two counts, the steps since the last event and the machine's own scale.
    """
    scale, good, bad, steps = np.float32(rule.init_scale), rule.growth_offset, 0, 0
    shown = scale
    for finite in pattern:
        before = shown, good, bad, steps, scale
        shown = scale
        steps += 1
        if finite:
            factor = rule.first_growth_factor if rule.first_growth_factor and not bad else rule.growth_factor
            good += 1
            bad = 0 if "finite" in rule.refill else bad
            if good >= rule.growth_interval and not (rule.gate and scale >= (rule.max_scale or np.inf)):
                good = steps = 0
                bad = 0 if "growth" in rule.refill else bad
                scale = grown(rule, scale, factor, library.as_computed)
        else:
            bad += 1
            due = bad >= rule.hysteresis if rule.rate is None else bad / steps >= rule.rate
            forbidden = due and rule.gate and scale <= (rule.min_scale or 0)
            good = good if forbidden else rule.growth_offset
            stopped = due and rule.stop_at_floor and scale == rule.min_scale
            if due:
                steps, bad = 0, 0 if "backoff" in rule.refill else rule.hysteresis
                scale = scale if forbidden else backed_off(rule, scale, library.as_computed)
            if stopped or (rule.stop_below and scale <= rule.stop_below):
                shown, good, bad, steps, scale = before
        shown = shown if rule.lag else scale
        yield shown, good, bad, steps, scale


def grown(rule, scale, factor, as_computed):
    """A float32 after a growth: guarded first, and capped last."""
    larger = moved(operator.mul, rule, scale, factor, as_computed)
    if larger == np.inf and rule.growth_guard:
        larger = scale
    return larger if rule.max_scale is None or rule.gate else min(larger, np.float32(rule.max_scale))


def backed_off(rule, scale, as_computed):
    """A float32 after a backoff, at the floor or above it."""
    if rule.backoff_divides:
        smaller = moved(operator.truediv, rule, scale, 1 / rule.backoff_factor, as_computed)
    else:
        smaller = moved(operator.mul, rule, scale, rule.backoff_factor, as_computed)
    return smaller if rule.min_scale is None or rule.gate else max(smaller, np.float32(rule.min_scale))


def moved(operation, rule, scale, factor, as_computed):
    """A float32 after one operation: computed in it, or in float64 and then rounded to it."""
    of = np.float64 if rule.wide_factor else np.float32
    return np.float32(as_computed(operation(as_computed(of(scale)), of(factor))))


def batch(rule, size, library):
    """A batch of first states, each array of shape (size,)."""
    return library.from_numpy(map_leaves(lambda array: np.full(size, array), rule.init()))


def steps_of(library, patterns):
    """The steps of many patterns: arrays of one flag a pattern, in the order of the steps."""
    return [library.array(flags, "bool") for flags in patterns.T]


@cache
def looped(name, library):
    """The states of the loop in all patterns: float64, shape (pattern, step, field)."""
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray([list(plain(RULES[name], pattern, library)) for pattern in PATTERNS], np.float64)


@pytest.mark.clause(
    "MACHINE-growth-window", "MACHINE-growth-factor", "MACHINE-growth-resets", "MACHINE-growth-guard", "MACHINE-cap",
    "MACHINE-backoff", "MACHINE-overflow-resets", "MACHINE-hysteresis", "MACHINE-refill", "MACHINE-floor", "MACHINE-offset",
    "MACHINE-arithmetic", "MACHINE-division", "MACHINE-pure", "MACHINE-first-growth-factor", "MACHINE-gate", "MACHINE-rate",
    "MACHINE-stop", "MACHINE-lag", "MACHINE-every-sequence",
)  # fmt: skip
@pytest.mark.parametrize("name", RULES)
def test_all_patterns_equal_the_plain_loop(library, name):
    """Over all 4096 patterns of twelve steps, a batch of machines passes through the states of the loop, bit for bit."""
    rule = RULES[name]
    wanted = looped(name, library if name in SUBNORMAL and library.flushes_subnormals else load("numpy"))
    state = batch(rule, 2**STEPS, library)
    for step, finite in enumerate(steps_of(library, PATTERNS)):
        state = rule.update(state, finite)
        found = library.to_numpy(state)
        assert [array.dtype.name for array in found if array is not None] == DTYPES[: 3 + (rule.rate is not None)] + DTYPES[
            4:
        ] * rule.lag
        seen = [number for number, array in enumerate(found) if array is not None]
        assert np.array_equal(np.stack([found[number] for number in seen], axis=1, dtype=np.float64), wanted[:, step, seen])


numbers = st.floats(2.0**-126, 2.0**100, width=32)
rules = st.builds(
    LossScaleRule,
    growth_factor=st.floats(1, 2.0**40),
    backoff_factor=st.floats(2.0**-40, 1),
    growth_interval=st.integers(1, 4),
    hysteresis=st.integers(1, 3),
    refill=st.sets(st.sampled_from(REFILLS)).map(tuple),
    backoff_divides=st.booleans(),
    growth_offset=st.integers(-3, 3),
    lag=st.booleans(),
    first_growth_factor=st.none() | st.floats(1, 2.0**40),
    stop_below=st.none() | st.floats(2.0**-30, 2.0**40, width=32),
    dtype=st.sampled_from(["float32", "float64"]),
)
bounded_rules = st.tuples(rules, st.tuples(numbers, numbers, numbers).map(sorted), st.booleans()).map(
    lambda drawn: LossScaleRule(
        **{
            **vars(drawn[0]),
            **dict(zip(("min_scale", "init_scale", "max_scale"), drawn[1], strict=True)),
            "growth_guard": drawn[2],
        }
    )
)


@pytest.mark.clause("MACHINE-bounds")
@given(bounded_rules)
def test_the_scale_stays_within_its_bounds(library, rule):
    """From a start within the bounds, no pattern of overflows leads out of them."""
    state = batch(rule, 2**STEPS, library)
    for finite in steps_of(library, PATTERNS):
        state = rule.update(state, finite)
        scale = library.to_numpy(state.scale)
        assert np.all((rule.min_scale <= scale) & (scale <= rule.max_scale))


@pytest.mark.clause("MACHINE-bounds", "MACHINE-growth-guard")
@given(rules)
def test_a_guarded_scale_stays_finite(library, rule):
    """With the guard and without bounds, the scale is finite for ever."""
    state = batch(rule, 2**STEPS, library)
    for finite in steps_of(library, PATTERNS):
        state = rule.update(state, finite)
        assert np.all(np.isfinite(library.to_numpy(state.scale)))


@pytest.mark.clause("MACHINE-pure")
@given(rules, st.lists(st.booleans(), min_size=1, max_size=STEPS))
def test_an_update_is_pure(library, rule, pattern):
    """It writes to nothing it is given, and gives the same for the same, singly and in a batch."""
    state, states = rule.init(like=library.array(0)), batch(rule, 3, library)
    for step in pattern:
        finite, flags = library.array(step, "bool"), library.array([step, step, not step], "bool")
        before = library.to_numpy([state, states, finite, flags])
        after, again, many = rule.update(state, finite), rule.update(state, step), rule.update(states, flags)
        assert same(library.to_numpy([state, states, finite, flags]), before)
        assert all(array.shape == () for array in leaves(after))
        state, (after, again, many) = after, library.to_numpy([after, again, many])
        assert same(after, again)
        assert same(map_leaves(lambda array: array[0], many), after)
        states = library.from_numpy(map_leaves(lambda array: np.repeat(array[:1], 3), many))
