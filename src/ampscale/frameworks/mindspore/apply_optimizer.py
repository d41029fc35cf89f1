"""
How optimizers are used: by a cell, without looking at the flag where they can do so, with one look where not; and by
hand, for scalers of hand-written loops.

Spec: STEP-two-modes.
"""

from typing import Any, Protocol

from ...core.step import apply_updates, init_optimizer
from ...core.trees import select
from ...core.typing import Array, Flag, Tree
from ...optimizers import Optimizer
from .._validation import is_torch_optimizer


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
        from .apply_torch_optimizer import TorchApplier

        return TorchApplier(optimizer, network)
    if callable(getattr(optimizer, "init", None)) and callable(getattr(optimizer, "update", None)):
        return FunctionalApplier(optimizer, network)
    if callable(optimizer):
        return EagerApplier(optimizer)
    wanted = "one of ampscale.optimizers, an optax transformation, a torch.optim.Optimizer or a callable optimizer(gradients)"
    raise TypeError(f"optimizer must be {wanted}, got {optimizer!r} of type {type(optimizer).__name__}")
