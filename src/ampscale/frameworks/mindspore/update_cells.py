"""`mindspore.nn`: the update cells, which update the scale of a training cell."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import array_api_compat

from ... import presets
from ...core.machine import LossScaleState
from ...core.namespaces import check_one_library
from ...core.typing import Array, Flag
from ...core.validation import check_count, check_flag, check_not_traced, check_scale_array, check_scale_number, check_writable
from .._arrays import logical_not
from .._validation import check_keys, check_scale_factor


@runtime_checkable
class UpdateCell(Protocol):
    """Interface through which a training cell uses an update cell."""

    def get_loss_scale(self) -> float:
        """Return the initial scale."""

    def __call__(self, loss_scale: Array, overflow: Flag) -> Flag:
        """Write the next scale into *loss_scale*, and return True to skip the step."""


class FixedLossScaleUpdateCell:
    """
    MindSpore's `mindspore.nn.FixedLossScaleUpdateCell`: an update cell that never changes the scale.

    Works on float32 and float64 scales of all supported libraries.

    Args:
        loss_scale_value: Python number, positive and finite.

    Raises:
        TypeError: *loss_scale_value* is not an int or float.
        ValueError: *loss_scale_value* is not positive and finite in float32.

    Spec: MINDSPORE-update-cell-fixed.

    >>> update_cell, scale = FixedLossScaleUpdateCell(1024.0), np.full((), 1024.0, np.float32)
    >>> update_cell(scale, True), float(scale)
    (True, 1024.0)
    """

    def __init__(self, loss_scale_value: float) -> None:
        check_scale_number(loss_scale_value, "loss_scale_value")
        self.loss_scale_value = loss_scale_value

    def get_loss_scale(self) -> float:
        """Return the scale."""
        return self.loss_scale_value

    def __call__(self, loss_scale: Array, overflow: Flag) -> Flag:
        """
        Return *overflow*, a bool of shape () or a Python bool. *loss_scale* is ignored.

        Raises:
            TypeError: *overflow* is not a bool.
            ValueError: *overflow* has the wrong shape.
        """
        check_flag(overflow, "overflow")
        return overflow

    def next_scale(self, loss_scale: Array, overflow: Flag) -> Array:
        """Return *loss_scale* itself; for the errors see `__call__`."""
        check_flag(overflow, "overflow")
        return loss_scale


class DynamicLossScaleUpdateCell:
    """
    MindSpore's `mindspore.nn.DynamicLossScaleUpdateCell`: the update cell of dynamic loss scaling.

    Works on float32 and float64 scales of all supported libraries without a host synchronization. A cell stores its counters
    but not the scale: the caller passes an array, and the cell writes the next scale into it. A backoff never leaves the scale
    below 1, and a growth that would make the scale non-finite is skipped.

    Args:
        loss_scale_value: Initial scale: Python number, positive and finite.
        scale_factor: The scale grows by this factor and backs off by its reciprocal; from 1 to 2**126.
        scale_window: Number of consecutive finite steps after which the scale grows.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.

    Spec: MINDSPORE-update-cell-dynamic, MACHINE-growth-window, MACHINE-min-scale, MACHINE-skip-infinite-growth.

    >>> update_cell = DynamicLossScaleUpdateCell(2.0**12, scale_factor=2, scale_window=1000)
    >>> scale = np.full((), update_cell.get_loss_scale(), np.float32)
    >>> update_cell(scale, True), float(scale)
    (True, 2048.0)
    """

    def __init__(self, loss_scale_value: float, scale_factor: float, scale_window: int) -> None:
        check_scale_number(loss_scale_value, "loss_scale_value")
        check_scale_factor(scale_factor)
        check_count(scale_window, "scale_window")
        self.loss_scale_value = loss_scale_value
        # The rule's initial scale is unused: the scale is an argument of each call, and may even be below `min_scale`.
        self._rule = replace(presets.mindspore_update_cell(1.0, scale_factor, scale_window), skip_infinite_growth=True)
        # Calls and consecutive finite steps, in one tuple, so that other threads never read numbers of different steps.
        self._counts: tuple[int, Array | int] = 0, 0

    @property
    def scale_factor(self) -> float:
        """Return the factor of the constructor. It cannot be set."""
        return self._rule.growth_factor

    @property
    def scale_window(self) -> int:
        """Return the window of the constructor. It cannot be set."""
        return self._rule.growth_interval

    @property
    def cur_iter(self) -> int:
        """Return MindSpore's step counter: the number of the next step, counted from 1."""
        return self._counts[0] + 1

    @property
    def last_overflow_iter(self) -> int:
        """Return the number of the last step at which a growth was due or an overflow occurred; 0 before the first such step."""
        calls, good_steps = self._counts
        return calls - int(good_steps)

    def get_loss_scale(self) -> float:
        """Return the initial scale. The training cell stores the current scale."""
        return self.loss_scale_value

    def __call__(self, loss_scale: Array, overflow: Flag) -> Flag:
        """
        Write the scale of the next step into *loss_scale*, and return *overflow*.

        Args:
            loss_scale: float32 or float64, shape () or (1,); changed in place.
            overflow: Bool, shape (), or Python bool: True if a gradient was non-finite.

        Raises:
            TypeError: An argument has the wrong type or dtype, or *loss_scale* is immutable. Nothing was changed.
            ValueError: An argument has the wrong shape, or *loss_scale* is read-only or requires gradients. Nothing was changed.

        Spec: MINDSPORE-update-cell-call.
        """
        check_writable(loss_scale, "loss_scale")
        if getattr(loss_scale, "requires_grad", False):
            raise ValueError("loss_scale must be detached to be written in place, got one that requires a gradient")
        loss_scale[...], self._counts = self._next(loss_scale, overflow)
        return overflow

    def next_scale(self, loss_scale: Array, overflow: Flag) -> Array:
        """
        Return the scale of the next step as a new array; for arguments and errors see `__call__`.

        Libraries with immutable arrays, such as JAX, require this method.

        >>> DynamicLossScaleUpdateCell(2.0**12, 2, 1000).next_scale(np.float32(4096.0), True).item()
        2048.0
        """
        next_scale, self._counts = self._next(loss_scale, overflow)
        return next_scale

    def state_dict(self) -> dict[str, int]:
        """Return the counters `cur_iter` and `last_overflow_iter` as ints. The training cell saves the scale."""
        calls, good_steps = self._counts
        return {"cur_iter": calls + 1, "last_overflow_iter": calls - int(good_steps)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """
        Restore the counters that `state_dict` of this or another cell returned.

        Raises:
            TypeError: *state_dict* is not a mapping, or a value is not an int. Nothing was changed.
            ValueError: A key is missing or unknown, or a value is out of range. Nothing was changed.
        """
        check_keys(state_dict, ("cur_iter", "last_overflow_iter"))
        check_count(state_dict["cur_iter"], "cur_iter")
        check_count(state_dict["last_overflow_iter"], "last_overflow_iter", low=0)
        good_steps = state_dict["cur_iter"] - 1 - state_dict["last_overflow_iter"]
        check_count(good_steps, "cur_iter - 1 - last_overflow_iter", low=0)
        self._counts = state_dict["cur_iter"] - 1, good_steps

    def _next(self, loss_scale: Array, overflow: Flag) -> tuple[Array, tuple[int, Array]]:
        """Return the next scale and counts without storing them."""
        check_scale_array(loss_scale, "loss_scale")
        check_flag(overflow, "overflow")
        if not isinstance(overflow, bool):
            check_one_library(loss_scale=loss_scale, overflow=overflow)
        xp = array_api_compat.array_namespace(loss_scale)
        calls, good_steps = self._counts
        zero = xp.zeros_like(loss_scale, dtype=xp.int32)  # the counts of the rule have the shape of the scale, () or (1,)
        state = self._rule.update(LossScaleState(loss_scale, zero + good_steps, zero), logical_not(overflow))
        check_not_traced(state.scale, "loss_scale and overflow", "the update cell", "a LossScaleRule")
        return state.scale, (calls + 1, xp.reshape(state.good_steps, ()))
