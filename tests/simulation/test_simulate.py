"""`simulate` and `sweep` equal `LossScaleRule.update` bit for bit."""

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import alike, rules

from ampscale import LossScaleRule, presets
from ampscale.simulation.simulate import simulate
from ampscale.simulation.sweep import sweep
from ampscale.simulation.traces import Trace, from_string

STEPS = 8
PATTERNS = np.where((np.arange(2**STEPS)[:, None] >> np.arange(STEPS)) & 1, np.inf, -np.inf)  # one row for each pattern
LARGEST = {"float32": float(np.finfo("f4").max), "float64": float(np.finfo("f8").max)}
SMALLEST = {"float32": 2.0**-149, "float64": 2.0**-1074}


def by_update(rule, limits):
    """Return scales, both counts and the step of the error (-1: none) of each trace, a row of *limits*, by `rule.update`."""
    first = rule.init()
    state = type(first)(*(array if array is None else np.full(len(limits), array) for array in first))
    running = np.ones(len(limits), bool)
    states, raised_at = [(state, running)], np.full(len(limits), -1)
    for step, limit in enumerate(limits.T):
        finite = state.scale <= limit
        raises = running & rule.would_raise(state, finite)
        raised_at[raises] = step
        running = running & ~raises
        state = rule.update(state, finite)
        states.append((state, running))
    scales = np.stack([np.where(running, state.scale.astype("f8"), np.nan) for state, running in states], axis=1)
    good, bad = (np.stack([state[index] for state, _ in states], axis=1) for index in (1, 2))
    return scales, good, bad, raised_at


def joined(trajectories, name):
    """Return the arrays *name* of all trajectories, concatenated."""
    return np.concatenate([getattr(trajectory, name) for trajectory in trajectories])


def assert_same(rule, limits):
    """Compare `simulate` and `sweep` with `rule.update` along each row of *limits*."""
    scales, good, bad, raised_at = by_update(rule, limits)
    traces = [Trace(row) for row in limits]
    assert alike(sweep([rule] * len(limits), traces), scales)
    reached = ~np.isnan(scales)
    trajectories = [simulate(rule, trace) for trace in traces]
    assert [trajectory.scales.size for trajectory in trajectories] == reached.sum(axis=1).tolist()
    assert alike(joined(trajectories, "scales"), scales[reached])
    assert alike(joined(trajectories, "good_steps"), good[reached])
    assert alike(joined(trajectories, "bad_steps"), bad[reached])
    assert alike(joined(trajectories, "finite"), (scales[:, :-1] <= limits)[reached[:, 1:]])
    assert [trajectory.raised_at for trajectory in trajectories] == [None if step < 0 else step for step in raised_at]
    assert [trajectory.steps for trajectory in trajectories] == [limits.shape[1] if step < 0 else step + 1 for step in raised_at]
    assert [trajectory.overflows for trajectory in trajectories] == (scales[:, :-1] > limits).sum(axis=1).tolist()


def padded(scales, size):
    """Return the scales of a trajectory as a row of `sweep`."""
    return np.concatenate([scales, np.full(size - scales.size, np.nan)])


def bounds(rule):
    """Return the smallest and the largest initial scale of a rule."""
    return rule.min_scale or SMALLEST[rule.dtype], rule.max_scale or LARGEST[rule.dtype]


def shrunk(rule):
    """Yield variants of a rule with windows shorter than eight steps: small scales, odd factors, and scales near the bounds."""
    low, high = bounds(rule)
    small = dataclasses.replace(rule, init_scale=min(max(64.0, low), high), growth_interval=min(rule.growth_interval, 3))
    odd = dataclasses.replace(small, init_scale=min(max(10.0, low), high), growth_factor=1.1, backoff_factor=0.7)
    yield small
    yield odd if rule.overflow_tolerance is not None else dataclasses.replace(odd, hysteresis=3 - rule.hysteresis)
    yield dataclasses.replace(small, init_scale=min(low * 3, high), growth_interval=1)
    yield dataclasses.replace(small, init_scale=max(high * 0.4, low), growth_interval=1)


@pytest.mark.parametrize("name", presets.PRESETS)
def test_every_preset_equals_update_over_all_traces(name):
    """All 256 traces of eight steps are run."""
    for rule in shrunk(presets.PRESETS[name].rule()):
        assert_same(rule, PATTERNS)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "constants",
    [
        {"overflow_tolerance": 0.7, "reset_bad_steps_on": ("backoff",)},
        {"init_scale": 0.4, "raise_at_or_below": 0.1},
        {"init_scale": 0.4, "min_scale": 0.1, "raise_at_min_scale": True},
        {"init_scale": 0.2, "min_scale": 0.1, "max_scale": 0.4, "block_at_bounds": True, "growth_interval": 1},
        {"init_scale": 0.3, "min_scale": 0.1, "max_scale": 0.7, "growth_interval": 1},
    ],
    ids=["tolerance", "raise at or below", "raise at minimum", "block at bounds", "clamp"],
)
def test_constants_are_rounded_to_the_dtype_before_the_simulation(constants, dtype):
    """Scales reach the rounded constants exactly, so unrounded constants would give other results."""
    assert_same(dataclasses.replace(LossScaleRule(growth_interval=3, dtype=dtype), **constants), PATTERNS)


