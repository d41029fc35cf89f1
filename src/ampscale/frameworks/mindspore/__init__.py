"""
MindSpore's documented loss scaling classes, from `mindspore.amp` and `mindspore.nn`, for arrays of any supported library.

Spec: spec/profiles/mindspore.md.
"""

from .managers import DynamicLossScaleManager, FixedLossScaleManager
from .scalers import DynamicLossScaler, LossScaler, StaticLossScaler, all_finite
from .train_one_step import TrainOneStepWithLossScaleCell, TrainOneStepWithLossScaleOutput
from .update_cells import DynamicLossScaleUpdateCell, FixedLossScaleUpdateCell

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
