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
STOPPING = dataclasses.replace(FLOORED, stop_at_floor=True)


def parting(one, other, steps):
    """Where two rules diverge along a trace in text."""
    return compare({"one": one, "other": other}, from_string(steps)).divergences["one", "other"]


@pytest.mark.parametrize(("steps", "expected"), [("....x...", 4), ("x", 0), (".x", 1), ("....", None), ("", None), ("xx..xx", 0)])
def test_rules_diverge_at_the_step_after_which_their_scales_differ(steps, expected):
    """One backs off at its first overflow and the other does not: the step of that overflow, counted from 0."""
    assert parting(SMALL, TOLERANT, steps) == expected
    assert parting(TOLERANT, SMALL, steps) == expected


def test_only_scales_are_compared():
    """A count that no scale has shown yet is no divergence; rules that start apart diverge at -1, also where they meet later."""
    assert parting(TOLERANT, dataclasses.replace(SMALL, hysteresis=3), "..x..") is None
    assert parting(SMALL, dataclasses.replace(SMALL, init_scale=4.0), "....") == -1
    assert parting(FLOORED, dataclasses.replace(FLOORED, init_scale=4.0), "xxx") == -1
    assert parting(FLOORED, dataclasses.replace(FLOORED, init_scale=4.0), "") == -1


@pytest.mark.parametrize(("steps", "expected"), [("xx", 1), ("xx...", 1), ("..xxx", 4), ("x", None), ("x..x", None)])
def test_a_stop_is_a_divergence(steps, expected):
    """One stays at its floor where the other raises, so that their scales agree before that step, and none come after it."""
    assert parting(FLOORED, STOPPING, steps) == expected
    assert parting(STOPPING, FLOORED, steps) == expected


def test_rules_that_stop_in_the_same_step_have_not_diverged():
    """They have nothing left to differ in; one that has stopped earlier has diverged there."""
    assert parting(STOPPING, dataclasses.replace(STOPPING, growth_interval=3), "xx..") is None
    later = dataclasses.replace(STOPPING, stop_at_floor=False, stop_below=0.25, min_scale=0.25)
    assert parting(STOPPING, later, "xxx") == 1


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
