"""States of the state machine; `test_machine_patterns.py` compares its transitions with a loop."""

from dataclasses import astuple

import array_api_strict
import numpy as np
import pytest
from strategies import alike

from ampscale import presets
from ampscale.core.machine import LossScaleState
from ampscale.core.rule import LossScaleRule

SMALL = {"init_scale": 8.0, "growth_interval": 2}


def scales(library, rule, steps, **changed):
    """The scales that a rule passes through, beginning with its first state, of which some fields can be changed."""
    first = rule.init(like=library.array(0))
    dtypes = {"scale": "float32", "good_steps": "int32", "bad_steps": "int32"}
    states = [first._replace(**{name: library.array(value, dtypes[name]) for name, value in changed.items()})]
    for step in steps:
        states.append(rule.update(states[-1], library.array(step == "+", "bool")))
    return [float(library.to_numpy(state.scale)) for state in states]


@pytest.mark.clause("MACHINE-state")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_first_state_has_the_initial_values(library, dtype):
    """The initial scale in the rule's dtype, the offset and zero in int32, all of shape (); two axes have an array each."""
    like = library.array([1, 1, 1])
    state = LossScaleRule(init_scale=4.0, initial_good_steps=-1, overflow_tolerance=0.5, delayed_update=True, dtype=dtype).init(
        like=like
    )
    for array, value, name in zip(state, (4, -1, 0, 0, 4), (dtype, "int32", "int32", "int32", dtype), strict=True):
        assert alike(library.to_numpy(array), np.asarray(value, name))
        assert type(array) is type(like)
    assert state.pending_scale is not state.scale  # JAX does not donate one array twice
    plain = LossScaleRule().init(like=like)
    assert plain.window_steps is plain.pending_scale is None


@pytest.mark.clause("MACHINE-state")
def test_a_state_stays_on_the_device_of_the_given_array():
    """So do the arrays after a step; by default they are NumPy's."""
    device, rule = array_api_strict.Device("device1"), LossScaleRule(min_scale=1.0, max_scale=2.0**20)
    state = rule.init(like=array_api_strict.ones(3, device=device))
    after = rule.update(state, array_api_strict.asarray(False, device=device))
    assert {array.device for array in (*state[:3], *after[:3])} == {device}
    assert isinstance(after, LossScaleState)
    assert [type(array) for array in LossScaleRule().init()[:3]] == [np.ndarray] * 3


@pytest.mark.clause("MACHINE-defaults")
def test_a_rule_has_the_fields_defaults():
    """The constants on which torch, Paddle and Apex agree."""
    agreed = (2.0**16, 2.0, 0.5, 2000, 1, None, None, ("finite", "backoff"), False, True, 0, "float32")
    assert astuple(LossScaleRule()) == (*agreed, False, None, False, None, False, None, False)


@pytest.mark.clause("MACHINE-growth-window", "MACHINE-at-least", "MACHINE-min-scale", "MACHINE-max-scale")
def test_a_restored_state_goes_on(library):
    """A count past its threshold acts at once; a scale beyond a bound stays until a backoff or a growth brings it there."""
    rows = [
        (SMALL, "+++-++", [8, 8, 16, 16, 8, 8, 16]),
        (SMALL, "+", [8, 16], {"good_steps": 7}),
        (SMALL, "+", [8, 16], {"good_steps": 2**31 - 1}),
        ({**SMALL, "hysteresis": 2}, "-", [8, 4], {"bad_steps": 7}),
        ({**SMALL, "min_scale": 3.0}, "+", [0.25, 0.25], {"scale": 0.25}),
        ({**SMALL, "min_scale": 3.0}, "-", [0.25, 3], {"scale": 0.25}),
        ({**SMALL, "max_scale": 20.0}, "+", [64, 64], {"scale": 64}),
        ({**SMALL, "max_scale": 20.0}, "-", [64, 32], {"scale": 64}),
    ]
    seen = [scales(library, LossScaleRule(**fields), steps, **dict(*changed)) for fields, steps, _, *changed in rows]
    assert [(row, got) for row, got in zip(rows, seen, strict=True) if got != row[2]] == []


@pytest.mark.clause("MACHINE-static")
@pytest.mark.parametrize("init", [1.0, 3.7])
def test_factors_of_1_keep_the_scale(library, init):
    """Neither finite steps nor overflows change it."""
    rule = LossScaleRule(init_scale=init, growth_factor=1, backoff_factor=1, growth_interval=1)
    assert set(scales(library, rule, "+-" * 10)) == {float(np.float32(init))}
    assert presets.static(init).growth_factor == presets.static(init).backoff_factor == 1


@pytest.mark.clause("MACHINE-settles")
@pytest.mark.parametrize("ceiling", [2.0**20, 3.0e6, 1.0])
def test_the_scale_settles_under_a_ceiling(ceiling):
    """Where every step above a ceiling overflows, the scale climbs or falls to it and stays within one growth."""
    rule = LossScaleRule(growth_interval=3)
    state, seen = rule.init(), []
    for _ in range(200):
        seen.append(float(state.scale))
        state = rule.update(state, seen[-1] <= ceiling)
    assert ceiling / 2 < max(scale for scale in seen[100:] if scale <= ceiling)
    assert all(ceiling / 2 < scale <= ceiling * 2 for scale in seen[100:])
