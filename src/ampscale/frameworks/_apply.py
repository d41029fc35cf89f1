"""
How optimizers are used: by a cell, without looking at the flag where they can do so, with one look where not; and by
hand, for scalers of hand-written loops.

Spec: STEP-two-modes.
"""

import sys
from collections.abc import Callable
from typing import Any, Protocol

from .. import verbs
from ..backends import network_of as known_network
from ..core.step import apply_updates, init_optimizer
from ..core.trees import select
from ..core.typing import Array, Flag, Tree
from ..optimizers import Optimizer
from ._border import can_be_written


class Applier(Protocol):
    """An optimizer, as a cell sees it."""

    @property
    def learning_rate(self) -> Any:
        """The rate of the coming step; None where the optimizer does not tell it."""

    def apply(self, gradients: Tree, finite: Flag) -> None:
        """Moves the parameters where *finite* is True, and nothing at all where not."""


class EagerApplier:
    """Any callable ``optimizer(gradients)``: one read of the flag, and no call on an overflow."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    @property
    def learning_rate(self) -> Any:
        """The optimizer's own, where it has one."""
        return getattr(self._optimizer, "learning_rate", None)

    def apply(self, gradients: Tree, finite: Flag) -> None:
        """Calls the optimizer where *finite* is True."""
        if bool(finite):
            self._optimizer(gradients)


class FunctionalApplier:
    """An optax transformation: the candidate is computed always, and selected by the flag."""

    def __init__(self, optimizer: Any, network: Any) -> None:
        self._optimizer = optimizer
        self._network = network
        self.state = init_optimizer(optimizer, network.params)

    @property
    def learning_rate(self) -> Array | None:
        """None: a transformation does not tell it."""
        return None

    def apply(self, gradients: Tree, finite: Flag) -> None:
        """Selects parameters and state by *finite*."""
        updates, state = self._optimizer.update(gradients, self.state, self._network.params)
        params = apply_updates(self._network.params, updates)
        self._network.params = select(finite, params, self._network.params)
        self.state = select(finite, state, self.state)


def applier_of(optimizer: Any, network: Any) -> Applier:
    """
    The applier for *optimizer*.

    Raises:
        TypeError: It is neither one of ours, nor an optax transformation, nor callable.
    """
    if isinstance(optimizer, Optimizer):
        return optimizer
    if is_torch_optimizer(optimizer):
        from ._torch_cells import TorchApplier

        return TorchApplier(optimizer, network)
    if callable(getattr(optimizer, "init", None)) and callable(getattr(optimizer, "update", None)):
        return FunctionalApplier(optimizer, network)
    if callable(optimizer):
        return EagerApplier(optimizer)
    wanted = "one of ampscale.optimizers, an optax transformation, a torch.optim.Optimizer or a callable optimizer(gradients)"
    raise TypeError(f"optimizer must be {wanted}, got {optimizer!r} of type {type(optimizer).__name__}")


def is_torch_optimizer(value: Any) -> bool:
    """Whether *value* is a `torch.optim.Optimizer`; torch is not imported for that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.optim.Optimizer)


def network_of(network: Any) -> Any:
    """
    *network*, which can be called, and has `params` and `vjp`; a `torch.nn.Module` as such.

    Raises:
        TypeError: It lacks one of them.
    """
    found = known_network(network)
    if not callable(found):
        raise TypeError(f"network must be callable, got {network!r} of type {type(network).__name__}")
    return found


def parameters_of(optimizer: Any) -> list[Any]:
    """
    The parameters that an optimizer of a hand-written loop moves, each with `grad`.

    Raises:
        TypeError: It has none.
    """
    if is_torch_optimizer(optimizer):
        return [param for group in optimizer.param_groups for param in group["params"]]
    if not hasattr(optimizer, "parameters"):
        wanted = "a torch.optim.Optimizer, or have parameters, each with value and grad"
        raise TypeError(f"optimizer must be {wanted}, got {type(optimizer).__name__}")
    return list(optimizer.parameters)


def step_of(optimizer: Any) -> Callable[[], Any]:
    """
    What makes an optimizer of a hand-written loop step.

    Raises:
        TypeError: It has no parameters, or no method `step`.
    """
    parameters_of(optimizer)
    step: Callable[[], Any] | None = getattr(optimizer, "step", None)
    if step is None or not callable(step):
        raise TypeError(f"optimizer must have a method step() for this, got {type(optimizer).__name__}")
    return step


def minimize_of(optimizer: Any) -> Callable[..., Any]:
    """
    What makes an optimizer of a hand-written loop minimize; its `step`, which needs no loss, where it has no such method.

    Raises:
        TypeError: It has no parameters, or neither method.
    """
    parameters_of(optimizer)
    if callable(getattr(optimizer, "minimize", None)):
        minimize: Callable[..., Any] = optimizer.minimize
        return minimize
    step = step_of(optimizer)
    return lambda *_, **__: step()


def unscale_gradients(parameters: list[Any], scale: float) -> Flag:
    """
    Divides the gradients of *parameters* by *scale*: in place, save for arrays that cannot be written to, and for sparse
    ones with an index twice, which are replaced.

    Returns:
        Bool, shape (): whether all were finite, before and after.
    """
    for parameter in parameters:
        if getattr(parameter.grad, "is_sparse", False):
            parameter.grad = parameter.grad.coalesce()
    gradients = [parameter.grad for parameter in parameters]
    if all(gradient is None or can_be_written(gradient) for gradient in gradients):
        return verbs.unscale_and_check(gradients, scale, out=gradients)[1]
    unscaled, finite = verbs.unscale_and_check(gradients, scale)
    for parameter, gradient in zip(parameters, unscaled, strict=True):
        parameter.grad = gradient
    return finite
