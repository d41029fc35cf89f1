"""
How optimizers are used: by a cell, without looking at the flag where they can do so, with one look where not; and by
hand, for scalers of hand-written loops.

Spec: STEP-two-modes.
"""

from collections.abc import Callable
from typing import Any, Protocol

from ...core.step import apply_updates, init_optimizer
from ...core.trees import select
from ...core.typing import Array, Flag, Tree
from ...optimizers import Optimizer
from ...parsing import excerpt
from .._validation import is_torch_optimizer


class Applier(Protocol):
    """An optimizer, as a cell sees it."""

    @property
    def learning_rate(self) -> Any:
        """The rate of the coming step; None where the optimizer does not tell it."""

    def prepare(self, gradients: Tree) -> Callable[[Flag], Flag]:
        """
        Compute a step, and change nothing.

        Returns:
            ``apply(finite)``, which updates the parameters where *finite* is True, and nothing at all where not; and returns
            whether it did.
        """


class EagerApplier:
    """Any callable ``optimizer(gradients)``: one read of the flag, and no call on an overflow."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    @property
    def learning_rate(self) -> Any:
        """The optimizer's own, where it has one."""
        return getattr(self._optimizer, "learning_rate", None)

    def prepare(self, gradients: Tree) -> Callable[[Flag], Flag]:
        """Return what calls the optimizer where a flag is True."""

        def apply(finite: Flag) -> Flag:
            if applied := bool(finite):
                self._optimizer(gradients)
            return applied

        return apply


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

    def prepare(self, gradients: Tree) -> Callable[[Flag], Flag]:
        """Compute the candidate, and return what selects it by a flag."""
        updates, candidate = self._optimizer.update(gradients, self.state, self._network.params)
        updated = apply_updates(self._network.params, updates)

        def apply(finite: Flag) -> Flag:
            params, state = select(finite, updated, self._network.params), select(finite, candidate, self.state)
            self._network.params, self.state = params, state
            return finite

        return apply


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
    raise TypeError(f"optimizer must be {wanted}, got {excerpt(optimizer, 200)} of type {type(optimizer).__name__}")
