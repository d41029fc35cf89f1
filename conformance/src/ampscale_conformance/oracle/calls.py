"""Calls of a hand-written loop, spec/55-calls.md: plain SGD optimizers and one scaler."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ..model.bits import Bits
from .arithmetic import difference
from .machine import Machine
from .tensors import all_finite, computed_in, from_numbers, numbers, unscale


class Rejected(Exception):  # noqa: N818 - an expected outcome
    """Raised if a call is out of order. Nothing has changed."""


class Optimizer:
    """Plain SGD with a learning rate of 1."""

    def __init__(self, parameters: Sequence[Bits]) -> None:
        self.parameters = list(parameters)
        self.gradients: list[Bits | None] = [None] * len(self.parameters)
        self.finite: bool | None = None  # result of the check during unscaling; None before
        self.had_gradients = False  # when they were unscaled
        self.stepped = False

    @property
    def has_gradients(self) -> bool:
        """Return True if any parameter has a gradient."""
        return any(gradient is not None for gradient in self.gradients)


class Loop:
    """State of a training loop between two calls: a scaler that follows *rule*, and named optimizers with their parameters."""

    def __init__(self, rule: Any, optimizers: Mapping[str, Sequence[Bits]]) -> None:
        # Both variants of CALLS-no-gradients-alone; the key is True if an update without any gradient counts as a finite step.
        self._machines = {counts: Machine(rule) for counts in (False, True)}
        self.optimizers = {name: Optimizer(parameters) for name, parameters in optimizers.items()}

    @property
    def scale(self) -> float:
        """Return the current scale."""
        return next(iter(self._machines.values())).point.scale

    @property
    def is_ambiguous(self) -> bool:
        """Return True if the variants have different scales."""
        return any(machine.point.scale != self.scale for machine in self._machines.values())

    def observe(self, scale: float) -> None:
        """Drop the variants that contradict an observed scale, unless all do."""
        agreeing = {counts: machine for counts, machine in self._machines.items() if machine.point.scale == scale}
        self._machines = agreeing or self._machines

    def set_gradients(self, name: str, gradients: Sequence[Bits | None]) -> None:
        """Set the gradients of an optimizer; None for a parameter without one."""
        self.optimizers[name].gradients = list(gradients)

    def unscale_(self, name: str) -> None:
        """Divide an optimizer's gradients by the scale, and check them before and after. Raise Rejected if repeated."""
        optimizer = self.optimizers[name]
        if optimizer.finite is not None:
            raise Rejected(f"{name} was unscaled since the last update")
        scaled = optimizer.gradients
        optimizer.gradients = [None if leaf is None else unscale(leaf, self.scale) for leaf in scaled]
        optimizer.finite = all_finite(scaled) and all_finite(optimizer.gradients)
        optimizer.had_gradients = optimizer.has_gradients

    def step(self, name: str) -> bool:
        """Step, or skip after an overflow; return True if the optimizer stepped. Raise Rejected if repeated."""
        optimizer = self.optimizers[name]
        if optimizer.stepped:
            raise Rejected(f"{name} has stepped since the last update")
        if optimizer.finite is None:
            self.unscale_(name)
        optimizer.stepped = True
        if optimizer.finite:
            pairs = zip(optimizer.parameters, optimizer.gradients, strict=True)
            optimizer.parameters = [_updated(parameter, gradient) for parameter, gradient in pairs]
        return bool(optimizer.finite) and optimizer.has_gradients

    def update(self) -> bool:
        """
        Update the scale from all unscaled gradients, and end the iteration; raise Rejected if no optimizer was unscaled.

        Return False if the published scaler raises an error instead (MACHINE-would-raise).
        """
        unscaled = [optimizer for optimizer in self.optimizers.values() if optimizer.finite is not None]
        if not unscaled:
            raise Rejected("nothing was unscaled since the last update")
        finite = all(optimizer.finite for optimizer in unscaled)
        has_gradients = any(optimizer.had_gradients for optimizer in unscaled)
        points = [machine.step(finite) for counts, machine in self._machines.items() if counts or has_gradients]
        for optimizer in unscaled:
            optimizer.finite, optimizer.stepped = None, False
        return not any(point.stopped for point in points)


@lru_cache(4096)
def _updated(parameter: Bits, gradient: Bits | None) -> Bits:
    if gradient is None:
        return parameter
    dtype = computed_in(parameter.dtype)
    pairs = zip(numbers(parameter), numbers(gradient), strict=True)
    return from_numbers(parameter.dtype, parameter.shape, [difference(value, step, dtype) for value, step in pairs])
