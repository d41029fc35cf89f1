"""One training step of the linear network, spec/50-step.md, in exact arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..model.bits import Bits, arrays
from ..model.floats import rounded
from .arithmetic import quotient
from .linear_network import Descent, gradients_of, loss_of
from .machine import Machine
from .norms import clip, global_norm
from .tensors import all_finite, computed_in, from_numbers, numbers, widened


@dataclass(frozen=True)
class Outputs:
    """
    What a step tells.

    Args:
        parameters: After the step.
        finite: Whether the gradients were finite before they were unscaled, and after.
        scale: The one that this step used.
        next_scale: After it.
        loss: Of the parameters before the step, unscaled: a float32 number.
        learning_rate: The one that this step uses, or would have used.
        global_norm: Of the unscaled gradients, before they are clipped: a number of `norms.norm_dtype` of them.
        status: "APPLIED", "OVERFLOW", "NO_GRADIENTS" or "WOULD_RAISE", as STEP-status has it.
        attempted: Steps so far.
        applied: Those of them that changed the parameters.
    """

    parameters: list[Bits]
    finite: bool
    scale: float
    next_scale: float
    loss: float
    learning_rate: float
    global_norm: float
    status: str
    attempted: int
    applied: int


class Training:
    """
    A run of the linear network, step by step.

    Args:
        rule: As for `machine.trajectory`.
        parameters: The first ones, floats.
        learning_rate: A number; or several, one for each applied step, and the last for ever after.
        momentum: From 0 up and below 1.
        max_norm: Clip the unscaled gradients to this global norm; None not to clip.
        unscaled_to: "float32", in which 16-bit gradients are unscaled and reach the optimizer; None for their own dtype.
    """

    def __init__(
        self,
        rule: Any,
        parameters: Sequence[Bits],
        *,
        learning_rate: float | Sequence[float] = 1.0,
        momentum: float = 0.0,
        max_norm: float | None = None,
        unscaled_to: str | None = "float32",
    ) -> None:
        self.machine = Machine(rule)
        self.optimizer = Descent(parameters, learning_rate, momentum)
        self.max_norm = max_norm
        self.unscaled_to = unscaled_to
        self.attempted = 0

    def step(self, data: Sequence[Bits | None]) -> Outputs:
        """One step on this data: an array for each parameter and of its shape, or None, which gives it no gradient."""
        gradients, finite = self.backward(data)
        return self.finish(loss_of(self.optimizer.parameters, data), gradients, finite)

    def backward(self, data: Sequence[Bits | None]) -> tuple[list[Bits | None], bool]:
        """The unscaled gradients, and whether they are finite on both sides: OVERFLOW-both-sides."""
        scale = self.machine.point.scale
        scaled = gradients_of(self.optimizer.parameters, data, scale)
        gradients = [None if leaf is None else _unscaled(leaf, scale, self.unscaled_to) for leaf in scaled]
        return gradients, all_finite(scaled) and all_finite(gradients)

    def finish(self, loss: float, gradients: Sequence[Bits | None], finite: bool) -> Outputs:
        """Clips, applies or skips, and moves the scale."""
        scale, rate, norm = self.machine.point.scale, self.optimizer.learning_rate, global_norm(list(gradients))
        status = self._status(finite) if arrays(list(gradients)) else "NO_GRADIENTS"
        if status == "APPLIED":
            self.optimizer.apply(gradients if self.max_norm is None else clip(list(gradients), self.max_norm)[0])
        self.attempted += 1
        return Outputs(
            parameters=list(self.optimizer.parameters),
            finite=finite,
            scale=scale,
            next_scale=self.machine.point.scale,
            loss=loss,
            learning_rate=rate,
            global_norm=norm,
            status=status,
            attempted=self.attempted,
            applied=self.optimizer.applied,
        )

    def _status(self, finite: bool) -> str:
        if self.machine.step(finite).stopped:
            return "WOULD_RAISE"
        return "APPLIED" if finite else "OVERFLOW"


def _unscaled(leaf: Bits, scale: float, dtype: str | None) -> Bits:
    """As `tensors.unscale`, but by any scale that a machine comes to: by zero or infinity nothing finite comes of it."""
    within = computed_in(leaf.dtype)
    held = rounded(scale, within)
    return from_numbers(widened(leaf.dtype, dtype), leaf.shape, [quotient(value, held, within) for value in numbers(leaf)])
