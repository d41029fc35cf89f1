"""Documented parameters and defaults of the classes, in the documented order."""

from inspect import Parameter, signature

import pytest

import ampscale
from ampscale.core.replicas import SINGLE_REPLICA

REQUIRED = Parameter.empty
DOCUMENTED = {
    "StaticLossScaler": {"scale_value": REQUIRED},
    "DynamicLossScaler": {"scale_value": REQUIRED, "scale_factor": REQUIRED, "scale_window": REQUIRED},
    "FixedLossScaleUpdateCell": {"loss_scale_value": REQUIRED},
    "DynamicLossScaleUpdateCell": {"loss_scale_value": REQUIRED, "scale_factor": REQUIRED, "scale_window": REQUIRED},
    "FixedLossScaleManager": {"loss_scale": 128.0, "drop_overflow_update": True},
    "DynamicLossScaleManager": {"init_loss_scale": 2**24, "scale_factor": 2, "scale_window": 2000},
    "TrainOneStepWithLossScaleCell": {"network": REQUIRED, "optimizer": REQUIRED, "scale_sense": REQUIRED},
    "MFTrainOneStepCell": {
        "network": REQUIRED,
        "optimizer": REQUIRED,
        "use_clip_grad": False,
        "max_grad_norm": 1.0,
        "scale_sense": 1.0,
        "local_norm": False,
    },
    "GradScaler": {
        "enable": True,
        "init_loss_scaling": 32768.0,
        "incr_ratio": 2.0,
        "decr_ratio": 0.5,
        "incr_every_n_steps": 1000,
        "decr_every_n_nan_or_inf": 2,
        "use_dynamic_loss_scaling": True,
    },
}
OURS = {  # keywords beyond the documented ones
    "TrainOneStepWithLossScaleCell": {"detector": None, "communicator": SINGLE_REPLICA},
    "MFTrainOneStepCell": {
        "gradient_accumulation_steps": 1,
        "ema_decay": None,
        "detector": None,
        "communicator": SINGLE_REPLICA,
        "kwargs": REQUIRED,
    },
    "GradScaler": {"decr_count": "accumulated", "communicator": SINGLE_REPLICA, "monitor": None},
}


@pytest.mark.clause(
    "MINDSPORE-dynamic-signature",
    "MINDSPORE-manager-defaults",
    "MINDSPORE-cell-signature",
    "MINDFORMERS-signature",
    "PADDLE-parameters",
    "PADDLE-defaults",
)
@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_class_has_the_documented_parameters_and_defaults(name):
    """The documented parameters are also positional; further ones are keyword-only."""
    parameters = signature(getattr(ampscale, name)).parameters
    actual = [(key, parameter.default) for key, parameter in parameters.items()]
    assert actual == [*DOCUMENTED[name].items(), *OURS.get(name, {}).items()]
    kinds = [parameters[key].kind for key in DOCUMENTED[name]]
    assert kinds == [Parameter.POSITIONAL_OR_KEYWORD] * len(kinds)
    assert {parameters[key].kind for key in OURS.get(name, {})} <= {Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD}
