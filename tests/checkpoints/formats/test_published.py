"""Tests of the published formats: entries as the frameworks save them, entries that are written, and invalid entries."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ampscale import LossScaleRule, checkpoints, presets
from ampscale.checkpoints import Checkpoint
from ampscale.core.machine import LossScaleState

torch = pytest.importorskip("torch", reason="needs torch")

RECORDED = Path(__file__).parents[1] / "recorded"

# Entries as the frameworks save them, with the scale and the counts of finite steps and of overflows that they encode.
REAL = {
    "torch": (
        {"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 1999},
        (65536.0, 1999, 0),
    ),
    "paddle": (
        {
            "scale": np.array([32768.0], np.float32), "incr_ratio": 2.0, "decr_ratio": 0.5,
            "incr_every_n_steps": 1000, "decr_every_n_nan_or_inf": 2, "incr_count": 0, "decr_count": 1,
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
    "megatron": ({"scale": torch.tensor([2.0**32]), "growth_tracker": 3, "hysteresis_tracker": 1}, (2.0**32, 3, 1)),
    "deepspeed": (
        {
            "cur_scale": 2.0**15, "dynamic": True, "cur_iter": 3210, "last_overflow_iter": 9, "scale_factor": 2.0,
            "scale_window": 1000, "min_scale": 1, "delayed_shift": 2, "cur_hysteresis": 1,
            "consecutive_hysteresis": False, "raise_error_at_min_scale": True, "dtype": torch.half,
        },
        (2.0**15, 199, 1),
    ),
    "deepspeed_fp16_optimizer": (
        {
            "dynamic_loss_scale": True, "cur_scale": 2.0**31, "cur_iter": 10, "last_overflow_iter": 9,
            "scale_factor": 2.0, "scale_window": 1000, "optimizer_state_dict": {"state": {}},
            "fp32_groups_flat": [torch.ones(3)], "clip_grad": 0.0,
        },
        (2.0**31, -1, 0),
    ),
    "keras": ({"step_counter": np.array(12), "dynamic_scale": np.array(32768.0, np.float32)}, (32768.0, 12, 0)),
    "flax": ({"fin_steps": np.array(2000, np.int32), "scale": np.array(65536.0, np.float32)}, (65536.0, 2000, 0)),
    "jmp": ({"loss_scale": torch.tensor(32768.0), "counter": torch.tensor(4, dtype=torch.int32)}, (32768.0, 4, 0)),
}  # fmt: skip
FLAX = {"fin_steps": 4, "scale": 8.0}
CELL = {"scale_sense": 8.0, "current_iterator_step": 1, "last_overflow_iterator_step": 0}


def numbers(checkpoint):
    """Return the scale and the counts of finite steps and of overflows of a checkpoint."""
    return tuple(value.item() for value in checkpoint.state[:3])


def test_load_reads_the_entries_of_all_frameworks():
    """The rule starts at the saved scale. Values are Python numbers, alone or in a list, and arrays of shape () and (1,)."""
    assert list(checkpoints.FORMATS) == ["ampscale", *REAL]
    for name, (mapping, expected) in REAL.items():
        checkpoint = checkpoints.load(name, mapping)
        assert numbers(checkpoint) == expected
        assert checkpoint.state.scale.dtype == checkpoint.rule.dtype
        assert checkpoint.rule.init_scale == expected[0]
        assert checkpoint.at == ""
    assert numbers(checkpoints.load("flax", {"fin_steps": [7], "scale": [8.0]})) == (8.0, 7, 0)


def test_accumulated_overflows_of_paddle_load_with_their_rule():
    """The documented class counts them across finite steps. Its entries do not contain this choice."""
    entries = {**REAL["paddle"][0], "incr_count": 3}
    with pytest.raises(ValueError, match="must be 0 after 3 finite steps"):
        checkpoints.load("paddle", entries)
    assert int(checkpoints.load("paddle", entries, presets.paddle_document()).state.bad_steps) == 1


def test_factors_keep_all_digits():
    """Only the scale is a float32 number."""
    entries = {**REAL["torch"][0], "growth_factor": 1.1, "backoff_factor": 0.7}
    assert checkpoints.save("torch", checkpoints.load("torch", entries)).mapping == entries


def test_missing_constants_are_those_of_the_preset():
    """Constants that the file lacks are listed in `assumed`, and keys that are not those of the scaler in `ignored`."""
    checkpoint = checkpoints.load("paddle", REAL["paddle"][0])
    assert checkpoint.rule == presets.paddle(32768.0, growth_interval=1000, hysteresis=2)
    assert checkpoint.assumed == {}
    checkpoint = checkpoints.load("deepspeed", REAL["deepspeed"][0])
    assert checkpoint.rule == presets.deepspeed(2.0**15)
    assert (checkpoint.assumed, checkpoint.ignored) == ({}, ("dtype",))
    checkpoint = checkpoints.load("megatron", REAL["megatron"][0])
    assert checkpoint.rule == presets.megatron()
    assert set(checkpoint.assumed) == {"growth_factor", "backoff_factor", "growth_interval", "hysteresis", "min_scale"}
    assert checkpoint.assumed["growth_interval"] == 1000
    checkpoint = checkpoints.load("flax", REAL["flax"][0])
    assert checkpoint.rule == presets.flax()
    assert checkpoint.assumed["growth_interval"] == 2001
    assert checkpoints.load("mindspore_update_cell", REAL["mindspore_update_cell"][0]).ignored == ("network.dense.weight",)


@pytest.mark.parametrize(
    ("name", "mapping", "settings", "rule"),
    [
        ("mindspore", {"scale_value": 8.0, "counter": 7}, {"scale_factor": 4, "scale_window": 8}, presets.mindspore(8.0, 4, 8)),
        ("mindspore_update_cell", CELL, {"scale_factor": 3.3, "scale_window": 8}, presets.mindspore_update_cell(8.0, 3.3, 8)),
        ("jmp", {"loss_scale": 8.0, "counter": 0}, {"factor": 49}, presets.jmp(8.0, 49)),
        ("jmp", {"loss_scale": 8.0, "counter": 0, "period": 3, "min_loss_scale": np.float32(2)}, {}, presets.jmp(8.0, 2, 3, 2.0)),
        ("flax", FLAX, {"growth_interval": 4, "minimum_scale": None}, presets.flax(8.0, growth_interval=4, min_scale=None)),
    ],
)
def test_settings_have_the_names_of_the_scaler(name, mapping, settings, rule):
    """Constants that are passed as settings are not listed in `assumed`."""
    checkpoint = checkpoints.load(name, mapping, settings=settings)
    assert checkpoint.rule == rule
    assert not set(settings) & set(checkpoint.assumed)


@pytest.mark.parametrize(
    ("name", "added", "settings"),
    [
        ("keras", {}, {"period": 3}),
        ("keras", {"dynamic_growth_steps": 3}, {"dynamic_growth_steps": 3}),  # also in the file
        ("torch", {}, {"growth_interval": 3}),
    ],
)
def test_invalid_settings_raise_an_error(name, added, settings):
    """A setting must be an argument of the scaler's constructor that the file does not contain."""
    with pytest.raises(ValueError, match=f"the settings for {name} must be (among|empty)"):
        checkpoints.load(name, {**REAL[name][0], **added}, settings=settings)


