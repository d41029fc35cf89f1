"""Identification of published scalers by their scales."""

import dataclasses
import math

import numpy as np
import pytest

from ampscale import LossScaleRule, presets
from ampscale.simulation.identification.follow_scales import Contradiction, steps_of
from ampscale.simulation.identification.identify import identify
from ampscale.simulation.simulate import simulate
from ampscale.simulation.traces import Observed, Overflow, from_flags, from_string

SMALL = {"growth_interval": 6, "hysteresis": 2, "init_scale": 64.0, "overflow_tolerance": 0.4}


def settable(name, **settings):
    """Return the *settings* that are parameters of a preset."""
    return {key: value for key, value in settings.items() if key in presets.PRESETS[name].parameters}


def without_flags(scales):
    """Return an observation of scales with unknown flags."""
    return Observed(np.array(scales, np.float64), np.full(len(scales) - 1, -1, np.int8))


RUN = without_flags([64, 32])


def with_flags(steps, scales):
    """Return an observation of scales whose flags are written as text such as "..x."."""
    return Observed(np.array(scales, np.float64), np.array([step == "." for step in steps], np.int8))


def run(rule, finite, flags):
    """Return an observation of a run of *rule*, with or without flags. A step that raises an error is the last one."""
    trajectory = simulate(rule, from_flags(finite))
    steps, scales = trajectory.finite.size, trajectory.scales
    if trajectory.raised_at is not None:
        steps, scales = steps + 1, np.append(scales, np.nan)
    return Observed(scales, finite[:steps].astype(np.int8) if flags else np.full(steps, -1, np.int8))


def consistent(explanations):
    """Return the names of the consistent scalers."""
    return [explanation.name for explanation in explanations if explanation.explains]


def assert_reproduced(explanation, observed):
    """Check that the trace of an explanation reproduces the observed scales and flags."""
    scales = simulate(explanation.rule, from_flags(explanation.finite)).scales
    shown = observed.scales[: scales.size].astype(explanation.rule.dtype)
    assert np.array_equal(np.where(np.isnan(shown), scales, shown), scales)
    assert scales.size == observed.scales.size or (scales.size == observed.finite.size and np.isnan(observed.scales[-1]))
    assert (explanation.finite == observed.finite)[observed.finite != -1].all()


@pytest.mark.parametrize("flags", [False, True])
@pytest.mark.parametrize("name", presets.PRESETS)
def test_every_preset_is_consistent_with_its_own_run(name, flags):
    """The trace of each consistent scaler reproduces the scales."""
    rng = np.random.default_rng(list(presets.PRESETS).index(name))
    settings = settable(name, **SMALL)
    observed = run(presets.PRESETS[name].rule(**settings), rng.random(150) > 0.15, flags)
    explanations = identify(observed, settings={**SMALL, **settings})
    (own_explanation,) = (explanation for explanation in explanations if explanation.name == name)
    assert own_explanation.explains
    assert own_explanation.changed == ()
    assert own_explanation.rule == presets.PRESETS[name].rule(**settings)
    for explanation in explanations:
        assert explanation.rule == presets.PRESETS[explanation.name].rule(**explanation.settings)
        if explanation.explains:
            assert_reproduced(explanation, observed)


STEPS = "....x.xxxx....x"  # the scales of these presets differ
DIFFERENT = ["paddle", "tensorflow_contrib", "megatron", "deepspeed", "deepspeed_consecutive", "nemo", "torch", "flax", "mxnet"]


def scales_of(name, settings):
    """Return the scales of a preset at `STEPS`."""
    return simulate(presets.PRESETS[name].rule(init_scale=64.0, **settable(name, **settings)), from_string(STEPS)).scales.tolist()


