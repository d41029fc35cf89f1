"""Where rules part: the first step after which their scales differ, or at which one of them stops."""

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
FLOORED = dataclasses.replace(SMALL, init_scale=2.0, min_scale=1.0)
STOPPING = dataclasses.replace(FLOORED, raise_at_min_scale=True)


def test_a_comparison_has_all_trajectories_and_all_pairs():
    """In the order in which the rules are given."""
    rules = {"b": SMALL, "a": TOLERANT, "c": SMALL}
    found = compare(rules, from_string("..x."))
    assert list(found.trajectories) == ["b", "a", "c"]
    assert found.divergences == {("b", "a"): 2, ("b", "c"): None, ("a", "c"): 2}
    for name, rule in rules.items():
        assert found.trajectories[name].scales.tolist() == simulate(rule, from_string("..x.")).scales.tolist()


def test_every_rule_is_checked():
    """One rule has no pair; no rule at all, and what is no rule or no trace, are refused."""
    assert compare({"only": SMALL}, from_string("..")).divergences == {}
    with pytest.raises(ValueError, match="rules must name at least one rule, got none"):
        compare({}, from_string(".."))
    with pytest.raises(TypeError, match="rule must be a LossScaleRule, got 'torch'"):
        compare({"one": SMALL, "torch": "torch"}, from_string(".."))
    with pytest.raises(TypeError, match="trace must be a Trace"):
        compare({"one": SMALL}, "..")


def plainly(one, other):
    """The definition of a divergence, step by step."""
    for step in range(-1, max(one.scales.size, other.scales.size) - 1):
        after = [float(each.scales[step + 1]) if step + 1 < each.scales.size else "stopped" for each in (one, other)]
        if after[0] != after[1]:
            return step
    return None


@given(
    st.lists(st.sampled_from([SMALL, TOLERANT, FLOORED, STOPPING, dataclasses.replace(SMALL, growth_factor=1.1)]), max_size=4),
    st.text(".x", max_size=16),
)
def test_divergences_are_those_of_the_definition(rules, steps):
    """And they make a tree: of three rules, the two pairs that part first part at the same step."""
    trajectories = [simulate(rule, from_string(steps)) for rule in rules]
    for one, other in combinations(trajectories, 2):
        assert divergence(one, other) == plainly(one, other)
    for three in combinations(trajectories, 3):
        partings = sorted((divergence(*pair) for pair in combinations(three, 2)), key=lambda step: (step is None, step))
        assert partings[0] == partings[1]
