"""
`mindspore.amp`: the managers, which keep a scale on the host and make the cells that move one.

Spec: MINDSPORE-manager-*.
"""

from dataclasses import replace

from ... import presets
from ...core.machine import LossScaleState
from ...core.typing import Flag
from ...core.validation import check_bool, check_count, check_flag, check_number
from .._arrays import HOST
from .._validation import check_scale_value
from .update_cells import DynamicLossScaleUpdateCell, FixedLossScaleUpdateCell

CONSECUTIVE_OVERFLOWS = 1000


class FixedLossScaleManager:
    """
    Keeps a constant scale for a cell.

    Args:
        loss_scale: A Python number of at least 1.
        drop_overflow_update: Whether a step that overflows is skipped.

    Raises:
        TypeError, ValueError: An argument is of the wrong type or out of range.

    Spec: MINDSPORE-manager-fixed.
    """

    def __init__(self, loss_scale: float = 128.0, drop_overflow_update: bool = True) -> None:
        check_scale_value(loss_scale, "loss_scale")
        check_bool(drop_overflow_update, "drop_overflow_update")
        self._loss_scale = loss_scale
        self._drop_overflow_update = drop_overflow_update

    def get_loss_scale(self) -> float:
        """The scale."""
        return self._loss_scale

    def get_drop_overflow_update(self) -> bool:
        """Whether a step that overflows is skipped."""
        return self._drop_overflow_update

    def update_loss_scale(self, overflow: bool) -> None:
        """Nothing: the scale stays."""

    def get_update_cell(self) -> FixedLossScaleUpdateCell | None:
        """A cell with this scale; None where an overflow is not to be looked for."""
        return FixedLossScaleUpdateCell(self._loss_scale) if self._drop_overflow_update else None


class DynamicLossScaleManager:
    """
    Moves a scale on the host, in Python's numbers.

    Args:
        init_loss_scale: The first scale: a Python number of at least 1.
        scale_factor: The scale is multiplied by this or by its reciprocal: a number of at least 1.
        scale_window: Finite steps in a row that make the scale grow: an int of at least 1.

    Raises:
        TypeError, ValueError: An argument is of the wrong type or out of range.

    Spec: MINDSPORE-manager-dynamic, MINDSPORE-manager-limit.
    """

    def __init__(self, init_loss_scale: float = 2**24, scale_factor: float = 2, scale_window: int = 2000) -> None:
        check_scale_value(init_loss_scale, "init_loss_scale", "float64")
        check_number(scale_factor, "scale_factor", "a finite number of at least 1", 1)
        check_count(scale_window, "scale_window")
        published = presets.mindspore_manager(float(init_loss_scale), scale_factor, scale_window)
        self._rule = replace(published, skip_infinite_growth=True)
        self._state: LossScaleState = self._rule.init(like=HOST)
        self._overflows_in_a_row = 0

    def get_loss_scale(self) -> float:
        """The scale of the next step."""
        return float(self._state.scale)

    def get_drop_overflow_update(self) -> bool:
        """True: a step that overflows is skipped."""
        return True

    def update_loss_scale(self, overflow: Flag) -> None:
        """
        Moves the scale, given whether the step overflowed.

        Raises:
            RuntimeError: This was the 1001st overflow in a row: the scale cannot be what is wrong.
            TypeError, ValueError: *overflow* is no bool of shape ().
        """
        check_flag(overflow, "overflow")
        finite = not bool(overflow)
        overflows = 0 if finite else self._overflows_in_a_row + 1
        self._state, self._overflows_in_a_row = self._rule.update(self._state, finite), overflows
        if self._overflows_in_a_row > CONSECUTIVE_OVERFLOWS:
            raise RuntimeError(
                f"more than {CONSECUTIVE_OVERFLOWS} steps in a row overflowed, the scale is {self.get_loss_scale()}"
            )

    def get_update_cell(self) -> DynamicLossScaleUpdateCell:
        """
        A cell that starts from the present scale, and moves on its own from there.

        Raises:
            ValueError: The present scale is beyond float32, which is what a cell moves.
        """
        rule = self._rule
        return DynamicLossScaleUpdateCell(self.get_loss_scale(), rule.growth_factor, rule.growth_interval)
