"""Presets equal recorded runs of the real scalers."""

import pytest
from frameworks.published import TRACES
from presets.published import PUBLISHED

from ampscale import presets

# Runs of the real scalers from a scale of 64, with a hysteresis of 2 if it can be set: names, and the scale after each step.
RECORDED_STEPS, RECORDED_SETTINGS = "....x.xxxx....x", {"growth_interval": 3, "hysteresis": 2, "backoff_factor": 0.5}
RECORDED = {
    "paddle paddle_amp_scaler paddle_static paddle_static_old": "64 64 128 128 128 128 128 64 64 32 32 32 64 64 64",
    "tensorflow_contrib paddle_document": "64 64 128 128 128 128 64 64 32 32 32 32 64 64 64",
    "megatron colossalai": "64 64 128 128 128 128 64 32 16 8 8 8 16 16 16",
    "deepspeed": "64 64 64 128 128 128 64 32 16 8 8 8 8 16 16",
    "deepspeed_consecutive": "64 64 64 128 128 128 128 64 32 16 16 16 16 32 32",
    "nemo apex_hysteresis": "64 64 128 128 128 128 128 64 32 16 16 16 32 32 32",
    "torch": "64 64 128 128 64 64 32 16 8 4 4 4 8 8 4",
    "flax": "64 64 64 128 64 64 32 16 8 4 4 4 4 8 4",
    "mxnet": "64 64 64 128 128 64 64 32 16 8 4 4 4 8 8",
}


def scales(name, steps, **setting):
    """Return the scale after each step of a preset's rule; a dot is a finite step, an x an overflow."""
    rule, observed = presets.PRESETS[name].rule(**PUBLISHED[name].known(setting)), []
    state = rule.init()
    for step in steps:
        state = rule.update(state, step == ".")
        observed.append(float(state.scale))
    return observed


def test_presets_reproduce_recorded_runs():
    """The run of each line is that of all scalers in it."""
    for names, expected in RECORDED.items():
        for name in names.split():
            assert scales(name, RECORDED_STEPS, init_scale=64.0, **RECORDED_SETTINGS) == list(map(float, expected.split())), name


@pytest.mark.parametrize("name", ["mindspore", "mindspore_update_cell", "mindspore_manager"])
def test_mindspore_presets_reproduce_recorded_runs(name):
    """With powers of two the three scalers agree."""
    for init, factor, window, pattern, expected in TRACES:
        steps = pattern.replace("F", ".").replace("O", "x")
        assert [init, *scales(name, steps, init_scale=init, growth_factor=factor, growth_interval=window)] == expected
