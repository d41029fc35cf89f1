"""Arguments of the documented classes: constructors and setters reject invalid values, and the message names the argument."""

from types import SimpleNamespace

import pytest
from frameworks.networks import Recorder, array, linear
from frameworks.rejections import check_rejected

import ampscale

INF, NAN = float("inf"), float("nan")

# For each requirement, values that raise a ValueError, and values that raise a TypeError; spec/vectors has more of them.
BOOL = (), (1, 0, None, "False")
COUNT = (0, -1, 2**31), (True, 2.0, "2", None)
POSITIVE = (0, 0.0, -1, NAN, INF, 1e39, 1e-50, 10**400), (True, "8", None, [8], array(8))
NORMAL = (*POSITIVE[0], 2.0**-127), POSITIVE[1]
SCALE = (0.999999, 0, -8, NAN, INF, 1e39, 10**400), POSITIVE[1]
WIDE_SCALE = (0.999999, 0, -8, NAN, INF, 10**400), POSITIVE[1]
FACTOR = (0, 0.999, 2.0**127, 1e39, NAN, INF), (True, "2", None)
ABOVE_1 = (1.0, 1, -2.0, NAN, INF, 10**400), (True, "2", None)
BELOW_1 = (1.0, 1, 1.5, 0.0, -0.5, NAN, INF), (True, "0.5", None)
LIMIT = (0, 0.0, -1.0, NAN, INF, 10**400), (True, "1", None, [1.0])
PARTS = dict.fromkeys(("optimizer", "communicator"), ((), (None, 1, "part"))) | {"detector": ((), (1, "part"))}
PARTS |= {"network": ((), (None, 1, "part", SimpleNamespace(params=[array(1)], vjp=len)))}  # not callable
MONITORED = {"monitor": ((), (1, "part"))}
NO_SCALES = True, None, "8", [8.0], sum, ampscale.FixedLossScaleManager()

MINDSPORE = {"scale_factor": COUNT, "scale_window": COUNT}
PADDLE = {"incr_ratio": ABOVE_1, "decr_ratio": BELOW_1, "incr_every_n_steps": COUNT, "decr_every_n_nan_or_inf": COUNT}
TORCH = {"growth_factor": ABOVE_1, "backoff_factor": BELOW_1, "growth_interval": COUNT}
MINDFORMERS = {"use_clip_grad": BOOL, "local_norm": BOOL, "max_grad_norm": LIMIT, "gradient_accumulation_steps": COUNT}
CELL = {"network": linear(), "optimizer": Recorder(), "scale_sense": array(8)}
CASES = {  # valid arguments, and invalid values of each argument
    "StaticLossScaler": ({}, {"scale_value": SCALE}),
    "DynamicLossScaler": ({"scale_value": 8, "scale_factor": 2, "scale_window": 2}, {"scale_value": SCALE, **MINDSPORE}),
    "FixedLossScaleUpdateCell": ({}, {"loss_scale_value": POSITIVE}),
    "DynamicLossScaleUpdateCell": (
        {"loss_scale_value": 8, "scale_factor": 2, "scale_window": 2},
        {"loss_scale_value": POSITIVE, "scale_factor": FACTOR, "scale_window": COUNT},
    ),
    "FixedLossScaleManager": ({}, {"loss_scale": SCALE, "drop_overflow_update": BOOL}),
    "DynamicLossScaleManager": ({}, {"init_loss_scale": WIDE_SCALE, "scale_factor": FACTOR, "scale_window": COUNT}),
    "TrainOneStepWithLossScaleCell": (CELL, {**PARTS, "scale_sense": ((), (8.0, *NO_SCALES))}),
    "MFTrainOneStepCell": (
        CELL,
        {**PARTS, **MINDFORMERS, "scale_sense": (POSITIVE[0], NO_SCALES), "ema_decay": (BELOW_1[0], (True, "0.9", [0.9]))},
    ),
    "GradScaler": ({}, {**PADDLE, "init_loss_scaling": NORMAL, "enable": BOOL, "use_dynamic_loss_scaling": BOOL, **MONITORED}),
    "torch.GradScaler": (
        {"enabled": False},  # a disabled scaler validates its arguments, too
        {**TORCH, "init_scale": NORMAL, "enabled": BOOL, "device": (("gpu", ""), (None, 0)), **MONITORED},
    ),
}


def class_of(name):
    """Return a documented class; skip the test if the class needs torch and torch is not installed."""
    if name.startswith("torch"):
        pytest.importorskip("torch", reason="needs torch")
        return ampscale.torch.GradScaler
    return getattr(ampscale, name)


def rejection_cases(arguments):
    """Return the cases of `check_rejected` for each invalid value."""
    return [
        (name, value, error)
        for name, values in arguments.items()
        for error, invalid in zip((ValueError, TypeError), values, strict=True)
        for value in invalid
    ]


@pytest.mark.clause("MINDSPORE-scale-value", "MINDSPORE-scale-factor", "MINDSPORE-scale-window", "MINDSPORE-update-cell-checked")
@pytest.mark.clause(
    "MINDSPORE-manager-checked", "MINDSPORE-cell-scale-type", "MINDSPORE-cell-network", "MINDSPORE-cell-optimizer"
)
@pytest.mark.clause("MINDFORMERS-scale-type", "MINDFORMERS-scale-checked", "MINDFORMERS-max-grad-norm", "MINDFORMERS-network")
@pytest.mark.clause(
    "PADDLE-init-loss-scaling", "PADDLE-incr-ratio", "PADDLE-decr-ratio", "PADDLE-counts-checked", "PADDLE-dynamic"
)
@pytest.mark.clause("TORCH-checked", "TORCH-device")
@pytest.mark.parametrize("name", CASES)
def test_a_class_rejects_invalid_arguments(name):
    """The message contains the argument, the expectation and the value."""
    valid, invalid = CASES[name]
    check_rejected(lambda argument, value: class_of(name)(**{**valid, argument: value}), rejection_cases(invalid))


@pytest.mark.clause("PADDLE-setters-checked", "TORCH-setters-checked")
@pytest.mark.parametrize(
    ("name", "settable"), [("GradScaler", {**PADDLE, "init_loss_scaling": NORMAL}), ("torch.GradScaler", TORCH)]
)
def test_a_setter_rejects_invalid_values(name, settable):
    """A rejected value changes nothing."""
    scaler = class_of(name)()
    attributes = vars(scaler).copy()
    check_rejected(lambda argument, value: getattr(scaler, f"set_{argument}")(value), rejection_cases(settable))
    assert vars(scaler) == attributes


@pytest.mark.clause("MINDSPORE-scale-value-attribute")
def test_an_attribute_rejects_invalid_values():
    """A rejected value changes nothing."""
    scaler = ampscale.DynamicLossScaler(8, 2, 4)
    scales = (*POSITIVE[0], array([1, 2])), (True, "8", None, array(8, "float16"))
    invalid = rejection_cases({"scale_value": scales, "counter": ((-1, 2**31), (1.0, True))})
    check_rejected(lambda name, value: setattr(scaler, name, value), invalid, got=None)
    assert (scaler.scale_value, scaler.counter) == (8, 0)
