"""The machine on Python numbers against the definition, bit for bit: Python's own, and NumPy's arrays of shape ()."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import rules, same

from ampscale import LossScaleRule, presets
from ampscale.core import machine

FLAGS = st.lists(st.booleans(), max_size=20)
EVERY_FIELD = LossScaleRule(rate=0.5, refill=("backoff",), lag=True)


def by_definition(rule, steps):
    """All states on the way, as NumPy's arrays, and whether each step stops."""
    states, stops = [rule.init()], []
    for finite in steps:
        state, stopped = machine.transition(rule, states[-1], finite)
        stops.append(stopped.item())
        states.append(state)
    return states, stops


def numbers(state):
    """A state of arrays as Python numbers."""
    return tuple(None if value is None else value.item() for value in state)


def assert_same(rule, steps):
    """Both kinds of states go the way of the definition."""
    wanted, stops = by_definition(rule, steps)
    plain, arrays = rule.init(like=1.0), rule.init()
    for finite, stop, before, after in zip(steps, stops, wanted, wanted[1:], strict=False):
        assert tuple(plain) == numbers(before)
        assert rule.stops(plain, finite) is stop
        plain, arrays = rule.update(plain, finite), rule.update(arrays, finite)
        assert same(list(arrays), list(after))
        assert tuple(plain) == numbers(after)


@pytest.mark.clause("MACHINE-numbers", "MACHINE-pure")
@given(rules(), FLAGS)
def test_any_rule_equals_the_definition(rule, steps):
    """Over all axes, in both dtypes, from subnormal scales to infinite ones: values, types and stops."""
    assert_same(rule, steps)


@pytest.mark.clause("MACHINE-numbers")
@pytest.mark.parametrize("name", presets.PRESETS)
def test_every_preset_equals_the_definition(name):
    """Over two windows and a storm of overflows, with its own constants but for a window that is short."""
    rule = presets.PRESETS[name].rule(growth_interval=3) if name in {"torch", "paddle", "keras"} else presets.PRESETS[name].rule()
    assert_same(rule, [True] * 7 + [False] * 30 + [True] * 5 + [False, True] * 4)


@pytest.mark.clause("MACHINE-numbers")
@pytest.mark.parametrize("rule", [LossScaleRule(), EVERY_FIELD, LossScaleRule(dtype="float64")], ids=["plain", "all", "float64"])
def test_a_state_of_numbers_holds_nothing_else(rule):
    """Floats, ints, and None where the rule has no use for a field; also after a step, whose argument stays as it was."""
    state = rule.init(like=0.0)
    before = tuple(state)
    after = rule.update(state, np.True_)
    assert tuple(state) == before
    for each in (state, after):
        assert isinstance(each, machine.LossScaleState)
        assert [type(value) for value in each[:3]] == [float, int, int]
        assert [type(value) for value in each[3:]] == ([type(None)] * 2 if rule.rate is None else [int, float])


@pytest.mark.parametrize("flag", [np.False_, np.asarray(False), False], ids=["scalar", "array", "bool"])
def test_a_flag_may_be_numpys(flag):
    """Whichever it is, an overflow is one, and the arrays are new."""
    rule = LossScaleRule(init_scale=8.0)
    state = rule.init()
    after = rule.update(state, flag)
    assert numbers(after) == (4.0, 0, 0, None, None)
    assert rule.update(rule.init(like=1.0), flag).scale == 4.0
    assert not any(np.shares_memory(new, old) for new, old in zip(after[:3], state[:3], strict=True))


@pytest.mark.clause("MACHINE-numbers")
@pytest.mark.parametrize(
    "flag", [1, None, "yes", np.float32(1), np.asarray([True])], ids=["int", "none", "str", "float", "shape"]
)
def test_other_flags_are_refused_beside_numbers(flag):
    """By `update` as by `stops`, with what came."""
    rule = LossScaleRule()
    for method in (rule.update, rule.stops):
        with pytest.raises(TypeError, match="finite must be a bool beside a state of Python numbers, got"):
            method(rule.init(like=1.0), flag)


@pytest.mark.clause("MACHINE-state")
def test_a_state_of_another_rule_is_refused():
    """Of numbers as of arrays."""
    for like in (1.0, np.zeros(())):
        with pytest.raises(ValueError, match=r"state\.steps must be an array for this rule"):
            EVERY_FIELD.update(LossScaleRule().init(like=like), True)
        with pytest.raises(ValueError, match=r"state\.steps must be None for this rule"):
            LossScaleRule().stops(EVERY_FIELD.init(like=like), True)


def test_numpys_scalars_and_batches_move_as_well():
    """What is no array of shape () goes by the definition."""
    rule = LossScaleRule(init_scale=8.0)
    scalars = machine.LossScaleState(np.float32(8), np.int32(0), np.int32(0))
    batch = machine.LossScaleState(np.full(2, 8, "f4"), np.zeros(2, "i4"), np.zeros(2, "i4"))
    assert numbers(rule.update(scalars, False)) == (4.0, 0, 0, None, None)
    assert rule.update(batch, np.array([True, False])).scale.tolist() == [8, 4]


def test_a_state_that_is_held_in_another_dtype_goes_by_the_definition():
    """A float64 scale under a rule of float32 is multiplied in float64."""
    rule = LossScaleRule(growth_factor=1.1, growth_interval=1)
    state = machine.LossScaleState(np.full((), 8.0), np.zeros((), "i4"), np.zeros((), "i4"))
    assert rule.update(state, True).scale == 8.0 * 1.1


def test_a_rule_that_has_moved_can_be_copied():
    """What it keeps for its next step is made anew by a copy, and is no part of what it is."""
    rule = LossScaleRule(growth_interval=1)
    after = rule.update(rule.init(like=1.0), True)
    copy = pickle.loads(pickle.dumps(rule))
    assert copy == rule
    assert hash(copy) == hash(LossScaleRule(growth_interval=1))
    assert copy.update(copy.init(like=1.0), True) == after
