"""Tests of `follow`, against all overflow patterns of nine steps and against a search over all states."""

import dataclasses
import math

import numpy as np
import pytest
from every_pattern import PATTERNS, STEPS, all_scales, matching_patterns, possible_scales

from ampscale import LossScaleRule, presets
from ampscale.simulation.identification import follow_scales
from ampscale.simulation.identification.follow_scales import follow, rounded
from ampscale.simulation.simulate import simulate
from ampscale.simulation.traces import Observed, from_flags

RULES = {name: preset.rule() for name, preset in presets.PRESETS.items()}
CONSTANTS = {
    "no backoff resets the count": {"hysteresis": 2, "reset_bad_steps_on": ()},
    "a growth resets the count": {"hysteresis": 3, "reset_bad_steps_on": ("growth",)},
    "a late window": {"initial_good_steps": -2},
    "an early window": {"initial_good_steps": 2, "growth_interval": 4},
    "an offset beyond the window": {"initial_good_steps": 7},
    "an early window and hysteresis": {"initial_good_steps": 6, "growth_interval": 8, "hysteresis": 2},
    "at the largest float32": {"init_scale": 2.0**126, "growth_interval": 1},
    "to infinity": {"init_scale": 2.0**126, "growth_interval": 1, "skip_infinite_growth": False},
    "to zero": {"init_scale": 2.0**-148},
    "a delayed error": {"delayed_update": True, "min_scale": 16.0, "raise_at_min_scale": True},
    "blocking bounds": {"block_at_bounds": True, "min_scale": 20.0, "max_scale": 100.0, "growth_interval": 2},
    "odd factors": {"growth_factor": 1.1, "backoff_factor": 0.7, "growth_interval": 2, "hysteresis": 2},
    "a tolerance": {"overflow_tolerance": 0.5, "reset_bad_steps_on": ("backoff",), "growth_interval": 2},
}
DELAYED = {"overflow_tolerance": 0.4, "reset_bad_steps_on": ("backoff", "growth"), "delayed_update": True}
CONSTANTS["a delayed tolerance"] = CONSTANTS["a tolerance"] | DELAYED
RULES |= {name: LossScaleRule(**{"init_scale": 64.0, "growth_interval": 3, **constants}) for name, constants in CONSTANTS.items()}


def small(rule):
    """Return a preset's rule with a short growth interval and an initial scale near its minimum; other rules unchanged."""
    min_scale = min(16.0, rule.init_scale) if rule.min_scale == 1 else rule.min_scale
    settings = {"init_scale": min(64.0, rule.init_scale), "growth_interval": min(rule.growth_interval, 3), "min_scale": min_scale}
    return rule if rule in (RULES[name] for name in CONSTANTS) else dataclasses.replace(rule, **settings)


NAMES = [*{small(rule): name for name, rule in RULES.items()}.values()]  # several presets have the same rule


def observations(rule, rng):
    """Return observations of a random run of *rule*. Some scales and flags are unknown, and at most one of each is wrong."""
    scales, raised_at = all_scales(rule)
    row = rng.choice(np.flatnonzero(raised_at >= STEPS - 1))
    scales_seen, flags = scales[row].copy(), np.full(STEPS, -1, np.int8)
    if raised_at[row] < STEPS:
        scales_seen[-1] = np.nan
    if rng.random() < 0.4:
        scales_seen[rng.integers(1, STEPS + 1)] *= rng.choice([0.5, 2.0])
    known = rng.random(STEPS) < rng.choice([0, 0.3, 1])
    flags[known] = PATTERNS[row][known]
    if rng.random() < 0.2:
        flags[rng.integers(STEPS)] = rng.integers(2)
    scales_seen[rng.random(STEPS + 1) < rng.choice([0, 0.3, 0.8])] = np.nan
    return Observed(scales_seen, flags)