def test_rule_replaces_missing_constants():
    """The rule must have the constants that the mapping has."""
    rule = presets.megatron(2.0**32, growth_interval=4, hysteresis=3)
    checkpoint = checkpoints.load("megatron", REAL["megatron"][0], rule)
    assert (checkpoint.rule, checkpoint.assumed) == (rule, {})
    assert numbers(checkpoint) == (2.0**32, 3, 2)
    sharded = presets.torch_sharded_cpu()
    assert checkpoints.load("torch", REAL["torch"][0], sharded).rule == sharded
    with pytest.raises(ValueError, match="growth_interval is 7 in the rule, but 2000 in the mapping or settings"):
        checkpoints.load("torch", REAL["torch"][0], presets.torch(growth_interval=7))
    with pytest.raises(TypeError, match="rule must be a LossScaleRule or None, got str"):
        checkpoints.load("torch", REAL["torch"][0], "torch")


def test_hysteresis_trackers_are_decoded():
    """Megatron's tracker of overflows counts down below zero, DeepSpeed's to one. At one or less, every overflow backs off."""
    rule = presets.megatron(4096.0, growth_interval=5, hysteresis=3)
    for tracker, bad in ((3, 0), (2, 1), (1, 2), (0, 3), (-1, 3), (-200, 3)):
        mapping = {"scale": np.ones(1, np.float32) * 8, "growth_tracker": 0, "hysteresis_tracker": tracker}
        checkpoint = checkpoints.load("megatron", mapping, rule)
        assert numbers(checkpoint) == (8.0, 0, bad)
        other = checkpoints.save("deepspeed", checkpoint)
        assert other.mapping["cur_hysteresis"] == max(tracker, 1)
        assert "bad_steps" not in other.report.dropped


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("torch", {"scale": float("inf")}, "scale must be positive and finite, got inf: no run can recover"),
        ("torch", {"scale": 0.0}, "scale must be positive and finite, got 0.0"),
        ("torch", {"scale": -4.0}, "scale must be positive and finite, got -4.0"),
        ("torch", {"scale": 0}, "scale must be a positive, finite number that float32 can hold, got 0"),
        ("torch", {"scale": 1e39}, "scale must be a positive, finite number that float32 can hold"),
        ("torch", {"scale": 0.1}, "scale must be a float32 number, got 0.1; the nearest is 0.10000000149011612"),
        ("torch", {"scale": "65536"}, "scale must be .* got '65536' of type str"),
        ("torch", {"scale": True}, "scale must be .* got True of type bool"),
        ("torch", {"scale": [8.0, 8.0]}, "scale must be .* of type list"),
        ("torch", {"scale": np.ones(2)}, r"scale must have shape \(\) or \(1,\), got \(2,\)"),
        ("torch", {"growth_factor": 0.5}, "growth_factor must be a number of at least 1 that float32 can hold, got 0.5"),
        ("torch", {"backoff_factor": 0}, "backoff_factor must be a number of at most 1 and at least .* float32, got 0"),
        ("torch", {"growth_interval": 0}, "growth_interval must be an int from 1"),
        ("torch", {"growth_interval": 2000.0}, "growth_interval must be an int from 1 .* of type float"),
        ("torch", {"_growth_tracker": -1}, "_growth_tracker must be an int from 0"),
        ("torch", {"_growth_tracker": 2000}, "finite steps must be from 0 to 1999, since the growth interval is 2000, got 2000"),
        ("paddle", {"decr_count": 2}, "overflows must be from 0 to 1, since the hysteresis is 2, got 2"),
        ("paddle", {"use_dynamic_loss_scaling": False}, "must be True, got False: a constant scale has no state"),
        ("paddle", {"decr_every_n_nan_or_inf": 0}, "decr_every_n_nan_or_inf must be an int from 1"),
        ("paddle", {"use_dynamic_loss_scaling": 1}, "use_dynamic_loss_scaling must be a bool, got 1"),
        ("paddle", {"incr_count": 5}, "overflows must be 0 after 5 finite steps, since a finite step resets this count, got 1"),
        ("megatron", {"hysteresis_tracker": 3}, "overflows must be from 0 to 2, since the hysteresis is 2, got -1"),
        ("megatron", {"hysteresis_tracker": -(2**31) - 1}, "hysteresis_tracker must be an int from -2147483648 to"),
        ("megatron", {"scale": torch.tensor([float("inf")])}, "got inf: no run can recover"),
        ("deepspeed", {"cur_hysteresis": 3}, "overflows must be from 0 to 2, since the hysteresis is 2, got -1"),
        ("deepspeed", {"consecutive_hysteresis": True, "last_overflow_iter": 3200}, "must be 0 after 9 finite steps, .* got 1"),
        ("deepspeed", {"cur_hysteresis": 0}, "cur_hysteresis must be an int from 1"),
        ("deepspeed", {"delayed_shift": 0}, "delayed_shift must be an int from 1"),
        ("deepspeed", {"last_overflow_iter": 3210}, "last_overflow_iter must be less than cur_iter, which is 3210, got 3210"),
        ("deepspeed", {"last_overflow_iter": -2}, "last_overflow_iter must be an int from -1"),
        ("deepspeed", {"dynamic": False}, "dynamic must be True"),
        ("mindspore_update_cell", {"last_overflow_iterator_step": np.int32(107)}, "must be less than current_iterator_step"),
        ("keras", {"step_counter": np.float32(3)}, "step_counter must be an int .* of type float"),
        ("flax", {"fin_steps": 2001}, "finite steps must be from 0 to 2000, since the growth interval is 2001"),
    ],
)
def test_invalid_entries_raise_a_value_error(name, change, message):
    with pytest.raises(ValueError, match=message):
        checkpoints.load(name, {**REAL[name][0], **change})


