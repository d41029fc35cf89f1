"""Adapters of ampscale's scalers for hand-written loops: MindSpore's and Paddle's."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

import ampscale

from ...model.adapter import Unsupported
from ...model.bits import arrays
from ..base import StateDict, outputs
from ..mindspore import MindSpore
from ..paddle import Paddle
from .backends import info_of, linear, network_with_optimizer

EDGE = 2.0**100  # above it, and below its reciprocal, ampscale deviates from the published scalers: spec/deviations.md
SCALERS = ("resume", "rounding", "division")  # capabilities of dynamic scalers
TREES = ("float16", "bfloat16", "complex", "integers")  # capabilities of functions on trees
LOOPS = ("process", "none", "groups", "applied", "loss", "momentum", "schedule")  # capabilities of hand-written loops


def beyond_edge(rule: Any, expected: str, becomes: str) -> Unsupported:
    """Return the error for an initial scale from which ampscale's scale can deviate."""
    reason = f"the published scale can become {becomes}, but ampscale's cannot"
    return Unsupported(f"init_scale must be {expected}, got {rule.init_scale}: {reason}")


class DynamicLossScaler(StateDict, MindSpore):
    """`ampscale.DynamicLossScaler`, on NumPy."""

    info = info_of("DynamicLossScaler", "mindspore", 1, (*SCALERS, *TREES))

    def scaler_with(self, *constants: Any) -> Any:
        return ampscale.DynamicLossScaler(*constants)

    def update(self, scaler: Any, finite: bool) -> None:
        scaler.adjust(finite)

    def read_scale(self, scaler: Any) -> float:
        return float(scaler.scale_value)

    def all_finite(self, tree: Any) -> Any:
        """Call the function `all_finite`, which takes a tuple or a list."""
        return ampscale.frameworks.mindspore.all_finite(arrays(tree))


class StaticLossScaler(DynamicLossScaler):
    """`ampscale.StaticLossScaler`, on NumPy."""

    info = info_of("StaticLossScaler", "static", 1, ("rounding", "division", *TREES))

    def create(self, rule: Any) -> Any:
        if rule.init_scale < 1:
            raise Unsupported("init_scale must be at least 1")
        return ampscale.StaticLossScaler(rule.init_scale)


class DynamicLossScaleManager:
    """`ampscale.DynamicLossScaleManager`, in Python numbers."""

    info = info_of("manager", "mindspore_manager", 0, ("rounding",))

    def create(self, rule: Any) -> Any:
        if not 1 <= rule.init_scale <= EDGE:
            raise beyond_edge(rule, "from 1 to 2**100", "infinite")
        return ampscale.DynamicLossScaleManager(rule.init_scale, rule.growth_factor, rule.growth_interval)

    def update(self, manager: Any, finite: bool) -> None:
        manager.update_loss_scale(not finite)

    def read_scale(self, manager: Any) -> float:
        return float(manager.get_loss_scale())


class AmpscaleGradScaler:
    """Base of the adapters of ampscale's scalers for Paddle and torch, which limit the scale to `EDGE`."""

    name = "ampscale"

    def create(self, rule: Any) -> Any:
        """Raise Unsupported if the published scale could leave the normal float32 numbers, which ampscale's scale never does."""
        scaler = super().create(rule)  # type: ignore[misc]  # defined by the published scaler's adapter
        if not 1 / EDGE <= rule.init_scale <= EDGE:
            raise beyond_edge(rule, "from 2**-100 to 2**100", "subnormal or infinite")
        return scaler

    def all_finite(self, tree: Any) -> bool:
        """Return True if the scaler applies a step with these gradients."""
        return bool(self.step(self.scaler_with(1.0), self.optimizer_with(arrays(tree))))  # type: ignore[attr-defined]  # of the published scaler's adapter

    def step(self, scaler: Any, optimizer: Any) -> Any:
        return bool(scaler.step(optimizer))


class PaddleGradScaler(AmpscaleGradScaler, Paddle):
    """`ampscale.GradScaler`, which replaces Paddle's scaler, over NumPy networks."""

    info = info_of("Paddle GradScaler", "paddle_document", 4, (*SCALERS, *LOOPS, "float16", "bfloat16", "complex"))

    def scaler_with(self, scale: float, **constants: Any) -> Any:
        return ampscale.GradScaler(init_loss_scaling=scale, **constants)

    def read_scale(self, scaler: Any) -> float:
        return float(scaler.get_loss_scaling())

    def tensor(self, number: float) -> Any:
        return np.array(number)

    def copied(self, tensor: Any) -> Any:
        return tensor.copy()

    def add_optimizer(self, scaler: Any, parameters: Sequence[Any]) -> Any:
        return ampscale.optimizers.SGD(linear(list(parameters), "numpy"), 1.0)

    def optimizer_with(self, gradients: Sequence[Any]) -> Any:
        """Return a stand-in that holds *gradients* and changes nothing, since ampscale's optimizers reject complex parameters."""
        parameters = [SimpleNamespace(grad=gradient.copy()) for gradient in gradients]
        return SimpleNamespace(parameters=parameters, step=lambda: None)

    def parameters_of(self, optimizer: Any) -> list[Any]:
        return optimizer.parameters  # type: ignore[no-any-return]

    def get_parameters(self, scaler: Any, optimizer: Any) -> list[Any]:
        return [parameter.value for parameter in optimizer.parameters]

    def create_cell(self, rule: Any, parameters: Sequence[Any], learning_rate: Any, momentum: float = 0.0) -> Any:
        return self.create(rule), *network_with_optimizer(parameters, "numpy", learning_rate, momentum)

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        """Run the training loop of docs/paddle.md: the backward pass starts with the scale, and the loss is not scaled."""
        scaler, network, optimizer = cell
        scale, rate = scaler.get_loss_scaling(), float(optimizer.learning_rate)
        loss = network.backward(*data, seed=np.float32(scale))
        finite = scaler.step(optimizer)
        scaler.update()
        return outputs([*network.params], finite, scale, scaler.get_loss_scaling(), float(loss), learning_rate=rate)
