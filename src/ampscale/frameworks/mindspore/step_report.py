"""
Reports of the steps of a training cell.

Spec: MINDSPORE-cell-last-step.
"""

from typing import Any

import array_api_compat

from ...core.step import StepReport, StepStatus
from ...core.typing import Array, Flag
from .._arrays import as_array


def step_report(
    output: Any, applied: Flag, scale: Array, rate: Array | None, norm: Array | None = None, *, accumulated: bool = False
) -> StepReport:
    """
    Return the report of a step that returned *output*.

    Args:
        output: Tuple that starts with the loss, the overflow flag as an array on the loss's device, and the next scale.
        applied: Bool, shape (): True if the parameters were updated.
        scale: Shape () or (1,): the scale of the step.
        rate: Shape (): the learning rate; None if the optimizer does not report it.
        norm: Shape (): the global norm before clipping; None without clipping.
        accumulated: True for a micro-batch that does not complete a step.
    """
    loss, overflow, next_scale = output[:3]
    xp = array_api_compat.array_namespace(loss)
    applied = as_array(applied, loss)
    status = xp.full_like(overflow, StepStatus.ACCUMULATED, dtype=xp.int32) if accumulated else xp.astype(~applied, xp.int32)
    return StepReport(loss, ~overflow, applied, scale, next_scale, rate, norm, status)