def test_errors_list_all_invalid_entries():
    """One error lists all missing and unknown keys; another one lists all invalid values."""
    mapping = {key: value for key, value in REAL["torch"][0].items() if key not in ("scale", "growth_factor")}
    with pytest.raises(ValueError, match=r"missing \['scale', 'growth_factor'\], unknown \['scael', 'more'\]"):
        checkpoints.load("torch", {**mapping, "scael": 1.0, "more": 2})
    with pytest.raises(ValueError, match=r"scale must be .*; _growth_tracker must be .*; growth_factor must be"):
        checkpoints.load("torch", {**REAL["torch"][0], "scale": "a", "growth_factor": "b", "_growth_tracker": "c"})


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: checkpoints.load("numpy", {}), ValueError, r"the format must be one of \['ampscale', 'torch', .*, got 'numpy'"),
        (lambda: checkpoints.save("numpy", {}), ValueError, r"the format must be one of \['ampscale', 'torch', .*, got 'numpy'"),
        (lambda: checkpoints.save("torch", {}), TypeError, "checkpoint must be a Checkpoint, got dict"),
        (lambda: checkpoints.load("torch", [1]), TypeError, "mapping must be a mapping, got list"),
    ],
    ids=["format to load", "format to save", "checkpoint", "mapping"],
)
def test_invalid_arguments_raise_an_error(call, error, message):
    """The error for an unknown format lists all formats."""
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
def test_save_rejects_unreachable_states(rule, state, message):
    """The scale must be positive and finite, and a run must be able to reach the counts."""
    with pytest.raises(ValueError, match=message):
        checkpoints.save("torch", Checkpoint(rule, LossScaleState(*state)))


