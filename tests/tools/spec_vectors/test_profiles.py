"""Tests of the constants of the documented classes, against the classes of the library."""

import pytest
from ampscale_conformance.oracle.machine import trajectory
from spec.test_vectors_hold import driver_of
from spec_vectors.profiles import constants

STEPS = [step == "+" for step in "+++-+-++----++-++++--+"]
CLASSES = {
    "DynamicLossScaler": ("mindspore", ("scale_value", "scale_factor", "scale_window")),
    "DynamicLossScaleUpdateCell": ("mindformers", ("loss_scale_value", "scale_factor", "scale_window")),
    "DynamicLossScaleManager": ("mindspore", ("init_loss_scale", "scale_factor", "scale_window")),
    "GradScaler": ("paddle", ("init_loss_scaling", "incr_ratio", "incr_every_n_steps")),
}


@pytest.mark.parametrize("name", CLASSES)
def test_constants_give_the_scales_of_the_class(name):
    """The run has growths and backoffs, and reaches both ends of the range."""
    chapter, names = CLASSES[name]
    for values in [(10, 3, 2), (8, 2, 1), (2.0**127, 2, 1), (1.0, 7, 2), (1000.25, 49, 3)]:
        settings = dict(zip(names, values, strict=True))
        read, update = driver_of(chapter, name, settings)
        scales = [read()]
        for finite in STEPS:
            update(finite)
            scales.append(read())
        assert [point.scale for point in trajectory(constants(chapter, name, settings), STEPS)] == scales, settings


@pytest.mark.parametrize(
    ("chapter", "name", "settings", "scale"),
    [
        ("mindspore", "StaticLossScaler", {"scale_value": 3}, 3),
        ("mindspore", "FixedLossScaleUpdateCell", {"loss_scale_value": 3}, 3),
        ("mindspore", "FixedLossScaleManager", {}, 128),
        ("paddle", "GradScaler", {"use_dynamic_loss_scaling": False}, 32768),
        ("paddle", "GradScaler", {"enable": False}, 1),
    ],
)
def test_constant_scale_never_changes(chapter, name, settings, scale):
    """Neither finite steps nor overflows change it."""
    assert {point.scale for point in trajectory(constants(chapter, name, settings), STEPS * 9)} == {scale}


@pytest.mark.parametrize(
    ("decr_count", "scales"), [("accumulated", [8, 8, 8, 4, 4, 4, 2]), ("consecutive", [8, 8, 8, 8, 8, 8, 4])]
)
def test_paddle_counts_overflows_in_two_ways(decr_count, scales):
    """Paddle's documentation accumulates overflows; Paddle 3.3.1 counts consecutive ones."""
    rule = constants("paddle", "GradScaler", {"init_loss_scaling": 8.0, "decr_count": decr_count})
    assert [point.scale for point in trajectory(rule, [step == "+" for step in "-+-+--"])] == scales


def test_torch_multiplies_in_float64():
    """The product of 7 and 1.1 is another number if the factor is first rounded to float32."""
    rule = constants("torch", "GradScaler", {"init_scale": 7.0, "growth_factor": 1.1, "growth_interval": 1})
    assert [point.scale for point in trajectory(rule, [True])] == [7, float.fromhex("0x1.eccccc0000000p+2")]
    assert trajectory(constants("torch", "GradScaler", {"init_scale": 2.0**-126}), [False])[-1].scale == 2.0**-126


def test_class_without_a_scale_raises_a_value_error():
    """A training cell is not a loss scaler."""
    with pytest.raises(ValueError, match=r"class must be one of .*StaticLossScaler.*, got 'MFTrainOneStepCell'"):
        constants("mindformers", "MFTrainOneStepCell", {})
