"""How far a rule can be followed, against all patterns of overflows there are."""

import dataclasses
import math

import numpy as np
import pytest
from every_pattern import PATTERNS, STEPS, all_scales, fitting, possible

from ampscale import LossScaleRule, presets
from ampscale.simulation.identification import follow_scales
from ampscale.simulation.identification.follow_scales import follow, rounded
from ampscale.simulation.simulate import simulate
from ampscale.simulation.traces import Observed, from_flags

RULES = {name: preset.rule() for name, preset in presets.PRESETS.items()}
AXES = {
    "no backoff refills": {"hysteresis": 2, "reset_bad_steps_on": ()},
    "a growth refills": {"hysteresis": 3, "reset_bad_steps_on": ("growth",)},
    "a late window": {"initial_good_steps": -2},
    "an early window": {"initial_good_steps": 2, "growth_interval": 4},
    "an offset beyond the window": {"initial_good_steps": 7},
    "an early window and patience": {"initial_good_steps": 6, "growth_interval": 8, "hysteresis": 2},
    "at the largest float32": {"init_scale": 2.0**126, "growth_interval": 1},
    "to infinity": {"init_scale": 2.0**126, "growth_interval": 1, "skip_infinite_growth": False},
    "to zero": {"init_scale": 2.0**-148},
    "a lagging stop": {"delayed_update": True, "min_scale": 16.0, "raise_at_min_scale": True},
    "gates": {"block_at_bounds": True, "min_scale": 20.0, "max_scale": 100.0, "growth_interval": 2},
    "odd factors": {"growth_factor": 1.1, "backoff_factor": 0.7, "growth_interval": 2, "hysteresis": 2},
    "a rate": {"overflow_tolerance": 0.5, "reset_bad_steps_on": ("backoff",), "growth_interval": 2},
    "a lagging rate": {
        "overflow_tolerance": 0.4,
        "reset_bad_steps_on": ("backoff", "growth"),
        "growth_interval": 2,
        "delayed_update": True,
    },
}
RULES |= {name: LossScaleRule(**{"init_scale": 64.0, "growth_interval": 3, **axes}) for name, axes in AXES.items()}


def small(rule):
    """A rule whose windows nine steps can show, from a scale near its floor."""
    floor = min(16.0, rule.init_scale) if rule.min_scale == 1 else rule.min_scale
    small = {"init_scale": min(64.0, rule.init_scale), "growth_interval": min(rule.growth_interval, 3), "min_scale": floor}
    return rule if rule in (RULES[name] for name in AXES) else dataclasses.replace(rule, **small)


def sights(rule, random, seed_of=None):
    """Things that somebody may have seen: of a run of the rule itself or another's, with errors, gaps and some flags."""
    scales, stopped = all_scales(seed_of or rule)
    row = random.choice(np.flatnonzero(stopped >= STEPS - 1))
    seen, flags = scales[row].copy(), np.full(STEPS, -1, np.int8)
    if stopped[row] < STEPS:
        seen[-1] = np.nan
    if random.random() < 0.4:
        seen[random.integers(1, STEPS + 1)] *= random.choice([0.5, 2.0])
    told = random.random(STEPS) < random.choice([0, 0.3, 1])
    flags[told] = PATTERNS[row][told]
    if random.random() < 0.2:
        flags[random.integers(STEPS)] = random.integers(2)
    seen[random.random(STEPS + 1) < random.choice([0, 0.3, 0.8])] = np.nan
    return Observed(seen, flags)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_explains_what_some_pattern_does(name):
    """All 512 patterns of nine steps decide alike: what is explained, how far, what else could be, and what is ambiguous."""
    rule, random = small(RULES[name]), np.random.default_rng(list(RULES).index(name))
    outcomes = set()
    for case in range(24):
        other = small(RULES[random.choice(list(RULES))]) if case % 4 == 0 else rule
        observed = sights(rule, random, dataclasses.replace(other))
        found = follow(rule, observed)
        explained = [fitting(rule, observed, length).any() for length in range(STEPS + 1)]
        outcomes.add(all(explained))
        if all(explained):
            patterns = PATTERNS[fitting(rule, observed, STEPS)]
            assert found.contradiction is None
            assert (patterns == found.finite).all(axis=1).any()
            assert found.ambiguous == (patterns.any(axis=0) & ~patterns.all(axis=0)).sum()
        else:
            step = explained.index(False) - 1
            assert (found.contradiction.step, found.contradiction.undecided, found.finite) == (step, False, None)
            assert np.array_equal(found.contradiction.seen, rounded(rule, observed.scales)[step + 1], equal_nan=True)
            if step >= 0:
                assert np.array_equal(found.contradiction.expected, possible(rule, observed, step), equal_nan=True)
            else:
                assert found.contradiction.expected == (rule.init_scale,)
    assert outcomes == {False, True}