@pytest.mark.parametrize("name", NAMES)
def test_follow_agrees_with_all_patterns(name):
    """The step of a contradiction, the expected scales and the ambiguous flags are computed from all patterns."""
    rule, rng = small(RULES[name]), np.random.default_rng(list(RULES).index(name))
    outcomes = set()
    for case in range(24):
        other = small(RULES[rng.choice(list(RULES))]) if case % 4 == 0 else rule
        observed = observations(other, rng)
        result = follow(rule, observed)
        consistent_up_to = [matching_patterns(rule, observed, length).any() for length in range(STEPS + 1)]
        outcomes.add(all(consistent_up_to))
        if all(consistent_up_to):
            patterns = PATTERNS[matching_patterns(rule, observed, STEPS)]
            assert result.contradiction is None
            assert (patterns == result.finite).all(axis=1).any()
            assert result.ambiguous == (patterns.any(axis=0) & ~patterns.all(axis=0)).sum()
        else:
            step = consistent_up_to.index(False) - 1
            assert (result.contradiction.step, result.contradiction.undecided, result.finite) == (step, False, None)
            assert np.array_equal(result.contradiction.seen, rounded(rule, observed.scales)[step + 1], equal_nan=True)
            if step >= 0:
                assert np.array_equal(result.contradiction.expected, possible_scales(rule, observed, step), equal_nan=True)
            else:
                assert result.contradiction.expected == (rule.init_scale,)
    assert outcomes == {False, True}


def first_contradiction(rule, observed, resumed):
    """Return the index of the first observed scale that no possible state has, or None. All possible states are updated."""
    first = rule.init()
    fields = [index for index, array in enumerate(first) if array is not None]
    rows = np.array([[float(first[index]) for index in fields]])
    observed_scales = rounded(rule, observed.scales)
    if resumed and rule.overflow_tolerance is None:
        most_bad = rule.hysteresis - ("backoff" in rule.reset_bad_steps_on)
        good, bad = np.mgrid[min(rule.initial_good_steps, 0) : rule.growth_interval, 0 : most_bad + 1]
        rows = np.repeat(rows, good.size, axis=0)
        rows[:, 1], rows[:, 2] = good.ravel(), bad.ravel()
    for index, scale in enumerate(observed_scales):
        if not np.isnan(scale):
            rows = rows[rows[:, 0] == scale]
        if not len(rows):
            return index
        if index == len(observed.finite):
            return None
        columns = [None] * len(first)
        for column, field in enumerate(fields):
            columns[field] = rows[:, column].astype(first[field].dtype)
        next_rows = []
        possible_flags = {-1: (True, False), 0: (False,), 1: (True,)}[observed.finite[index]]
        for finite in possible_flags:
            continues = ~rule.would_raise(type(first)(*columns), finite)
            state = rule.update(type(first)(*columns), finite)
            next_rows.append(np.stack([state[field].astype(float) for field in fields], axis=1)[continues])
        rows = np.unique(np.concatenate(next_rows), axis=0)
    raise AssertionError("the loop returns at the last scale")


def scales_from(rule, start, finite):
    """Return the scales of the rule for a pattern, from the counts *start*."""
    good, bad = start
    states = [rule.init()._replace(good_steps=np.array(good, np.int32), bad_steps=np.array(bad, np.int32))]
    for step in finite.tolist():
        states.append(rule.update(states[-1], step))
    return np.array([float(state.scale) for state in states])


