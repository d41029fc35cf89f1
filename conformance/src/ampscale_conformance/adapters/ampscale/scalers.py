"""ampscale's documented scalers of hand-written loops: MindSpore's and Paddle's."""

from collections.abc import Sequence
from typing import Any

import numpy as np

import ampscale

from ...model.adapter import ImplementationInfo, Unsupported
from ...model.bits import leaves, map_tree
from .backends import linear

EDGE = 2.0**100  # beyond it, and below its reciprocal, what is published is mended: see spec/deviations.md
HOST = ("resume", "rounding", "division")
TREES = ("bfloat16", "complex", "integers")


class DynamicLossScaler:
    """`ampscale.DynamicLossScaler`, on NumPy."""

    info = ImplementationInfo(
        name="ampscale DynamicLossScaler",
        version=ampscale.__version__,
        level=1,
        capabilities=(*HOST, *TREES),
        preset="mindspore",
    )

    def create(self, rule: Any) -> Any:
        """Its factor is an int."""
        if rule.init_scale < 1 or rule.growth_factor != int(rule.growth_factor):
            raise Unsupported("its scale is at least 1, its factor an int")
        return ampscale.DynamicLossScaler(rule.init_scale, int(rule.growth_factor), rule.growth_interval)

    def update(self, scaler: Any, finite: bool) -> None:
        """Its own word for it."""
        scaler.adjust(finite)

    def read_scale(self, scaler: Any) -> float:
        """A snapshot."""
        return float(scaler.scale_value)

    def save(self, scaler: Any) -> Any:
        """Python's numbers."""
        return scaler.state_dict()

    def load(self, rule: Any, saved: Any) -> Any:
        """Into a new one."""
        scaler = self.create(rule)
        scaler.load_state_dict(saved)
        return scaler

    def scale(self, scaler: Any, tree: Any) -> Any:
        """Its own."""
        return scaler.scale(tree)

    def unscale(self, scaler: Any, tree: Any) -> Any:
        """Its own."""
        return scaler.unscale(tree)

    def all_finite(self, tree: Any) -> Any:
        """The function beside it, which takes a tuple or a list."""
        return ampscale.frameworks.mindspore.all_finite(flat(tree))


class StaticLossScaler:
    """`ampscale.StaticLossScaler`, on NumPy."""

    info = ImplementationInfo(
        name="ampscale StaticLossScaler",
        version=ampscale.__version__,
        level=1,
        capabilities=("rounding", "division", *TREES),
        preset="static",
    )

    def create(self, rule: Any) -> Any:
        """Its scale is at least 1."""
        if rule.init_scale < 1:
            raise Unsupported("its scale is at least 1")
        return ampscale.StaticLossScaler(rule.init_scale)

    def update(self, scaler: Any, finite: bool) -> None:
        """Nothing."""
        scaler.adjust(finite)

    def read_scale(self, scaler: Any) -> float:
        """A snapshot."""
        return float(scaler.scale_value)

    def scale(self, scaler: Any, tree: Any) -> Any:
        """Its own."""
        return scaler.scale(tree)

    def unscale(self, scaler: Any, tree: Any) -> Any:
        """Its own."""
        return scaler.unscale(tree)

    def all_finite(self, tree: Any) -> Any:
        """The function beside it, which takes a tuple or a list."""
        return ampscale.frameworks.mindspore.all_finite(flat(tree))


class DynamicLossScaleManager:
    """`ampscale.DynamicLossScaleManager`, in the host's numbers."""

    info = ImplementationInfo(
        name="ampscale manager",
        version=ampscale.__version__,
        capabilities=("rounding",),
        preset="mindspore_manager",
    )

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


