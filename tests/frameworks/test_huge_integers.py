"""An int that no float can hold is a number out of range, for every class that takes a number."""

import pytest
from frameworks.networks import Recorder, linear
from frameworks.refusals import refused

import ampscale

HUGE = 10**400
TAKERS = {
    "scale_value": lambda: ampscale.DynamicLossScaler(HUGE, 2, 2),
    "loss_scale_value": lambda: ampscale.DynamicLossScaleUpdateCell(HUGE, 2, 2),
    "init_loss_scale": lambda: ampscale.DynamicLossScaleManager(HUGE),
    "loss_scale": lambda: ampscale.FixedLossScaleManager(HUGE),
    "scale_sense": lambda: ampscale.MFTrainOneStepCell(linear(), Recorder(), scale_sense=HUGE),
    "max_grad_norm": lambda: ampscale.MFTrainOneStepCell(linear(), Recorder(), max_grad_norm=HUGE),
    "init_loss_scaling": lambda: ampscale.GradScaler(init_loss_scaling=HUGE),
    "incr_ratio": lambda: ampscale.GradScaler(incr_ratio=HUGE),
}


@pytest.mark.clause("MINDSPORE-scale-value", "PADDLE-init-loss-scaling", "PADDLE-incr-ratio", "NORMS-limit-checked")
@pytest.mark.parametrize("name", TAKERS)
def test_an_int_beyond_every_float_is_refused(name):
    """A ValueError, as for infinity."""
    with refused(ValueError, name, str(HUGE)):
        TAKERS[name]()
