"""Tests of the divergence of two scalers, against a brute-force search over all traces of small scalers."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from checkpoints import brute
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ampscale import LossScaleRule, presets
from ampscale.checkpoints import Checkpoint, Run
from ampscale.checkpoints.divergence import divergence, steps_to_growth

LONG = 36  # steps; each cycle of the states of two small scalers is shorter than half of this


def checkpoint_after(rule, trace="", **counts):
    """Return the checkpoint of a scaler after a trace, with some counts replaced."""
    state = rule.init(like=np.zeros(()))
    for symbol in trace:
        state = rule.update(state, symbol == ".")
    return Checkpoint(rule, state._replace(**{name: np.asarray(value, np.int32) for name, value in counts.items()}))


FIELDS = ["growth_interval", "hysteresis", "reset_bad_steps_on", "block_at_bounds", "delayed_update", "initial_good_steps"]
FIELDS += ["growth_factor", "backoff_factor"]


@st.composite
def small_pairs(draw):
    """Draw two scalers after the same trace, whose rules differ in at most two fields, and whose counts may differ, too."""
    rule, other = draw(brute.small_rules()), draw(brute.small_rules())
    names = draw(st.sets(st.sampled_from(FIELDS), min_size=1, max_size=2))
    changed = replace(rule, **{name: getattr(other, name) for name in names})
    counts = {"good_steps": draw(st.integers(0, 2)), "bad_steps": draw(st.integers(0, 1))}
    steps = draw(st.text(".x", max_size=3))
    return checkpoint_after(rule, steps), checkpoint_after(changed, steps, **(counts if draw(st.booleans()) else {}))


@settings(max_examples=60)
@given(small_pairs())
def test_divergence_equals_brute_force(pair):
    """The first difference and the number of differing steps equal those that a search of all traces of 36 steps finds."""
    check_against_brute_force(pair)


EVENTS = [(), ("finite",), ("growth",), ("finite", "backoff"), ("growth", "backoff")]


@pytest.mark.parametrize(
    ("interval", "hysteresis", "delayed_update", "reset_bad_steps_on"),
    [
        (1, 1, True, ()),  # with a hysteresis of 1, there is no count of overflows to reset
        (2, 1, False, ()),
        (3, 1, True, ()),
        *((interval, 2, False, events) for interval in (1, 3) for events in EVENTS),
    ],
)
def test_divergence_between_two_scales_equals_brute_force(interval, hysteresis, delayed_update, reset_bad_steps_on):
    """With only two possible scales, different counts lead to the same state after a growth or a backoff."""
    constants = {"reset_bad_steps_on": reset_bad_steps_on, "initial_good_steps": -1, "delayed_update": delayed_update}
    rule = LossScaleRule(2.0, growth_interval=interval, hysteresis=hysteresis, min_scale=1.0, max_scale=2.0, **constants)
    others = checkpoint_after(rule, "x"), checkpoint_after(replace(rule, init_scale=1.0))
    for good, bad, other in product(range(-1, interval), range(hysteresis), others):
        check_against_brute_force([checkpoint_after(rule, "x", good_steps=good, bad_steps=bad), other])


def check_against_brute_force(pair):
    """Check the first difference and the number of differing steps of two checkpoints against all traces."""
    rules = [checkpoint.rule for checkpoint in pair]
    states = tuple(map(brute.state_of, pair))
    result = divergence(*pair, budgets=(10_000,))
    assert result.searched is None
    assert brute.length(result.first) == brute.earliest(rules, states, LONG)
    half, whole = (brute.most_differing(rules, states, steps) for steps in (LONG // 2, LONG))
    assert result.steps == (whole if half == whole else math.inf)
    assert (result.steps == 0) == (result.first is None)


@settings(max_examples=50)
@given(small_pairs())
def test_traces_lead_to_differing_scales(pair):
    """
    Scales differ after the trace `first`, and after the lead of `endless`, whose cycle returns to the same pair of states.

    The number of steps to the next growth is exact, too.
    """
    rules = [checkpoint.rule for checkpoint in pair]
    states = tuple(map(brute.state_of, pair))
    for checkpoint in pair:
        assert steps_to_growth(checkpoint) == brute.next_growth(checkpoint, LONG)
    result = divergence(*pair)
    assume(result.first is not None)
    assert brute.differ(brute.follow(rules, states, result.first))
    assert (result.endless is None) == (result.steps != math.inf)
    if result.endless is not None:
        lead, cycle = result.endless
        after_lead = brute.follow(rules, states, lead)
        after_cycle = brute.follow(rules, after_lead, cycle)
        assert brute.differ(after_lead)
        assert brute.length(cycle) > 0
        assert capped(rules, after_cycle) == capped(rules, brute.follow(rules, after_cycle, cycle))


def capped(rules, pair):
    """Return a pair of states with `good_steps` capped, since a blocked growth keeps counting without further effect."""
    return [
        state and (state[0], min(state[1], rule.growth_interval - 1), *state[2:]) for rule, state in zip(rules, pair, strict=True)
    ]


def runs(text):
    """Parse run lengths such as ``766. 1x``."""
    return tuple(Run(token[-1], int(token[:-1])) for token in text.split())


@pytest.mark.parametrize(
    ("source", "counts", "target", "first", "endless"),
    [
        (presets.torch(), {"good_steps": 1234}, presets.torch(), "766.", ("766. 1x", "1x 2000.")),
        (presets.torch(), {}, presets.paddle(), "224000.", ("224000.", "2000.")),
        (presets.torch(), {}, presets.jmp(2.0**16), "17x", ("17x", "2000. 1x")),
        (presets.megatron(growth_interval=2000), {}, presets.torch(2.0**32), "1x", ("182x", "1x")),
        (presets.deepspeed(hysteresis=1), {}, presets.deepspeed_fp16_optimizer(), "17x", ("17x", "1.")),
        (presets.flax(min_scale=None), {}, presets.torch(), "2000.", None),
        (presets.mxnet(), {}, presets.apex(), "1x", ("1x", "2000. 1x")),
    ],
    ids=[
        "count that the target lacks", "growth to infinity, after 112 growths", "lower bound", "count that only a growth resets",
        "error of one scaler at its minimum", "interval that is longer by one step", "delayed update",
    ],
)  # fmt: skip
def test_published_scalers_differ_indefinitely_after_the_expected_trace(source, counts, target, first, endless):
    """`first` is the shortest such trace; `endless` is a trace to a pair of states with different scales, and a cycle of it."""
    result = divergence(checkpoint_after(source, **counts), checkpoint_after(target))
    assert (result.first, result.steps) == (runs(first), math.inf)
    if endless is not None:
        assert result.endless == tuple(map(runs, endless))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (presets.jmp(), presets.tf_keras()),
        (presets.mindspore(), presets.jmp(2.0**24)),
        (presets.fairseq(raise_at_or_below=1e-4), presets.fairscale(2.0**7, growth_interval=2**14)),
        (presets.torch(growth_factor=1.1, backoff_factor=0.7), presets.torch(growth_factor=1.1, backoff_factor=0.7)),
        (presets.onnxruntime(), presets.apex(min_scale=1.0)),
        (presets.oneflow(), replace(presets.mindspore_update_cell(2.0**16), max_scale=presets.LARGEST)),
    ],
)
def test_equivalent_rules_never_diverge(source, target):
    """Some of these rules have a factor that leads to more scales than a search can explore."""
    result = divergence(checkpoint_after(source), checkpoint_after(target))
    assert (result.first, result.steps, result.endless, result.searched) == (None, 0, None, None)


def test_small_budget_leaves_the_divergence_undetermined():
    """The result states up to which step the scales agree, and at least the first step at which they differ, if it is found."""
    pair = checkpoint_after(presets.torch(growth_factor=3.0)), checkpoint_after(presets.paddle(growth_factor=3.0))
    result = divergence(*pair, budgets=(50,))
    assert (result.first, result.steps, result.endless) == (None, None, None)
    assert result.searched > 5
    assert divergence(*pair, budgets=(200,)).searched > result.searched
    pair = checkpoint_after(presets.megatron()), checkpoint_after(presets.torch(2.0**32, growth_interval=1000))
    result = divergence(*pair, budgets=(5,))
    assert (result.first, result.steps, result.endless) == (runs("1x"), None, None)


def test_the_next_budget_is_used_if_the_result_is_incomplete():
    pair = checkpoint_after(presets.torch()), checkpoint_after(presets.paddle())
    assert divergence(*pair, budgets=(10,)).steps is None
    assert divergence(*pair, budgets=(10, 5000)).steps == math.inf


def test_scales_that_grow_to_different_bounds_differ_indefinitely():
    """A search that stops before it returns to a pair of states also tries a run without overflows."""
    rule = LossScaleRule(1.0, growth_interval=1000, min_scale=1.0, max_scale=16.0)
    result = divergence(checkpoint_after(rule), checkpoint_after(replace(rule, max_scale=128.0)), budgets=(20,))
    assert (result.first, result.steps, result.searched) == (runs("5000."), math.inf, 5002)
    assert result.endless == (runs("7000."), runs("1000."))


@pytest.mark.parametrize("tolerances", [(0.25, 0.34), (0.2, 0.25), (0.15, 0.2), (0.5, 0.4)], ids=str)
@pytest.mark.parametrize("interval", [4, 6])
def test_overflow_tolerance_is_searched_step_by_step(interval, tolerances):
    """Every step changes the share of overflows, so no finite steps are combined in one edge."""
    rule = LossScaleRule(8.0, growth_interval=interval, max_scale=16.0, overflow_tolerance=0.5, reset_bad_steps_on=("backoff",))
    rules = [replace(rule, overflow_tolerance=tolerance) for tolerance in tolerances]
    pair = [checkpoint_after(rule) for rule in rules]
    assert brute.length(divergence(*pair).first) == brute.earliest(rules, tuple(map(brute.state_of, pair)), 12)


@pytest.mark.parametrize("good", [0, 2, 3])
def test_blocked_backoff_is_searched_step_by_step(good):
    """A blocked backoff leaves the count of finite steps unchanged, so no finite steps are combined in one edge."""
    rule = LossScaleRule(1.0, growth_interval=4, min_scale=1.0, max_scale=2.0, block_at_bounds=True)
    for other in (rule, replace(rule, block_at_bounds=False), replace(rule, growth_interval=5)):
        check_against_brute_force([checkpoint_after(rule, good_steps=good), checkpoint_after(other, good_steps=1)])


@settings(max_examples=40)
@given(small_pairs(), st.integers(1, 25))
def test_small_budget_agrees_with_a_large_one(pair, budget):
    """The scales are equal up to `searched`, and `first` has the length that a large budget gives."""
    complete, result = divergence(*pair, budgets=(10_000,)), divergence(*pair, budgets=(budget,))
    if result.first is not None:
        assert brute.length(result.first) == brute.length(complete.first)
    elif result.searched is not None and complete.first is not None:
        assert result.searched < brute.length(complete.first)
    assert result.steps in (None, complete.steps)


def test_largest_scale_never_grows():
    """With `skip_infinite_growth`, no number of finite steps doubles the largest power of two of float32."""
    assert steps_to_growth(checkpoint_after(presets.torch(2.0**127))) is None
