"""
Loss scaling for mixed-precision training: the documented scalers on one machine, on any array library.

The functional core is here, and the documented classes under their documented names; `ampscale.frameworks` has them
by framework, since two frameworks may share a name.
"""

from . import frameworks, optimizers, presets
from .backends import get_backend, get_namespace, list_backends, register_backend, use_backend
from .core.machine import LossScaleState
from .core.replicas import Communicator, SingleReplica
from .core.rule import LossScaleRule
from .core.step import StepReport, StepStatus, TrainState
from .frameworks.mindformers import MFTrainOneStepCell
from .frameworks.mindspore import (
    DynamicLossScaleManager,
    DynamicLossScaler,
    DynamicLossScaleUpdateCell,
    FixedLossScaleManager,
    FixedLossScaleUpdateCell,
    LossScaler,
    StaticLossScaler,
    TrainOneStepWithLossScaleCell,
)
from .frameworks.mindspore.detectors import GradientScan, StatusRegister
from .frameworks.paddle import GradScaler
from .functional import (
    all_finite,
    clip_by_global_norm,
    global_norm,
    init_train_state,
    local_norms,
    scale,
    train_step,
    unscale,
    unscale_and_check,
    unscale_check_and_norm,
)
from .network import Network, Parameter

__version__ = "0.1.0"

__all__ = [
    "Communicator",
    "DynamicLossScaleManager",
    "DynamicLossScaleUpdateCell",
    "DynamicLossScaler",
    "FixedLossScaleManager",
    "FixedLossScaleUpdateCell",
    "GradScaler",
    "GradientScan",
    "LossScaleRule",
    "LossScaleState",
    "LossScaler",
    "MFTrainOneStepCell",
    "Network",
    "Parameter",
    "SingleReplica",
    "StaticLossScaler",
    "StatusRegister",
    "StepReport",
    "StepStatus",
    "TrainOneStepWithLossScaleCell",
    "TrainState",
    "all_finite",
    "clip_by_global_norm",
    "frameworks",
    "get_backend",
    "get_namespace",
    "global_norm",
    "init_train_state",
    "list_backends",
    "local_norms",
    "optimizers",
    "presets",
    "register_backend",
    "scale",
    "train_step",
    "unscale",
    "unscale_and_check",
    "unscale_check_and_norm",
    "use_backend",
]
