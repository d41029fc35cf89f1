"""State machine compared with the oracle of the suite, and properties that hold for all overflow traces."""

from functools import cache
from itertools import cycle

import numpy as np
import pytest
from ampscale_conformance.oracle.machine import Machine
from hypothesis import given, settings
from hypothesis import strategies as st
from libraries import load, on
from strategies import rules, same

from ampscale.core.rule import LossScaleRule
from ampscale.core.rule_constants import EVENTS
from ampscale.core.trees import leaves, map_leaves

STEPS = 10
PATTERNS = (np.arange(2**STEPS)[:, None] >> np.arange(STEPS)[::-1]) & 1 == 0  # one row for each trace; True is a finite step
TOP, BOTTOM = 2.0**126, 2.0**-145

RULES = {
    "default": LossScaleRule(growth_interval=3),
    "every-step": LossScaleRule(growth_interval=1, init_scale=TOP),
    "infinite": LossScaleRule(growth_interval=1, init_scale=TOP, skip_infinite_growth=False),
    "subnormal": LossScaleRule(growth_interval=4, init_scale=BOTTOM),
    "min-scale": LossScaleRule(growth_interval=2, init_scale=5.0, min_scale=1.0),
    "max-scale": LossScaleRule(growth_interval=2, init_scale=5.0, max_scale=16.0),
    "bounds": LossScaleRule(growth_interval=2, init_scale=5.0, min_scale=3.0, max_scale=7.0, hysteresis=2),
    "infinite-max-scale": LossScaleRule(growth_interval=1, init_scale=TOP, max_scale=1.5 * TOP, skip_infinite_growth=False),
    "skipped-max-scale": LossScaleRule(growth_interval=2, init_scale=2 * TOP, max_scale=3 * TOP),
    "offset": LossScaleRule(growth_interval=3, initial_good_steps=-1, hysteresis=2),
    "divides": LossScaleRule(growth_interval=2, growth_factor=3, backoff_factor=1 / 3, divide_on_backoff=True, init_scale=10.0),
    "multiplies": LossScaleRule(growth_interval=2, growth_factor=3, backoff_factor=1 / 3, init_scale=10.0),
    "odd": LossScaleRule(growth_interval=2, growth_factor=1.1, backoff_factor=0.7, hysteresis=3, min_scale=1.0, init_scale=3.0),
    "float64-factor": LossScaleRule(
        growth_interval=2, growth_factor=1.1, backoff_factor=0.7, init_scale=3.0, float64_factor=True
    ),
    "float64-factor-divides": LossScaleRule(
        growth_interval=2, growth_factor=3, backoff_factor=0.3, divide_on_backoff=True, init_scale=10.0, float64_factor=True
    ),
    "delayed-update": LossScaleRule(growth_interval=2, delayed_update=True, init_scale=10.0, backoff_factor=0.7),
    "delayed-at-min-scale": LossScaleRule(
        growth_interval=3, delayed_update=True, init_scale=4.0, min_scale=1.0, hysteresis=2, raise_at_min_scale=True
    ),
    "block-at-bounds": LossScaleRule(
        growth_interval=2, growth_factor=3, block_at_bounds=True, init_scale=5.0, min_scale=3.0, max_scale=7.0
    ),
    "blocked-above": LossScaleRule(
        growth_interval=1, block_at_bounds=True, init_scale=5.0, max_scale=7.0, hysteresis=2, reset_bad_steps_on=("growth",)
    ),
    "blocked-below": LossScaleRule(growth_interval=3, block_at_bounds=True, init_scale=5.0, min_scale=3.0, initial_good_steps=-2),
    "overflow-tolerance": LossScaleRule(growth_interval=3, overflow_tolerance=0.25, reset_bad_steps_on=("backoff",)),
    "tolerance-and-growth": LossScaleRule(growth_interval=2, overflow_tolerance=0.5, reset_bad_steps_on=("growth", "backoff")),
    "tolerance-above-1": LossScaleRule(growth_interval=2, overflow_tolerance=1.5, reset_bad_steps_on=("backoff",)),
    "raise-at-min-scale": LossScaleRule(
        growth_interval=4, hysteresis=2, reset_bad_steps_on=("growth",), init_scale=4.0, min_scale=1.0, raise_at_min_scale=True
    ),
    "raise-at-or-below": LossScaleRule(growth_interval=4, init_scale=4.0, raise_at_or_below=0.5),
    "raise-and-hysteresis": LossScaleRule(growth_interval=4, init_scale=4.0, raise_at_or_below=4.0, hysteresis=2),
    "warmup": LossScaleRule(
        growth_interval=1, growth_factor=1.1, warmup_growth_factor=2.0, reset_bad_steps_on=(), init_scale=3.0
    ),
    "warmup-again": LossScaleRule(
        growth_interval=2, growth_factor=1.1, warmup_growth_factor=3.0, hysteresis=2, reset_bad_steps_on=("finite",)
    ),
    **{
        f"reset-{'-'.join(names) or 'never'}-{interval}": LossScaleRule(
            growth_interval=interval, hysteresis=2, reset_bad_steps_on=names
        )
        for interval in (1, 3)
        for names in [(), *((name,) for name in EVENTS), ("finite", "growth"), ("growth", "backoff"), EVENTS]
    },
}
DTYPES = np.array(["float32", "int32", "int32", "int32", "float32"])


