"""
Paddle: `paddle.amp.GradScaler` in the dynamic graph, on the CPU, with a hand-written loop.

On a CPU place the constructor disables the scaler, so the constructor alone runs with a tracer that reports a GPU place. All
else runs on Paddle's own CPU kernels.
"""

from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from types import SimpleNamespace
from typing import Any
from unittest import mock

from ..model.adapter import ImplementationInfo
from ..model.bits import arrays
from . import version_of
from .base import Library, LoopScaler, linear_loss, outputs, reject_factors_of_1

paddle: Any = Library("paddle")


class Paddle(LoopScaler):
    """Scaler as documented: overflows accumulate. Paddle's CPU build has no kernel for 16-bit gradients."""

    info = ImplementationInfo(
        name="Paddle GradScaler",
        version=version_of("paddlepaddle"),
        url="https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/amp/GradScaler_en.html",
        level=4,
        capabilities=("resume", "process", "none", "groups", "loss", "momentum"),
        preset="paddle_document",
        arrays="paddle",
    )
    name = "Paddle"

    def create(self, rule: Any) -> Any:
        reject_factors_of_1(rule, self.name)
        counts = {"incr_every_n_steps": rule.growth_interval, "decr_every_n_nan_or_inf": rule.hysteresis}
        return self.scaler_with(rule.init_scale, incr_ratio=rule.growth_factor, decr_ratio=rule.backoff_factor, **counts)

    def scaler_with(self, scale: float, **constants: Any) -> Any:
        place = SimpleNamespace(is_gpu_place=lambda: True)  # the only method that the constructor calls
        with paddle.amp.auto_cast():  # otherwise the scaler disables itself in its first `scale`
            pass
        with mock.patch("paddle.amp.grad_scaler._dygraph_tracer", return_value=SimpleNamespace(_expected_place=place)):
            return paddle.amp.GradScaler(init_loss_scaling=scale, **constants)

    def read_scale(self, scaler: Any) -> float:
        """Return the scale in the state dict, since no getter returns the current scale."""
        return float(scaler.state_dict()["scale"][0])

    def all_finite(self, tree: Any) -> bool:
        """Take a step with a scaler that changes its scale in every step; return True if the scale grows."""
        scaler = self.scaler_with(4.0, incr_every_n_steps=1, decr_every_n_nan_or_inf=1)
        scaler.step(self.optimizer_with(arrays(tree)))
        self.update_scale(scaler)
        return self.read_scale(scaler) > 4.0

    def tensor(self, number: float) -> Any:
        return paddle.to_tensor([number])

    def parameter_from(self, value: Any) -> Any:
        parameter = paddle.create_parameter(value.shape, value.dtype, default_initializer=paddle.nn.initializer.Constant(0.0))
        parameter.set_value(value)
        return parameter

    def sgd(self, parameters: Sequence[Any], learning_rate: float = 1.0, momentum: float = 0.0) -> Any:
        if momentum:
            return paddle.optimizer.Momentum(learning_rate, momentum, parameters=parameters)
        return paddle.optimizer.SGD(learning_rate, parameters=parameters)

    def parameters_of(self, optimizer: Any) -> list[Any]:
        return optimizer._parameter_list  # type: ignore[no-any-return]

    def update_scale(self, scaler: Any) -> None:
        quietly(scaler.update)

    def create_cell(self, rule: Any, parameters: Sequence[Any], learning_rate: float, momentum: float = 0.0) -> Any:
        return self.create(rule), self.sgd([*map(self.parameter_from, parameters)], learning_rate, momentum)

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        """Run the documented loop. Only a private attribute shows whether the step was skipped."""
        scaler, optimizer = cell
        scale = self.read_scale(scaler)
        loss = linear_loss(self.parameters_of(optimizer), data)
        scaled = scaler.scale(loss)
        scaled.backward()
        quietly(scaler.minimize, optimizer, scaled)
        optimizer.clear_grad()
        finite = not bool(scaler._cache_found_inf)
        parameters = self.get_parameters(scaler, optimizer)
        return outputs(parameters, finite, scale, self.read_scale(scaler), float(loss))


class PaddleAsItIs(Paddle):
    """Paddle's scaler, tested against its code instead of its documentation: a finite step resets the overflow count."""

    info = ImplementationInfo(
        name="Paddle GradScaler, as coded",
        version=version_of("paddlepaddle"),
        url="https://github.com/PaddlePaddle/Paddle/blob/v3.3.1/python/paddle/amp/grad_scaler.py",
        capabilities=("resume", "rounding"),
        preset="paddle",
        arrays="paddle",
    )


def quietly(function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function without the output that Paddle prints at every backoff."""
    with redirect_stdout(None):
        function(*arguments)
