"""
How a cell moves parameters: without looking at the flag where the optimizer is functional, with one look where not.

Spec: STEP-two-modes.
"""

from typing import Any, Protocol

from ..core.step import apply_updates
from ..core.trees import select
from ..core.typing import Array, Flag, Tree
from ..optimizers import Optimizer


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
        self.state = optimizer.init(network.params)

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
    if callable(getattr(optimizer, "init", None)) and callable(getattr(optimizer, "update", None)):
        return FunctionalApplier(optimizer, network)
    if callable(optimizer):
        return EagerApplier(optimizer)
    wanted = "one of ampscale.optimizers, an optax transformation or a callable optimizer(gradients)"
    raise TypeError(f"optimizer must be {wanted}, got {optimizer!r} of type {type(optimizer).__name__}")


def network_of(network: Any) -> Any:
    """
    *network*, which can be called, and has `params` and `vjp`.

    Raises:
        TypeError: It lacks one of them.
    """
    if callable(network) and hasattr(network, "params") and callable(getattr(network, "vjp", None)):
        return network
    wanted = "a Network, or any callable with params and vjp(params, *inputs)"
    raise TypeError(f"network must be {wanted}, got {network!r} of type {type(network).__name__}")