def sets_of_states(rule, observed, resumed):
    """The first index at which no state is left, with every state apart: a batch through `rule.update`, without duplicates."""
    first = rule.init()
    fields = [index for index, array in enumerate(first) if array is not None]
    rows, seen = np.array([[float(first[index]) for index in fields]]), rounded(rule, observed.scales)
    if resumed and rule.overflow_tolerance is None:
        good, bad = np.meshgrid(
            np.arange(min(rule.initial_good_steps, 0), rule.growth_interval),
            np.arange(rule.hysteresis + ("backoff" not in rule.reset_bad_steps_on)),
        )
        rows = np.repeat(rows, good.size, axis=0)
        rows[:, 1], rows[:, 2] = good.ravel(), bad.ravel()
    for index, scale in enumerate(seen):
        rows = rows if np.isnan(scale) else rows[rows[:, 0] == scale]
        if not len(rows) or index == len(observed.finite):
            return None if len(rows) else index
        before = [None] * len(first)
        for column, field in enumerate(fields):
            before[field] = rows[:, column].astype(first[field].dtype)
        after = []
        for finite in (True, False) if observed.finite[index] == -1 else (bool(observed.finite[index]),):
            going = ~rule.would_raise(type(first)(*before), finite)
            state = rule.update(type(first)(*before), finite)
            after.append(np.stack([state[field].astype(float) for field in fields], axis=1)[going])
        rows = np.unique(np.concatenate(after), axis=0)
    raise AssertionError


def along(rule, start, finite):
    """The scales that the rule has along a pattern, from these counts."""
    good, bad = start
    states = [rule.init()._replace(good_steps=np.array(good, np.int32), bad_steps=np.array(bad, np.int32))]
    for step in finite.tolist():
        states.append(rule.update(states[-1], step))
    return np.array([float(state.scale) for state in states])


def long_sights(rule, random, wrong, steps=80):
    """A run with long quiet stretches, seen only now and then, and with an error in it if it is to be *wrong*."""
    run = simulate(rule, from_flags(random.random(steps) > random.choice([0.04, 0.1, 0.3])))
    seen, flags = run.scales.copy(), np.where(random.random(run.finite.size) < random.choice([0, 0.9]), run.finite, -1)
    if wrong:
        part = seen[random.integers(1, seen.size) :]
        part[:] = np.where(np.isinf(part), 7.0, 2 * part)
    every = random.choice([1, 5, 12])
    seen[(np.arange(seen.size) % every != 0) & (random.random(seen.size) < 0.97)] = np.nan
    return Observed(seen, flags.astype(np.int8))


@pytest.mark.parametrize("name", RULES)
def test_long_strides_miss_nothing(name):
    """Over eighty steps and windows of nine, the first contradiction is the one that sets of single states find."""
    random = np.random.default_rng(list(RULES).index(name))
    window = {"growth_interval": 9} if RULES[name].growth_interval > 1 else {}
    rule = dataclasses.replace(small(RULES[name]), **window)
    outcomes = set()
    for case in range(8):
        observed, resumed = long_sights(rule, random, wrong=case % 2), case % 4 > 1
        found, index = follow(rule, observed, resumed=resumed), sets_of_states(rule, observed, resumed)
        outcomes.add(index is None)
        if index is None:
            scales = along(rule, found.start, found.finite)
            seen = rounded(rule, observed.scales)
            assert np.array_equal(np.where(np.isnan(seen), scales, seen), scales)
            assert (found.finite == observed.finite)[observed.finite != -1].all()
        else:
            assert (found.contradiction and found.contradiction.step) == (index and index - 1)
    assert outcomes == {False, True}


