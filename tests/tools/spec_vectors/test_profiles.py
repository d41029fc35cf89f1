"""The documented classes as constants, beside the classes themselves."""

import numpy as np
import pytest
from ampscale_conformance.oracle.machine import trajectory
from linear import network
from spec_vectors.profiles import constants

import ampscale

STEPS = [step == "+" for step in "+++-+-++----++-++++--+"]


def of_scaler(made):
    return lambda: float(made.scale_value), lambda finite: made.adjust(np.asarray(finite))


def of_manager(made):
    return made.get_loss_scale, lambda finite: made.update_loss_scale(not finite)


def of_update_cell(made):
    scale = np.asarray(made.get_loss_scale(), np.float32)
    return lambda: float(scale), lambda finite: made(scale, np.asarray(not finite))


def of_paddle(made):
    optimizer = ampscale.optimizers.SGD(network([np.zeros(1, np.float32)]))

    def move(finite):
        optimizer.parameters[0].grad = np.asarray([1.0 if finite else np.inf], np.float32)
        made.minimize(optimizer, None)

    return made.get_loss_scaling, move


DRIVERS = {
    "DynamicLossScaler": ("mindspore", of_scaler, ("scale_value", "scale_factor", "scale_window")),
    "DynamicLossScaleUpdateCell": ("mindformers", of_update_cell, ("loss_scale_value", "scale_factor", "scale_window")),
    "DynamicLossScaleManager": ("mindspore", of_manager, ("init_loss_scale", "scale_factor", "scale_window")),
    "GradScaler": ("paddle", of_paddle, ("init_loss_scaling", "incr_ratio", "incr_every_n_steps")),
}


@pytest.mark.parametrize("name", DRIVERS)
def test_a_class_goes_where_the_packages_goes(name):
    """Through growths, backoffs, and both ends of the range."""
    chapter, driver, names = DRIVERS[name]
    for setting in [(10, 3, 2), (8, 2, 1), (2.0**127, 2, 1), (1.0, 7, 2), (1000.25, 49, 3)]:
        given = dict(zip(names, setting, strict=True))
        read, move = driver(getattr(ampscale, name)(**given))
        scales = [read()]
        for finite in STEPS:
            move(finite)
            scales.append(read())
        assert [point.scale for point in trajectory(constants(chapter, name, given), STEPS)] == scales, given


@pytest.mark.parametrize(
    ("chapter", "name", "given", "scale"),
    [
        ("mindspore", "StaticLossScaler", {"scale_value": 3}, 3),
        ("mindspore", "FixedLossScaleUpdateCell", {"loss_scale_value": 3}, 3),
        ("mindspore", "FixedLossScaleManager", {}, 128),
        ("paddle", "GradScaler", {"use_dynamic_loss_scaling": False}, 32768),
        ("paddle", "GradScaler", {"enable": False}, 1),
    ],
)
def test_a_fixed_scale_never_moves(chapter, name, given, scale):
    """Overflows or not."""
    assert {point.scale for point in trajectory(constants(chapter, name, given), STEPS * 9)} == {scale}


@pytest.mark.parametrize(
    ("decr_count", "scales"), [("accumulated", [8, 8, 8, 4, 4, 4, 2]), ("consecutive", [8, 8, 8, 8, 8, 8, 4])]
)
def test_paddle_counts_overflows_in_two_ways(decr_count, scales):
    """The page's way, and that of Paddle 3.3.1."""
    rule = constants("paddle", "GradScaler", {"init_loss_scaling": 8.0, "decr_count": decr_count})
    assert [point.scale for point in trajectory(rule, [step == "+" for step in "-+-+--"])] == scales


def test_torch_multiplies_in_float64():
    """7 times 1.1, in float32 twice rounded would be another number."""
    rule = constants("torch", "GradScaler", {"init_scale": 7.0, "growth_factor": 1.1, "growth_interval": 1})
    assert [point.scale for point in trajectory(rule, [True])] == [7, float.fromhex("0x1.eccccc0000000p+2")]
    assert trajectory(constants("torch", "GradScaler", {"init_scale": 2.0**-126}), [False])[-1].scale == 2.0**-126


def test_a_class_that_moves_no_scale_is_refused():
    """A cell is none."""
    with pytest.raises(ValueError, match=r"class must be one of .*StaticLossScaler.*, got 'MFTrainOneStepCell'"):
        constants("mindformers", "MFTrainOneStepCell", {})
