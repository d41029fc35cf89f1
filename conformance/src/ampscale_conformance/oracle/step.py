"""Training step of the linear network, spec/50-step.md, in exact arithmetic."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import Any

from ..model.bits import Bits, arrays
from .linear_network import Descent, gradients_of, loss_of
from .machine import Machine
from .norms import clip, global_norm
from .tensors import all_finite, unscale


@dataclass(frozen=True)
class Outputs:
    """Outputs of a step."""

    parameters: list[Bits]  # after the step
    finite: bool  # True if the gradients were finite before and after unscaling
    scale: float  # of this step
    next_scale: float
    loss: float  # unscaled loss of the parameters before the step, a float32 number
    learning_rate: float  # of this step, even if it was skipped
    global_norm: float  # of the unscaled gradients before clipping, a number of their `norms.norm_dtype`
    status: str  # "APPLIED", "OVERFLOW", "NO_GRADIENTS" or "WOULD_RAISE"; see STEP-status
    attempted: int  # number of steps
    applied: int  # number of steps that changed the parameters


@dataclass(eq=False)
class Training:
    """
    Training of the linear network by `Descent`, with a *rule* as for `machine.trajectory`.

    Unscaled gradients are clipped to the global norm *max_norm*, unless it is None. If *unscaled_to* is "float32", 16-bit
    gradients are widened when they are unscaled; if it is None, they keep their dtype. *without_gradients* is what a step without
    gradients does (CALLS-no-gradients-alone): True if it updates the scale, and True if it counts as applied.
    """

    rule: InitVar[Any]
    parameters: InitVar[Sequence[Bits]]
    _: KW_ONLY
    learning_rate: InitVar[float | Sequence[float]] = 1.0
    momentum: InitVar[float] = 0.0
    max_norm: float | None = None
    unscaled_to: str | None = "float32"
    without_gradients: tuple[bool, bool] | None = None

    def __post_init__(self, rule: Any, parameters: Sequence[Bits], learning_rate: Any, momentum: float) -> None:
        self.machine = Machine(rule)
        self.optimizer = Descent(parameters, learning_rate, momentum)
        self.attempted = 0

    def step(self, data: Sequence[Bits | None]) -> Outputs:
        """Take one step. *data* has an array of the parameter's shape, or None for no gradient, for each parameter."""
        gradients, finite = self.backward(data)
        return self.finish(loss_of(self.optimizer.parameters, data), gradients, finite)

    def backward(self, data: Sequence[Bits | None]) -> tuple[list[Bits | None], bool]:
        """Return the unscaled gradients, and True if they are finite before and after unscaling (OVERFLOW-both-sides)."""
        scale = self.machine.point.scale
        scaled = gradients_of(self.optimizer.parameters, data, scale)
        gradients = [None if leaf is None else unscale(leaf, scale, self.unscaled_to) for leaf in scaled]
        return gradients, all_finite(scaled) and all_finite(gradients)

    def finish(self, loss: float, gradients: Sequence[Bits | None], finite: bool) -> Outputs:
        """Clip the unscaled gradients, apply or skip the step, update the scale, and return the outputs."""
        scale, rate, norm = self.machine.point.scale, self.optimizer.learning_rate, global_norm(list(gradients))
        if not arrays(list(gradients)):
            status, (updates, counts) = "NO_GRADIENTS", self.without_gradients or (False, False)
            if updates:
                self.machine.step(True)
            self.optimizer.applied += counts
        elif self.machine.step(finite).stopped:
            status = "WOULD_RAISE"
        else:
            status = "APPLIED" if finite else "OVERFLOW"
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
