"""
Paddle: `paddle.amp.GradScaler` in the dynamic graph, on the CPU, and the loop that is written around it.

On a CPU place it turns itself off as it is made. Its constructor, and it alone, is shown a tracer that says it stands on a
GPU; everything after that is Paddle's own CPU kernels.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ..model.adapter import ImplementationInfo, Unsupported
from ..model.bits import arrays
from . import version_of
from .base import LoopScaler, refuse_factors_of_1


class Paddle(LoopScaler):
    """The scaler as its page has it, which says that overflows accumulate. Paddle's CPU has no kernel for 16-bit gradients."""

    info = ImplementationInfo(
        name="Paddle GradScaler",
        version=version_of("paddlepaddle"),
        url="https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/amp/GradScaler_en.html",
        level=4,
        capabilities=("resume", "process", "none", "groups", "loss", "momentum"),
        preset="paddle_document",
        arrays="paddle",
    )
    who = "Paddle"

    def create(self, rule: Any) -> Any:
        """With a rule's constants."""
        refuse_factors_of_1(rule, self.who)
        return self.scaler_with(
            rule.init_scale,
            incr_ratio=rule.growth_factor,
            decr_ratio=rule.backoff_factor,
            incr_every_n_steps=rule.growth_interval,
            decr_every_n_nan_or_inf=rule.hysteresis,
        )

    def scaler_with(self, scale: float, **constants: Any) -> Any:
        """A scaler that is on."""
        from types import SimpleNamespace
        from unittest import mock

        import paddle
        from paddle.amp import grad_scaler

        place = SimpleNamespace(is_gpu_place=lambda: True)  # all that the constructor asks of its tracer's place

        with paddle.amp.auto_cast():  # without which a scaler turns itself off at its first scale
            pass
        with mock.patch.object(grad_scaler, "_dygraph_tracer", return_value=SimpleNamespace(_expected_place=place)):
            return paddle.amp.GradScaler(init_loss_scaling=scale, **constants)

    def read_scale(self, scaler: Any) -> float:
        """There is no other place to read it."""
        return float(scaler.state_dict()["scale"][0])

    def all_finite(self, tree: Any) -> bool:
        """Whether a scaler that moves at every step goes up."""
        scaler = self.scaler_with(4.0, incr_every_n_steps=1, decr_every_n_nan_or_inf=1)
        scaler.step(self.optimizer_with(arrays(tree)))
        self.update_scale(scaler)
        return self.read_scale(scaler) > 4.0

    def tensor(self, number: float) -> Any:
        """Of shape (1,)."""
        import paddle

        return paddle.to_tensor([number])

    def parameters_from(self, values: Sequence[Any]) -> list[Any]:
        """Unsupported where Paddle's CPU has no kernel."""
        import paddle

        if any(value.dtype in (paddle.float16, paddle.bfloat16) for value in values):
            raise Unsupported("Paddle unscales 16-bit gradients on accelerators alone")
        return [parameter_from(value) for value in values]

    def sgd(self, parameters: Sequence[Any], learning_rate: float = 1.0, momentum: float = 0.0) -> Any:
        """Plain SGD, or with momentum."""
        import paddle

        if momentum:
            return paddle.optimizer.Momentum(learning_rate, momentum, parameters=parameters)
        return paddle.optimizer.SGD(learning_rate, parameters=parameters)

    def parameters_of(self, optimizer: Any) -> list[Any]:
        """In their order."""
        return optimizer._parameter_list  # type: ignore[no-any-return]

    def step(self, scaler: Any, optimizer: Any) -> None:
        """Its own, which returns nothing."""
        scaler.step(optimizer)

    def update_scale(self, scaler: Any) -> None:
        """Its own."""
        quietly(scaler.update)

    def create_cell(self, rule: Any, parameters: Sequence[Any], learning_rate: float, momentum: float = 0.0) -> Any:
        """What a loop holds."""
        return self.create(rule), self.sgd(self.parameters_from(parameters), learning_rate, momentum)

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        """The loop of its page. It tells of a skip nowhere but in a private name."""
        scaler, optimizer = cell
        scale = self.read_scale(scaler)
        loss = sum((held * values).sum() for held, values in zip(self.parameters_of(optimizer), data, strict=True))
        scaled = scaler.scale(loss)
        scaled.backward()
        quietly(scaler.minimize, optimizer, scaled)
        finite = not bool(scaler._cache_found_inf)
        optimizer.clear_grad()
        return {
            "parameters": self.get_parameters(scaler, optimizer),
            "finite": finite,
            "scale": scale,
            "next_scale": self.read_scale(scaler),
            "loss": float(loss),
        }


class PaddleAsItIs(Paddle):
    """The same scaler, held to what its code does: a finite step forgets the overflows before it."""

    info = ImplementationInfo(
        name="Paddle GradScaler, as coded",
        version=version_of("paddlepaddle"),
        url="https://github.com/PaddlePaddle/Paddle/blob/v3.3.1/python/paddle/amp/grad_scaler.py",
        capabilities=("resume", "rounding"),
        preset="paddle",
        arrays="paddle",
    )


def quietly(function: Callable[..., Any], *arguments: Any) -> None:
    """Without the line that Paddle prints at every backoff."""
    from contextlib import redirect_stdout

    with redirect_stdout(None):
        function(*arguments)


def parameter_from(value: Any) -> Any:
    """A parameter with a copy of this value."""
    import paddle

    parameter = paddle.create_parameter(value.shape, value.dtype, default_initializer=paddle.nn.initializer.Constant(0.0))
    parameter.set_value(value)
    return parameter


ADAPTER = Paddle()
AS_IT_IS = PaddleAsItIs()
