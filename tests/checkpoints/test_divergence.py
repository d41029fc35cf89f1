"""How far two scalers can part is what all their traces say, where these are few enough to be walked."""

import math
from dataclasses import replace

import numpy as np
import pytest
from checkpoints import brute
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ampscale import LossScaleRule, presets
from ampscale.checkpoints import Checkpoint, Run
from ampscale.checkpoints.divergence import divergence, steps_to_growth

HOST = np.zeros(())
LONG = 36  # steps; no cycle of two such small scalers is as long as half of them


def standing(rule, finite="", **counts):
    """Where a scaler stands that has made some steps, and then some counts of which were changed."""
    state = rule.init(like=HOST)
    for symbol in finite:
        state = rule.update(state, symbol == ".")
    return Checkpoint(rule, state._replace(**{name: np.asarray(value, np.int32) for name, value in counts.items()}))


@st.composite
def small_rules(draw):
    """Rules with every axis, but few scales and short windows."""
    low, high = draw(st.sampled_from([(1.0, 2.0), (1.0, 4.0), (2.0, 8.0)]))
    return LossScaleRule(
        init_scale=draw(st.sampled_from([low, 2 * low, high])),
        growth_factor=draw(st.sampled_from([2.0, 2.0, 4.0, 1.0])),
        backoff_factor=draw(st.sampled_from([0.5, 0.5, 0.25, 1.0])),
        growth_interval=draw(st.integers(1, 3)),
        hysteresis=draw(st.integers(1, 3)),
        min_scale=low,
        max_scale=high,
        reset_bad_steps_on=tuple(sorted(draw(st.sets(st.sampled_from(["finite", "growth", "backoff"]))))),
        initial_good_steps=draw(st.integers(-2, 0)),
        warmup_growth_factor=draw(st.sampled_from([None, None, 1.0, 4.0])),
        block_at_bounds=draw(st.sampled_from([False, False, True])),
        raise_at_min_scale=draw(st.sampled_from([False, False, False, True])),
        raise_at_or_below=draw(st.sampled_from([None, None, None, low])),
        delayed_update=draw(st.sampled_from([False, False, True])),
    )


AXES = [
    "growth_interval",
    "hysteresis",
    "reset_bad_steps_on",
    "block_at_bounds",
    "delayed_update",
    "initial_good_steps",
    "growth_factor",
    "backoff_factor",
]


@st.composite
def small_pairs(draw):
    """Two scalers at one scale whose rules, or whose counts, differ in one or two things."""
    rule, other = draw(small_rules()), draw(small_rules())
    changed = replace(
        rule, **{name: getattr(other, name) for name in draw(st.sets(st.sampled_from(AXES), min_size=1, max_size=2))}
    )
    counts = {"good_steps": draw(st.integers(0, 2)), "bad_steps": draw(st.integers(0, 1))}
    steps = draw(st.text(".x", max_size=3))
    return standing(rule, steps), standing(changed, steps, **(counts if draw(st.booleans()) else {}))


@settings(max_examples=60)
@given(small_pairs())
def test_the_numbers_are_those_of_all_traces(pair):
    """The earliest step, the number of steps, and that there is no end to them, against every trace of 36 steps."""
    check_numbers(pair)


@pytest.mark.parametrize("reset_bad_steps_on", [(), ("finite",), ("growth",), ("finite", "backoff"), ("growth", "backoff")])
@pytest.mark.parametrize(
    ("interval", "hysteresis", "delayed_update"), [(1, 1, True), (2, 1, False), (3, 1, True), (1, 2, False), (3, 2, False)]
)
def test_between_two_scales_a_lost_count_is_made_up_for(interval, hysteresis, delayed_update, reset_bad_steps_on):
    """Where a growth and a backoff lead to the same scale from everywhere, the difference ends, and the number says when."""
    constants = {"reset_bad_steps_on": reset_bad_steps_on, "initial_good_steps": -1, "delayed_update": delayed_update}
    rule = LossScaleRule(2.0, 2.0, 0.5, interval, hysteresis, 1.0, 2.0, **constants)
    counts = [(good, bad) for good in range(-1, interval) for bad in range(hysteresis)]
    for good, bad in counts:
        check_numbers([standing(rule, "x", good_steps=good, bad_steps=bad), standing(rule, "x")])
        check_numbers([standing(rule, "x", good_steps=good, bad_steps=bad), standing(replace(rule, init_scale=1.0))])


