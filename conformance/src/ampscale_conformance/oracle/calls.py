"""The calls of a loop that is written by hand, spec/55-calls.md: optimizers that subtract their gradients, and one scaler."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from ..model.bits import Bits
from .arithmetic import difference
from .machine import Machine
from .tensors import all_finite, computed_in, from_numbers, numbers, unscale


class Refused(Exception):  # noqa: N818 - the chapter's word
    """The call may not come now. Nothing has changed."""


class Optimizer:
    """Plain gradient descent with a learning rate of 1."""

    def __init__(self, parameters: Sequence[Bits]) -> None:
        self.parameters = list(parameters)
        self.gradients: list[Bits | None] = [None] * len(self.parameters)
        self.finite: bool | None = None  # what was found when they were unscaled; None before
        self.stepped = False

    @property
    def has_gradients(self) -> bool:
        """Whether any of its parameters has one."""
        return any(gradient is not None for gradient in self.gradients)


class Loop:
    """
    A scaler with its optimizers, between two updates or in the midst of an iteration.

    Args:
        rule: As for `machine.trajectory`.
        optimizers: The parameters of each, by its name.
    """

    def __init__(self, rule: Any, optimizers: Mapping[str, Sequence[Bits]]) -> None:
        self._machine = Machine(rule)
        self.optimizers = {name: Optimizer(parameters) for name, parameters in optimizers.items()}

    @property
    def scale(self) -> float:
        """The scale in force."""
        return self._machine.point.scale

    def set_gradients(self, name: str, gradients: Sequence[Bits | None]) -> None:
        """Lays down gradients, None for a parameter without one."""
        self.optimizers[name].gradients = list(gradients)

    def unscale_(self, name: str) -> None:
        """
        Divides an optimizer's gradients by the scale, and looks at them before and after.

        Raises:
            Refused: That was done since the last update.
        """
        optimizer = self.optimizers[name]
        if optimizer.finite is not None:
            raise Refused(f"{name} was unscaled since the last update")
        scaled = optimizer.gradients
        optimizer.gradients = [None if leaf is None else unscale(leaf, self.scale) for leaf in scaled]
        optimizer.finite = all_finite(scaled) and all_finite(optimizer.gradients)

    def step(self, name: str) -> bool:
        """
        Whether the optimizer stepped, by what was found when its gradients were unscaled.

        Raises:
            Refused: It stepped or skipped since the last update.
        """
        optimizer = self.optimizers[name]
        if optimizer.stepped:
            raise Refused(f"{name} has stepped since the last update")
        if optimizer.finite is None:
            self.unscale_(name)
        optimizer.stepped = True
        if optimizer.finite:
            pairs = zip(optimizer.parameters, optimizer.gradients, strict=True)
            optimizer.parameters = [_moved(parameter, gradient) for parameter, gradient in pairs]
        return bool(optimizer.finite) and optimizer.has_gradients

    def update(self) -> None:
        """
        Moves the scale by all that was unscaled, and closes the iteration. Where nothing had a gradient the scale stays.

        Raises:
            Refused: Nothing was unscaled since the last update.
        """
        if not self._seen:
            raise Refused("nothing was unscaled since the last update")
        if any(optimizer.has_gradients for optimizer in self._seen):
            self._machine = self.counted()
        for optimizer in self._seen:
            optimizer.finite, optimizer.stepped = None, False

    def counted(self) -> Machine:
        """The machine as an update leaves it that counts what was unscaled also where nothing had a gradient."""
        machine = copy.deepcopy(self._machine)
        machine.step(all(bool(optimizer.finite) for optimizer in self._seen))
        return machine

    @property
    def _seen(self) -> list[Optimizer]:
        """Those that were unscaled since the last update."""
        return [optimizer for optimizer in self.optimizers.values() if optimizer.finite is not None]


def _moved(parameter: Bits, gradient: Bits | None) -> Bits:
    if gradient is None:
        return parameter
    within = computed_in(parameter.dtype)
    pairs = zip(numbers(parameter), numbers(gradient), strict=True)
    return from_numbers(parameter.dtype, parameter.shape, [difference(value, step, within) for value, step in pairs])