def long_observations(rule, rng, wrong, steps=80):
    """Return sparse observations of a run with few overflows; if *wrong* is True, all scales from some step on are changed."""
    run = simulate(rule, from_flags(rng.random(steps) > rng.choice([0.04, 0.1, 0.3])))
    seen = run.scales.copy()
    flags = np.where(rng.random(run.finite.size) < rng.choice([0, 0.9]), run.finite, -1)
    if wrong:
        end = seen[rng.integers(1, seen.size) :]
        end[:] = np.where(np.isinf(end), 7.0, 2 * end)
    every = rng.choice([1, 5, 12])
    seen[(np.arange(seen.size) % every != 0) & (rng.random(seen.size) < 0.97)] = np.nan
    return Observed(seen, flags.astype(np.int8))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_follow_finds_the_first_contradiction_of_long_observations(name):
    """Runs have 80 steps, and growth intervals above one have nine. `first_contradiction` updates all possible states."""
    rng = np.random.default_rng(list(RULES).index(name))
    window = {"growth_interval": 9} if RULES[name].growth_interval > 1 else {}
    rule = dataclasses.replace(small(RULES[name]), **window)
    outcomes = set()
    for case in range(8):
        observed = long_observations(rule, rng, wrong=case % 2)
        resumed = case % 4 > 1
        result = follow(rule, observed, resumed=resumed)
        index = first_contradiction(rule, observed, resumed)
        outcomes.add(index is None)
        if index is None:
            scales = scales_from(rule, result.start, result.finite)
            seen = rounded(rule, observed.scales)
            assert np.array_equal(np.where(np.isnan(seen), scales, seen), scales)
            assert (result.finite == observed.finite)[observed.finite != -1].all()
        else:
            assert result.contradiction.step == index - 1
    assert outcomes == {False, True}


def test_a_float32_may_be_printed_short_or_in_full():
    """52428.8 is the short form of the float32 number 52428.80078125; a float64 scale has further digits."""
    rule = LossScaleRule(init_scale=65536.0, backoff_factor=0.8)
    for printed in (52428.8, 52428.80078125):
        assert follow(rule, Observed(np.array([65536, printed]), np.zeros(1, np.int8))).contradiction is None
    observed = Observed(np.array([65536, 52428.80078125]), np.zeros(1, np.int8))
    wrong = follow(dataclasses.replace(rule, dtype="float64"), observed).contradiction
    assert (wrong.step, wrong.expected, wrong.seen) == (0, (52428.8,), 52428.80078125)


def test_rounded_scales_require_a_tolerance():
    """Scales with one decimal place contradict the rule unless `rtol` is given."""
    rule = LossScaleRule(init_scale=1000.0, growth_factor=1.1, backoff_factor=0.7, growth_interval=4)
    scales = simulate(rule, from_flags(np.arange(60) % 7 != 6)).scales.round(1)
    scales[np.arange(61) % 3 != 0] = np.nan
    observed = Observed(scales, np.full(60, -1, np.int8))
    assert follow(rule, observed).contradiction is not None
    result = follow(rule, observed, rtol=1e-3)
    assert simulate(rule, from_flags(result.finite)).scales[::3] == pytest.approx(scales[::3], rel=1e-3)


def test_too_many_states_are_undecided():
    """With an overflow tolerance, each possible number of overflows is another state. Known flags leave only one state."""
    observed = Observed(np.full(801, 128.0), np.full(800, -1, np.int8))
    result = follow(presets.fairseq_tolerance(), observed)
    assert result.contradiction.undecided
    assert result.contradiction.step == 492  # the last step with few enough states
    assert follow(presets.fairseq_tolerance(), dataclasses.replace(observed, finite=np.ones(800, np.int8))).contradiction is None


def test_states_that_cannot_reach_the_next_known_scale_are_left_out(monkeypatch):
    """One state is left at each step, since all eight steps must grow."""
    monkeypatch.setattr(follow_scales, "LIMIT", 1)
    observed = Observed(np.array([8.0, *[math.nan] * 7, 2048.0]), np.full(8, -1, np.int8))
    assert follow(LossScaleRule(8.0, growth_interval=1), observed).finite.all()


def test_a_resumed_run_starts_with_the_fewest_good_steps_that_are_possible():
    """The scale grows in the first or in the second step, after one or two good steps before the start."""
    observed = Observed(np.float64([8, math.nan, 16]), np.int8([-1, -1]))
    result = follow(LossScaleRule(8.0, growth_interval=3), observed, resumed=True)
    assert (result.start, result.finite.tolist()) == ((1, 0), [True, True])


