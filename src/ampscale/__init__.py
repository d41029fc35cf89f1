"""
Loss scaling for mixed-precision training: the documented loss scalers on one state machine, for any array library.

This module has the functions and classes for all frameworks, and the documented classes of MindSpore, MindFormers and Paddle. The
modules `ampscale.torch`, `.paddle`, `.mindspore` and `.mindformers` hold the classes of one framework each, since classes of two
frameworks can have the same name: `ampscale.GradScaler` is Paddle's, and `ampscale.torch.GradScaler` torch's.
"""

from importlib import import_module
from types import ModuleType

from . import frameworks, optimizers, presets
from .backends import get_backend, get_namespace, list_backends, register_backend, use_backend
from .core.machine import LossScaleState
from .core.replicas import Communicator, SingleReplica
from .core.rule import LossScaleRule
from .core.step import StepReport, StepStatus, TrainState
from .frameworks.choice import scaler_for
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
    exponent_histogram,
    global_norm,
    init_train_state,
    local_norms,
    measure,
    scale,
    train_step,
    unscale,
    unscale_and_check,
    unscale_check_and_measure,
    unscale_check_and_norm,
)
from .network import Network, Parameter

__version__ = "0.1.0"

_LAZY = ("checkpoints", "diagnostics", "distributed", "mindformers", "mindspore", "paddle", "simulation", "torch")

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
    "exponent_histogram",
    "frameworks",
    "get_backend",
    "get_namespace",
    "global_norm",
    "init_train_state",
    "list_backends",
    "local_norms",
    "measure",
    "optimizers",
    "presets",
    "register_backend",
    "scale",
    "scaler_for",
    "train_step",
    "unscale",
    "unscale_and_check",
    "unscale_check_and_measure",
    "unscale_check_and_norm",
    "use_backend",
]


def __getattr__(name: str) -> ModuleType:
    """Import a module of the package when it is first used."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return import_module(f".{name}", __name__)
    except ModuleNotFoundError as error:  # hasattr() and help() expect an AttributeError
        raise AttributeError(str(error)) from error


def __dir__() -> list[str]:
    """Return the public names, including the modules that are imported when they are first used."""
    return [*__all__, *_LAZY]
