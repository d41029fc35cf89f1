"""Each format as its framework gives it: what is read from it, what is written for it, and what is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ampscale import LossScaleRule, checkpoints, presets
from ampscale.checkpoints import Checkpoint
from ampscale.core.machine import LossScaleState

RECORDED = Path(__file__).parents[1] / "recorded"

# What the frameworks save, and the state it says: scale, finite steps, overflows counted.
REAL = {
    "torch": (
        {"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 1999},
        (65536.0, 1999, 0),
    ),
    "paddle": (
        {
            "scale": np.array([32768.0], np.float32),
            "incr_ratio": 2.0,
            "decr_ratio": 0.5,
            "incr_every_n_steps": 1000,
            "decr_every_n_nan_or_inf": 2,
            "incr_count": 0,
            "decr_count": 1,
            "use_dynamic_loss_scaling": True,
        },
        (32768.0, 0, 1),
    ),
    "mindspore": ({"scale_value": np.float32(4096), "counter": np.int32(7)}, (4096.0, 7, 0)),
    "mindspore_update_cell": (
        {
            "network.dense.weight": np.ones((2, 2), np.float32),
            "scale_sense": np.array(1024, np.float32),
            "current_iterator_step": np.array(107, np.int32),
            "last_overflow_iterator_step": np.array(100, np.int32),
        },
        (1024.0, 6, 0),
    ),
    "megatron": (
        {"scale": torch.tensor([2.0**32]), "growth_tracker": 3, "hysteresis_tracker": 1},
        (2.0**32, 3, 1),
    ),
    "deepspeed": (
        {
            "cur_scale": 2.0**15,
            "dynamic": True,
            "cur_iter": 3210,
            "last_overflow_iter": 9,
            "scale_factor": 2.0,
            "scale_window": 1000,
            "min_scale": 1,
            "delayed_shift": 2,
            "cur_hysteresis": 1,
            "consecutive_hysteresis": False,
            "raise_error_at_min_scale": True,
            "dtype": torch.half,
        },
        (2.0**15, 199, 1),
    ),
    "deepspeed_fp16_optimizer": (
        {
            "dynamic_loss_scale": True,
            "cur_scale": 2.0**31,
            "cur_iter": 10,
            "last_overflow_iter": 9,
            "scale_factor": 2.0,
            "scale_window": 1000,
            "optimizer_state_dict": {"state": {}},
            "fp32_groups_flat": [torch.ones(3)],
            "clip_grad": 0.0,
        },
        (2.0**31, -1, 0),
    ),
    "keras": ({"step_counter": np.array(12), "dynamic_scale": np.array(32768.0, np.float32)}, (32768.0, 12, 0)),
    "flax": ({"fin_steps": np.array(2000, np.int32), "scale": np.array(65536.0, np.float32)}, (65536.0, 2000, 0)),
    "jmp": ({"loss_scale": torch.tensor(32768.0), "counter": torch.tensor(4, dtype=torch.int32)}, (32768.0, 4, 0)),
}
FIN_STEPS = {"fin_steps": 4, "scale": 8.0}
CELL = {"scale_sense": 8.0, "current_iterator_step": 1, "last_overflow_iterator_step": 0}


def numbers(checkpoint):
    """Scale, finite steps and overflows of a checkpoint."""
    return tuple(value.item() for value in checkpoint.state[:3])


def test_a_state_is_read_as_its_framework_saves_it():
    """Python numbers, alone or in a list, NumPy's and torch's arrays of shape () and (1,), in the formats of all scalers."""
    assert list(checkpoints.FORMATS) == ["ampscale", *REAL]
    for name, (mapping, expected) in REAL.items():
        found = checkpoints.load(name, mapping)
        assert numbers(found) == expected
        assert found.state.scale.dtype == found.rule.dtype
        assert found.rule.init_scale == expected[0]
        assert found.at == ""
    assert numbers(checkpoints.load("flax", {"fin_steps": [7], "scale": [8.0]})) == (8.0, 7, 0)


def test_the_rule_is_what_the_file_says_and_the_preset_for_the_rest():
    """The constants in a file are the rule's; those that it does not hold are assumed, and said."""
    found = checkpoints.load("paddle", REAL["paddle"][0])
    assert found.rule == presets.paddle(32768.0, growth_interval=1000, hysteresis=2)
    assert found.assumed == {}
    found = checkpoints.load("deepspeed", REAL["deepspeed"][0])
    assert found.rule == presets.deepspeed(2.0**15)
    assert (found.assumed, found.ignored) == ({}, ("dtype",))
    found = checkpoints.load("megatron", REAL["megatron"][0])
    assert found.rule == presets.megatron()
    assert set(found.assumed) == {"growth_factor", "backoff_factor", "growth_interval", "hysteresis", "min_scale"}
    assert found.assumed["growth_interval"] == 1000
    found = checkpoints.load("flax", REAL["flax"][0])
    assert found.rule == presets.flax()
    assert found.assumed["growth_interval"] == 2001
    assert checkpoints.load("mindspore_update_cell", REAL["mindspore_update_cell"][0]).ignored == ("network.dense.weight",)