def test_two_scales_of_2000_steps_are_enough_for_factors_of_two():
    """Only the first and the last scale are observed. The trace that is found leads from one to the other."""
    scales = np.full(2001, np.nan)
    scales[[0, -1]] = 65536.0, 4.0
    observed = Observed(scales, np.full(2000, -1, np.int8))
    rule = presets.megatron(init_scale=65536.0)
    assert simulate(rule, from_flags(follow(rule, observed).finite)).scales[-1] == 4


def test_scales_outside_the_float32_range_contradict_the_rule():
    """1e39 is not rounded to infinity, and 1e-60 not to zero."""
    grows = LossScaleRule(init_scale=2.0**127, growth_interval=1, skip_infinite_growth=False)
    falls = LossScaleRule(init_scale=2.0**-149)
    for rule, finite, in_range, out_of_range in ((grows, 1, np.inf, 1e39), (falls, 0, 0.0, 1e-60)):
        for scale in (in_range, out_of_range):
            observed = Observed(np.array([rule.init_scale, scale]), np.array([finite], np.int8))
            assert (follow(rule, observed).contradiction is None) == (scale == in_range)


def test_subnormal_scales_may_grow_by_more_than_the_factor():
    """With a factor of 1.3, three times the smallest float32 number is rounded to four times."""
    rule = LossScaleRule(init_scale=3 * 2.0**-149, growth_factor=1.3, growth_interval=1)
    observed = Observed(np.array([np.nan, 4 * 2.0**-149]), np.full(1, -1, np.int8))
    assert follow(rule, observed).finite.tolist() == [True]


@pytest.mark.parametrize(("listed", "expected"), [(3, (1.0, 4.0, 16.0, 64.0)), (2, ())])
def test_few_scales_are_listed_after_a_gap(listed, expected, monkeypatch):
    """After two unobserved steps, three states are possible. Their next scales are listed if `LISTED` is at least three."""
    monkeypatch.setattr(follow_scales, "LISTED", listed)
    observed = Observed(np.array([8.0, math.nan, math.nan, 5.0]), np.full(3, -1, np.int8))
    result = follow(LossScaleRule(8.0, growth_interval=1), observed).contradiction
    assert (result.step, result.expected, result.seen) == (2, expected, 5.0)


@pytest.mark.parametrize(("name", "count"), [("TOTAL", 4), ("MOST_ADDITIONAL_KEYS", 1)])
def test_a_search_is_undecided_only_above_its_limit(name, count, monkeypatch):
    """
    `TOTAL` counts four keys: one, two and one at the three points of the run.

    Two keys first occur at the same step, and all such keys but one count for `MOST_ADDITIONAL_KEYS`.
    """
    monkeypatch.setattr(follow_scales, "PER_STEP", 0)
    observed = Observed(np.array([8.0, math.nan, 8.0]), np.full(2, -1, np.int8))
    for limit in (count, count - 1):
        monkeypatch.setattr(follow_scales, name, limit)
        result = follow(LossScaleRule(8.0, growth_interval=1), observed).contradiction
        assert (result is not None and result.undecided) == (limit < count)


def test_step_after_an_error_contradicts():
    """The scale after the error need not be known."""
    observed = Observed(np.array([1.0, math.nan, math.nan, math.nan, 1.0]), np.zeros(4, np.int8))
    result = follow(presets.deepspeed(1.0, hysteresis=1), observed).contradiction
    assert (result.step, result.expected, math.isnan(result.seen)) == (1, (), True)


def test_longest_growth_interval_is_followed():
    """The interval is the largest int32."""
    observed = Observed(np.array([8.0, math.nan, 4.0]), np.array([-1, 1], np.int8))
    assert follow(LossScaleRule(8.0, growth_interval=2**31 - 1), observed).finite.tolist() == [False, True]
