"""Base classes and functions of several adapters. A snippet includes those that its adapter uses."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from ..model.adapter import Unsupported
from ..model.bits import arrays, map_tree


class Library:
    """Module that is imported at its first use, since an adapter must be importable without it. A snippet imports it at once."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


# Libraries of several adapters.
torch: Any = Library("torch")
jax: Any = Library("jax")
jnp: Any = Library("jax.numpy")
jmp: Any = Library("jmp")


def unavailable(reason: str) -> Any:
    """Return a method that raises Unsupported with this reason."""

    def unsupported(*_: Any, **__: Any) -> Any:
        raise Unsupported(reason)

    return unsupported


def reject_factors_of_1(rule: Any, scaler: str) -> None:
    """Raise Unsupported if a factor is 1, which the constructor of this scaler rejects."""
    if rule.growth_factor <= 1 or rule.backoff_factor >= 1:
        raise Unsupported(f"{scaler} does not accept a factor of 1")


def outputs(parameters: Any, finite: bool, scale: Any, next_scale: Any, loss: Any, **others: Any) -> dict[str, Any]:
    """Return the outputs of a step by their names."""
    return {"parameters": parameters, "finite": finite, "scale": scale, "next_scale": next_scale, "loss": loss, **others}


def linear_loss(parameters: Sequence[Any], data: Sequence[Any]) -> Any:
    """Return the loss of a linear network; it does not depend on a parameter whose data is None."""
    pairs = zip(parameters, data, strict=True)
    return sum((parameter * values).sum() for parameter, values in pairs if values is not None)


class StateDict:
    """Scaler that is saved and loaded as its state dict."""

    def save(self, scaler: Any) -> Any:
        return scaler.state_dict()

    def load(self, rule: Any, saved: Any) -> Any:
        scaler = self.create(rule)  # type: ignore[attr-defined]  # defined by the subclass
        scaler.load_state_dict(saved)
        return scaler


class Scaler:
    """Scaler with `scale` and `unscale` methods for trees."""

    def scale(self, scaler: Any, tree: Any) -> Any:
        return scaler.scale(tree)

    def unscale(self, scaler: Any, tree: Any) -> Any:
        return scaler.unscale(tree)


class StepCell:
    """Training cell, which scales, unscales, checks and steps in one call."""

    scale = unavailable("the cell has no scale method")
    unscale = unavailable("the cell has no unscale method")
    all_finite = unavailable("the cell has no all_finite method")
    add_optimizer = update_scale = unavailable("the cell is not a scaler for hand-written loops")


class LoopScaler(StateDict):
    """
    Scaler for hand-written loops that unscales only through an optimizer; a tree is unscaled with a temporary optimizer.

    Subclasses define how scalers, tensors, parameters and optimizers are created.
    """

    scaler_with: Callable[..., Any]  # creates a scaler from its scale and other constants
    tensor: Callable[[float], Any]  # creates a tensor of one number
    parameter_from: Callable[[Any], Any]  # creates a parameter with a copy of a tensor
    sgd: Callable[..., Any]  # creates an optimizer from parameters, learning rate and momentum
    parameters_of: Callable[[Any], list[Any]]  # returns the parameters of an optimizer

    def update(self, scaler: Any, finite: bool) -> None:
        scaler.step(self.optimizer_with([self.tensor(0.0 if finite else float("inf"))]))
        self.update_scale(scaler)

    def scale(self, scaler: Any, tree: Any) -> Any:
        return map_tree(scaler.scale, tree)

    def unscale(self, scaler: Any, tree: Any) -> Any:
        """Unscale a tree as gradients of a new optimizer, with a new scaler of this scale, since `unscale_` changes a scaler."""
        optimizer = self.optimizer_with(arrays(tree))
        self.scaler_with(self.read_scale(scaler)).unscale_(optimizer)  # type: ignore[attr-defined]  # defined by the subclass
        unscaled = iter(self.get_gradients(scaler, optimizer))
        return map_tree(lambda _: next(unscaled), tree)

    def add_optimizer(self, scaler: Any, parameters: Sequence[Any]) -> Any:
        return self.sgd([self.parameter_from(value) for value in parameters])

    def optimizer_with(self, gradients: Sequence[Any]) -> Any:
        optimizer = self.add_optimizer(None, gradients)
        self.set_gradients(None, optimizer, gradients)
        return optimizer

    def set_gradients(self, scaler: Any, optimizer: Any, gradients: Sequence[Any]) -> None:
        for parameter, gradient in zip(self.parameters_of(optimizer), gradients, strict=True):
            parameter.grad = None if gradient is None else self.copied(gradient)

    def get_gradients(self, scaler: Any, optimizer: Any) -> list[Any]:
        return [None if parameter.grad is None else self.copied(parameter.grad) for parameter in self.parameters_of(optimizer)]

    def get_parameters(self, scaler: Any, optimizer: Any) -> list[Any]:
        return [self.copied(parameter.detach()) for parameter in self.parameters_of(optimizer)]

    def copied(self, tensor: Any) -> Any:
        return tensor.clone()

    def unscale_(self, scaler: Any, optimizer: Any) -> None:
        scaler.unscale_(optimizer)

    def step(self, scaler: Any, optimizer: Any) -> Any:
        return scaler.step(optimizer)

    def update_scale(self, scaler: Any) -> None:
        scaler.update()


class Compilable:
    """Functional implementation on JAX, compiled with `jax.jit` if *compiles* is set."""

    def __init__(self, compiles: bool = False) -> None:
        self.compiles = compiles

    def compiled(self) -> Any:
        return type(self)(compiles=True)

    def ready(self, function: Any, **options: Any) -> Any:
        """Return *function*, compiled by `jax.jit` with *options* if `compiles` is True."""
        return jax.jit(function, **options) if self.compiles else function