@pytest.mark.parametrize(
    ("name", "mapping", "settings", "rule"),
    [
        ("mindspore", {"scale_value": 8.0, "counter": 7}, {"scale_factor": 4, "scale_window": 8}, presets.mindspore(8.0, 4, 8)),
        ("mindspore_update_cell", CELL, {"scale_factor": 3.3, "scale_window": 8}, presets.mindspore_update_cell(8.0, 3.3, 8)),
        ("jmp", {"loss_scale": 8.0, "counter": 0}, {"factor": 49}, presets.jmp(8.0, 49)),
        ("jmp", {"loss_scale": 8.0, "counter": 0, "period": 3, "min_loss_scale": np.float32(2)}, {}, presets.jmp(8.0, 2, 3, 2.0)),
        ("flax", FIN_STEPS, {"growth_interval": 4, "minimum_scale": None}, presets.flax(8.0, growth_interval=4, min_scale=None)),
    ],
)
def test_settings_are_the_scalers_own(name, mapping, settings, rule):
    """What a constructor was called with is given under its names and in its terms, and is then no longer assumed."""
    found = checkpoints.load(name, mapping, settings=settings)
    assert found.rule == rule
    assert not set(settings) & set(found.assumed)


@pytest.mark.parametrize(
    ("name", "more", "settings"),
    [
        ("keras", {}, {"period": 3}),
        ("keras", {"dynamic_growth_steps": 3}, {"dynamic_growth_steps": 3}),  # said twice
        ("torch", {}, {"growth_interval": 3}),
    ],
)
def test_settings_that_a_scaler_has_not_are_refused(name, more, settings):
    """Also those that are in the file."""
    with pytest.raises(ValueError, match=f"settings of {name} must be some of"):
        checkpoints.load(name, {**REAL[name][0], **more}, settings=settings)


def test_a_rule_says_what_the_file_does_not():
    """A rule is taken for all that is not in the file, and must agree with what is."""
    rule = presets.megatron(2.0**32, growth_interval=4, hysteresis=3)
    found = checkpoints.load("megatron", REAL["megatron"][0], rule)
    assert (found.rule, found.assumed) == (rule, {})
    assert numbers(found) == (2.0**32, 3, 2)
    sharded = presets.torch_sharded_cpu()
    assert checkpoints.load("torch", REAL["torch"][0], sharded).rule == sharded
    with pytest.raises(ValueError, match="growth_interval is 2000 in the file and 7 in the rule"):
        checkpoints.load("torch", REAL["torch"][0], presets.torch(growth_interval=7))
    with pytest.raises(TypeError, match="rule must be a LossScaleRule or None, got str"):
        checkpoints.load("torch", REAL["torch"][0], "torch")


STATE = LossScaleState(np.float32(4096), np.int32(2), np.int32(0))


def test_counts_that_go_down_and_iterations_say_the_same():
    """Megatron counts its patience down and below zero, DeepSpeed down to one; both count a spent one alike."""
    rule = presets.megatron(4096.0, growth_interval=5, hysteresis=3)
    for tracker, bad in ((3, 0), (2, 1), (1, 2), (0, 3), (-1, 3), (-200, 3)):
        mapping = {"scale": np.ones(1, np.float32) * 8, "growth_tracker": 0, "hysteresis_tracker": tracker}
        found = checkpoints.load("megatron", mapping, rule)
        assert numbers(found) == (8.0, 0, bad)
        other = checkpoints.save("deepspeed", found)
        assert other.mapping["cur_hysteresis"] == max(tracker, 1)
        assert "bad_steps" not in other.report.dropped
    zero = {**REAL["deepspeed"][0], "scale_window": 4}
    stable = [(iteration, -1 if iteration == 10 else (iteration - 11) % 4) for iteration in range(10, 30)]
    for iteration, good in stable:
        assert numbers(checkpoints.load("deepspeed", {**zero, "cur_iter": iteration}))[1] == good