def check_numbers(pair):
    """The numbers of a pair, against all traces."""
    rules, states = [each.rule for each in pair], tuple(map(brute.start, pair))
    found = divergence(*pair, budgets=(10_000,))
    assert found.searched is None
    assert brute.length(found.first) == brute.earliest(rules, states, LONG)
    half, whole = (brute.most_differing(rules, states, steps) for steps in (LONG // 2, LONG))
    assert found.steps == (whole if half == whole else math.inf)
    assert (found.steps == 0) == (found.first is None)


@settings(max_examples=50)
@given(small_pairs())
def test_what_is_said_can_be_walked(pair):
    """
    After the first trace the scales differ; after the lead they do, and each cycle leads to the same states again.

    The next growth of each scaler comes when finite steps that are taken one by one bring it.
    """
    rules, states = [each.rule for each in pair], tuple(map(brute.start, pair))
    for each in pair:
        assert steps_to_growth(each) == brute.next_growth(each, LONG)
    found = divergence(*pair)
    assume(found.first is not None)
    assert brute.differ(brute.follow(rules, states, found.first))
    assert (found.endless is None) == (found.steps != math.inf)
    if found.endless is not None:
        lead, cycle = found.endless
        once = brute.follow(rules, states, lead)
        again = brute.follow(rules, once, cycle)
        assert brute.differ(once)
        assert brute.length(cycle) > 0
        assert settled(rules, again) == settled(rules, brute.follow(rules, again, cycle))


def settled(rules, pair):
    """A pair of states; behind a closed gate the count of finite steps goes on without meaning more than that it is due."""
    return [
        state and (state[0], min(state[1], rule.growth_interval - 1), *state[2:]) for rule, state in zip(rules, pair, strict=True)
    ]


def runs(text):
    """``766. 1x`` as a trace."""
    return tuple(Run(word[-1], int(word[:-1])) for word in text.split())


@pytest.mark.parametrize(
    ("source", "target", "first", "endless"),
    [
        # a lost count: the growth comes late, and an overflow before it makes up for nothing
        (standing(presets.torch(), good_steps=1234), standing(presets.torch()), "766.", ("766. 1x", "1x 2000.")),
        # no guard: nothing differs until 112 growths later, at infinity
        (standing(presets.torch()), standing(presets.paddle()), "224000.", ("224000.", "2000.")),
        # a floor
        (standing(presets.torch()), standing(presets.jmp(2.0**16)), "17x", ("17x", "2000. 1x")),
        # patience that a growth alone refills
        (standing(presets.megatron(growth_interval=2000)), standing(presets.torch(2.0**32)), "1x", ("182x", "1x")),
        # it raises at its floor, and the other goes on
        (standing(presets.deepspeed(hysteresis=1)), standing(presets.deepspeed_fp16_optimizer()), "17x", ("17x", "1.")),
        # a window that is longer by a step, and a change that comes a step late
        (standing(presets.flax(min_scale=None)), standing(presets.torch()), "2000.", None),
        (standing(presets.mxnet()), standing(presets.apex()), "1x", ("1x", "2000. 1x")),
    ],
)
def test_real_scalers_part_where_they_must(source, target, first, endless):
    """At intervals of 1000 and 2000 steps, found without walking them one by one."""
    found = divergence(source, target)
    assert (found.first, found.steps) == (runs(first), math.inf)
    if endless is not None:
        assert found.endless == tuple(map(runs, endless))


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
def test_rules_that_say_the_same_agree_for_ever(source, target):
    """Also at real intervals, and where a factor leads to more scales than anyone can follow."""
    found = divergence(standing(source), standing(target))
    assert (found.first, found.steps, found.endless, found.searched) == (None, 0, None, None)


def test_what_is_not_known_is_not_said():
    """
    With a small budget no more is claimed than that the scales agree up to some step, which they do.

    The search goes on with the next budget only as long as there is no answer.
    """
    pair = standing(presets.torch(growth_factor=3.0)), standing(presets.paddle(growth_factor=3.0))
    found = divergence(*pair, budgets=(50,))
    assert (found.first, found.steps, found.endless) == (None, None, None)
    assert found.searched > 5
    assert divergence(*pair, budgets=(200,)).searched > found.searched
    patient = standing(presets.megatron()), standing(presets.torch(2.0**32, growth_interval=1000))
    found = divergence(*patient, budgets=(5,))
    assert (found.first, found.steps, found.endless) == (runs("1x"), None, None)
    pair = standing(presets.torch()), standing(presets.paddle())
    assert divergence(*pair, budgets=(10,)).steps is None
    assert divergence(*pair, budgets=(10, 5000)).steps == math.inf


@pytest.mark.parametrize("rates", [(0.25, 0.34), (0.2, 0.25), (0.15, 0.2), (0.5, 0.4)])
@pytest.mark.parametrize("interval", [4, 6])
def test_an_overflow_rate_is_walked_step_by_step(interval, rates):
    """Where each step counts towards a share, no finite steps are passed over."""
    rules = [
        LossScaleRule(8.0, growth_interval=interval, max_scale=16.0, overflow_tolerance=rate, reset_bad_steps_on=("backoff",))
        for rate in rates
    ]
    pair = [standing(rule) for rule in rules]
    assert brute.length(divergence(*pair).first) == brute.earliest(rules, tuple(map(brute.start, pair)), 12)


@pytest.mark.parametrize("good", [0, 2, 3])
def test_a_count_behind_a_gate_is_walked_step_by_step(good):
    """At a floor that forbids a backoff, an overflow leaves the count of finite steps as it is."""
    rule = LossScaleRule(1.0, 2.0, 0.5, 4, 1, 1.0, 2.0, block_at_bounds=True)
    for other in (rule, replace(rule, block_at_bounds=False), replace(rule, growth_interval=5)):
        check_numbers([standing(rule, good_steps=good), standing(other, good_steps=1)])


@settings(max_examples=40)
@given(small_pairs(), st.integers(1, 25))
def test_a_small_budget_claims_no_more_than_it_saw(pair, budget):
    """Up to the step that it names, nothing differs; and what differs is no nearer with a larger budget."""
    whole, found = divergence(*pair, budgets=(10_000,)), divergence(*pair, budgets=(budget,))
    if found.first is not None:
        assert brute.length(found.first) == brute.length(whole.first)
    elif found.searched is not None and whole.first is not None:
        assert found.searched < brute.length(whole.first)
    assert found.steps in (None, whole.steps)


def test_a_guard_ends_all_growth():
    """At the last scale that float32 can double to, no number of finite steps leads further."""
    assert steps_to_growth(standing(presets.torch(2.0**127))) is None
