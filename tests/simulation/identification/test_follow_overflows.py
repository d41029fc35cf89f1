"""Consistency of a rule with overflows, compared with a search over all numbers of finite steps between the overflows."""

import math

import numpy as np
import pytest

from ampscale import LossScaleRule, presets
from ampscale.simulation.identification.follow_overflows import follow_overflows
from ampscale.simulation.identification.follow_scales import rounded
from ampscale.simulation.simulate import simulate
from ampscale.simulation.traces import Overflow, from_flags

CONSTANTS = {
    "plain": {},
    "hysteresis, reset by finite steps": {"hysteresis": 2},
    "hysteresis, reset by growths": {"hysteresis": 3, "reset_bad_steps_on": ("growth",)},
    "bounds": {"min_scale": 32.0, "max_scale": 256.0},
    "blocked bounds": {"min_scale": 32.0, "max_scale": 256.0, "block_at_bounds": True},
    "an error": {"min_scale": 16.0, "raise_at_min_scale": True},
    "a late window": {"initial_good_steps": -1, "hysteresis": 2, "reset_bad_steps_on": ("growth",)},
    "a tolerance": {"overflow_tolerance": 0.4, "reset_bad_steps_on": ("backoff",)},
    "a delayed update": {"delayed_update": True},
    "a warmup factor": {"warmup_growth_factor": 4.0, "reset_bad_steps_on": ()},
    "odd factors": {"growth_factor": 1.5, "backoff_factor": 0.7},
}
RULES = {name: LossScaleRule(init_scale=64.0, growth_interval=3, **constants) for name, constants in CONSTANTS.items()}
RULES["to infinity"] = LossScaleRule(init_scale=2.0**126, growth_interval=2, skip_infinite_growth=False)


def overflows_of(rule, finite):
    """Return the overflows of a run of *rule*, with the scales before and after each overflow."""
    scales = simulate(rule, from_flags(finite)).scales
    return [Overflow(int(step) + 1, *scales[step : step + 2].tolist()) for step in np.flatnonzero(~finite[: scales.size - 1])]


def first_impossible(rule, overflows, steps=60):
    """Return the index of the first impossible overflow, or None. Fewer than *steps* finite steps are tried before each."""
    states = [rule.init()]
    for index, overflow in enumerate(overflows):
        before, after = rounded(rule, np.array(overflow[1:]))
        states_after = {}
        for state in states:
            for _ in range(steps):
                next_state = rule.update(state, False)
                before_fits = math.isnan(before) or state.scale == before
                after_fits = math.isnan(after) or next_state.scale == after
                if before_fits and after_fits and not rule.would_raise(state, False):
                    states_after[tuple(float(array) for array in next_state if array is not None)] = next_state
                state = rule.update(state, True)
        if not states_after:
            return index
        states = list(states_after.values())
    return None


def overflows_of_run(rule, rng, wrong):
    """Return the overflows of a random run, with some unknown scales, and with one changed scale if *wrong* is True."""
    finite = rng.random(60) > 0.12
    overflows = overflows_of(rule, finite)[:5]
    if wrong and overflows:
        index, factor = rng.integers(len(overflows)), rng.choice([0.5, 2.0])
        overflows[index] = overflows[index]._replace(after=overflows[index].after * factor)
    unknown_share = rng.choice([0, 0.3])
    return [
        overflow._replace(**{name: math.nan for name in ("before", "after") if rng.random() < unknown_share})
        for overflow in overflows
    ]


@pytest.mark.parametrize("name", RULES)
def test_result_equals_a_search_over_all_gaps(name):
    """If the rule is consistent, the trace in the result has the given overflows."""
    rule, rng = RULES[name], np.random.default_rng(list(RULES).index(name))
    outcomes = set()
    for case in range(8):
        overflows = overflows_of_run(rule, rng, wrong=case % 2)
        result = follow_overflows(rule, overflows)
        impossible = first_impossible(rule, overflows)
        outcomes.add(impossible is None)
        if impossible is None:
            reported = np.array([[event.before, event.after] for event in overflows_of(rule, result.finite)]).reshape(-1, 2)
            expected = np.array([[event.before, event.after] for event in overflows]).reshape(-1, 2)
            assert np.array_equal(reported, np.where(np.isnan(expected), reported, expected))
        else:
            assert (result.contradiction.step, result.finite) == (impossible, None)
    assert outcomes == {False, True} or name == "to infinity"


