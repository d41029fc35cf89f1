"""Updates in Python's arithmetic equal the reference bit for bit, for states of Python numbers and NumPy arrays of shape ()."""

import pickle
from functools import partial

import numpy as np
import pytest
from errors import unexpected
from hypothesis import given
from hypothesis import strategies as st
from strategies import rules, same

from ampscale import LossScaleRule, presets
from ampscale.core import machine

EVERY_FIELD = LossScaleRule(overflow_tolerance=0.5, reset_bad_steps_on=("backoff",), delayed_update=True)


def numbers(state):
    """Convert a state of arrays to Python numbers."""
    return tuple(None if value is None else value.item() for value in state)


def assert_same(rule, steps):
    """Assert that states of Python numbers and of arrays change as in the reference."""
    reference, arrays, plain = rule.init(), rule.init(), rule.init(like=1.0)
    assert tuple(plain) == numbers(reference)
    for finite in steps:
        reference, raises = machine.transition(rule, reference, finite)
        assert rule.would_raise(plain, finite) is raises.item()
        arrays, plain = rule.update(arrays, finite), rule.update(plain, finite)
        assert same(list(arrays), list(reference))
        assert tuple(plain) == numbers(reference)


@pytest.mark.clause("MACHINE-numbers", "MACHINE-pure")
@given(rules(), st.lists(st.booleans(), max_size=20))
def test_any_rule_equals_the_reference(rule, steps):
    """Rules have any constants and either dtype; scales range from subnormal to infinite."""
    assert_same(rule, steps)


@pytest.mark.clause("MACHINE-numbers")
def test_every_preset_equals_the_reference():
    """The run contains growths, and thirty overflows in a row, after which most scales with a lower bound are at this bound."""
    for preset in presets.PRESETS.values():
        short = {"growth_interval": 3} if "growth_interval" in preset.parameters else {}
        assert_same(preset.rule(**short), [True] * 7 + [False] * 30 + [True] * 5 + [False, True] * 4)


@pytest.mark.clause("MACHINE-numbers")
@pytest.mark.parametrize(
    "rule", [LossScaleRule(), EVERY_FIELD, LossScaleRule(8, dtype="float64")], ids=["default", "every-field", "int-scale"]
)
def test_state_of_numbers_stays_a_state_of_numbers(rule):
    """Fields that the rule does not use are None, even after a step. A step leaves its argument unchanged."""
    state = rule.init(like=0.0)
    values = tuple(state)
    new_state = rule.update(state, np.True_)
    assert tuple(state) == values
    for result in (state, new_state):
        assert isinstance(result, machine.LossScaleState)
        assert [type(value) for value in result[:3]] == [float, int, int]
        assert [type(value) for value in result[3:]] == ([type(None)] * 2 if rule.overflow_tolerance is None else [int, float])


def test_numpy_flags_are_accepted():
    """A NumPy scalar and an array of shape () count as a Python bool. The new state shares no memory with the old one."""
    rule = LossScaleRule(init_scale=8.0)
    for flag in (np.False_, np.asarray(False), False):
        state = rule.init()
        new_state = rule.update(state, flag)
        assert numbers(new_state) == (4.0, 0, 0, None, None)
        assert rule.update(rule.init(like=1.0), flag).scale == 4.0
        assert not any(np.shares_memory(new, old) for new, old in zip(new_state[:3], state[:3], strict=True))


@pytest.mark.clause("MACHINE-numbers")
def test_invalid_flag_for_a_state_of_numbers_raises():
    """Only Python and NumPy bools of shape () are valid."""
    rule = LossScaleRule()
    message = "finite must be a bool for a state of Python numbers, got"
    cases = [
        (flag, partial(method, rule.init(like=1.0), flag), TypeError, message)
        for method in (rule.update, rule.would_raise)
        for flag in (1, None, "yes", np.float32(1), np.asarray([True]))
    ]
    assert unexpected(cases) == []


@pytest.mark.parametrize("finite", [True, False])
def test_counts_in_arrays_are_unchanged(finite):
    """A state that was restored from a file can have a Python float as its scale, and arrays as its counts."""
    state = machine.LossScaleState(8.0, np.asarray(1), np.asarray(0))
    assert LossScaleRule(hysteresis=2).update(state, finite)[:3] == (8.0, 2 * finite, 1 - finite)
    assert state[:3] == (8.0, 1, 0)


def test_scalars_batches_and_other_dtypes_use_the_reference():
    """NumPy scalars, batches, and float64 states of a float32 rule do not use the arithmetic on Python numbers."""
    rule = LossScaleRule(init_scale=8.0, growth_factor=1.1, growth_interval=1)
    scalars = machine.LossScaleState(np.float32(8), np.int32(0), np.int32(0))
    batch = machine.LossScaleState(np.full(2, 8, "f4"), np.zeros(2, "i4"), np.zeros(2, "i4"))
    float64_state = machine.LossScaleState(np.full((), 8.0), np.zeros((), "i4"), np.zeros((), "i4"))
    assert numbers(rule.update(scalars, False)) == (4.0, 0, 0, None, None)
    assert rule.update(batch, np.array([True, False])).scale.tolist() == [np.float32(8) * np.float32(1.1), 4]
    assert rule.update(float64_state, True).scale == 8.0 * 1.1


def test_a_rule_can_be_pickled_after_a_step():
    """A rule stores a prepared step, which cannot be pickled. The copy prepares the step again."""
    rule = LossScaleRule(growth_interval=1)
    new_state = rule.update(rule.init(like=1.0), True)
    copy = pickle.loads(pickle.dumps(rule))
    assert copy == rule
    assert hash(copy) == hash(LossScaleRule(growth_interval=1))
    assert copy.update(copy.init(like=1.0), True) == new_state
