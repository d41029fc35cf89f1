"""What adapters of one kind have in common. A snippet takes along what its adapter uses of it."""

from collections.abc import Callable, Sequence
from typing import Any

from ..model.adapter import Unsupported
from ..model.bits import arrays, map_tree


def lacking(reason: str) -> Any:
    """A method that the implementation does not have, and why."""

    def refused(*_: Any, **__: Any) -> Any:
        raise Unsupported(reason)

    return refused


def refuse_factors_of_1(rule: Any, who: str) -> None:
    """Unsupported where a factor is 1, which a constructor refuses."""
    if rule.growth_factor <= 1 or rule.backoff_factor >= 1:
        raise Unsupported(f"{who} takes no factor of 1")


class StateDict:
    """An object that is saved and loaded as its own state dict."""

    def save(self, scaler: Any) -> Any:
        """Its state dict."""
        return scaler.state_dict()

    def load(self, rule: Any, saved: Any) -> Any:
        """A new one that loads it."""
        scaler = self.create(rule)  # type: ignore[attr-defined]  # of an heir
        scaler.load_state_dict(saved)
        return scaler


class Scaler:
    """An object that scales and unscales trees itself."""

    def scale(self, scaler: Any, tree: Any) -> Any:
        """Its own."""
        return scaler.scale(tree)

    def unscale(self, scaler: Any, tree: Any) -> Any:
        """Its own."""
        return scaler.unscale(tree)


class StepCell:
    """A training cell, which scales, unscales, checks and steps inside."""

    scale = lacking("the cell has no scale to be called")
    unscale = lacking("the cell has no unscale to be called")
    all_finite = lacking("the cell has no all_finite to be called")
    add_optimizer = update_scale = lacking("the cell is no scaler of a hand-written loop")


class LoopScaler(StateDict):
    """
    A scaler of a hand-written loop, which unscales through an optimizer alone: a tree is given to one that is thrown away.

    Its heirs say how scalers, tensors, parameters and optimizers are made.
    """

    who = "it"
    scaler_with: Callable[..., Any]  # by its scale and other constants
    tensor: Callable[[float], Any]  # one number
    parameters_from: Callable[[Sequence[Any]], list[Any]]  # copies of tensors; Unsupported where they cannot be unscaled
    sgd: Callable[..., Any]  # over parameters, by its learning rate and momentum
    parameters_of: Callable[[Any], list[Any]]  # of an optimizer

    def update(self, scaler: Any, finite: bool) -> None:
        """One step of an optimizer whose only gradient is finite, or not."""
        scaler.step(self.optimizer_with([self.tensor(0.0 if finite else float("inf"))]))
        self.update_scale(scaler)

    def scale(self, scaler: Any, tree: Any) -> Any:
        """Each tensor as a loss is scaled."""
        return map_tree(scaler.scale, tree)

    def unscale(self, scaler: Any, tree: Any) -> Any:
        """As the gradients of an optimizer, by another scaler with this scale: `unscale_` would be remembered."""
        optimizer = self.optimizer_with(arrays(tree))
        self.scaler_with(self.read_scale(scaler)).unscale_(optimizer)  # type: ignore[attr-defined]  # of an heir
        unscaled = iter(self.get_gradients(scaler, optimizer))
        return map_tree(lambda _: next(unscaled), tree)

    def add_optimizer(self, scaler: Any, parameters: Sequence[Any]) -> Any:
        """Plain SGD."""
        return self.sgd(self.parameters_from(parameters))

    def optimizer_with(self, gradients: Sequence[Any]) -> Any:
        """One over some parameters, with these gradients."""
        optimizer = self.add_optimizer(None, gradients)
        self.set_gradients(None, optimizer, gradients)
        return optimizer

    def set_gradients(self, scaler: Any, optimizer: Any, gradients: Sequence[Any]) -> None:
        """As a backward pass leaves them."""
        for parameter, gradient in zip(self.parameters_of(optimizer), gradients, strict=True):
            parameter.grad = None if gradient is None else self.copied(gradient)

    def get_gradients(self, scaler: Any, optimizer: Any) -> list[Any]:
        """In the parameters' order."""
        return [None if each.grad is None else self.copied(each.grad) for each in self.parameters_of(optimizer)]

    def get_parameters(self, scaler: Any, optimizer: Any) -> list[Any]:
        """Detached."""
        return [self.copied(parameter.detach()) for parameter in self.parameters_of(optimizer)]

    def copied(self, tensor: Any) -> Any:
        """A tensor of its own."""
        return tensor.clone()

    def unscale_(self, scaler: Any, optimizer: Any) -> None:
        """Its own."""
        scaler.unscale_(optimizer)

    def step(self, scaler: Any, optimizer: Any) -> Any:
        """Its own."""
        return scaler.step(optimizer)

    def update_scale(self, scaler: Any) -> None:
        """Its own."""
        scaler.update()


class Compilable:
    """A functional implementation on JAX, whose steps are under `jax.jit` if it *compiles*."""

    def __init__(self, compiles: bool = False) -> None:
        self.compiles = compiles

    def compiled(self) -> Any:
        """Under `jax.jit`."""
        return type(self)(compiles=True)

    def ready(self, function: Any, **options: Any) -> Any:
        """The function, under `jax.jit` if that is asked for."""
        import jax

        return jax.jit(function, **options) if self.compiles else function
