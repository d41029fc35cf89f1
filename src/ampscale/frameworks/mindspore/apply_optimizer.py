"""
Optimizer wrappers.

A training cell skips a step without a host synchronization if the optimizer supports it, and with one otherwise.

Spec: STEP-two-modes.
"""

from collections.abc import Callable
from typing import Any, Protocol

from ...core.step import apply_updates, init_optimizer
from ...core.trees import select
from ...core.typing import Flag, Tree
from ...optimizers import Optimizer
from ...parsing import excerpt
from .._validation import is_torch_optimizer


class OptimizerWrapper(Protocol):
    """Interface through which a training cell uses an optimizer."""

    @property
    def learning_rate(self) -> Any:
        """Return the learning rate of the next step; None if the optimizer does not report it."""

    def prepare(self, gradients: Tree) -> Callable[[Flag], Flag]:
        """Compute a step, and return ``apply(finite)``, which applies it if *finite* is True, and returns True if it did so."""


class _CallableOptimizer:
    """Wrapper of a callable ``optimizer(gradients)``: copies the flag to the host, and skips the call on an overflow."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    @property
    def learning_rate(self) -> Any:
        return getattr(self._optimizer, "learning_rate", None)

    def prepare(self, gradients: Tree) -> Callable[[Flag], Flag]:
        def apply(finite: Flag) -> Flag:
            applied = bool(finite)
            if applied:
                self._optimizer(gradients)
            return applied

        return apply


class _OptaxOptimizer:
    """Wrapper of an optax transformation: always computes the new parameters and state, and keeps the old ones on an overflow."""

    learning_rate = None  # a transformation does not report it

    def __init__(self, optimizer: Any, network: Any) -> None:
        self._optimizer = optimizer
        self._network = network
        self.state = init_optimizer(optimizer, network.params)

    def prepare(self, gradients: Tree) -> Callable[[Flag], Flag]:
        updates, new_state = self._optimizer.update(gradients, self.state, self._network.params)
        new_params = apply_updates(self._network.params, updates)

        def apply(finite: Flag) -> Flag:
            params = select(finite, new_params, self._network.params)
            state = select(finite, new_state, self.state)
            self._network.params, self.state = params, state
            return finite

        return apply


def wrap_optimizer(optimizer: Any, network: Any) -> OptimizerWrapper:
    """Return the wrapper of *optimizer*, or *optimizer* itself if it is one of `ampscale.optimizers`."""
    if isinstance(optimizer, Optimizer):
        return optimizer
    if is_torch_optimizer(optimizer):
        from .apply_torch_optimizer import TorchOptimizer

        return TorchOptimizer(optimizer, network)
    if callable(getattr(optimizer, "init", None)) and callable(getattr(optimizer, "update", None)):
        return _OptaxOptimizer(optimizer, network)
    if callable(optimizer):
        return _CallableOptimizer(optimizer)
    expected = "one of ampscale.optimizers, an optax transformation, a torch.optim.Optimizer or a callable optimizer(gradients)"
    raise TypeError(f"optimizer must be {expected}, got {excerpt(optimizer, 200)} of type {type(optimizer).__name__}")
