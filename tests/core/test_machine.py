"""State machine, fact by fact; a plus is a finite step, a minus an overflow."""

import array_api_strict
import numpy as np
import pytest
from strategies import alike

from ampscale import presets
from ampscale.core.machine import LossScaleState
from ampscale.core.rule import LossScaleRule

TOP = 2.0**127  # the largest power of two in float32
SMALL = {"init_scale": 8.0, "growth_interval": 2}


def trace(library, rule, steps, **changed):
    """The states that a rule passes through, beginning with its first, of which some fields can be changed."""
    first = rule.init(like=library.array(0))
    dtypes = {"scale": "float32", "good_steps": "int32", "bad_steps": "int32"}
    states = [first._replace(**{name: library.array(value, dtypes[name]) for name, value in changed.items()})]
    for step in steps:
        states.append(rule.update(states[-1], library.array(step == "+", "bool")))
    return library.to_numpy(states)


def scales(library, rule, steps, **changed):
    """The scales of these states."""
    return [float(state.scale) for state in trace(library, rule, steps, **changed)]


def differing(library, rows):
    """The rows of which the scales are not as expected: constants, steps and expected scales; at most a changed first state."""
    seen = [scales(library, LossScaleRule(**fields), steps, **dict(*changed)) for fields, steps, _, *changed in rows]
    return [(row, got) for row, got in zip(rows, seen, strict=True) if got != list(row[2])]


@pytest.mark.clause("MACHINE-state")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_first_state_has_the_initial_values(library, dtype):
    """The initial scale in the rule's dtype, the offset and zero in int32, all of shape (); two axes have an array each."""
    like = library.array([1, 1, 1])
    state = LossScaleRule(init_scale=4.0, growth_offset=-1, rate=0.5, lag=True, dtype=dtype).init(like=like)
    for array, value, name in zip(state, (4, -1, 0, 0, 4), (dtype, "int32", "int32", "int32", dtype), strict=True):
        assert alike(library.to_numpy(array), np.asarray(value, name))
        assert type(array) is type(like)
    plain = LossScaleRule().init(like=like)
    assert plain.steps is plain.next_scale is None


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
    rule = LossScaleRule()
    assert rule == LossScaleRule(2.0**16, 2.0, 0.5, 2000, 1, None, None, ("finite", "backoff"))
    assert (rule.backoff_divides, rule.growth_guard, rule.growth_offset, rule.dtype) == (False, True, 0, "float32")


@pytest.mark.clause("MACHINE-growth-window", "MACHINE-growth-factor", "MACHINE-backoff", "MACHINE-offset", "MACHINE-at-least")
def test_the_scale_grows_in_the_last_step_of_a_window(library):
    """Windows are counted from the start, the last growth or the last overflow; a count past the interval grows at once."""
    eight = {"init_scale": 8.0}
    rows = [
        ({**eight, "growth_interval": 1}, "+++", [8, 16, 32, 64]),
        ({**eight, "growth_interval": 3}, "+++", [8, 8, 8, 16]),
        (SMALL, "++++", [8, 8, 16, 16, 32]),
        (SMALL, "+-++", [8, 8, 4, 4, 8]),
        (SMALL, "+++-++", [8, 8, 16, 16, 8, 8, 16]),
        ({"init_scale": 16.0, "growth_factor": 3, "backoff_factor": 0.25, "growth_interval": 1}, "+-", [16, 48, 12]),
        ({**SMALL, "growth_factor": 1}, "++-", [8, 8, 8, 4]),
        ({**SMALL, "backoff_factor": 1}, "-++", [8, 8, 8, 16]),
        ({**SMALL, "growth_offset": -1}, "+++++-+++", [8, 8, 8, 16, 16, 32, 16, 16, 16, 32]),
        (SMALL, "+", [8, 16], {"good_steps": 7}),
        (SMALL, "+", [8, 16], {"good_steps": 2**31 - 1}),
    ]
    assert differing(library, rows) == []


@pytest.mark.clause("MACHINE-growth-resets", "MACHINE-growth-guard", "MACHINE-cap")
@pytest.mark.parametrize("bounds", [{"init_scale": TOP}, {"init_scale": 8.0, "max_scale": 8.0}], ids=["guard", "cap"])
def test_a_blocked_growth_spends_its_window(library, bounds):
    """Where guard or cap keeps the scale, the count starts again, and the next attempt comes a window later."""
    states = trace(library, LossScaleRule(growth_interval=4, **bounds), "+" * 8)
    assert {float(state.scale) for state in states} == {bounds["init_scale"]}
    assert [int(state.good_steps) for state in states] == [0, 1, 2, 3, 0, 1, 2, 3, 0]


@pytest.mark.clause("MACHINE-hysteresis", "MACHINE-at-least")
def test_overflows_before_the_hysteresis_leave_the_scale(library):
    """The last counted one backs off, and so does one past the count."""
    rows = [
        ({**SMALL, "hysteresis": 1}, "----", [8, 4, 2, 1, 0.5]),
        ({**SMALL, "hysteresis": 2}, "----", [8, 8, 4, 4, 2]),
        ({**SMALL, "hysteresis": 3}, "----", [8, 8, 8, 4, 4]),
        ({**SMALL, "hysteresis": 5}, "----", [8] * 5),
        ({**SMALL, "hysteresis": 2}, "-", [8, 4], {"bad_steps": 7}),
    ]
    assert differing(library, rows) == []