def test_contradiction_lists_the_expected_scales():
    """After an overflow at 64 the scale is 32, and from there it can grow to 64, but not to 96. Higher scales are not listed."""
    rule = LossScaleRule(init_scale=64.0)
    wrong = follow_overflows(rule, [Overflow(1, 64.0, 32.0), Overflow(2, 64.0, 64.0)]).contradiction
    assert (wrong.step, wrong.expected, wrong.seen) == (1, (32.0,), 64.0)
    wrong = follow_overflows(rule, [Overflow(1, 64.0, 32.0), Overflow(2, 96.0, 48.0)]).contradiction
    assert (wrong.step, wrong.expected, wrong.seen) == (1, (32.0, 64.0), 96.0)


def test_trace_has_as_few_finite_steps_as_possible():
    """Two growths lie between the overflows. With `initial_good_steps`, the first window has fewer steps."""
    result = follow_overflows(presets.torch(growth_interval=5), [Overflow(1, 65536.0, 32768.0), Overflow(2, 131072.0, 65536.0)])
    assert "".join("." if finite else "x" for finite in result.finite) == "x..........x"
    assert result.ambiguous is None
    early = LossScaleRule(8.0, growth_interval=5, initial_good_steps=3)
    result = follow_overflows(early, [Overflow(1, 16.0, 8.0)])
    assert (result.start, result.finite.tolist()) == ((3, 0), [True, True, False])


def test_rounded_scales_require_a_tolerance():
    """The scales have four digits."""
    rule = LossScaleRule(init_scale=1000.0, growth_factor=1.1, backoff_factor=0.7, growth_interval=2)
    overflows = [Overflow(0, 1331.0, 931.7), Overflow(0, 1364.0, 954.9)]  # 1331 and 1364.1 exactly
    assert follow_overflows(rule, overflows).contradiction is not None
    assert follow_overflows(rule, overflows, rtol=1e-3).contradiction is None


def test_rule_with_too_many_scales_is_undecided():
    """Chainer has thousands of scales between the two overflows."""
    assert follow_overflows(presets.chainer(), [Overflow(1, 2.0, 1.0), Overflow(2, 60000.0, 30000.0)]).contradiction.undecided


def test_unknown_scale_before_an_overflow_is_limited_by_the_scale_after_it():
    """Without the limit there would be too many possible scales."""
    rule = LossScaleRule(1.0, growth_factor=1.001, growth_interval=1)
    assert follow_overflows(rule, [Overflow(1, math.nan, 0.5)]).finite.tolist() == [False]


def test_resumed_run_can_start_with_a_counted_overflow():
    """Megatron backs off at the second counted overflow. With zero counts at the start, the first overflow cannot back off."""
    overflows = [Overflow(1, 65536.0, 32768.0), Overflow(2, 65536.0, 65536.0)]
    rule = presets.megatron(init_scale=65536.0)
    result = follow_overflows(rule, overflows, resumed=True)
    assert result.start[1] == 1
    assert follow_overflows(rule, overflows).contradiction.step == 0


def test_published_scaler_can_raise_only_at_the_last_overflow():
    """
    If the scale after an overflow is unknown, DeepSpeed may have raised an error there, unless another overflow follows.

    With a hysteresis of 2, the first overflow raises none, so the scale can grow before the next overflow.
    """
    rule = presets.deepspeed(init_scale=1.0)
    result = follow_overflows(rule, [Overflow(line, 1.0, math.nan) for line in range(2)])
    assert result.finite.tolist() == [False, False]  # it raises at the second overflow
    growing = [Overflow(0, 1.0, math.nan), Overflow(1, 1.0, math.nan), Overflow(2, 2.0, math.nan)]
    assert follow_overflows(rule, growing).contradiction.step == 2
    with_a_growth = follow_overflows(rule, [growing[0], growing[2]], resumed=True)
    assert with_a_growth.start == (-1, 0)
    assert with_a_growth.finite.tolist() == [False, *1001 * [True], False]


def test_a_scale_before_a_rounded_backoff_is_found():
    """A backoff by 0.7 rounds to float32, so the scale before it can be above the quotient."""
    for init_scale in np.float32([5.0, 6.0, 7.0, 9.0, 11.0, 13.0, 100.0, 1000.0]).tolist():
        rule = LossScaleRule(init_scale, backoff_factor=0.7)
        after = float(rule.update(rule.init(like=0.0), False).scale)
        assert follow_overflows(rule, [Overflow(1, math.nan, after)]).contradiction is None
