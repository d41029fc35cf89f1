"""Tests of the oracle's state machine against ampscale on random rules, and against scales computed by hand."""

import dataclasses

from ampscale_conformance.oracle.machine import Constants, trajectory
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import rules

from ampscale import LossScaleRule

TRACES = st.lists(st.booleans() | st.just(value=True), max_size=40)


def scales_of(rule, steps):
    """Return the scales of a trace of "+" and "-"."""
    return [point.scale for point in trajectory(rule, [step == "+" for step in steps])]


def assert_same(rule, flags):
    """Compare scales and errors with ampscale after every step, up to the first error."""
    points, state = trajectory(rule, flags), rule.init(like=0.0)
    assert points[0].scale == float(state.scale)
    for step, finite in enumerate(flags, start=1):
        stopped, state = bool(rule.would_raise(state, finite)), rule.update(state, finite)
        assert (points[step].scale, points[step].stopped) == (float(state.scale), stopped), (rule, step)
        if stopped:
            assert len(points) == step + 1
            return
    assert len(points) == len(flags) + 1


@settings(max_examples=200, deadline=None)
@given(rules(), TRACES)
def test_random_rules_agree_with_ampscale(rule, flags):
    """The rules combine all fields."""
    assert_same(rule, flags)


def test_the_constants_have_the_fields_and_defaults_of_a_rule():
    """`Constants` and `LossScaleRule` are defined independently; a field that only one of them has fails this test."""
    defaults = {field.name: field.default for field in dataclasses.fields(Constants)}
    assert defaults == {field.name: field.default for field in dataclasses.fields(LossScaleRule)}


def test_the_overflow_tolerance_is_compared_in_float32():
    """In float32, 7 / 10 equals 0.7 and is less than the float64 0.7; 3 / 10 equals 0.3 and is more than the float64 0.3."""
    for tolerance, steps in ((0.7, "+++-------"), (0.3, "+++++++---")):
        assert scales_of(Constants(init_scale=8.0, overflow_tolerance=tolerance), steps) == [8] * 10 + [4]


def test_a_trajectory_ends_at_the_error_of_the_published_scaler():
    """The last point records the error and keeps the previous scale. The backoff does not happen."""
    points = trajectory(Constants(init_scale=4.0, raise_at_or_below=1.0, growth_interval=9), [False] * 3)
    assert [(point.scale, point.stopped) for point in points] == [(4, False), (2, False), (2, True)]