def test_consecutive_hysteresis_is_part_of_the_rule():
    """DeepSpeed saves whether a finite step refills its patience, and whether it raises at its floor."""
    mapping = {**REAL["deepspeed"][0], "cur_iter": 10, "consecutive_hysteresis": True, "raise_error_at_min_scale": False}
    found = checkpoints.load("deepspeed", mapping)
    assert found.rule == presets.deepspeed_consecutive(2.0**15, raise_at_min_scale=False)
    assert checkpoints.save("deepspeed", found).mapping["consecutive_hysteresis"] is True
    assert checkpoints.save("deepspeed", found).report.lossless


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("torch", {"scale": float("inf")}, "scale must be positive and finite, got inf: no run comes back"),
        ("torch", {"scale": float("nan")}, "scale must be positive and finite, got nan"),
        ("torch", {"scale": 0.0}, "scale must be positive and finite, got 0.0"),
        ("torch", {"scale": -4.0}, "scale must be positive and finite, got -4.0"),
        ("torch", {"scale": 0}, "scale must be a positive, finite number that float32 can hold, got 0"),
        ("torch", {"scale": 1e39}, "scale must be a positive, finite number that float32 can hold"),
        ("torch", {"scale": 0.1}, "scale must be a float32 number, got 0.1; the nearest is 0.10000000149011612"),
        ("torch", {"scale": "65536"}, "scale must be .* got '65536' of type str"),
        ("torch", {"scale": True}, "scale must be .* got True of type bool"),
        ("torch", {"scale": None}, "scale must be .* got None of type NoneType"),
        ("torch", {"scale": [8.0, 8.0]}, "scale must be .* of type list"),
        ("torch", {"scale": np.ones(2)}, r"scale must have shape \(\) or \(1,\), got \(2,\)"),
        ("torch", {"growth_factor": 0.5}, "growth_factor must be a finite number of at least 1, got 0.5"),
        ("torch", {"backoff_factor": 0}, "backoff_factor must be a number above 0 and at most 1, got 0"),
        ("torch", {"growth_interval": 0}, "growth_interval must be an int from 1"),
        ("torch", {"growth_interval": 2000.0}, "growth_interval must be an int from 1 .* of type float"),
        ("torch", {"_growth_tracker": -1}, "_growth_tracker must be an int from 0"),
        ("torch", {"_growth_tracker": 2000}, "finite steps must be from 0 to 1999, since the growth interval is 2000, got 2000"),
        ("paddle", {"decr_count": 2}, "overflows must be from 0 to 1, since the hysteresis is 2, got 2"),
        ("paddle", {"use_dynamic_loss_scaling": False}, "must be True, got False: a scale that does not move"),
        ("paddle", {"use_dynamic_loss_scaling": 1}, "use_dynamic_loss_scaling must be a bool, got 1"),
        ("paddle", {"incr_count": 5}, "overflows must be 0 after 5 finite steps, since each of them resets it, got 1"),
        ("megatron", {"hysteresis_tracker": 3}, "overflows must be from 0 to 2, since the hysteresis is 2, got -1"),
        ("megatron", {"hysteresis_tracker": -(2**31) - 1}, "hysteresis_tracker must be an int from -2147483648 to"),
        ("megatron", {"scale": torch.tensor([float("inf")])}, "got inf: no run comes back"),
        ("deepspeed", {"cur_hysteresis": 3}, "overflows must be from 0 to 2, since the hysteresis is 2, got -1"),
        ("deepspeed", {"cur_hysteresis": 0}, "cur_hysteresis must be an int from 1"),
        ("deepspeed", {"last_overflow_iter": 3210}, "last_overflow_iter must be less than cur_iter, which is 3210, got 3210"),
        ("deepspeed", {"last_overflow_iter": -2}, "last_overflow_iter must be an int from -1"),
        ("deepspeed", {"dynamic": False}, "dynamic must be True"),
        ("mindspore_update_cell", {"last_overflow_iterator_step": np.int32(107)}, "must be less than current_iterator_step"),
        ("keras", {"step_counter": np.float32(3)}, "step_counter must be an int .* of type float"),
        ("flax", {"fin_steps": 2001}, "finite steps must be from 0 to 2000, since the growth interval is 2001"),
    ],
)
def test_what_no_scaler_saves_is_refused(name, change, message):
    """Scales that no run comes back from, wrong types, and counts that no run reaches: what was wanted, and what came."""
    with pytest.raises(ValueError, match=message):
        checkpoints.load(name, {**REAL[name][0], **change})