@pytest.mark.parametrize("divisor", [3, 49, 98, 103])
def test_scale_is_divided_by_the_integer_divisor(divisor):
    """In float64, 1/(1/49) is not 49."""
    rule = LossScaleRule(1000.0, backoff_factor=1 / divisor, divide_on_backoff=True, growth_interval=2, dtype="float64")
    assert_same(rule, PATTERNS)
    assert simulate(rule, from_string("x")).scales[-1] == 1000 / divisor


def traces(steps):
    """Return a strategy for traces of *steps* steps, with infinite and finite limits."""
    limit = st.sampled_from([np.inf, np.inf, -np.inf]) | st.floats(2.0**-20, 2.0**30) | st.floats(0, np.inf)
    return st.lists(limit, min_size=steps, max_size=steps).map(lambda limits: Trace(np.array(limits, "f8")))


@given(rules(), st.lists(traces(20), min_size=1, max_size=4))
def test_any_rule_equals_update(rule, traces):
    """Rules have random constants in both dtypes, and scales range from subnormal numbers to infinity."""
    assert_same(rule, np.stack([trace.limits for trace in traces]))


@given(st.lists(st.tuples(rules(), traces(20)), min_size=1, max_size=6))
def test_sweep_equals_the_simulation_of_each_rule(pairs):
    """Rules of different constants and dtypes run along one trace, or each along its own."""
    rules, traces = zip(*pairs, strict=True)
    for argument, traces_of_rules in ((traces[0], traces[:1] * len(traces)), (list(traces), traces)):
        table = sweep(rules, argument)
        assert table.dtype == np.float64
        assert table.shape == (len(rules), 21)
        for row, rule, trace in zip(table, rules, traces_of_rules, strict=True):
            assert alike(row, padded(simulate(rule, trace).scales, 21))


SMALL = LossScaleRule(init_scale=8.0, growth_interval=2)
EMPTY = from_string("")


def test_trajectory_has_the_state_before_each_step_and_after_the_last():
    """Scales are float64 for any dtype of the rule; counts are int32."""
    trajectory = simulate(SMALL, from_string("..x."))
    assert alike(trajectory.scales, np.array([8, 8, 16, 8, 8], "f8"))
    assert alike(trajectory.good_steps, np.array([0, 1, 0, 0, 1], "i4"))
    assert alike(trajectory.bad_steps, np.array([0, 0, 0, 0, 0], "i4"))
    assert alike(trajectory.finite, np.array([True, True, False, True]))
    assert trajectory.raised_at is None
    assert (trajectory.overflows, trajectory.growths, trajectory.backoffs) == (1, 1, 1)


def test_empty_trace_returns_the_initial_state():
    """The trajectory has one scale and no flag. `sweep` returns the initial scales."""
    trajectory = simulate(LossScaleRule(initial_good_steps=-1), from_string(""))
    assert (trajectory.scales.tolist(), trajectory.good_steps.tolist(), trajectory.bad_steps.tolist()) == ([65536.0], [-1], [0])
    assert trajectory.finite.shape == (0,)
    assert sweep([SMALL, SMALL], from_string("")).tolist() == [[8.0], [8.0]]


def test_step_is_finite_up_to_its_limit():
    """A step is finite at a scale equal to its limit, but not at the next larger scale."""
    limits = np.array([8.0, np.nextafter(8.0, 0)])
    assert simulate(SMALL, Trace(limits)).finite.tolist() == [True, False]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: simulate("torch", EMPTY), TypeError, "rule must be a LossScaleRule, such as presets.torch(), got 'torch'"),
        (lambda: simulate(SMALL, ".."), TypeError, "trace must be a Trace, such as from_string('..x'), got '..' of type str"),
        (lambda: sweep(["torch"], EMPTY), TypeError, "each rule must be a LossScaleRule, got 'torch' of type str"),
        (lambda: sweep([SMALL], ".."), TypeError, "trace must be a Trace, got '..' of type str"),
        (lambda: sweep([SMALL, SMALL], [EMPTY, ".."]), TypeError, "each trace must be a Trace, got '..' of type str"),
        (lambda: sweep([SMALL, SMALL], [EMPTY]), ValueError, "one trace, or one for each of the 2 rules, got 1"),
        (lambda: sweep([SMALL] * 2, [EMPTY, from_string(".")]), ValueError, "the traces must have the same length, got [0, 1]"),
        (lambda: sweep([], EMPTY), ValueError, "rules must contain at least one rule, got none"),
    ],
)
def test_invalid_rule_or_trace_raises_an_error(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()
