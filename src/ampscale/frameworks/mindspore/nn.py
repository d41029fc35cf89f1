"""
`mindspore.nn`: the update cells, and the step cell that they serve.

Spec: MINDSPORE-update-cell-*, MINDSPORE-cell-*.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import array_api_compat

from ... import presets, verbs
from ...core.checks import check_count, check_number, check_out, check_scale_array, check_scale_host
from ...core.dtypes import FLOATS
from ...core.machine import LossScaleState
from ...core.overflow import Detector, GradientScan
from ...core.replicas import SOLO, Communicator
from ...core.step import seed_like
from ...core.trees import leaves
from ...core.typing import Array, Flag, Tree
from .._apply import applier_of, network_of
from .._border import check_keys, scalar_flag


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
        check_initial_scale(loss_scale_value, "loss_scale_value")
        self.loss_scale_value = loss_scale_value

    def get_loss_scale(self) -> float:
        """The scale."""
        return self.loss_scale_value

    def __call__(self, loss_scale: Array, overflow: Flag) -> Flag:
        """*overflow*; the scale is not touched."""
        return scalar_flag(overflow, "overflow")


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

    Spec: MINDSPORE-update-cell-dynamic, MACHINE-growth-window, MACHINE-floor, MACHINE-growth-guard.
    """

    def __init__(self, loss_scale_value: float, scale_factor: float, scale_window: int) -> None:
        check_initial_scale(loss_scale_value, "loss_scale_value")
        check_number(scale_factor, "scale_factor", "a finite number of at least 1", 1)
        check_count(scale_window, "scale_window")
        self.loss_scale_value = loss_scale_value
        self.scale_factor = scale_factor
        self.scale_window = scale_window
        # The rule's own first scale is not used: the scale is handed in, and may lie below the floor.
        self._rule = replace(presets.mindspore_update_cell(1.0, scale_factor, scale_window), growth_guard=True)
        self._calls = 0
        self._good_steps: Array | int = 0

    @property
    def cur_iter(self) -> int:
        """MindSpore's counter of steps: the number of the coming one."""
        return self._calls + 1

    @property
    def last_overflow_iter(self) -> int:
        """MindSpore's other counter: the last step at which the scale grew or overflowed; 0 before any."""
        return self._calls - int(self._good_steps)

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
            TypeError, ValueError: An argument is of the wrong type or shape. Nothing has changed then.
        """
        check_scale_array(loss_scale, "loss_scale")
        check_out(loss_scale, loss_scale)
        finite = negated(scalar_flag(overflow, "overflow"))
        xp = array_api_compat.array_namespace(loss_scale)
        zero = xp.zeros_like(loss_scale, dtype=xp.int32)
        state = self._rule.update(LossScaleState(loss_scale, zero + self._good_steps, zero), finite)
        loss_scale[...] = state.scale
        self._good_steps = xp.reshape(state.good_steps, ())
        self._calls += 1
        return overflow

    def state_dict(self) -> dict[str, int]:
        """The counters, as Python numbers; the scale is the step cell's."""
        return {"cur_iter": self.cur_iter, "last_overflow_iter": self.last_overflow_iter}

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
        self._calls, self._good_steps = state_dict["cur_iter"] - 1, good_steps


class TrainOneStepWithLossScaleOutput(NamedTuple):
    """The documented three outputs."""

    loss: Array  # as the network returned it: unscaled, of the parameters before the step
    overflow: Flag  # bool, shape (): what the check saw
    loss_scale: Array  # shape () or (1,): the scale of the next step, a snapshot


