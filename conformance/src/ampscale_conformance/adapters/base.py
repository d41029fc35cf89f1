"""Base classes of adapters. A snippet includes the parts that its adapter uses."""

from collections.abc import Callable, Sequence
from typing import Any

from ..model.adapter import Unsupported
from ..model.bits import arrays, map_tree


def unavailable(reason: str) -> Any:
    """Return a method that raises Unsupported with this reason."""

    def unsupported(*_: Any, **__: Any) -> Any:
        raise Unsupported(reason)

    return unsupported


def reject_factors_of_1(rule: Any, name: str) -> None:
    """Raise Unsupported if a factor is 1, which the published constructor rejects."""
    if rule.growth_factor <= 1 or rule.backoff_factor >= 1:
        raise Unsupported(f"{name} does not accept a factor of 1")


class StateDict:
    """Scaler that is saved and loaded as its state dict."""

    def save(self, scaler: Any) -> Any:
        """Return the state dict of the scaler."""
        return scaler.state_dict()

    def load(self, rule: Any, saved: Any) -> Any:
        """Return a new scaler with this state dict."""
        scaler = self.create(rule)  # type: ignore[attr-defined]  # defined by the subclass
        scaler.load_state_dict(saved)
        return scaler


class Scaler:
    """Scaler with `scale` and `unscale` methods for trees."""

    def scale(self, scaler: Any, tree: Any) -> Any:
        """Call `scale`."""
        return scaler.scale(tree)

    def unscale(self, scaler: Any, tree: Any) -> Any:
        """Call `unscale`."""
        return scaler.unscale(tree)


class StepCell:
    """Training cell, which scales, unscales, checks and steps inside."""

    scale = unavailable("the cell has no scale method")
    unscale = unavailable("the cell has no unscale method")
    all_finite = unavailable("the cell has no all_finite method")
    add_optimizer = update_scale = unavailable("the cell is not a scaler for hand-written loops")


class LoopScaler(StateDict):
    """
    Scaler for hand-written loops that unscales only through an optimizer; a tree is unscaled with a temporary one.

    Subclasses define how scalers, tensors, parameters and optimizers are created.
    """

    who = "it"
    scaler_with: Callable[..., Any]  # creates a scaler from its scale and other constants
    tensor: Callable[[float], Any]  # creates a tensor of one number
    parameters_from: Callable[[Sequence[Any]], list[Any]]  # copies tensors; raises Unsupported if they cannot be unscaled
    sgd: Callable[..., Any]  # creates an optimizer from parameters, learning rate and momentum
    parameters_of: Callable[[Any], list[Any]]  # returns the parameters of an optimizer

    def update(self, scaler: Any, finite: bool) -> None:
        """Step an optimizer with a single gradient, which is finite or not."""
        scaler.step(self.optimizer_with([self.tensor(0.0 if finite else float("inf"))]))
        self.update_scale(scaler)

    def scale(self, scaler: Any, tree: Any) -> Any:
        """Scale each tensor like a loss."""
        return map_tree(scaler.scale, tree)

    def unscale(self, scaler: Any, tree: Any) -> Any:
        """Unscale as the gradients of an optimizer, with another scaler of the same scale, since `unscale_` changes its state."""
        optimizer = self.optimizer_with(arrays(tree))
        self.scaler_with(self.read_scale(scaler)).unscale_(optimizer)  # type: ignore[attr-defined]  # defined by the subclass
        unscaled = iter(self.get_gradients(scaler, optimizer))
        return map_tree(lambda _: next(unscaled), tree)

    def add_optimizer(self, scaler: Any, parameters: Sequence[Any]) -> Any:
        """Return plain SGD."""
        return self.sgd(self.parameters_from(parameters))

    def optimizer_with(self, gradients: Sequence[Any]) -> Any:
        """Return an optimizer over some parameters with these gradients."""
        optimizer = self.add_optimizer(None, gradients)
        self.set_gradients(None, optimizer, gradients)
        return optimizer

    def set_gradients(self, scaler: Any, optimizer: Any, gradients: Sequence[Any]) -> None:
        """Set gradients as a backward pass does."""
        for parameter, gradient in zip(self.parameters_of(optimizer), gradients, strict=True):
            parameter.grad = None if gradient is None else self.copied(gradient)

    def get_gradients(self, scaler: Any, optimizer: Any) -> list[Any]:
        """Return the gradients in the order of the parameters."""
        return [None if parameter.grad is None else self.copied(parameter.grad) for parameter in self.parameters_of(optimizer)]

    def get_parameters(self, scaler: Any, optimizer: Any) -> list[Any]:
        """Return detached copies of the parameters."""
        return [self.copied(parameter.detach()) for parameter in self.parameters_of(optimizer)]

    def copied(self, tensor: Any) -> Any:
        """Return a copy of a tensor."""
        return tensor.clone()

    def unscale_(self, scaler: Any, optimizer: Any) -> None:
        """Call `unscale_`."""
        scaler.unscale_(optimizer)

    def step(self, scaler: Any, optimizer: Any) -> Any:
        """Call `step`."""
        return scaler.step(optimizer)

    def update_scale(self, scaler: Any) -> None:
        """Call `update`."""
        scaler.update()


class Compilable:
    """Functional implementation on JAX, compiled with `jax.jit` if *compiles* is set."""

    def __init__(self, compiles: bool = False) -> None:
        self.compiles = compiles

    def compiled(self) -> Any:
        """Return the compiled form."""
        return type(self)(compiles=True)

    def ready(self, function: Any, **options: Any) -> Any:
        """Return the function, compiled if *compiles* is set."""
        import jax

        return jax.jit(function, **options) if self.compiles else function