@pytest.mark.parametrize("name", DIFFERENT)
def test_scalers_contradict_each_other_at_the_first_difference(name):
    """Each scaler is consistent with its own scales only."""
    settings = {"growth_interval": 3, "hysteresis": 2, "backoff_factor": 0.5}
    scales = scales_of(name, settings)
    explanations = identify(with_flags(STEPS, scales), DIFFERENT, settings)
    by_name = {explanation.name: explanation for explanation in explanations}
    assert consistent(explanations) == [name]
    for other in set(DIFFERENT) - {name}:
        predicted = scales_of(other, settings)
        step = next(index for index, pair in enumerate(zip(scales, predicted, strict=True)) if pair[0] != pair[1]) - 1
        assert by_name[other].contradiction == Contradiction(step, (predicted[step + 1],), scales[step + 1])


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("torch", {"growth_interval": 50}),
        ("flax", {"growth_interval": 50}),
        ("deepspeed", {"growth_interval": 50}),
        ("chainer", {"growth_interval": 50}),
        ("bmtrain", {"growth_interval": 100}),
        ("bmtrain", {"growth_interval": 50, "max_scale": 2.0**21}),
        ("megatron", {"growth_interval": 50, "hysteresis": 3}),
        ("colossalai", {"growth_interval": 20, "max_scale": 2.0**18}),
        ("paddle", {"growth_interval": 50, "growth_factor": 1.5, "backoff_factor": 0.7}),
        ("mindspore", {"growth_interval": 20, "growth_factor": 3.0}),
        ("jmp", {"min_scale": 2.0**10}),
        ("deepspeed", {"raise_at_min_scale": False}),
    ],
    ids=str,
)
@pytest.mark.parametrize("flags", [False, True])
def test_changed_settings_are_inferred(name, settings, flags):
    """No other setting is changed."""
    rule = presets.PRESETS[name].rule(**settings)
    overflow_share = 0.3 if {"min_scale", "raise_at_min_scale"} & set(settings) else 0.02
    observed = run(rule, np.random.default_rng(1).random(3000) > overflow_share, flags)
    (explanation,) = identify(observed, [name])
    assert explanation.explains
    assert explanation.settings == {"init_scale": rule.init_scale, **settings}
    assert sorted(explanation.changed) == sorted(settings)
    assert_reproduced(explanation, observed)


def test_explanations_are_sorted():
    """The fewest changed settings come first, then the latest contradictions. Ties keep the order of the presets."""
    rule = presets.nemo(growth_interval=50, hysteresis=3)
    explanations = identify(run(rule, np.random.default_rng(0).random(600) > 0.1, flags=True), settings={"growth_interval": 50})
    assert {"nemo", "apex_hysteresis"} <= set(consistent(explanations))
    in_order = sorted(explanations, key=lambda explanation: list(presets.PRESETS).index(explanation.name))
    best = [explanation for explanation in in_order if explanation.explains]
    others = [explanation for explanation in in_order if not explanation.explains]
    best.sort(key=lambda explanation: len(explanation.changed))
    others.sort(key=lambda explanation: -explanation.contradiction.step)
    assert len(best[0].changed) == 1
    assert [explanation.name for explanation in explanations] == [explanation.name for explanation in [*best, *others]]


def test_published_initial_scale_is_tried_first_if_the_first_scale_is_unknown():
    """The first known scale is tried next. A given initial scale is the only one that is tried."""
    for first, changed in ((65536.0, ()), (1024.0, ("init_scale",))):
        (explanation,) = identify(without_flags([math.nan, first, first, first / 2]), ["torch"])
        assert (explanation.explains, explanation.changed, explanation.rule.init_scale) == (True, changed, first)
    (explanation,) = identify(without_flags([math.nan, 65536.0, 65536.0, 32768.0]), ["keras"], {"init_scale": 65536.0})
    assert explanation.explains


def test_setting_applies_to_candidates_that_have_it():
    """Candidates without this setting are tried as well."""
    explanations = identify(without_flags([64, 64, 32]), ["keras", "paddle"], {"hysteresis": 2, "init_scale": 64})
    settings = {"paddle": {"init_scale": 64, "hysteresis": 2}, "keras": {"init_scale": 64}}
    assert {explanation.name: explanation.settings for explanation in explanations} == settings


def test_rules_can_be_candidates():
    """The initial scale and other fields of a rule can be inferred as well."""
    rules = {"mine": LossScaleRule(growth_interval=2, hysteresis=2), "other": LossScaleRule(growth_interval=3)}
    mine, other = identify(with_flags("..x..", [64, 64, 128, 128, 128, 256]), rules)
    assert [mine.name, mine.changed, other.name, other.changed] == ["mine", (), "other", ("hysteresis", "growth_interval")]
    assert mine.rule == dataclasses.replace(rules["mine"], init_scale=64.0)


def test_overflows_without_steps_are_identified():
    """The flags are those of a run with these overflows. Any steps between them can be finite, so `ambiguous` is None."""
    overflows = [Overflow(9, 65536.0, 65536.0), Overflow(20, 65536.0, 32768.0), Overflow(70, 65536.0, 65536.0)]
    deepspeed, consecutive, torch = identify(overflows, ["deepspeed", "deepspeed_consecutive", "torch"])
    assert consistent([deepspeed, consecutive, torch]) == ["deepspeed", "deepspeed_consecutive"]
    assert torch.contradiction == Contradiction(0, (32768.0,), 65536.0)
    reported = simulate(deepspeed.rule, from_flags(deepspeed.finite))
    assert reported.scales[:-1][~reported.finite].tolist() == [65536, 65536, 65536]
    assert deepspeed.ambiguous is None