class TrainOneStepWithLossScaleCell:
    """
    One training step with loss scaling, made for heirs.

    Args:
        network: A `Network`, or any callable with `params` and ``vjp(params, *inputs)``, that returns one loss.
        optimizer: One of `ampscale.optimizers` or an optax transformation, which are never looked at on the host; or
            any callable ``optimizer(gradients)``, which costs one look a step and is not called on an overflow.
        scale_sense: The scale, as a float32 or float64 array of shape () or (1,), which stays until
            `set_sense_scale`; or an update cell, which moves it: an object with ``get_loss_scale()`` that is called
            with the scale and the overflow, writes the next scale into the array, and returns whether to skip.
        detector: What finds an overflow; by default a scan of the gradients.
        communicator: How to agree with the other replicas.

    A step calls `start_overflow_check` after the loss, then `get_overflow_status` and `process_loss_scale` after the
    gradients; an heir that overrides one of them takes part in every step, and one that writes its own `construct`
    may call them. The optimizer is skipped where `process_loss_scale` returns True.

    Raises:
        TypeError: *scale_sense* is neither an array nor an update cell, or another argument is of the wrong type.
        ValueError: The shape of *scale_sense* is neither () nor (1,), or it is NaN, infinite, zero or negative.

    Spec: spec/profiles/mindspore.md, MINDSPORE-cell-*.
    """

    def __init__(
        self,
        network: Any,
        optimizer: Any,
        scale_sense: Any,
        *,
        detector: Detector | None = None,
        communicator: Communicator = SOLO,
    ) -> None:
        self.network = network_of(network)
        self.loss_scaling_manager = None if array_api_compat.is_array_api_obj(scale_sense) else _update_cell(scale_sense)
        self.scale_sense = self._first_scale(scale_sense)
        self.optimizer = optimizer
        self._applier = applier_of(optimizer, network)
        self._detector = GradientScan() if detector is None else detector
        self._communicator = communicator

    def __call__(self, *inputs: Any) -> Any:
        """One step; what `construct` returns."""
        return self.construct(*inputs)

    def construct(self, *inputs: Any) -> Any:
        """
        One step.

        Args:
            inputs: Handed to the network as they are; usually arrays of shape (N, ...).

        Returns:
            A `TrainOneStepWithLossScaleOutput`: loss, overflow, and the scale after the step.

        Raises:
            TypeError: The network returned something else than one array. Nothing has changed then.
        """
        loss, status, scaled, sense = self._scaled_gradients(*inputs)
        self._detector.observe(status, scaled)
        gradients = self._communicator.mean(verbs.unscale(scaled, sense))
        overflow = self.get_overflow_status(status, gradients)
        skip = self.process_loss_scale(overflow)
        self._applier.apply(gradients, negated(skip))
        return TrainOneStepWithLossScaleOutput(loss, overflow, snapshot(self.scale_sense))

    def start_overflow_check(self, pre_cond: Array, compute_input: Any) -> tuple[Any, Any]:
        """
        Starts a check, with nothing seen yet.

        Args:
            pre_cond: What must be computed before the check starts: the loss.
            compute_input: What the checked computation starts from: the scale.

        Returns:
            A token to hand to `get_overflow_status`, and *compute_input* itself.
        """
        return self._detector.start(pre_cond), compute_input

    def get_overflow_status(self, status: Any, compute_output: Tree) -> Flag:
        """
        Whether there was an overflow since the start: bool, shape ().

        Args:
            status: The token of `start_overflow_check`. Any other object means that only the output counts.
            compute_output: What the checked computation gave: the gradients.
        """
        finite = self._communicator.all_finite(self._detector.finite(status, compute_output))
        return array_api_compat.array_namespace(finite).asarray(~finite)

    def process_loss_scale(self, overflow: Flag) -> Flag:
        """
        Moves the scale where an update cell was given; returns whether the step is to be skipped: *overflow*.

        Args:
            overflow: Bool, shape ().

        Raises:
            TypeError, ValueError: *overflow* is no bool of shape ().
        """
        scalar_flag(overflow, "overflow")
        return overflow if self.loss_scaling_manager is None else self.loss_scaling_manager(self.scale_sense, overflow)

    def set_sense_scale(self, sens: Array) -> None:
        """
        Sets the scale.

        Args:
            sens: An array of the shape and dtype of the present scale; copied.

        Raises:
            TypeError: *sens* is no array, or of another dtype.
            ValueError: It has another shape, or is NaN, infinite, zero or negative.
        """
        check_scale_array(sens, "sens")
        if tuple(sens.shape) != tuple(self.scale_sense.shape):
            raise ValueError(f"sens must have shape {tuple(self.scale_sense.shape)}, got {tuple(sens.shape)}")
        if sens.dtype != self.scale_sense.dtype:
            raise TypeError(f"sens must be {self.scale_sense.dtype}, got {sens.dtype}")
        check_scale_host(sens, "sens")
        self.scale_sense = snapshot(sens)

    def state_dict(self) -> dict[str, Any]:
        """The scale, as an array, and the state of the update cell; empty where it gives none."""
        of_cell = getattr(self.loss_scaling_manager, "state_dict", dict)
        return {"scale_sense": snapshot(self.scale_sense), "update_cell": of_cell()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """
        Goes on with the scale where another cell was when it gave *state_dict*.

        Raises:
            TypeError, ValueError: A key is missing or unknown, or a value is wrong. Nothing has changed then.
        """
        check_keys(state_dict, ("scale_sense", "update_cell"))
        before = self.scale_sense
        self.set_sense_scale(state_dict["scale_sense"])
        try:
            self._load_update_cell(state_dict["update_cell"])
        except (TypeError, ValueError):
            self.scale_sense = before
            raise

    def _scaled_gradients(self, *inputs: Any) -> tuple[Array, Any, Tree, Array]:
        """The loss, the token of the check, the gradients times the scale, and the scale."""
        loss, pullback = self.network.vjp(self.network.params, *inputs)
        if not array_api_compat.is_array_api_obj(loss):
            raise TypeError(f"network must return one array, its loss, got {type(loss).__name__}")
        status, sense = self.start_overflow_check(loss, self.scale_sense)
        return loss, status, pullback(seed_like(loss, sense)), sense

    def _first_scale(self, scale_sense: Any) -> Array:
        if self.loss_scaling_manager is None:
            check_scale_host(scale_sense, "scale_sense")
            return snapshot(scale_sense)
        value = self.loss_scaling_manager.get_loss_scale()
        check_scale_host(value, "scale_sense.get_loss_scale()")
        return presets.static(float(value)).init(like=next(iter(leaves(self.network.params)), None)).scale

    def _load_update_cell(self, state_dict: Any) -> None:
        load = getattr(self.loss_scaling_manager, "load_state_dict", None)
        if load is not None:
            load(state_dict)
        elif state_dict:
            raise ValueError(f"update_cell must be empty for this scale_sense, got {state_dict!r}")


def negated(flag: Flag) -> Flag:
    """The other polarity of a bool, or of a bool array, without looking at it."""
    return not flag if isinstance(flag, bool) else ~flag


def snapshot(array: Array) -> Array:
    """A copy, so that what a caller keeps does not move, and what a caller writes moves nothing."""
    return array_api_compat.array_namespace(array).asarray(array, copy=True)


def _update_cell(scale_sense: Any) -> UpdateCell:
    if isinstance(scale_sense, UpdateCell):
        return scale_sense
    wanted = "an array of shape () or (1,), or an update cell with get_loss_scale() that can be called"
    raise TypeError(f"scale_sense must be {wanted}, got {scale_sense!r} of type {type(scale_sense).__name__}")


def check_initial_scale(value: Any, name: str) -> None:
    """
    *value* is a Python number that a float32 scale can start from.

    Raises:
        TypeError, ValueError: It is not.
    """
    smallest, largest = FLOATS["float32"].smallest_subnormal, FLOATS["float32"].largest
    check_number(value, name, "a positive, finite number that float32 can hold", smallest, largest)