def test_rounded_scale_is_reported():
    """A float64 scale that float32 cannot hold is rounded. If it would become infinite or zero, an error is raised."""
    saved = checkpoints.save("torch", Checkpoint(presets.apex(1.1, growth_interval=3), LossScaleState(1.1, 0, 0)))
    assert saved.mapping["scale"] == float(np.float32(1.1))
    assert saved.report.dropped["scale"] == (1.1, float(np.float32(1.1)))
    assert saved.report.divergence.first == ()
    assert not saved.report.lossless
    rule = replace(presets.deepspeed_fp16_optimizer(), min_scale=None)
    for scale in (2.0**128, 2.0**-150):
        with pytest.raises(ValueError, match="must be positive and finite in float32, the dtype of the target's scale"):
            checkpoints.save("torch", Checkpoint(rule, LossScaleState(scale, 0, 0)))


LARGE_FACTOR = LossScaleRule(growth_factor=1e39, growth_interval=7, dtype="float64")


@pytest.mark.parametrize(
    ("rule", "state", "target", "dropped"),
    [
        (presets.paddle(hysteresis=2), (8.0, 0, 1), "torch", {"hysteresis": (2, 1), "bad_steps": (1, 0)}),
        (presets.deepspeed(), (8.0, -1, 0), "megatron", {"good_steps": (-1, 0), "initial_good_steps": (-1, 0)}),
        (presets.torch(growth_factor=3.0, growth_interval=7), (8.0, 6, 0), "keras", {"growth_factor": (3.0, 2.0)}),
        (presets.torch(backoff_factor=0.75), (8.0, 6, 0), "jmp", {"backoff_factor": (0.75, 0.5), "min_scale": (None, 1.0)}),
        (presets.tensorflow_v1(growth_factor=1.5), (8.0, 0, 0), "mindspore", {"growth_factor": (1.5, 2.0)}),
        (LARGE_FACTOR, (8.0, 0, 0), "torch", {"growth_factor": (1e39, 2.0), "growth_interval": None}),
        (presets.static(8.0), (8.0, 0, 0), "megatron", {"growth_factor": (1.0, 2.0), "backoff_factor": (1.0, 0.5)}),
        (presets.onnxruntime(), (8.0, 0, 0), "jmp", {"max_scale": (2.0**24, None), "dtype": ("float64", "float32")}),
        (presets.mxnet(), (8.0, 0, 0, None, 16.0), "torch", {"delayed_update": (True, False), "scale": (8.0, 16.0)}),
        (presets.fairseq_tolerance(), (8.0, 3, 1, 4), "torch", {"overflow_tolerance": (0.25, None), "window_steps": (4, None)}),
        (presets.bmtrain(), (8.0, 5000, 0), "torch", {"block_at_bounds": (True, False), "growth_interval": None}),
    ],
)
def test_report_lists_dropped_fields(rule, state, target, dropped):
    """Each dropped constant or count is listed with the value of the source and the value of the target."""
    report = checkpoints.save(target, Checkpoint(rule, LossScaleState(*state))).report
    assert {name: report.dropped.get(name) for name in dropped} == dropped
    assert not report.lossless