def test_all_that_is_wrong_is_said_at_once():
    """Missing and unknown keys in one error, and wrong values in another."""
    mapping = {key: value for key, value in REAL["torch"][0].items() if key not in ("scale", "growth_factor")}
    with pytest.raises(ValueError, match=r"missing \['scale', 'growth_factor'\], unknown \['scael', 'more'\]"):
        checkpoints.load("torch", {**mapping, "scael": 1.0, "more": 2})
    with pytest.raises(ValueError, match=r"scale must be .*; _growth_tracker must be .*; growth_factor must be"):
        checkpoints.load("torch", {**REAL["torch"][0], "scale": "a", "growth_factor": "b", "_growth_tracker": "c"})
    with pytest.raises(ValueError, match="got none: the scaler was off"):
        checkpoints.load("torch", {})


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: checkpoints.load("numpy", {}), ValueError, r"the format must be one of \['ampscale', 'torch', .*, got 'numpy'"),
        (lambda: checkpoints.save("numpy", {}), ValueError, r"the format must be one of \['ampscale', 'torch', .*, got 'numpy'"),
        (lambda: checkpoints.save("torch", {}), TypeError, "checkpoint must be a Checkpoint, got dict"),
        (lambda: checkpoints.load("torch", [1]), TypeError, "mapping must be a mapping, got list"),
    ],
)
def test_what_is_no_format_and_no_checkpoint_is_refused(call, error, message):
    """The message lists the formats that there are."""
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("rule", "state", "message"),
    [
        (presets.torch(), (np.inf, 0, 0), "scale must be positive and finite, got inf"),
        (presets.torch(), (0.0, 0, 0), "scale must be positive and finite, got 0.0"),
        (presets.torch(), (8.0, 2000, 0), "finite steps must be from 0 to 1999"),
        (presets.torch(), (8.0, -1, 0), "finite steps must be from 0 to 1999"),
        (presets.paddle(hysteresis=2), (8.0, 0, 2), "overflows must be from 0 to 1"),
        (presets.mxnet(), (8.0, 0, 0, None, np.inf), "pending_scale must be positive and finite, got inf"),
    ],
)
def test_a_state_that_no_run_reaches_is_not_saved(rule, state, message):
    """Whoever wrote it down."""
    with pytest.raises(ValueError, match=message):
        checkpoints.save("torch", Checkpoint(rule, LossScaleState(*state)))


def test_a_scale_that_is_rounded_is_reported():
    """
    DeepSpeed holds its scale in float64, and most others in float32; where that has only a neighbour, the two differ at once.

    A scale that would become infinite or zero is refused.
    """
    saved = checkpoints.save("torch", Checkpoint(presets.apex(1.1, growth_interval=3), LossScaleState(1.1, 0, 0)))
    assert saved.mapping["scale"] == float(np.float32(1.1))
    assert saved.report.dropped["scale"] == (1.1, float(np.float32(1.1)))
    assert saved.report.divergence.first == ()
    assert not saved.report.lossless
    rule = replace(presets.deepspeed_fp16_optimizer(), min_scale=None)
    for scale, held in ((2.0**128, "inf"), (2.0**-150, "0.0")):
        with pytest.raises(ValueError, match=f"would be {held} in float32, in which the target holds it"):
            checkpoints.save("torch", Checkpoint(rule, LossScaleState(scale, 0, 0)))


