"""What has no effect, and what no run reaches."""

from dataclasses import replace

import numpy as np
import pytest
from checkpoints.brute import after
from checkpoints.test_divergence import small_rules
from hypothesis import given, settings
from hypothesis import strategies as st

from ampscale import LossScaleRule
from ampscale.checkpoints import Checkpoint
from ampscale.checkpoints.state import arrays_of, check_reachable, numbers_of, plain
from ampscale.core.machine import LossScaleState

factors = st.sampled_from([(2.0, 0.5), (4.0, 0.25), (3.0, 1 / 3), (1.5, 0.75), (1.1, 0.7), (1 + 2**-30, 0.5)])


@st.composite
def rules(draw):
    """Small rules with other factors, in either dtype, and without what makes them small."""
    growth, backoff = draw(factors)
    return replace(
        draw(small_rules()),
        growth_factor=growth,
        backoff_factor=backoff,
        max_scale=None,
        block_at_bounds=False,
        divide_on_backoff=draw(st.booleans()),
        float64_factor=draw(st.booleans()),
        dtype=draw(st.sampled_from(["float32", "float64"])),
    )


@settings(max_examples=150)
@given(rules(), st.text(".x", max_size=6), st.text(".x", min_size=4, max_size=12))
def test_what_is_made_plain_behaves_alike(rule, before, trace):
    """Scale by scale, from any state that the rule reaches."""
    start = numbers_of(rule.init(like=np.zeros(())))
    for symbol in before:
        start = after(rule, start, symbol == ".") or start
    other, state = plain(Checkpoint(rule, start))
    for symbol in trace:
        start, state = after(rule, start, symbol == "."), after(other, state, symbol == ".")
        assert (start is None) == (state is None)
        assert start is None or start[0] == state[0]


def test_what_has_an_effect_is_left():
    """Hysteresis above one, factors that float32 rounds, and divisors that are no powers of two."""
    state = LossScaleState(8.0, 0, 1)
    for rule in (
        LossScaleRule(hysteresis=2),
        LossScaleRule(growth_factor=1.1, float64_factor=True),
        LossScaleRule(backoff_factor=0.7, float64_factor=True),
        LossScaleRule(backoff_factor=1 / 3, divide_on_backoff=True),
        LossScaleRule(warmup_growth_factor=1.1, float64_factor=True, reset_bad_steps_on=()),
        LossScaleRule(overflow_tolerance=0.5, reset_bad_steps_on=("backoff",)),
    ):
        kept, _ = plain(Checkpoint(rule, state))
        counts = rule.hysteresis > 1 or rule.overflow_tolerance is not None or rule.warmup_growth_factor is not None
        events = rule.reset_bad_steps_on if counts else ()
        assert replace(kept, init_scale=rule.init_scale) == replace(rule, reset_bad_steps_on=events)


@given(small_rules(), st.text(".x", max_size=12))
def test_every_state_of_a_run_is_reachable(rule, trace):
    """No state that a rule comes to is refused."""
    state = rule.init(like=np.zeros(()))
    for symbol in trace:
        check_reachable(rule, numbers_of(state))
        state = rule.update(state, symbol == ".")


@pytest.mark.parametrize("reset_bad_steps_on", [("finite", "backoff"), ("finite",), ("growth", "backoff"), ("growth",), ()])
@pytest.mark.parametrize(("interval", "hysteresis", "offset"), [(1, 1, 0), (3, 2, -1), (2, 3, 0)])
def test_no_other_state_is(interval, hysteresis, offset, reset_bad_steps_on):
    """The counts that are let pass are those of all states that there are, found one after the other."""
    rule = LossScaleRule(4.0, 2.0, 0.5, interval, hysteresis, 2.0, 8.0, reset_bad_steps_on, initial_good_steps=offset)
    found, waiting = set(), [numbers_of(rule.init(like=np.zeros(())))]
    while waiting:
        state = waiting.pop()
        if state not in found:
            found.add(state)
            waiting += [numbers_of(rule.update(arrays_of(rule, state), finite)) for finite in (True, False)]
    counts = {(state.good_steps, state.bad_steps) for state in found}
    tried = {(good, bad) for good in range(offset - 2, interval + 2) for bad in range(-1, hysteresis + 2)}
    assert {each for each in tried if _is_reachable(rule, *each)} == counts


def _is_reachable(rule, good, bad):
    try:
        check_reachable(rule, LossScaleState(4.0, good, bad))
    except ValueError:
        return False
    return True


def test_behind_a_gate_the_count_goes_on():
    """There, any number of finite steps can have been counted; and no more overflows than steps."""
    gated = LossScaleRule(4.0, growth_interval=2, max_scale=4.0, block_at_bounds=True)
    check_reachable(gated, LossScaleState(4.0, 5000, 0))
    rated = LossScaleRule(overflow_tolerance=0.5)
    check_reachable(rated, LossScaleState(4.0, 0, 3, 3))
    with pytest.raises(ValueError, match="overflows must be from 0 to 3"):
        check_reachable(rated, LossScaleState(4.0, 0, 4, 3))
