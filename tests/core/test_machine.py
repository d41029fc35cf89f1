"""States of the state machine; `test_machine_patterns.py` compares the transitions with an oracle."""

from dataclasses import asdict

import array_api_strict
import numpy as np
import pytest
from strategies import alike

from ampscale.core.machine import LossScaleState
from ampscale.core.rule import LossScaleRule

SMALL = {"init_scale": 8.0, "growth_interval": 2}


def scales(library, rule, steps, **changed):
    """Return the scales of a run ("+" is a finite step); *changed* replaces fields of the initial state."""
    initial = rule.init(like=library.array(0))
    dtypes = {"scale": "float32", "good_steps": "int32", "bad_steps": "int32"}
    states = [initial._replace(**{name: library.array(value, dtypes[name]) for name, value in changed.items()})]
    for step in steps:
        states.append(rule.update(states[-1], library.array(step == "+", "bool")))
    return [float(library.to_numpy(state.scale)) for state in states]


@pytest.mark.clause("MACHINE-state")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_initial_state_has_the_documented_values(library, dtype):
    """Scales have the rule's dtype, counts int32, all shape (). `overflow_tolerance` and `delayed_update` each add an array."""
    like = library.array([1, 1, 1])
    rule = LossScaleRule(init_scale=4.0, initial_good_steps=-1, overflow_tolerance=0.5, delayed_update=True, dtype=dtype)
    state = rule.init(like=like)
    for array, value, array_dtype in zip(state, (4, -1, 0, 0, 4), (dtype, "int32", "int32", "int32", dtype), strict=True):
        assert alike(library.to_numpy(array), np.asarray(value, array_dtype))
        assert type(array) is type(like)
    assert state.pending_scale is not state.scale  # JAX does not donate one array twice
    plain = LossScaleRule().init(like=like)
    assert plain.window_steps is plain.pending_scale is None


@pytest.mark.clause("MACHINE-state")
def test_state_is_on_the_device_of_the_given_array():
    """The state after a step is on this device, too. By default the arrays are NumPy's."""
    device = array_api_strict.Device("device1")
    rule = LossScaleRule(min_scale=1.0, max_scale=2.0**20)
    state = rule.init(like=array_api_strict.ones(3, device=device))
    new_state = rule.update(state, array_api_strict.asarray(False, device=device))
    assert {array.device for array in (*state[:3], *new_state[:3])} == {device}
    assert isinstance(new_state, LossScaleState)
    assert [type(array) for array in LossScaleRule().init()[:3]] == [np.ndarray] * 3


@pytest.mark.clause("MACHINE-defaults")
def test_default_rule_has_the_documented_constants():
    """All other constants are 0, False or None."""
    expected = {"init_scale": 2.0**16, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "hysteresis": 1}
    expected |= {"reset_bad_steps_on": ("finite", "backoff"), "skip_infinite_growth": True, "dtype": "float32"}
    constants = asdict(LossScaleRule())
    assert {name: constants.pop(name) for name in expected} == expected
    assert set(constants.values()) == {False, None}


@pytest.mark.clause("MACHINE-growth-window", "MACHINE-at-least", "MACHINE-min-scale", "MACHINE-max-scale")
def test_restored_state_need_not_fit_the_rule(library):
    """A count above its threshold takes effect at once; a scale beyond a bound stays until a backoff or a growth clamps it."""
    rows = [
        (SMALL, "+++-++", [8, 8, 16, 16, 8, 8, 16], {}),
        (SMALL, "+", [8, 16], {"good_steps": 7}),
        (SMALL, "+", [8, 16], {"good_steps": 2**31 - 1}),
        ({**SMALL, "hysteresis": 2}, "-", [8, 4], {"bad_steps": 7}),
        ({**SMALL, "min_scale": 3.0}, "+", [0.25, 0.25], {"scale": 0.25}),
        ({**SMALL, "min_scale": 3.0}, "-", [0.25, 3], {"scale": 0.25}),
        ({**SMALL, "max_scale": 20.0}, "++", [64, 64, 20], {"scale": 64}),
        ({**SMALL, "max_scale": 20.0}, "-", [64, 32], {"scale": 64}),
    ]
    for fields, steps, expected, changed in rows:
        assert scales(library, LossScaleRule(**fields), steps, **changed) == expected, (fields, steps)


@pytest.mark.clause("MACHINE-pure")
def test_constants_may_be_ints_of_more_than_64_bits(library):
    """A rule with ints has the same transitions as the equal rule with floats."""
    fields = {"init_scale": 2**100, "growth_factor": 2**70, "min_scale": 2**99, "max_scale": 2**110, "raise_at_or_below": 2**70}
    for steps in ("+", "-"):
        of_ints = LossScaleRule(growth_interval=1, **fields)
        of_floats = LossScaleRule(growth_interval=1, **{name: float(value) for name, value in fields.items()})
        assert scales(library, of_ints, steps) == scales(library, of_floats, steps)


@pytest.mark.clause("MACHINE-settles")
@pytest.mark.parametrize("limit", [2.0**20, 3.0e6, 1.0])
def test_scale_settles_within_a_factor_of_two_of_the_limit(limit):
    """Every step with a scale above the limit overflows."""
    rule = LossScaleRule(growth_interval=3)
    state, observed = rule.init(), []
    for _ in range(200):
        observed.append(float(state.scale))
        state = rule.update(state, observed[-1] <= limit)
    assert limit / 2 < max(scale for scale in observed[100:] if scale <= limit)
    assert all(limit / 2 < scale <= limit * 2 for scale in observed[100:])
