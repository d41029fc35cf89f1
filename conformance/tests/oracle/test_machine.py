"""The machine a second time: beside the package's own on drawn rules, and beside scales worked out by hand."""

import dataclasses

from ampscale_conformance.oracle.machine import Constants, Machine, trajectory
from drawn_rules import RULES
from hypothesis import given, settings
from hypothesis import strategies as st

from ampscale import LossScaleRule

TRACES = st.lists(st.booleans() | st.just(value=True), max_size=40)


def walked(rule, steps):
    """The scales along "+" and "-"."""
    return [point.scale for point in trajectory(rule, [step == "+" for step in steps])]


def assert_same(rule, flags):
    """The package's own update and stops, step by step, until it stops."""
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
@given(RULES, TRACES)
def test_a_drawn_rule_goes_where_the_package_goes(rule, flags):
    """Scales and stops are equal on all axes together; NumPy's overflow to infinity is meant."""
    assert_same(rule, flags)


def test_the_constants_are_a_rule_with_a_rules_defaults():
    """Said twice, so that neither can lose a field."""
    said = {field.name: field.default for field in dataclasses.fields(Constants)}
    assert said == {field.name: field.default for field in dataclasses.fields(LossScaleRule)}


def test_a_share_is_compared_in_float32():
    """7 / 10 and 0.7 are one number there, and less than 0.7; 3 / 10 and 0.3 are, and more than 0.3."""
    for rate, steps in ((0.7, "+++-------"), (0.3, "+++++++---")):
        assert walked(Constants(init_scale=8.0, overflow_tolerance=rate), steps) == [8] * 10 + [4]


def test_a_trajectory_ends_where_the_published_scaler_stops():
    """Its last point says so, and has the scale of the one before; a backoff to below the last scale is not made."""
    points = trajectory(Constants(init_scale=2.0, min_scale=1.0, raise_at_min_scale=True), [False, True, False, True, False])
    assert [(point.scale, point.stopped) for point in points] == [(2, False), (1, False), (1, False), (1, True)]
    assert points[-1].clauses == ("MACHINE-would-raise",)
    points = trajectory(Constants(init_scale=4.0, raise_at_or_below=1.0, growth_interval=9), [False, False])
    assert [(point.scale, point.stopped) for point in points] == [(4, False), (2, False), (2, True)]


def test_a_machine_goes_on_from_where_it_stopped():
    """The step is not taken: neither scale nor counts have moved."""
    machine = Machine(Constants(init_scale=2.0, min_scale=1.0, raise_at_min_scale=True, growth_interval=3))
    assert [machine.step(finite).scale for finite in (False, True, True, False, True)] == [1, 1, 1, 1, 2]
    assert not machine.point.stopped
