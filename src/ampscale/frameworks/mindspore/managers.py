"""`mindspore.amp`: the loss scale managers, which store a scale on the host and create update cells."""

from dataclasses import replace

from ... import presets
from ...core.machine import LossScaleState
from ...core.typing import Flag
from ...core.validation import check_bool, check_count, check_flag
from .._arrays import HOST
from .._validation import check_scale_factor, check_scale_value
from .update_cells import DynamicLossScaleUpdateCell, FixedLossScaleUpdateCell

MAX_CONSECUTIVE_OVERFLOWS = 1000


class FixedLossScaleManager:
    """
    MindSpore's `mindspore.amp.FixedLossScaleManager`: stores a constant scale and creates an update cell for it.

    The scale is a Python number; the update cell works on float32 and float64 arrays of all supported libraries.

    Args:
        loss_scale: Python number, at least 1.
        drop_overflow_update: If True, a step with an overflow is skipped.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: *loss_scale* is below 1, NaN, or infinite in float32.

    Spec: MINDSPORE-manager-fixed.

    >>> manager = FixedLossScaleManager(128.0, drop_overflow_update=False)
    >>> manager.update_loss_scale(True)
    >>> manager.get_loss_scale(), manager.get_update_cell()
    (128.0, None)
    """

    def __init__(self, loss_scale: float = 128.0, drop_overflow_update: bool = True) -> None:
        check_scale_value(loss_scale, "loss_scale")
        check_bool(drop_overflow_update, "drop_overflow_update")
        self._loss_scale = loss_scale
        self._drop_overflow_update = drop_overflow_update

    def get_loss_scale(self) -> float:
        """Return the scale."""
        return self._loss_scale

    def get_drop_overflow_update(self) -> bool:
        """Return True if a step with an overflow is skipped."""
        return self._drop_overflow_update

    def update_loss_scale(self, overflow: bool) -> None:
        """Do nothing: the scale is constant."""

    def get_update_cell(self) -> FixedLossScaleUpdateCell | None:
        """Return a new update cell with this scale, or None if *drop_overflow_update* is False."""
        return FixedLossScaleUpdateCell(self._loss_scale) if self._drop_overflow_update else None


class DynamicLossScaleManager:
    """
    MindSpore's `mindspore.amp.DynamicLossScaleManager`: dynamic loss scaling on the host.

    The scale is a Python number, computed in float64; the update cell works on float32 and float64 arrays of any library.

    Args:
        init_loss_scale: Initial scale: Python number, at least 1.
        scale_factor: The scale grows by this factor and backs off by its reciprocal; from 1 to 2**126.
        scale_window: Number of consecutive finite steps after which the scale grows.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.

    Spec: MINDSPORE-manager-dynamic, MINDSPORE-manager-limit.

    >>> manager = DynamicLossScaleManager(2.0**10, scale_window=2)
    >>> for overflow in [False, False, True]:
    ...     manager.update_loss_scale(overflow)
    ...     print(manager.get_loss_scale())
    1024.0
    2048.0
    1024.0
    """

    def __init__(self, init_loss_scale: float = 2**24, scale_factor: float = 2, scale_window: int = 2000) -> None:
        check_scale_value(init_loss_scale, "init_loss_scale", "float64")
        check_scale_factor(scale_factor)
        check_count(scale_window, "scale_window")
        rule = presets.mindspore_manager(float(init_loss_scale), scale_factor, scale_window)
        self._rule = replace(rule, skip_infinite_growth=True)
        self._state: LossScaleState = self._rule.init(like=HOST)
        self._consecutive_overflows = 0

    def get_loss_scale(self) -> float:
        """Return the scale of the next step."""
        return float(self._state.scale)

    def get_drop_overflow_update(self) -> bool:
        """Return True: a step with an overflow is skipped."""
        return True

    def update_loss_scale(self, overflow: Flag) -> None:
        """
        Update the scale after a step.

        Args:
            overflow: Bool of shape () or Python bool: True if a gradient of the step was non-finite.

        Raises:
            RuntimeError: More than 1000 consecutive steps have overflowed, so a lower scale cannot help. The scale was updated.
            TypeError: *overflow* is not a bool.
            ValueError: *overflow* has the wrong shape.

        Spec: MINDSPORE-manager-limit.
        """
        check_flag(overflow, "overflow")
        finite = not bool(overflow)
        overflows = 0 if finite else self._consecutive_overflows + 1
        self._state, self._consecutive_overflows = self._rule.update(self._state, finite), overflows
        if overflows > MAX_CONSECUTIVE_OVERFLOWS:
            raise RuntimeError(
                f"more than {MAX_CONSECUTIVE_OVERFLOWS} consecutive steps overflowed, and the scale is {self.get_loss_scale()}: "
                "a lower scale cannot help, so look for an infinity or a NaN in the parameters, the inputs and the loss"
            )

    def get_update_cell(self) -> DynamicLossScaleUpdateCell:
        """
        Return a new update cell that starts from the current scale. Manager and cell are independent afterwards.

        Raises:
            ValueError: The current scale is too large for an update cell, whose initial scale must be finite in float32.

        Spec: MINDSPORE-manager-update-cell.
        """
        return DynamicLossScaleUpdateCell(self.get_loss_scale(), self._rule.growth_factor, self._rule.growth_interval)