def test_a_float32_may_be_printed_short_or_in_full():
    """52428.8 is how float32 prints 52428.80078125; a float64 scale is told from it by its further digits."""
    rule = LossScaleRule(init_scale=65536.0, backoff_factor=0.8)
    for printed in (52428.8, 52428.80078125):
        assert follow(rule, Observed(np.array([65536, printed]), np.zeros(1, np.int8))).contradiction is None
    observed = Observed(np.array([65536, 52428.80078125]), np.zeros(1, np.int8))
    assert follow(dataclasses.replace(rule, dtype="float64"), observed).contradiction == follow_scales.Contradiction(
        0, (52428.8,), 52428.80078125
    )


def test_scales_of_few_digits_need_a_tolerance():
    """Scales with one digit after the point are another's to the bit, and explained within a relative error of 1e-3."""
    rule = LossScaleRule(init_scale=1000.0, growth_factor=1.1, backoff_factor=0.7, growth_interval=4)
    scales = simulate(rule, from_flags(np.arange(60) % 7 != 6)).scales.round(1)
    scales[np.arange(61) % 3 != 0] = np.nan
    observed = Observed(scales, np.full(60, -1, np.int8))
    assert follow(rule, observed).contradiction is not None
    found = follow(rule, observed, rtol=1e-3)
    assert simulate(rule, from_flags(found.finite)).scales[::3] == pytest.approx(scales[::3], rel=1e-3)


def test_too_many_states_are_said_to_be_undecided():
    """With a rate, each count of unseen overflows is another state: after some hundred steps nothing is said any more."""
    observed = Observed(np.full(801, 128.0), np.full(800, -1, np.int8))
    found = follow(presets.fairseq_tolerance(), observed)
    assert found.contradiction.undecided
    assert found.contradiction.step == 492  # after 492 steps there are still few enough
    assert follow(presets.fairseq_tolerance(), dataclasses.replace(observed, finite=np.ones(800, np.int8))).contradiction is None


def test_a_rule_that_halves_and_doubles_is_decided_however_little_was_seen():
    """Of two thousand steps, the first scale and the last were seen."""
    scales = np.full(2001, np.nan)
    scales[[0, -1]] = 65536.0, 4.0
    observed = Observed(scales, np.full(2000, -1, np.int8))
    rule = presets.megatron(init_scale=65536.0)
    assert simulate(rule, from_flags(follow(rule, observed).finite)).scales[-1] == 4


def test_what_a_float32_cannot_hold_is_no_zero_and_no_infinity():
    """A scale of 1e39 or 1e-60 is a float64's."""
    grows = LossScaleRule(init_scale=2.0**127, growth_interval=1, skip_infinite_growth=False)
    falls = LossScaleRule(init_scale=2.0**-149)
    for rule, finite, right, wrong in ((grows, 1, np.inf, 1e39), (falls, 0, 0.0, 1e-60)):
        for scale in (right, wrong):
            observed = Observed(np.array([rule.init_scale, scale]), np.array([finite], np.int8))
            assert (follow(rule, observed).contradiction is None) == (scale == right)


def test_the_smallest_scales_may_grow_by_more_than_their_factor():
    """Three times the smallest float32 becomes four times, where the factor is 1.3: it is rounded so."""
    rule = LossScaleRule(init_scale=3 * 2.0**-149, growth_factor=1.3, growth_interval=1)
    observed = Observed(np.array([np.nan, 4 * 2.0**-149]), np.full(1, -1, np.int8))
    assert follow(rule, observed).finite.tolist() == [True]


@pytest.mark.parametrize(("listed", "expected"), [(3, (1.0, 4.0, 16.0, 64.0)), (2, ())])
def test_few_scales_are_listed_after_a_gap(listed, expected, monkeypatch):
    """Three states are possible after two unobserved steps."""
    monkeypatch.setattr(follow_scales, "LISTED", listed)
    observed = Observed(np.array([8.0, math.nan, math.nan, 5.0]), np.full(3, -1, np.int8))
    found = follow(LossScaleRule(8.0, growth_interval=1), observed).contradiction
    assert (found.step, found.expected, found.seen) == (2, expected, 5.0)
