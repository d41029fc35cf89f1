"""Presets equal recorded runs of the real scalers, and differ from each other as the scalers do."""

import numpy as np
import pytest
from frameworks.published import TRACES
from presets.loop import Stop
from presets.published import PUBLISHED

from ampscale import presets

LARGEST = float(np.finfo(np.float32).max)
TOP = 2.0**126


def scales(name, steps, **setting):
    """Return the scale after each step of a preset's rule; a dot is a finite step, an x an overflow."""
    rule, observed = presets.PRESETS[name].rule(**PUBLISHED[name].known(setting)), []
    state = rule.init()
    for step in steps:
        if rule.would_raise(state, step == "."):
            raise Stop
        state = rule.update(state, step == ".")
        observed.append(float(state.scale))
    return observed


def differing(rows, steps=None, **setting):
    """Return the scalers whose scales differ from their row: names, expected scales, and steps unless all rows share them."""
    return [
        (name, actual)
        for names, expected, *own_steps in rows
        for name in names.split()
        if (actual := scales(name, own_steps[0] if own_steps else steps or "." * len(expected), **setting)) != expected
    ]


def test_presets_reproduce_recorded_runs():
    """Fifteen steps of the real objects from a scale of 64, with an interval of 3, and a hysteresis of 2 if it can be set."""
    rows = [
        ("paddle paddle_amp_scaler paddle_static paddle_static_old", "64 64 128 128 128 128 128 64 64 32 32 32 64 64 64"),
        ("tensorflow_contrib paddle_document", "64 64 128 128 128 128 64 64 32 32 32 32 64 64 64"),
        ("megatron colossalai", "64 64 128 128 128 128 64 32 16 8 8 8 16 16 16"),
        ("deepspeed", "64 64 64 128 128 128 64 32 16 8 8 8 8 16 16"),
        ("deepspeed_consecutive", "64 64 64 128 128 128 128 64 32 16 16 16 16 32 32"),
        ("nemo apex_hysteresis", "64 64 128 128 128 128 128 64 32 16 16 16 32 32 32"),
        ("torch", "64 64 128 128 64 64 32 16 8 4 4 4 8 8 4"),
        ("flax", "64 64 64 128 64 64 32 16 8 4 4 4 4 8 4"),
        ("mxnet", "64 64 64 128 128 64 64 32 16 8 4 4 4 8 8"),
    ]
    rows = [(names, [float(scale) for scale in expected.split()]) for names, expected in rows]
    setting = {"init_scale": 64.0, "growth_interval": 3, "hysteresis": 2, "backoff_factor": 0.5}
    assert differing(rows, "....x.xxxx....x", **setting) == []


@pytest.mark.clause("MACHINE-skip-infinite-growth", "MACHINE-max-scale")
def test_scalers_differ_at_the_largest_scales():
    """The scale starts at 2**126: some scalers stay finite in float32, some reach infinity, some use float64."""
    rows = [
        ("torch jmp tf_keras tensorflow_v1 tensorflow_contrib mindspore nemo apex_hysteresis", [2 * TOP, 2 * TOP]),
        ("paddle_static paddle_static_old fairseq2 jmp_jit", [2 * TOP, 2 * TOP]),
        ("paddle paddle_document keras megatron mindspore_update_cell torch_sharded_cpu", [2 * TOP, np.inf]),
        ("flax", [TOP, 2 * TOP, 2 * TOP, LARGEST]),
        ("oneflow", [2 * TOP, LARGEST]),
        ("deepspeed deepspeed_fp16_optimizer", [TOP, 2 * TOP, 4 * TOP]),
        ("fairseq bmtrain mindspore_manager apex_fp16_utils", [2 * TOP, 4 * TOP]),
    ]
    assert differing(rows, init_scale=TOP, growth_interval=1) == []
    near_max, max_scale = 3 * 2.0**22, 2.0**24
    rows = [("apex onnxruntime", [max_scale, max_scale]), ("mxnet", [near_max, max_scale, max_scale])]
    assert differing(rows, init_scale=near_max, growth_interval=1) == []
    assert differing([("colossalai", [2.0**32] * 2)], init_scale=3 * 2.0**30, growth_interval=1) == []
    assert differing([("mpx chainer", [65504, 65504])], init_scale=40000.0, growth_interval=1) == []


@pytest.mark.clause("MACHINE-min-scale")
def test_scalers_differ_at_the_smallest_scales():
    """Four overflows follow a scale of 2, with a hysteresis of 2 if it can be set: some scalers stop at 1."""
    rows = [
        ("jmp mpx tf_keras onnxruntime oneflow mindspore mindspore_update_cell mindspore_manager", [1, 1, 1, 1]),
        ("bmtrain deepspeed_fp16_optimizer apex_fp16_utils jmp_jit tensorflow_v1", [1, 1, 1, 1]),
        ("torch keras flax apex fairseq torch_sharded_cpu", [1, 0.5, 0.25, 0.125]),
        ("paddle_static paddle_static_old tensorflow_contrib megatron colossalai", [2, 1, 1, 1]),
        ("nemo apex_hysteresis mxnet", [2, 1, 0.5, 0.25]),
        ("paddle paddle_document", [2, 1, 1, 0.5]),
    ]
    assert differing(rows, "xxxx", init_scale=2.0, hysteresis=2, backoff_factor=0.5) == []


@pytest.mark.clause("MACHINE-arithmetic", "MACHINE-float64-factor", "MACHINE-divide-on-backoff")
def test_rounding_of_products_and_quotients():
    """9 * 1.1, 9 * 0.7 and 10 / 3 differ if they are rounded once or twice, or computed with a reciprocal."""
    nine = {"init_scale": 9.0, "growth_interval": 1, "hysteresis": 1, "growth_factor": 1.1, "backoff_factor": 0.7}
    ten = {"init_scale": 10.0, "growth_factor": 3, "growth_interval": 3}
    rounded_twice = "paddle paddle_static tensorflow_contrib megatron colossalai torch_sharded_cpu"
    factor_first, divided = np.float32(9) * np.float32([1.1, 0.7]), np.float32(9) / np.float32(1.1)
    rows = [
        *[("torch nemo apex_hysteresis", [np.float32(9 * factor)], step) for factor, step in ((1.1, "."), (0.7, "x"))],
        *[(rounded_twice, [scale], step) for scale, step in zip(factor_first, ".x", strict=True)],
        *[("oneflow", [scale], step) for scale, step in ((factor_first[0], "."), (divided, "x"))],
    ]
    assert differing(rows, **nine) == []
    assert not set(factor_first) & {np.float32(9 * 1.1), np.float32(9 * 0.7)}
    rows = [
        ("mindspore jmp", [3.3333332538604736]),
        ("mindspore_update_cell jmp_jit", [3.3333334922790527]),
        ("mindspore_manager", [3.333333333333333]),
    ]
    assert differing(rows, "x", **ten) == []


@pytest.mark.parametrize("name", ["mindspore", "mindspore_update_cell", "mindspore_manager"])
def test_mindspore_presets_reproduce_recorded_runs(name):
    """With powers of two the three scalers agree."""
    for init, factor, window, pattern, expected in TRACES:
        steps = pattern.replace("F", ".").replace("O", "x")
        assert [init, *scales(name, steps, init_scale=init, growth_factor=factor, growth_interval=window)] == expected
