"""
`mindspore.nn`: the update cells, which move the scale of a step cell.

Spec: MINDSPORE-update-cell-*.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import array_api_compat

from ... import presets
from ...core.machine import LossScaleState
from ...core.typing import Array, Flag
from ...core.validation import check_count, check_flag, check_number, check_scale_array, check_scale_number, check_writable
from .._arrays import negated
from .._validation import check_keys


@runtime_checkable
class UpdateCell(Protocol):
    """What a step cell asks of an object that moves its scale."""

    def get_loss_scale(self) -> float:
        """The first scale."""

    def __call__(self, loss_scale: Array, overflow: Flag) -> Flag:
        """Writes the next scale into *loss_scale*, and returns whether the step is to be skipped."""


class FixedLossScaleUpdateCell:
    """
    An update cell that leaves the scale as it is.

    Args:
        loss_scale_value: The scale: a Python number, positive and finite.

    Spec: MINDSPORE-update-cell-fixed.
    """

    def __init__(self, loss_scale_value: float) -> None:
        check_scale_number(loss_scale_value, "loss_scale_value")
        self.loss_scale_value = loss_scale_value

    def get_loss_scale(self) -> float:
        """The scale."""
        return self.loss_scale_value

    def __call__(self, loss_scale: Array, overflow: Flag) -> Flag:
        """*overflow*; the scale is not touched."""
        check_flag(overflow, "overflow")
        return overflow

    def next_scale(self, loss_scale: Array, overflow: Flag) -> Array:
        """*loss_scale* itself."""
        check_flag(overflow, "overflow")
        return loss_scale


class DynamicLossScaleUpdateCell:
    """
    An update cell that looks for the largest scale without overflow.

    Args:
        loss_scale_value: The first scale: a Python number, positive and finite.
        scale_factor: The scale is multiplied by this or by its reciprocal: a number of at least 1.
        scale_window: Finite steps in a row that make the scale grow: an int of at least 1.

    It does not hold the scale: it is handed an array, and writes the next scale into it. A scale that backs off never
    falls below 1, and a growth that would not be finite keeps it.

    Raises:
        TypeError, ValueError: An argument is of the wrong type or out of range.

    Spec: MINDSPORE-update-cell-dynamic, MACHINE-growth-window, MACHINE-min-scale, MACHINE-skip-infinite-growth.
    """

    def __init__(self, loss_scale_value: float, scale_factor: float, scale_window: int) -> None:
        check_scale_number(loss_scale_value, "loss_scale_value")
        check_number(scale_factor, "scale_factor", "a finite number of at least 1", 1)
        check_count(scale_window, "scale_window")
        self.loss_scale_value = loss_scale_value
        self.scale_factor = scale_factor
        self.scale_window = scale_window
        # The rule's own first scale is not used: the scale is handed in, and may lie below the floor.
        self._rule = replace(presets.mindspore_update_cell(1.0, scale_factor, scale_window), skip_infinite_growth=True)
        self._counts: tuple[int, Array | int] = 0, 0  # calls, and finite steps in a row; one attribute, for threads that read

    @property
    def cur_iter(self) -> int:
        """MindSpore's counter of steps: the number of the coming one."""
        return self._counts[0] + 1

    @property
    def last_overflow_iter(self) -> int:
        """MindSpore's other counter: the last step at which the scale grew or overflowed; 0 before any."""
        calls, good_steps = self._counts
        return calls - int(good_steps)

    def get_loss_scale(self) -> float:
        """The first scale, always: the present one is the step cell's."""
        return self.loss_scale_value

    def __call__(self, loss_scale: Array, overflow: Flag) -> Flag:
        """
        Writes the scale of the next step into *loss_scale*; returns *overflow*.

        Args:
            loss_scale: float32 or float64, shape () or (1,); changed in place.
            overflow: Bool, shape ().

        Raises:
            TypeError, ValueError: An argument is of the wrong type or shape, or *loss_scale* requires a gradient. Nothing has
                changed then.
        """
        check_writable(loss_scale, "loss_scale")
        if getattr(loss_scale, "requires_grad", False):
            raise ValueError("loss_scale must be detached to be written in place, got one that requires a gradient")
        next_scale, good_steps = self._next(loss_scale, overflow)
        loss_scale[...], self._counts = next_scale, (self._counts[0] + 1, good_steps)
        return overflow

    def next_scale(self, loss_scale: Array, overflow: Flag) -> Array:
        """
        The scale of the next step, as a new array; for libraries whose arrays cannot be written to.

        Args:
            loss_scale: float32 or float64, shape () or (1,).
            overflow: Bool, shape ().

        Raises:
            TypeError, ValueError: An argument is of the wrong type or shape. Nothing has changed then.
        """
        next_scale, good_steps = self._next(loss_scale, overflow)
        self._counts = self._counts[0] + 1, good_steps
        return next_scale

    def state_dict(self) -> dict[str, int]:
        """The counters, as Python numbers; the scale is the step cell's."""
        calls, good_steps = self._counts
        return {"cur_iter": calls + 1, "last_overflow_iter": calls - int(good_steps)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """
        Goes on where another cell was when it gave *state_dict*.

        Raises:
            TypeError, ValueError: A key is missing or unknown, or a value is wrong. Nothing has changed then.
        """
        check_keys(state_dict, ("cur_iter", "last_overflow_iter"))
        check_count(state_dict["cur_iter"], "cur_iter")
        check_count(state_dict["last_overflow_iter"], "last_overflow_iter", low=0)
        good_steps = state_dict["cur_iter"] - 1 - state_dict["last_overflow_iter"]
        check_count(good_steps, "cur_iter - 1 - last_overflow_iter", low=0)
        self._counts = state_dict["cur_iter"] - 1, good_steps

    def _next(self, loss_scale: Array, overflow: Flag) -> tuple[Array, Array]:
        """Return the next scale and the count of finite steps, and change nothing."""
        check_scale_array(loss_scale, "loss_scale")
        check_flag(overflow, "overflow")
        xp = array_api_compat.array_namespace(loss_scale)
        zero = xp.zeros_like(loss_scale, dtype=xp.int32)
        state = self._rule.update(LossScaleState(loss_scale, zero + self._counts[1], zero), negated(overflow))
        return state.scale, xp.reshape(state.good_steps, ())
