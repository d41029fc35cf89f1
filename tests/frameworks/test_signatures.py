"""Documented parameters and defaults of the classes, in the documented order."""

from inspect import Parameter, Signature, signature

import pytest

import ampscale

SIGNATURES = {  # parameters after the asterisk are additions of ampscale
    "StaticLossScaler": "(scale_value)",
    "DynamicLossScaler": "(scale_value, scale_factor, scale_window)",
    "FixedLossScaleUpdateCell": "(loss_scale_value)",
    "DynamicLossScaleUpdateCell": "(loss_scale_value, scale_factor, scale_window)",
    "FixedLossScaleManager": "(loss_scale=128.0, drop_overflow_update=True)",
    "DynamicLossScaleManager": "(init_loss_scale=16777216, scale_factor=2, scale_window=2000)",
    "TrainOneStepWithLossScaleCell": "(network, optimizer, scale_sense, *, detector=None, communicator=SingleReplica())",
    "MFTrainOneStepCell": "(network, optimizer, use_clip_grad=False, max_grad_norm=1.0, scale_sense=1.0, local_norm=False, *, "
    "gradient_accumulation_steps=1, ema_decay=None, detector=None, communicator=SingleReplica(), **kwargs)",
    "GradScaler": "(enable=True, init_loss_scaling=32768.0, incr_ratio=2.0, decr_ratio=0.5, incr_every_n_steps=1000, "
    "decr_every_n_nan_or_inf=2, use_dynamic_loss_scaling=True, *, "
    "decr_count='accumulated', communicator=SingleReplica(), monitor=None)",
}


@pytest.mark.clause(
    "MINDSPORE-dynamic-signature", "MINDSPORE-manager-defaults", "MINDSPORE-cell-signature", "MINDFORMERS-signature"
)
@pytest.mark.clause("PADDLE-parameters", "PADDLE-defaults")
@pytest.mark.parametrize("name", SIGNATURES)
def test_a_class_has_the_documented_parameters_and_defaults(name):
    """The documented parameters are also positional; further ones are keyword-only."""
    parameters = signature(getattr(ampscale, name)).parameters.values()
    unannotated = [parameter.replace(annotation=Parameter.empty) for parameter in parameters]
    assert str(Signature(unannotated)) == SIGNATURES[name]


def test_package_has_no_other_attributes_than_its_modules():
    with pytest.raises(AttributeError, match=r"^module 'ampscale.frameworks' has no attribute 'keras'$"):
        ampscale.frameworks.keras  # noqa: B018
