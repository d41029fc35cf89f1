"""Divergence of rules: the first step after which their scales differ, or at which only one of them raises an error."""

import dataclasses
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ampscale import LossScaleRule
from ampscale.simulation.compare import compare, divergence
from ampscale.simulation.simulate import simulate
from ampscale.simulation.traces import from_string

SMALL = LossScaleRule(init_scale=8.0, growth_interval=2)
TOLERANT = dataclasses.replace(SMALL, hysteresis=2)
BOUNDED = dataclasses.replace(SMALL, init_scale=2.0, min_scale=1.0)
RAISING = dataclasses.replace(BOUNDED, raise_at_min_scale=True)


def test_comparison_has_all_trajectories_and_pairs():
    rules = {"b": SMALL, "a": TOLERANT, "c": SMALL}
    comparison = compare(rules, from_string("..x."))
    assert list(comparison.trajectories) == ["b", "a", "c"]
    assert comparison.divergences == {("b", "a"): 2, ("b", "c"): None, ("a", "c"): 2}
    for name, rule in rules.items():
        assert comparison.trajectories[name].scales.tolist() == simulate(rule, from_string("..x.")).scales.tolist()
    assert compare({"only": SMALL}, from_string("..")).divergences == {}


def test_invalid_rules_and_traces_raise_an_error():
    with pytest.raises(ValueError, match="rules must contain at least one rule, got none"):
        compare({}, from_string(".."))
    with pytest.raises(TypeError, match=r"rule must be a LossScaleRule, such as presets\.torch\(\), got .torch. of type str"):
        compare({"one": SMALL, "torch": "torch"}, from_string(".."))
    with pytest.raises(TypeError, match="trace must be a Trace"):
        compare({"one": SMALL}, "..")


def divergence_by_definition(one, other):
    """Return the divergence of two trajectories, step by step."""
    for step in range(-1, max(one.scales.size, other.scales.size) - 1):
        first, second = (float(run.scales[step + 1]) if step + 1 < run.scales.size else "raised" for run in (one, other))
        if first != second:
            return step
    return None


@given(
    st.lists(st.sampled_from([SMALL, TOLERANT, BOUNDED, RAISING, dataclasses.replace(SMALL, growth_factor=1.1)]), max_size=4),
    st.text(".x", max_size=16),
)
def test_divergences_equal_the_definition(rules, steps):
    """Three rules have three divergences, of which the two earliest are at the same step."""
    trajectories = [simulate(rule, from_string(steps)) for rule in rules]
    for one, other in combinations(trajectories, 2):
        assert divergence(one, other) == divergence_by_definition(one, other)
    for three in combinations(trajectories, 3):
        first, second, _ = sorted((divergence(*pair) for pair in combinations(three, 2)), key=lambda step: (step is None, step))
        assert first == second


def test_a_comparison_is_hashable_and_equals_only_itself():
    """It contains arrays, whose comparison has no single truth value."""
    first, second = (compare({"plain": LossScaleRule()}, from_string(".")) for _ in range(2))
    assert len({first, second, first}) == 2
