"""Adapters of ampscale's cells over NumPy networks: MindSpore's update cell and training cell, and MindFormers' training cell."""

from collections.abc import Sequence
from typing import Any

import numpy as np

import ampscale

from ..base import StateDict, StepCell, outputs
from .backends import info_of, network_with_optimizer
from .scalers import EDGE, beyond_edge

CELL = ("resume", "rounding", "process", "float16", "loss", "momentum", "schedule")  # capabilities of a training cell


class UpdateCell:
    """`ampscale.DynamicLossScaleUpdateCell`. A handle is a cell and the scale array that training cells would pass to it."""

    info = info_of("update cell", "mindspore_update_cell", 0, ("resume", "rounding"))

    def create(self, rule: Any) -> Any:
        return update_cell(rule), np.array(rule.init_scale, np.float32)

    def update(self, state: Any, finite: bool) -> None:
        cell, scale = state
        cell(scale, np.array(not finite))

    def read_scale(self, state: Any) -> float:
        return float(state[1])

    def save(self, state: Any) -> Any:
        cell, scale = state
        return cell.state_dict(), float(scale)

    def load(self, rule: Any, saved: Any) -> Any:
        cell, _ = self.create(rule)
        cell.load_state_dict(saved[0])
        return cell, np.array(saved[1], np.float32)


class TrainOneStep(StepCell, StateDict):
    """`ampscale.TrainOneStepWithLossScaleCell` with an update cell."""

    info = info_of("MindSpore step cell", "mindspore_update_cell", 4, CELL)

    def create(self, rule: Any) -> Any:
        return self.create_cell(rule, [np.zeros(1, np.float32)], learning_rate=1.0)

    def update(self, cell: Any, finite: bool) -> None:
        """Update the scale without a training step, by the method that subclasses of the cell call."""
        cell.process_loss_scale(np.array(not finite))

    def read_scale(self, cell: Any) -> float:
        return float(cell.scale_sense)

    def create_cell(self, rule: Any, parameters: Sequence[Any], **options: Any) -> Any:
        network, optimizer = network_with_optimizer(parameters, "numpy", **options)
        return ampscale.TrainOneStepWithLossScaleCell(network, optimizer, update_cell(rule))

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        scale, rate = float(cell.scale_sense), float(cell.optimizer.learning_rate)
        loss, overflow, next_scale = cell(*data)
        return outputs([*cell.network.params], not bool(overflow), scale, next_scale, loss, learning_rate=rate)


class MFTrainOneStep(TrainOneStep):
    """`ampscale.MFTrainOneStepCell` with an update cell."""

    info = info_of("MindFormers cell", "mindspore_update_cell", 4, (*TrainOneStep.info.capabilities, "norm", "clip"))

    def create_cell(self, rule: Any, parameters: Sequence[Any], max_norm: float | None = None, **options: Any) -> Any:
        """Return a cell with one of `ampscale.optimizers`. The cell computes a norm only if it clips."""
        limit = 1.0 if max_norm is None else max_norm
        network, optimizer = network_with_optimizer(parameters, "numpy", **options)
        return ampscale.MFTrainOneStepCell(network, optimizer, max_norm is not None, limit, update_cell(rule))

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        scale = float(cell.scale_sense)
        loss, overflow, next_scale, rate, norm = cell(*data)
        norms = {} if norm is None else {"global_norm": norm}
        return outputs([*cell.network.params], not bool(overflow), scale, next_scale, loss, learning_rate=rate, **norms)


def update_cell(rule: Any) -> Any:
    """Return an update cell for a rule; raise Unsupported for an initial scale above `EDGE`."""
    if rule.init_scale > EDGE:
        raise beyond_edge(rule, "at most 2**100", "infinite")
    return ampscale.DynamicLossScaleUpdateCell(rule.init_scale, rule.growth_factor, rule.growth_interval)
