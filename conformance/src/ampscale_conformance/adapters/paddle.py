"""
Paddle: `paddle.amp.GradScaler` in the dynamic graph, on the CPU, and the loop that is written around it.

On a CPU place it turns itself off as it is made. Its constructor, and it alone, is shown a tracer that says it stands on a
GPU; everything after that is Paddle's own CPU kernels.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ..model.adapter import ImplementationInfo, Unsupported
from . import version_of


class Paddle:
    """
    The scaler as its page has it, which says that overflows accumulate.

    Gradients are unscaled through an optimizer alone: trees are given to one that is thrown away. Paddle's CPU has no kernel
    for 16-bit gradients.
    """

    info = ImplementationInfo(
        name="Paddle GradScaler",
        version=version_of("paddlepaddle"),
        url="https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/amp/GradScaler_en.html",
        level=4,
        capabilities=("resume", "process", "none", "groups", "loss", "momentum"),
        preset="paddle_document",
        arrays="paddle",
    )

    def create(self, rule: Any) -> Any:
        """Unsupported where a factor is 1, which Paddle refuses."""
        if rule.growth_factor <= 1 or rule.backoff_factor >= 1:
            raise Unsupported("Paddle takes no factor of 1")
        return scaler_with(
            init_loss_scaling=rule.init_scale,
            incr_ratio=rule.growth_factor,
            decr_ratio=rule.backoff_factor,
            incr_every_n_steps=rule.growth_interval,
            decr_every_n_nan_or_inf=rule.hysteresis,
        )

    def update(self, scaler: Any, finite: bool) -> None:
        """One step of an optimizer whose only gradient is finite, or not."""
        import paddle

        scaler.step(sgd([parameter_with(paddle.to_tensor([0.0 if finite else float("inf")]))]))
        quietly(scaler.update)

    def read_scale(self, scaler: Any) -> float:
        """There is no other place to read it."""
        return float(scaler.state_dict()["scale"][0])

    def save(self, scaler: Any) -> Any:
        """Its state dict."""
        return scaler.state_dict()

    def load(self, rule: Any, saved: Any) -> Any:
        """A new scaler that loads it."""
        scaler = self.create(rule)
        scaler.load_state_dict(saved)
        return scaler

    def scale(self, scaler: Any, tree: Any) -> Any:
        """Each tensor as a loss is scaled."""
        return each(scaler.scale, tree)

    def unscale(self, scaler: Any, tree: Any) -> Any:
        """As the gradients of an optimizer, by another scaler with this scale: `unscale_` would be remembered."""
        refuse_narrow(tree)
        parameters = each(parameter_with, tree)
        scaler_with(init_loss_scaling=self.read_scale(scaler)).unscale_(sgd(leaves(parameters)))
        return each(lambda parameter: parameter.grad, parameters)

    def all_finite(self, tree: Any) -> bool:
        """Whether a scaler that moves at every step goes up."""
        refuse_narrow(tree)
        scaler = scaler_with(init_loss_scaling=4.0, incr_every_n_steps=1, decr_every_n_nan_or_inf=1)
        scaler.step(sgd([parameter_with(leaf) for leaf in leaves(tree)]))
        quietly(scaler.update)
        return self.read_scale(scaler) > 4.0

    def add_optimizer(self, scaler: Any, parameters: Sequence[Any]) -> Any:
        """Plain SGD."""
        return sgd([parameter_from(parameter) for parameter in parameters])

    def set_gradients(self, scaler: Any, optimizer: Any, gradients: Sequence[Any]) -> None:
        """As a backward pass leaves them."""
        refuse_narrow(gradients)
        for parameter, gradient in zip(optimizer._parameter_list, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()

    def get_gradients(self, scaler: Any, optimizer: Any) -> list[Any]:
        """In the parameters' order."""
        return [None if parameter.grad is None else parameter.grad.clone() for parameter in optimizer._parameter_list]

    def get_parameters(self, scaler: Any, optimizer: Any) -> list[Any]:
        """Detached."""
        return [parameter.detach().clone() for parameter in optimizer._parameter_list]

    def unscale_(self, scaler: Any, optimizer: Any) -> None:
        """Its own."""
        scaler.unscale_(optimizer)

    def step(self, scaler: Any, optimizer: Any) -> None:
        """Its own, which returns nothing."""
        scaler.step(optimizer)

    def update_scale(self, scaler: Any) -> None:
        """Its own."""
        quietly(scaler.update)

    def create_cell(self, rule: Any, parameters: Sequence[Any], learning_rate: float, momentum: float = 0.0) -> Any:
        """What a loop holds."""
        import paddle

        refuse_narrow(parameters)
        held = [parameter_from(parameter) for parameter in parameters]
        optimizer = (
            paddle.optimizer.Momentum(learning_rate, momentum, parameters=held)
            if momentum
            else paddle.optimizer.SGD(learning_rate, parameters=held)
        )
        return {"scaler": self.create(rule), "parameters": held, "optimizer": optimizer}

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        """The loop of its page. It tells of a skip nowhere but in a private name."""
        scaler, optimizer, parameters = cell["scaler"], cell["optimizer"], cell["parameters"]
        scale = self.read_scale(scaler)
        loss = sum((parameter * values).sum() for parameter, values in zip(parameters, data, strict=True))
        scaled = scaler.scale(loss)
        scaled.backward()
        quietly(scaler.minimize, optimizer, scaled)
        finite = not bool(scaler._cache_found_inf)
        optimizer.clear_grad()
        return {
            "parameters": [parameter.detach().clone() for parameter in parameters],
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


class Place:
    """All that the constructor asks of its place."""

    @staticmethod
    def is_gpu_place() -> bool:
        """It is one."""
        return True


class Tracer:
    """All that the constructor asks of its tracer."""

    _expected_place = Place


def scaler_with(**constants: Any) -> Any:
    """A scaler that is on."""
    from unittest import mock

    import paddle
    from paddle.amp import grad_scaler

    with paddle.amp.auto_cast():  # without which a scaler turns itself off at its first scale
        pass
    with mock.patch.object(grad_scaler, "_dygraph_tracer", return_value=Tracer):
        return paddle.amp.GradScaler(**constants)


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


def parameter_with(gradient: Any) -> Any:
    """A parameter of zeros with this gradient."""
    import paddle

    parameter = parameter_from(paddle.zeros_like(gradient))
    parameter.grad = gradient.clone()
    return parameter


def sgd(parameters: Sequence[Any]) -> Any:
    """Plain SGD, learning rate 1."""
    import paddle

    return paddle.optimizer.SGD(1.0, parameters=parameters)


def each(function: Callable[[Any], Any], tree: Any) -> Any:
    """A tree of the same lists, tuples and dicts, with *function* of each tensor."""
    if isinstance(tree, dict):
        return {key: each(function, child) for key, child in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(each(function, child) for child in tree)
    return None if tree is None else function(tree)


def leaves(tree: Any) -> list[Any]:
    """Its tensors."""
    found: list[Any] = []
    each(found.append, tree)
    return found


def refuse_narrow(tree: Any) -> None:
    """Unsupported where Paddle's CPU has no kernel."""
    import paddle

    if any(leaf.dtype in (paddle.float16, paddle.bfloat16) for leaf in leaves(tree)):
        raise Unsupported("Paddle unscales 16-bit gradients on accelerators alone")


ADAPTER = Paddle()
AS_IT_IS = PaddleAsItIs()
