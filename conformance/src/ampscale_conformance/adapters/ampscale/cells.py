"""ampscale's documented cells, over NumPy networks: MindSpore's update cell and step cell, and MindFormers' step cell."""

from collections.abc import Sequence
from typing import Any

import numpy as np

import ampscale

from ...model.adapter import Unsupported
from ..base import StateDict, StepCell
from .backends import info_of, outputs, trained
from .scalers import EDGE


class UpdateCell:
    """`ampscale.DynamicLossScaleUpdateCell`, and the array that a step cell would hold for it."""

    info = info_of("update cell", "mindspore_update_cell", 0, ("resume", "rounding"))

    def create(self, rule: Any) -> Any:
        """The cell and the scale."""
        return update_cell(rule), np.array(rule.init_scale, np.float32)

    def update(self, held: Any, finite: bool) -> None:
        """Writes into the scale."""
        cell, scale = held
        cell(scale, np.array(not finite))

    def read_scale(self, held: Any) -> float:
        """Return the scale that was written."""
        return float(held[1])

    def save(self, held: Any) -> Any:
        """Both, in Python's numbers."""
        cell, scale = held
        return cell.state_dict(), float(scale)

    def load(self, rule: Any, saved: Any) -> Any:
        """Into new ones."""
        cell, _ = self.create(rule)
        cell.load_state_dict(saved[0])
        return cell, np.array(saved[1], np.float32)


class TrainOneStep(StepCell, StateDict):
    """`ampscale.TrainOneStepWithLossScaleCell` with an update cell."""

    info = info_of(
        "MindSpore step cell", "mindspore_update_cell", 4, ("resume", "rounding", "process", "loss", "momentum", "schedule")
    )

    def create(self, rule: Any) -> Any:
        """A cell over one parameter."""
        return self.create_cell(rule, [np.zeros(1, np.float32)], learning_rate=1.0)

    def update(self, cell: Any, finite: bool) -> None:
        """Its own, which an heir calls."""
        cell.process_loss_scale(np.array(not finite))

    def read_scale(self, cell: Any) -> float:
        """Return the scale of the next step."""
        return float(cell.scale_sense)

    def create_cell(self, rule: Any, parameters: Sequence[Any], **options: Any) -> Any:
        """With one of `ampscale.optimizers`."""
        return ampscale.TrainOneStepWithLossScaleCell(*trained(parameters, "numpy", **options), update_cell(rule))

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        """One call; its three outputs, as they are."""
        scale, rate = float(cell.scale_sense), float(cell.optimizer.learning_rate)
        loss, overflow, next_scale = cell(*data)
        return outputs(cell.network, scale, loss, overflow, next_scale, rate)


class MFTrainOneStep(TrainOneStep):
    """`ampscale.MFTrainOneStepCell` with an update cell."""

    info = info_of("MindFormers cell", "mindspore_update_cell", 4, (*TrainOneStep.info.capabilities, "norm", "clip"))

    def create_cell(self, rule: Any, parameters: Sequence[Any], max_norm: float | None = None, **options: Any) -> Any:
        """With one of `ampscale.optimizers`; a norm is taken only where there is a limit."""
        limit = 1.0 if max_norm is None else max_norm
        held = trained(parameters, "numpy", **options)
        return ampscale.MFTrainOneStepCell(*held, max_norm is not None, limit, update_cell(rule))

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        """One call; its five outputs, as they are."""
        scale = float(cell.scale_sense)
        *told, norm = cell(*data)
        return outputs(cell.network, scale, *told) | ({} if norm is None else {"global_norm": norm})


def update_cell(rule: Any) -> Any:
    """Of a rule; Unsupported where the published one grows to infinity, and ours does not."""
    if rule.init_scale > EDGE:
        raise Unsupported("it does not grow to infinity, as the published one does")
    return ampscale.DynamicLossScaleUpdateCell(rule.init_scale, rule.growth_factor, rule.growth_interval)


UPDATE_CELL = UpdateCell()
TRAIN_ONE_STEP = TrainOneStep()
MF_TRAIN_ONE_STEP = MFTrainOneStep()