@pytest.mark.clause("MACHINE-overflow-resets")
def test_every_overflow_interrupts_the_window(library):
    """Also an overflow that leaves the scale returns the good steps to their initial value."""
    rule = LossScaleRule(hysteresis=3, growth_offset=-2, **SMALL)
    assert [int(state.good_steps) for state in trace(library, rule, "++-+--")] == [-2, -1, 0, -2, -1, -2, -2]


@pytest.mark.clause("MACHINE-refill")
def test_the_named_events_reset_the_overflow_count(library):
    """At exactly the events that `refill` names; without "backoff" each further overflow backs off again."""
    rows = [
        (("backoff",), "-+-", [0, 1, 1, 0], 4),
        (("backoff",), "-++-", [0, 1, 1, 1, 0], 8),
        (("finite", "backoff"), "-+--", [0, 1, 0, 1, 0], 4),
        (("growth", "backoff"), "-+-", [0, 1, 1, 0], 4),
        (("growth", "backoff"), "-++-", [0, 1, 1, 0, 1], 16),
        ((), "----", [0, 1, 2, 2, 2], 1),
        (("finite", "backoff"), "--++-", [0, 1, 0, 0, 0, 1], 8),
        (("growth",), "--++-", [0, 1, 2, 2, 0, 1], 8),
        (("finite",), "---+-", [0, 1, 2, 2, 0, 1], 2),
    ]
    for refill, steps, counts, last in rows:
        states = trace(library, LossScaleRule(hysteresis=2, refill=refill, **SMALL), steps)
        assert [int(state.bad_steps) for state in states] == counts, refill
        assert float(states[-1].scale) == last, refill


@pytest.mark.clause("MACHINE-growth-guard", "MACHINE-floor", "MACHINE-cap")
def test_bounds_limit_the_step_that_would_cross_them(library):
    """Only a backoff stops at the floor and only a growth at the cap; the guard keeps a scale that would become infinite."""
    floor, cap = {**SMALL, "min_scale": 3.0}, {**SMALL, "max_scale": 20.0}
    at_top = {"init_scale": TOP, "growth_interval": 1}
    rows = [
        (floor, "--", [8, 4, 3]),
        (floor, "+", [0.25, 0.25], {"scale": 0.25}),
        (floor, "-", [0.25, 3], {"scale": 0.25}),
        (cap, "++++", [8, 8, 16, 16, 20]),
        (cap, "+", [64, 64], {"scale": 64}),
        (cap, "-", [64, 32], {"scale": 64}),
        (at_top, "++", [TOP] * 3),
        ({**at_top, "growth_guard": False}, "+", [TOP, np.inf]),
        ({**at_top, "growth_guard": False, "max_scale": 1.5 * TOP}, "+", [TOP, 1.5 * TOP]),
        ({**at_top, "max_scale": 1.5 * TOP}, "+", [TOP, TOP]),
    ]
    assert differing(library, rows) == []


@pytest.mark.clause("MACHINE-arithmetic")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_factor_is_rounded_before_the_product(library, dtype):
    """A factor of 1.1 is rounded to the dtype of the scale, and so is each product."""
    rule = LossScaleRule(init_scale=7.0, growth_factor=1.1, backoff_factor=0.3, growth_interval=1, dtype=dtype)
    of = np.dtype(dtype).type
    expected = [of(7), of(7) * of(1.1), of(7) * of(1.1) * of(1.1), of(7) * of(1.1) * of(1.1) * of(0.3)]
    assert [state.scale for state in trace(library, rule, "++-")] == expected


@pytest.mark.clause("MACHINE-wide-factor", "MACHINE-division")
def test_wide_factors_and_divisions_round_once(library):
    """Nine times 1.1 and ten divided by three are other float32 numbers than products of rounded factors."""
    wide = {"init_scale": 9.0, "growth_factor": 1.1, "backoff_factor": 0.7, "growth_interval": 1, "wide_factor": True}
    third = {"init_scale": 10.0, "growth_factor": 3, "backoff_factor": 1 / 3}
    rows = [
        (wide, "+", [9, np.float32(9 * 1.1)]),
        (wide, "-", [9, np.float32(9 * 0.7)]),
        (third, "-", [10, float.fromhex("0x1.aaaaacp+1")]),
        ({**third, "backoff_divides": True}, "-", [10, float.fromhex("0x1.aaaaaap+1")]),
        ({"init_scale": 7000.0, "backoff_factor": 1 / 49, "backoff_divides": True, "dtype": "float64"}, "-", [7000, 7000 / 49]),
    ]
    assert differing(library, rows) == []
    assert np.float32(9 * 1.1) != np.float32(9) * np.float32(1.1)
    assert np.float32(9 * 0.7) != np.float32(9) * np.float32(0.7)


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
