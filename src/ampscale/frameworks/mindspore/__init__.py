"""
MindSpore's loss scaling, in the rooms where MindSpore keeps it: `amp` and `nn`.

Spec: spec/profiles/mindspore.md.
"""

from .amp import (
    DynamicLossScaleManager,
    DynamicLossScaler,
    FixedLossScaleManager,
    LossScaler,
    StaticLossScaler,
    all_finite,
)
from .nn import (
    DynamicLossScaleUpdateCell,
    FixedLossScaleUpdateCell,
    TrainOneStepWithLossScaleCell,
    TrainOneStepWithLossScaleOutput,
)

__all__ = [
    "DynamicLossScaleManager",
    "DynamicLossScaleUpdateCell",
    "DynamicLossScaler",
    "FixedLossScaleManager",
    "FixedLossScaleUpdateCell",
    "LossScaler",
    "StaticLossScaler",
    "TrainOneStepWithLossScaleCell",
    "TrainOneStepWithLossScaleOutput",
    "all_finite",
]