def test_counts_are_limited_to_the_range_of_the_target():
    """A count that no run of the target can have becomes the largest possible one. A finite step resets Paddle's overflows."""
    blocked = checkpoints.save("torch", Checkpoint(presets.bmtrain(), LossScaleState(8.0, 5000, 0)))
    assert blocked.mapping["_growth_tracker"] == 1023
    tolerant = checkpoints.save("paddle", Checkpoint(presets.fairseq_tolerance(), LossScaleState(8.0, 0, 3, 20)))
    assert (tolerant.mapping["decr_every_n_nan_or_inf"], tolerant.mapping["decr_count"]) == (1, 0)
    for good, bad in ((0, 1), (3, 0)):
        saved = checkpoints.save("paddle", Checkpoint(presets.megatron(), LossScaleState(8.0, good, 1)))
        assert (saved.mapping["incr_count"], saved.mapping["decr_count"]) == (good, bad)


def test_only_fields_of_the_rule_are_listed_as_dropped():
    """A rule also stores what it has computed from its fields."""
    saved = checkpoints.convert({**REAL["torch"][0], "backoff_factor": 0.3}, "torch", "keras")
    assert set(saved.report.dropped) == {"backoff_factor", "skip_infinite_growth", "float64_factor"}


def test_fields_without_effect_are_not_dropped():
    """With `hysteresis=1` there is no count to reset, and dividing by a power of two equals multiplying by its reciprocal."""
    state = LossScaleState(4096.0, 2, 0)
    saved = checkpoints.save("jmp", Checkpoint(presets.oneflow(), state))
    assert set(saved.report.dropped) == {"max_scale", "skip_infinite_growth"}
    saved = checkpoints.save("jmp", Checkpoint(presets.mindspore(growth_interval=3), state))
    assert (saved.report.dropped, saved.report.lossless) == ({}, True)


def test_flax_setting_is_one_less_than_the_number_of_steps():
    """The scale of flax grows after `growth_interval + 1` finite steps. `growth` is the next growth of source and target."""
    source = replace(presets.flax(growth_interval=1999), init_scale=4096.0)
    saved = checkpoints.save("flax", Checkpoint(replace(source, max_scale=presets.LARGEST), LossScaleState(4096.0, 1999, 0)))
    assert saved.report.settings["growth_interval"] == 1999
    assert saved.report.lossless
    torch_like = checkpoints.save("flax", Checkpoint(presets.torch(growth_interval=1), LossScaleState(4096.0, 0, 0)))
    assert torch_like.report.settings["growth_interval"] == 0
    assert torch_like.report.growth == (1, 1)


def test_report_states_the_next_growth_of_source_and_target():
    """The first window of DeepSpeed has one step more than `scale_window`."""
    source = Checkpoint(presets.deepspeed(growth_interval=10), LossScaleState(8.0, -1, 0))
    assert checkpoints.save("torch", source).report.growth == (11, 10)
    assert checkpoints.save("deepspeed", source).report.growth == (11, 11)


@pytest.mark.parametrize(("file", "name"), [("mindspore_cell", "mindspore_update_cell"), ("mindspore_scaler", "mindspore")])
def test_files_of_mindspore_are_loaded(file, name):
    """MindSpore 2.10.0 saved the files after three finite steps, an overflow and two finite steps, starting at 4096."""
    checkpoint = checkpoints.load(name, checkpoints.read_file(RECORDED / f"{file}.safetensors"), settings={"scale_window": 3})
    rule = LossScaleRule(4096.0, growth_interval=3)
    state = rule.init(like=np.zeros(()))
    for symbol in "...x..":
        state = rule.update(state, symbol == ".")
    assert numbers(checkpoint) == tuple(value.item() for value in state[:3]) == (4096.0, 2, 0)
