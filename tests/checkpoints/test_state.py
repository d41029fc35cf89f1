"""Tests of the canonical form of checkpoints, and of the check for reachable states."""

from dataclasses import replace

import numpy as np
import pytest
from checkpoints.brute import after, small_rules
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ampscale import LossScaleRule, presets
from ampscale.checkpoints import Checkpoint
from ampscale.checkpoints.state import arrays_of, canonical, check_reachable, numbers_of
from ampscale.core.machine import LossScaleState


@st.composite
def rules(draw):
    """Draw small rules with other factors and without an upper bound, in either dtype."""
    growth, backoff = draw(st.sampled_from([(2.0, 0.5), (4.0, 0.25), (3.0, 1 / 3), (1.5, 0.75), (1.1, 0.7), (1 + 2**-30, 0.5)]))
    return replace(
        draw(small_rules()), growth_factor=growth, backoff_factor=backoff, max_scale=None, block_at_bounds=False,
        divide_on_backoff=draw(st.booleans()), float64_factor=draw(st.booleans()),
        dtype=draw(st.sampled_from(["float32", "float64"])),
    )  # fmt: skip


@settings(max_examples=150)
@given(rules(), st.text(".x", max_size=6), st.text(".x", min_size=4, max_size=12))
def test_canonical_form_has_the_same_scales(rule, prefix, trace):
    """The scales are equal after each step, from any state that the rule reaches."""
    state = numbers_of(rule.init(like=np.zeros(())))
    for symbol in prefix:
        state = after(rule, state, symbol == ".") or state
    canonical_rule, canonical_state = canonical(Checkpoint(rule, state))
    for symbol in trace:
        state, canonical_state = after(rule, state, symbol == "."), after(canonical_rule, canonical_state, symbol == ".")
        assert (state is None) == (canonical_state is None)
        assert state is None or state[0] == canonical_state[0]


def test_canonical_form_keeps_constants_that_have_an_effect():
    """Only the initial scale is replaced, and the events that reset a count without an effect are left out."""
    state = LossScaleState(8.0, 0, 1)
    for rule in (
        LossScaleRule(hysteresis=2),
        LossScaleRule(growth_factor=1.1, float64_factor=True),
        LossScaleRule(backoff_factor=0.7, float64_factor=True),
        LossScaleRule(backoff_factor=1 / 3, divide_on_backoff=True),
        LossScaleRule(warmup_growth_factor=1.1, float64_factor=True, reset_bad_steps_on=()),
        LossScaleRule(overflow_tolerance=0.5, reset_bad_steps_on=("backoff",)),
    ):
        result, _ = canonical(Checkpoint(rule, state))
        counts_overflows = rule.hysteresis > 1 or rule.overflow_tolerance is not None or rule.warmup_growth_factor is not None
        events = rule.reset_bad_steps_on if counts_overflows else ()
        assert replace(result, init_scale=rule.init_scale) == replace(rule, reset_bad_steps_on=events)


@given(small_rules(), st.text(".x", max_size=12))
@example(presets.fairseq_tolerance(growth_interval=3, overflow_tolerance=0.5), "..x...x..x...xx.")  # no window resets the count
@example(LossScaleRule(growth_interval=2, initial_good_steps=3), ".x..x")  # the initial count exceeds the interval
def test_check_reachable_accepts_all_states_of_a_run(rule, trace):
    """The initial state is accepted as well."""
    state = rule.init(like=np.zeros(()))
    check_reachable(rule, numbers_of(state))
    for symbol in trace:
        state = rule.update(state, symbol == ".")
        check_reachable(rule, numbers_of(state))


def is_reachable(rule, good_steps, bad_steps):
    """Return True if `check_reachable` accepts these counts."""
    try:
        check_reachable(rule, LossScaleState(4.0, good_steps, bad_steps))
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    "reset_bad_steps_on", [("finite", "backoff"), ("finite",), ("growth", "backoff"), ("growth",), ()], ids=str
)
@pytest.mark.parametrize(("interval", "hysteresis", "offset"), [(1, 1, 0), (3, 2, -1), (2, 3, 0)])
def test_check_reachable_rejects_all_other_states(interval, hysteresis, offset, reset_bad_steps_on):
    """The accepted counts are those of all states that an exhaustive search visits."""
    constants = {"reset_bad_steps_on": reset_bad_steps_on, "initial_good_steps": offset}
    rule = LossScaleRule(4.0, growth_interval=interval, hysteresis=hysteresis, min_scale=2.0, max_scale=8.0, **constants)
    visited, stack = set(), [numbers_of(rule.init(like=np.zeros(())))]
    while stack:
        state = stack.pop()
        if state not in visited:
            visited.add(state)
            stack += [numbers_of(rule.update(arrays_of(rule, state), finite)) for finite in (True, False)]
    expected = {(state.good_steps, state.bad_steps) for state in visited}
    candidates = {(good, bad) for good in range(offset - 2, interval + 2) for bad in range(-1, hysteresis + 2)}
    assert {counts for counts in candidates if is_reachable(rule, *counts)} == expected
    message = f"must be from {offset} to {interval - 1}, since the growth interval is {interval}, got"
    with pytest.raises(ValueError, match=message):
        check_reachable(rule, LossScaleState(4.0, interval, 0))


def test_block_at_bounds_and_overflow_tolerance_extend_the_counts():
    """A blocked growth keeps counting finite steps; with a tolerance, there are at most as many overflows as steps."""
    blocked = LossScaleRule(4.0, growth_interval=2, max_scale=4.0, block_at_bounds=True)
    check_reachable(blocked, LossScaleState(4.0, 5000, 0))
    tolerant = LossScaleRule(overflow_tolerance=0.5)
    check_reachable(tolerant, LossScaleState(4.0, 0, 3, 3))
    with pytest.raises(ValueError, match="overflows must be from 0 to 3, since window_steps counts all steps"):
        check_reachable(tolerant, LossScaleState(4.0, 0, 4, 3))


def test_canonical_form_leaves_out_float64_without_an_effect():
    """float32 represents the divisor 3 exactly, but not the factor 1/3."""
    rule = LossScaleRule(backoff_factor=1 / 3, divide_on_backoff=True, float64_factor=True)
    canonical_rule, _ = canonical(Checkpoint(rule, LossScaleState(8.0, 0, 0)))
    assert canonical_rule == replace(rule, init_scale=1.0, float64_factor=False, reset_bad_steps_on=())