@pytest.mark.parametrize(
    ("rule", "state", "target", "dropped"),
    [
        (presets.paddle(hysteresis=2), (8.0, 0, 1), "torch", {"hysteresis": (2, 1), "bad_steps": (1, 0)}),
        (presets.deepspeed(), (8.0, -1, 0), "megatron", {"good_steps": (-1, 0), "initial_good_steps": (-1, 0)}),
        (presets.torch(growth_factor=3.0, growth_interval=7), (8.0, 6, 0), "keras", {"growth_factor": (3.0, 2.0)}),
        (presets.torch(backoff_factor=0.75), (8.0, 6, 0), "jmp", {"backoff_factor": (0.75, 0.5), "min_scale": (None, 1.0)}),
        (presets.tensorflow_v1(growth_factor=1.5), (8.0, 0, 0), "mindspore", {"growth_factor": (1.5, 2.0)}),
        (presets.static(8.0), (8.0, 0, 0), "megatron", {"growth_factor": (1.0, 2.0), "backoff_factor": (1.0, 0.5)}),
        (presets.onnxruntime(), (8.0, 0, 0), "jmp", {"max_scale": (2.0**24, None), "dtype": ("float64", "float32")}),
        (presets.mxnet(), (8.0, 0, 0, None, 16.0), "torch", {"delayed_update": (True, False), "scale": (8.0, 16.0)}),
        (presets.fairseq_tolerance(), (8.0, 3, 1, 4), "torch", {"overflow_tolerance": (0.25, None), "window_steps": (4, None)}),
        (presets.bmtrain(), (8.0, 5000, 0), "torch", {"block_at_bounds": (True, False), "growth_interval": None}),
    ],
)
def test_what_the_target_does_not_have_is_dropped(rule, state, target, dropped):
    """Constants and counts alike, each with what it was and what it is."""
    report = checkpoints.save(target, Checkpoint(rule, LossScaleState(*state))).report
    assert {name: report.dropped.get(name) for name in dropped} == dropped
    assert not report.lossless


def test_counts_stay_in_the_targets_range():
    """What a gate or a rate let grow is the last count that the target's own runs reach."""
    gated = checkpoints.save("torch", Checkpoint(presets.bmtrain(), LossScaleState(8.0, 5000, 0)))
    assert gated.mapping["_growth_tracker"] == 1023
    rated = checkpoints.save("paddle", Checkpoint(presets.fairseq_tolerance(), LossScaleState(8.0, 0, 3, 20)))
    assert (rated.mapping["decr_every_n_nan_or_inf"], rated.mapping["decr_count"]) == (1, 0)
    for good, bad in ((0, 1), (3, 0)):
        patient = checkpoints.save("paddle", Checkpoint(presets.megatron(), LossScaleState(8.0, good, 1)))
        assert (patient.mapping["incr_count"], patient.mapping["decr_count"]) == (good, bad)


def test_what_has_no_effect_is_not_dropped():
    """At one overflow a backoff nothing is refilled, and a power of two is divided by and multiplied by alike."""
    saved = checkpoints.save("jmp", Checkpoint(presets.oneflow(), STATE))
    assert set(saved.report.dropped) == {"max_scale", "skip_infinite_growth"}
    saved = checkpoints.save("jmp", Checkpoint(presets.mindspore(growth_interval=3), STATE))
    assert (saved.report.dropped, saved.report.lossless) == ({}, True)


def test_flax_is_told_one_step_less():
    """It grows a step later than its interval says, and so agrees with a scaler whose interval is one longer."""
    source = replace(presets.flax(growth_interval=1999), init_scale=4096.0)
    saved = checkpoints.save("flax", Checkpoint(replace(source, max_scale=presets.LARGEST), LossScaleState(4096.0, 1999, 0)))
    assert saved.report.settings["growth_interval"] == 1999
    assert saved.report.lossless
    torch_like = checkpoints.save("flax", Checkpoint(presets.torch(growth_interval=1), LossScaleState(4096.0, 0, 0)))
    assert torch_like.report.settings["growth_interval"] == 0
    assert torch_like.report.growth == (1, 1)


def test_how_late_the_next_growth_is():
    """The steps to it in the source and in the target, if no overflow comes."""
    source = Checkpoint(presets.deepspeed(growth_interval=10), LossScaleState(8.0, -1, 0))
    assert checkpoints.save("torch", source).report.growth == (11, 10)
    assert checkpoints.save("deepspeed", source).report.growth == (11, 11)


@pytest.mark.parametrize(("file", "name"), [("mindspore_cell", "mindspore_update_cell"), ("mindspore_scaler", "mindspore")])
def test_what_mindspore_wrote_is_read(file, name):
    """Files that MindSpore 2.10.0 saved after three finite steps, an overflow, and two finite steps more, from 4096."""
    found = checkpoints.load(name, checkpoints.read_file(RECORDED / f"{file}.safetensors"), settings={"scale_window": 3})
    rule = LossScaleRule(4096.0, growth_interval=3)
    state = rule.init(like=np.zeros(()))
    for symbol in "...x..":
        state = rule.update(state, symbol == ".")
    assert numbers(found) == tuple(value.item() for value in state[:3]) == (4096.0, 2, 0)