def batch(rule, size, library):
    """Return a batch of initial states, each array of shape (size,)."""
    return library.from_numpy(map_leaves(lambda array: np.full(size, array), rule.init()))


@cache
def states_of_oracle(name):
    """Return the oracle's states after each step of all traces: a float64 array of shape (steps, traces, fields)."""
    machines, levels = [Machine(RULES[name])], []
    for step in range(1, STEPS + 1):  # traces with a common prefix share its states
        machines = [machine.copy() for machine in machines for _ in range(2)]
        for machine, finite in zip(machines, cycle([True, False])):
            machine.step(finite)
        states = [
            (machine.point.scale, machine.good_steps, machine.bad_steps, machine.steps, machine.scale) for machine in machines
        ]
        levels.append(np.repeat(np.asarray(states, np.float64), 2 ** (STEPS - step), axis=0))
    return np.stack(levels)


def equals_the_oracle(library, name):
    """Return True if a batch of states, one for each trace, equals the oracle's states after every step, bit for bit."""
    rule = RULES[name]
    used = np.array([True, True, True, rule.overflow_tolerance is not None, rule.delayed_update])
    state = batch(rule, 2**STEPS, library)
    for finite, expected in zip(PATTERNS.T, states_of_oracle(name), strict=True):
        state = rule.update(state, library.array(finite, "bool"))
        arrays = [array for array in library.to_numpy(state) if array is not None]
        if [array.dtype for array in arrays] != DTYPES[used].tolist():
            return False
        if not np.array_equal(np.stack(arrays, axis=1, dtype=np.float64), expected[:, used]):
            return False
    return True


@pytest.mark.clause(
    "MACHINE-growth-window", "MACHINE-growth-factor", "MACHINE-growth-resets", "MACHINE-skip-infinite-growth",
    "MACHINE-max-scale", "MACHINE-backoff", "MACHINE-overflow-resets", "MACHINE-hysteresis", "MACHINE-reset-bad-steps",
    "MACHINE-min-scale", "MACHINE-initial-good-steps", "MACHINE-arithmetic", "MACHINE-divide-on-backoff",
    "MACHINE-pure", "MACHINE-warmup-growth-factor", "MACHINE-block-at-bounds", "MACHINE-overflow-tolerance",
    "MACHINE-would-raise", "MACHINE-delayed-update", "MACHINE-every-sequence",
)  # fmt: skip
@on("numpy", "strict", "torch")
def test_all_traces_equal_the_oracle(library):
    """
    Rules that together set every constant except `dtype` run along all 1024 traces of ten steps.

    `backends/jax/test_backend_machine.py` compares JAX with NumPy, in compiled loops.
    """
    assert [name for name in RULES if not equals_the_oracle(library, name)] == []


@pytest.mark.clause("MACHINE-bounds", "MACHINE-skip-infinite-growth")
@given(rules())
def test_scale_stays_finite_and_within_its_bounds(rule):
    """The scale leaves its bounds only if `block_at_bounds` is set; with `skip_infinite_growth` the scale stays finite."""
    number = np.dtype(rule.dtype).type
    low, high = (None, None) if rule.block_at_bounds else (rule.min_scale, rule.max_scale)
    state = batch(rule, 2**STEPS, load("numpy"))
    for finite in PATTERNS.T:
        state = rule.update(state, finite)
        assert np.all(number(low or 0) <= state.scale)
        assert np.all(state.scale <= number(high or np.inf))
        if rule.skip_infinite_growth:
            assert np.all(np.isfinite(state.scale))


@pytest.mark.clause("MACHINE-pure")
@settings(max_examples=10)
@given(st.sampled_from(sorted(RULES.keys() - {"subnormal"})), st.lists(st.booleans(), min_size=1, max_size=6))
def test_update_is_pure(library, name, pattern):
    """No argument is changed, and equal arguments give equal results; the same holds for each state of a batch."""
    rule = RULES[name]
    state, states = rule.init(like=library.array(0)), batch(rule, 3, library)
    for step in pattern:
        finite, flags = library.array(step, "bool"), library.array([step, step, not step], "bool")
        arguments = library.to_numpy([state, states, finite, flags])
        new_state, repeated, new_states = rule.update(state, finite), rule.update(state, step), rule.update(states, flags)
        assert same(library.to_numpy([state, states, finite, flags]), arguments)
        assert all(array.shape == () for array in leaves(new_state))
        expected, again, of_batch = library.to_numpy([new_state, repeated, new_states])
        assert same(again, expected)
        assert same(map_leaves(lambda array: array[0], of_batch), expected)
        state = new_state
        states = library.from_numpy(map_leaves(lambda array: np.repeat(array[:1], 3), of_batch))