class PaddleGradScaler:
    """`ampscale.GradScaler`, Paddle's, over NumPy networks."""

    info = ImplementationInfo(
        name="ampscale Paddle GradScaler",
        version=ampscale.__version__,
        level=4,
        capabilities=(*HOST, "process", "bfloat16", "complex", "none", "groups", "applied", "loss", "momentum", "schedule"),
        preset="paddle_document",
    )

    def create(self, rule: Any) -> Any:
        """Its factors are not 1, and its scale stays within the normal numbers."""
        if rule.growth_factor <= 1 or rule.backoff_factor >= 1:
            raise Unsupported("it takes no factor of 1")
        within_the_edge(rule)
        return ampscale.GradScaler(
            init_loss_scaling=rule.init_scale,
            incr_ratio=rule.growth_factor,
            decr_ratio=rule.backoff_factor,
            incr_every_n_steps=rule.growth_interval,
            decr_every_n_nan_or_inf=rule.hysteresis,
        )

    def update(self, scaler: Any, finite: bool) -> None:
        """One step of an optimizer whose only gradient is finite, or not."""
        scaler.step(optimizer_with([np.array(0.0 if finite else np.inf)]))
        scaler.update()

    def read_scale(self, scaler: Any) -> float:
        """Its own."""
        return float(scaler.get_loss_scaling())

    def save(self, scaler: Any) -> Any:
        """Its state dict."""
        return scaler.state_dict()

    def load(self, rule: Any, saved: Any) -> Any:
        """Into a new one."""
        scaler = self.create(rule)
        scaler.load_state_dict(saved)
        return scaler

    def scale(self, scaler: Any, tree: Any) -> Any:
        """Each array as a loss is scaled."""
        return map_tree(scaler.scale, tree)

    def unscale(self, scaler: Any, tree: Any) -> Any:
        """As the gradients of an optimizer, by another scaler with this scale: `unscale_` would be remembered."""
        unscaled = iter(unscaled_by(scaler.get_loss_scaling(), flat(tree)))
        return map_tree(lambda _: next(unscaled), tree)

    def all_finite(self, tree: Any) -> bool:
        """Whether an optimizer with these gradients steps."""
        return ampscale.GradScaler(init_loss_scaling=1.0).step(optimizer_with(flat(tree)))

    def add_optimizer(self, scaler: Any, parameters: Sequence[Any]) -> Any:
        """Plain SGD, of ours."""
        return ampscale.optimizers.SGD(linear(list(parameters), "numpy"), 1.0)

    def set_gradients(self, scaler: Any, optimizer: Any, gradients: Sequence[Any]) -> None:
        """As a backward pass leaves them."""
        for parameter, gradient in zip(optimizer.parameters, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.copy()

    def get_gradients(self, scaler: Any, optimizer: Any) -> list[Any]:
        """In the parameters' order."""
        return [None if parameter.grad is None else parameter.grad.copy() for parameter in optimizer.parameters]

    def get_parameters(self, scaler: Any, optimizer: Any) -> list[Any]:
        """In their order."""
        return [parameter.value for parameter in optimizer.parameters]

    def unscale_(self, scaler: Any, optimizer: Any) -> None:
        """Its own."""
        scaler.unscale_(optimizer)

    def step(self, scaler: Any, optimizer: Any) -> bool:
        """Its own; whether the optimizer stepped."""
        return bool(scaler.step(optimizer))

    def update_scale(self, scaler: Any) -> None:
        """Its own."""
        scaler.update()

    def create_cell(self, rule: Any, parameters: Sequence[Any], learning_rate: Any, momentum: float = 0.0) -> Any:
        """What a loop holds."""
        network = linear(list(parameters), "numpy")
        return self.create(rule), network, ampscale.optimizers.Momentum(network, learning_rate, momentum)

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        """The loop of its page, whose backward pass begins at the scale."""
        scaler, network, optimizer = cell
        scale, rate = scaler.get_loss_scaling(), float(optimizer.learning_rate)
        loss = network.backward(*data, seed=np.float32(scale))
        finite = scaler.step(optimizer)
        scaler.update()
        return {
            "parameters": list(network.params),
            "finite": finite,
            "scale": scale,
            "next_scale": scaler.get_loss_scaling(),
            "loss": float(loss),
            "learning_rate": rate,
        }


def within_the_edge(rule: Any) -> None:
    """Unsupported where the published scaler's scale would leave the normal float32 numbers, and ours does not."""
    if not 1 / EDGE <= rule.init_scale <= EDGE:
        raise Unsupported("its scale stays within the normal numbers, where the published one leaves them")


def flat(tree: Any) -> list[Any]:
    """The arrays of a tree, without None."""
    return [leaf for _, leaf in leaves(tree) if leaf is not None]


def optimizer_with(gradients: Sequence[Any]) -> Any:
    """An optimizer over zeros that only counts, with these gradients."""
    return Holding([Held(gradient) for gradient in gradients])


def unscaled_by(scale: float, gradients: Sequence[Any]) -> list[Any]:
    """What an optimizer with these gradients is left with."""
    optimizer = optimizer_with(gradients)
    ampscale.GradScaler(init_loss_scaling=scale).unscale_(optimizer)
    return [parameter.grad for parameter in optimizer.parameters]


class Held:
    """All that a scaler asks of a parameter."""

    def __init__(self, gradient: Any) -> None:
        self.grad = gradient.copy()


class Holding:
    """All that a scaler asks of an optimizer."""

    def __init__(self, parameters: list[Held]) -> None:
        self.parameters = parameters

    def step(self) -> None:
        """Moves nothing."""


DYNAMIC_LOSS_SCALER = DynamicLossScaler()
STATIC_LOSS_SCALER = StaticLossScaler()
DYNAMIC_LOSS_SCALE_MANAGER = DynamicLossScaleManager()
PADDLE_GRAD_SCALER = PaddleGradScaler()