@pytest.mark.parametrize(("after", "init", "changed"), [((64.0, 32.0), 128, ()), ((16.0, 8.0), 32, ("init_scale",))])
def test_overflows_with_unknown_old_scales_are_identified(after, init, changed):
    """The initial scale is the published one, or twice the first known scale."""
    (explanation,) = identify([Overflow(1, math.nan, scale) for scale in after], ["fairseq"])
    assert (explanation.explains, explanation.changed, explanation.rule.init_scale) == (True, changed, init)


@pytest.mark.parametrize("name", ["torch", "megatron", "deepspeed", "nemo"])
def test_resumed_run_can_start_with_any_counts(name):
    """`start` reproduces the scales, and the interval can be inferred. Without `resumed`, the counts would have to be zero."""
    rule = presets.PRESETS[name].rule(**settable(name, growth_interval=40, hysteresis=2))
    finite = np.random.default_rng(3).random(400) > 0.02
    whole = run(rule, finite, flags=True)
    cut = int(np.flatnonzero(whole.scales[1:] > whole.scales[:-1])[1]) - 10  # ten steps before the second growth
    tail = Observed(whole.scales[cut:], whole.finite[cut:])
    settings = {"growth_interval": 40, "hysteresis": 2}
    (explanation,) = identify(tail, [name], settable(name, **settings), resumed=True)
    assert (explanation.explains, explanation.changed) == (True, ())
    good, bad = explanation.start
    state = rule.init()._replace(scale=np.array(tail.scales[0], rule.dtype), good_steps=np.int32(good), bad_steps=np.int32(bad))
    for finite_step, scale in zip(explanation.finite, tail.scales[1:], strict=True):
        state = rule.update(state, bool(finite_step))
        assert state.scale == scale
    assert identify(tail, [name], resumed=True)[0].settings.get("growth_interval") == 40
    assert not identify(tail, [name], settable(name, **settings))[0].explains


def test_resumed_run_can_start_with_counted_overflows():
    """
    The first reported overflow can be the second counted one.

    Chainer's scale grows slowly after the first overflow, so a run with slow growths cannot have started with zero counts.
    """
    overflows = [Overflow(1, 65536.0, 32768.0), Overflow(2, 32768.0, 16384.0)]
    slow = Observed(1000 * np.cumprod(np.full(51, 2 ** (1 / 1000))), np.ones(50, np.int8))
    for seen, name, settings in ((overflows, "megatron", {"hysteresis": 2}), (slow, "chainer", {"growth_interval": 1000})):
        assert not identify(seen, [name], settings, rtol=1e-9)[0].explains
        (explanation,) = identify(seen, [name], settings, rtol=1e-9, resumed=True)
        assert (explanation.explains, explanation.changed, explanation.start) == (True, (), (0, 1))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: identify(RUN, ["pytorch"]), ValueError, "candidates must be presets, .*got \\['pytorch'\\]"),
        (lambda: identify(RUN, "torch"), TypeError, "candidates must be several names"),
        (lambda: identify(RUN, {"mine": 3}), TypeError, "the candidate mine must be a LossScaleRule, got 3"),
        (lambda: identify(RUN, ["keras"], {"hysteresis": 2}), ValueError, "of at least one candidate, got \\['hysteresis'\\]"),
        (lambda: identify(RUN, None, {"growth_interval": -1}), ValueError, "growth_interval must be an int from 1"),
        (lambda: identify(RUN, None, {"growth_interval": "2"}), TypeError, "growth_interval must be an int from 1"),
        (lambda: identify(without_flags([math.nan, math.nan])), ValueError, "at least one scale must be known, got none"),
        (lambda: identify([]), ValueError, "at least one scale must be known, got none"),
        (lambda: identify([1.0, 2.0]), TypeError, "seen must be an Observed or a list of Overflow objects"),
        (lambda: identify(without_flags([math.nan, 64]), resumed=True), ValueError, "a scale before the first step, got none"),
        (lambda: identify(RUN, resumed=1), TypeError, "resumed must be a bool"),
        (lambda: identify(RUN, rtol=0.5), ValueError, "rtol must be a number from 0 to"),
    ],
)
def test_invalid_arguments_raise_an_error(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_settings_that_form_no_rule_contradict_before_the_first_step():
    """The first observed scale exceeds the maximum of mpx, which no setting changes."""
    (explanation,) = identify(Observed(np.array([2.0**20] * 2), np.full(1, -1, np.int8)), ["mpx"])
    assert explanation.rule is None
    assert explanation.rejection.startswith("init_scale must be at most max_scale 65504.0")
    assert explanation.contradiction.step == -1


def test_an_observation_is_prepared_once_for_each_dtype(monkeypatch):
    """For a long run, this takes longer than following a rule."""
    dtypes = []
    name = "ampscale.simulation.identification.identify.steps_of"
    monkeypatch.setattr(name, lambda rule, seen: dtypes.append(rule.dtype) or steps_of(rule, seen))
    identify(RUN)
    assert sorted(dtypes) == ["float32", "float64"]
