"""ampscale's documented scalers of hand-written loops: MindSpore's and Paddle's."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

import ampscale

from ...model.adapter import Unsupported
from ...model.bits import arrays
from ..base import StateDict
from ..mindspore import MindSpore
from ..paddle import Paddle
from .backends import info_of, linear, outputs, trained

EDGE = 2.0**100  # beyond it, and below its reciprocal, what is published is mended: see spec/deviations.md
HOST = ("resume", "rounding", "division")
TREES = ("bfloat16", "complex", "integers")


class DynamicLossScaler(StateDict, MindSpore):
    """`ampscale.DynamicLossScaler`, on NumPy."""

    info = info_of("DynamicLossScaler", "mindspore", 1, (*HOST, *TREES))

    def scaler_with(self, *constants: Any) -> Any:
        """The scaler under test."""
        return ampscale.DynamicLossScaler(*constants)

    def update(self, scaler: Any, finite: bool) -> None:
        """Its own word for it."""
        scaler.adjust(finite)

    def read_scale(self, scaler: Any) -> float:
        """A snapshot."""
        return float(scaler.scale_value)

    def all_finite(self, tree: Any) -> Any:
        """The function beside it, which takes a tuple or a list."""
        return ampscale.frameworks.mindspore.all_finite(arrays(tree))


class StaticLossScaler(DynamicLossScaler):
    """`ampscale.StaticLossScaler`, on NumPy."""

    info = info_of("StaticLossScaler", "static", 1, ("rounding", "division", *TREES))

    def create(self, rule: Any) -> Any:
        """Its scale is at least 1."""
        if rule.init_scale < 1:
            raise Unsupported("its scale is at least 1")
        return ampscale.StaticLossScaler(rule.init_scale)


class DynamicLossScaleManager:
    """`ampscale.DynamicLossScaleManager`, in the host's numbers."""

    info = info_of("manager", "mindspore_manager", 0, ("rounding",))

    def create(self, rule: Any) -> Any:
        """Its scale is at least 1, and stays finite."""
        if not 1 <= rule.init_scale <= EDGE:
            raise Unsupported("its scale is at least 1, and it does not grow to infinity as the published one does")
        return ampscale.DynamicLossScaleManager(rule.init_scale, rule.growth_factor, rule.growth_interval)

    def update(self, manager: Any, finite: bool) -> None:
        """Its own word for it."""
        manager.update_loss_scale(not finite)

    def read_scale(self, manager: Any) -> float:
        """Its own."""
        return float(manager.get_loss_scale())


class OurGradScaler:
    """Base of both scalers of a hand-written loop: limits the scale to `EDGE`, and returns whether a step was applied."""

    who = "it"

    def create(self, rule: Any) -> Any:
        """Unsupported where the published scaler's scale would leave the normal float32 numbers, and ours does not."""
        scaler = super().create(rule)  # type: ignore[misc]  # of the published scaler's adapter
        if not 1 / EDGE <= rule.init_scale <= EDGE:
            raise Unsupported("its scale stays within the normal numbers, where the published one leaves them")
        return scaler

    def all_finite(self, tree: Any) -> bool:
        """Return what `step` returns for an optimizer with these gradients: True if it was applied."""
        return bool(self.step(self.scaler_with(1.0), self.optimizer_with(arrays(tree))))  # type: ignore[attr-defined]  # likewise

    def step(self, scaler: Any, optimizer: Any) -> Any:
        """Its own; whether the optimizer stepped."""
        return bool(scaler.step(optimizer))


class PaddleGradScaler(OurGradScaler, Paddle):
    """`ampscale.GradScaler`, Paddle's, over NumPy networks."""

    info = info_of(
        "Paddle GradScaler",
        "paddle_document",
        4,
        (*HOST, "process", "bfloat16", "complex", "none", "groups", "applied", "loss", "momentum", "schedule"),
    )

    def scaler_with(self, scale: float, **constants: Any) -> Any:
        """The scaler under test."""
        return ampscale.GradScaler(init_loss_scaling=scale, **constants)

    def read_scale(self, scaler: Any) -> float:
        """Its own."""
        return float(scaler.get_loss_scaling())

    def tensor(self, number: float) -> Any:
        """Of shape ()."""
        return np.array(number)

    def copied(self, tensor: Any) -> Any:
        """An array of its own."""
        return tensor.copy()

    def add_optimizer(self, scaler: Any, parameters: Sequence[Any]) -> Any:
        """Plain SGD, of ours."""
        return ampscale.optimizers.SGD(linear(list(parameters), "numpy"), 1.0)

    def optimizer_with(self, gradients: Sequence[Any]) -> Any:
        """One that moves nothing, since ours take no complex parameters."""
        held = [SimpleNamespace(grad=gradient.copy()) for gradient in gradients]
        return SimpleNamespace(parameters=held, step=lambda: None)

    def parameters_of(self, optimizer: Any) -> list[Any]:
        """In their order."""
        return optimizer.parameters  # type: ignore[no-any-return]

    def get_parameters(self, scaler: Any, optimizer: Any) -> list[Any]:
        """In their order."""
        return [parameter.value for parameter in optimizer.parameters]

    def create_cell(self, rule: Any, parameters: Sequence[Any], learning_rate: Any, momentum: float = 0.0) -> Any:
        """What a loop holds."""
        return self.create(rule), *trained(parameters, "numpy", learning_rate, momentum)

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        """The loop of its page, whose backward pass begins at the scale."""
        scaler, network, optimizer = cell
        scale, rate = scaler.get_loss_scaling(), float(optimizer.learning_rate)
        loss = network.backward(*data, seed=np.float32(scale))
        finite = scaler.step(optimizer)
        scaler.update()
        return outputs(network, scale, float(loss), not finite, scaler.get_loss_scaling(), rate)


DYNAMIC_LOSS_SCALER = DynamicLossScaler()
STATIC_LOSS_SCALER = StaticLossScaler()
DYNAMIC_LOSS_SCALE_MANAGER = DynamicLossScaleManager()
PADDLE_GRAD_SCALER = PaddleGradScaler()
