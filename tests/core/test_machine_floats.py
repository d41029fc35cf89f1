"""State machine on Python numbers: bit for bit the definition, for Python's numbers and NumPy's arrays of shape ()."""

import pickle

import numpy as np
import pytest
from errors import unexpected
from hypothesis import given
from hypothesis import strategies as st
from strategies import rules, same

from ampscale import LossScaleRule, presets
from ampscale.core import machine

EVERY_FIELD = LossScaleRule(overflow_tolerance=0.5, reset_bad_steps_on=("backoff",), delayed_update=True)


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
        assert rule.would_raise(plain, finite) is stop
        plain, arrays = rule.update(plain, finite), rule.update(arrays, finite)
        assert same(list(arrays), list(after))
        assert tuple(plain) == numbers(after)


@pytest.mark.clause("MACHINE-numbers", "MACHINE-pure")
@given(rules(), st.lists(st.booleans(), max_size=20))
def test_any_rule_equals_the_definition(rule, steps):
    """Over all axes, in both dtypes, from subnormal scales to infinite ones: values, types and stops."""
    assert_same(rule, steps)


@pytest.mark.clause("MACHINE-numbers")
def test_every_preset_equals_the_definition():
    """Over growths, a run of overflows down to each preset's floor, and stops."""
    for preset in presets.PRESETS.values():
        short = {"growth_interval": 3} if "growth_interval" in preset.parameters else {}
        assert_same(preset.rule(**short), [True] * 7 + [False] * 30 + [True] * 5 + [False, True] * 4)


@pytest.mark.clause("MACHINE-numbers")
@pytest.mark.parametrize("rule", [LossScaleRule(), EVERY_FIELD, LossScaleRule(dtype="float64")], ids=["plain", "all", "float64"])
def test_a_state_of_numbers_stays_one(rule):
    """Floats, ints, and None where the rule does not use a field; also after a step, which leaves its argument unchanged."""
    state = rule.init(like=0.0)
    before = tuple(state)
    after = rule.update(state, np.True_)
    assert tuple(state) == before
    for each in (state, after):
        assert isinstance(each, machine.LossScaleState)
        assert [type(value) for value in each[:3]] == [float, int, int]
        assert [type(value) for value in each[3:]] == ([type(None)] * 2 if rule.overflow_tolerance is None else [int, float])


def test_a_flag_may_be_numpys():
    """A scalar and an array of shape () count like a bool, and the new state shares no memory with the old one."""
    rule = LossScaleRule(init_scale=8.0)
    for flag in (np.False_, np.asarray(False), False):
        state = rule.init()
        after = rule.update(state, flag)
        assert numbers(after) == (4.0, 0, 0, None, None)
        assert rule.update(rule.init(like=1.0), flag).scale == 4.0
        assert not any(np.shares_memory(new, old) for new, old in zip(after[:3], state[:3], strict=True))


@pytest.mark.clause("MACHINE-numbers")
def test_another_flag_beside_numbers_raises():
    """Python and NumPy bools of shape () are the only flags."""
    rule, message = LossScaleRule(), "finite must be a bool for a state of Python numbers, got"
    cases = [
        (flag, lambda method=method, flag=flag: method(rule.init(like=1.0), flag), TypeError, message)
        for method in (rule.update, rule.would_raise)
        for flag in (1, None, "yes", np.float32(1), np.asarray([True]))
    ]
    assert unexpected(cases) == []


def test_scalars_batches_and_other_dtypes_follow_the_definition():
    """States that the quick path does not take: NumPy's scalars, arrays of a shape, and float64 under a rule of float32."""
    rule = LossScaleRule(init_scale=8.0, growth_factor=1.1, growth_interval=1)
    scalars = machine.LossScaleState(np.float32(8), np.int32(0), np.int32(0))
    batch = machine.LossScaleState(np.full(2, 8, "f4"), np.zeros(2, "i4"), np.zeros(2, "i4"))
    wide = machine.LossScaleState(np.full((), 8.0), np.zeros((), "i4"), np.zeros((), "i4"))
    assert numbers(rule.update(scalars, False)) == (4.0, 0, 0, None, None)
    assert rule.update(batch, np.array([True, False])).scale.tolist() == [np.float32(8) * np.float32(1.1), 4]
    assert rule.update(wide, True).scale == 8.0 * 1.1


def test_a_rule_can_be_pickled_after_a_step():
    """The prepared step, a closure, is not part of the copy, and the copy makes its own."""
    rule = LossScaleRule(growth_interval=1)
    after = rule.update(rule.init(like=1.0), True)
    copy = pickle.loads(pickle.dumps(rule))
    assert copy == rule
    assert hash(copy) == hash(LossScaleRule(growth_interval=1))
    assert copy.update(copy.init(like=1.0), True) == after
