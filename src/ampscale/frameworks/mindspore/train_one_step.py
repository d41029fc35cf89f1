"""`mindspore.nn`: the training cell."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import array_api_compat

from ... import functional, presets
from ...core.namespaces import as_array, check_one_library
from ...core.replicas import SINGLE_REPLICA, Agreement, Communicator, SingleReplica
from ...core.scaling import scalar_like
from ...core.step import StepReport, StepStatus, seed_like
from ...core.trees import is_array, leaves
from ...core.typing import Array, Flag, Tree
from ...core.validation import check_flag, check_loss, check_methods, check_not_traced, check_scale_array
from ...parsing import excerpt
from .._arrays import logical_not, scale_snapshot, snapshot
from .._calls import Site
from .._grad_scaler import OptimizerNumbers
from .._validation import callable_network, check_keys, is_empty, scale_as_float
from .apply_optimizer import wrap_optimizer
from .detectors import GradientScan, OverflowDetector
from .interruption import check_not_interrupted, guarded_load, guarded_step
from .update_cells import DynamicLossScaleUpdateCell, UpdateCell


class TrainOneStepWithLossScaleOutput(NamedTuple):
    """The three documented outputs of a step."""

    loss: Array  # unscaled loss before the parameter update
    overflow: Flag  # bool, shape (): result of the overflow check
    loss_scale: Array  # shape () or (1,): copy of the scale of the next step


class TrainOneStepWithLossScaleCell:
    """
    MindSpore's `mindspore.nn.TrainOneStepWithLossScaleCell`: a training step with loss scaling, designed to be subclassed.

    Works on parameters and inputs of all supported libraries. A step calls `start_overflow_check` after the loss, and
    `get_overflow_status` and `process_loss_scale` after the gradients; subclasses can override each method. The optimizer is
    skipped if `process_loss_scale` returns True. `last_step` is the `StepReport` of the last step, or None before the first.

    An error before the first write of a step changes nothing. After a later error, such as one in the optimizer, further
    steps raise a RuntimeError until `load_state_dict` has succeeded.

    Args:
        network: A callable that returns the loss: a `Network`, a `torch.nn.Module`, or an object with `params` and
            ``vjp(params, *inputs)``.
        optimizer: One of `ampscale.optimizers` or an optax transformation, which need no host synchronization; or a
            `torch.optim.Optimizer` or a callable ``optimizer(gradients)``, which need a host synchronization per step, since
            they are not called on an overflow. Fused torch optimizers receive the flag on the device instead.
        scale_sense: A float32 or float64 array of shape () or (1,), for a scale that only `set_sense_scale` changes; or an
            update cell. ``cell.get_loss_scale()`` returns the initial scale, and ``cell(scale, overflow)`` writes the next
            scale into the array *scale* and returns True to skip the step. For immutable arrays (JAX),
            ``cell.next_scale(scale, overflow)`` is called instead.
        detector: Overflow detector; by default `GradientScan`.
        communicator: Averages gradients, and combines flags and norms of all ranks; see `ampscale.distributed`.

    Raises:
        TypeError: *scale_sense* is neither an update cell nor an array in the library and on the device of the parameters, or
            another argument has the wrong type.
        ValueError: *scale_sense* has a shape other than () or (1,), or is not positive and finite.

    Spec: spec/profiles/mindspore.md, MINDSPORE-cell-*, MINDSPORE-subclasses.

    >>> network = ampscale.Network(lambda w, x: anp.sum(w * x), np.float32([1.0, 2.0]))
    >>> optimizer, update_cell = ampscale.optimizers.SGD(network, 0.5), ampscale.DynamicLossScaleUpdateCell(2**12, 2, 1000)
    >>> train = TrainOneStepWithLossScaleCell(network, optimizer, update_cell)
    >>> loss, overflow, loss_scale = train(np.float32([1.0, np.inf]))
    >>> bool(overflow), float(loss_scale), network.params
    (True, 2048.0, array([1., 2.], dtype=float32))

    A subclass with its own `construct` can call `compute_gradients`, `reduce_gradients` and `apply_gradients`:

    >>> class HalvedGradients(TrainOneStepWithLossScaleCell):
    ...     def construct(self, *inputs):
    ...         loss, status, scaled, scale = self.compute_gradients(*inputs)
    ...         gradients = self.reduce_gradients(ampscale.unscale(scaled, scale))
    ...         overflow = self.get_overflow_status(status, gradients)
    ...         skip = self.process_loss_scale(overflow)
    ...         self.apply_gradients(gradients / 2, skip)
    ...         return loss, overflow
    >>> train = HalvedGradients(network, optimizer, np.float32(1024.0))
    >>> loss, overflow = train(np.float32([2.0, 4.0]))
    >>> bool(overflow), network.params
    (False, array([0.5, 1. ], dtype=float32))
    """

    def __init__(
        self,
        network: Any,
        optimizer: Any,
        scale_sense: Any,
        *,
        detector: OverflowDetector | None = None,
        communicator: Communicator = SINGLE_REPLICA,
    ) -> None:
        self.network = callable_network(network)
        self.loss_scaling_manager: Any = None if is_array(scale_sense) else _checked_cell(scale_sense)
        self.scale_sense = self._initial_scale(scale_sense)
        self.optimizer = optimizer
        self._optimizer_wrapper = wrap_optimizer(optimizer, self.network)
        self._detector = GradientScan() if detector is None else detector
        self._communicator = communicator
        self._optimizer_numbers = OptimizerNumbers()
        self._agreement: Agreement | None = None  # overflow and norm of the current step, on which the ranks have agreed
        self._max_norm: float | None = None  # global norm at which `MFTrainOneStepCell` clips
        self._micro_batches = 1  # number of calls per step
        self._overflow: Flag = False  # True if an earlier micro-batch of this step overflowed on this rank
        self._is_partial = False  # True during the check of a micro-batch that does not complete a step: ranks exchange no flags
        self.last_step: StepReport | None = None
        self._writes = 0  # number of writes to the network, the optimizer and the scale, to detect interruptions
        self._interrupted: Site | None = None  # call site of a step or load that was interrupted while writing
        check_methods(self._detector, "detector", "start", "observe", "finite")
        check_methods(communicator, "communicator", "mean", "agree", "check_same")

    @guarded_step
    def __call__(self, *inputs: Any) -> Any:
        """Run one step, and return the result of `construct`."""
        return self.construct(*inputs)

    @guarded_step
    def construct(self, *inputs: Any) -> Any:
        """
        Run one training step.

        Args:
            inputs: Passed to the network unchanged; usually arrays of shape (N, ...).

        Returns:
            A `TrainOneStepWithLossScaleOutput`: the loss, the overflow flag, and the scale after the step.

        Raises:
            TypeError: The network returned something other than one array. Nothing was changed.
            TypeError, ValueError: `process_loss_scale` of a subclass returned no bool of shape (). The parameters are unchanged.
            RuntimeError: The previous step was interrupted while writing its results.

        Spec: MINDSPORE-cell-outputs, MINDSPORE-cell-skip.
        """
        loss, status, scaled, scale = self.compute_gradients(*inputs)
        old_scale = scale_snapshot(scale, loss)
        learning_rate = self._learning_rate(loss)
        gradients = self.reduce_gradients(functional.unscale(scaled, scale))
        overflow = self.get_overflow_status(status, gradients)
        apply = self._optimizer_wrapper.prepare(gradients)
        skip = self.process_loss_scale(overflow)
        applied = self._apply_unless(skip, apply)
        output = TrainOneStepWithLossScaleOutput(loss, as_array(overflow, loss), snapshot(self.scale_sense))
        self.last_step = step_report(output, applied, old_scale, learning_rate)
        return output

    def compute_gradients(self, *inputs: Any) -> tuple[Array, Any, Tree, Array]:
        """
        Compute the loss and its gradients, and start the overflow check between the two.

        Args:
            inputs: Passed to the network unchanged.

        Returns:
            The loss; the status object for `get_overflow_status`; scaled gradients in the structure of the parameters; the scale.

        Raises:
            TypeError: The network returned something other than one array.
            ValueError: JAX is tracing the loss, as under jit, where a cell cannot store its state.

        Spec: MINDSPORE-subclasses, MINDSPORE-start-order.
        """
        loss, pullback = self.network.vjp(self.network.params, *inputs)
        check_loss(loss)
        check_not_traced(loss, "a loss", "the training cell")
        status, scale = self.start_overflow_check(loss, self.scale_sense)
        scaled = pullback(seed_like(loss, scale))
        self._detector.observe(status, scaled)
        return loss, status, scaled, scale

    def reduce_gradients(self, gradients: Tree) -> Tree:
        """
        Return the mean of *gradients* over the replicas.

        Args:
            gradients: Unscaled, in the structure of the parameters.

        Spec: MINDSPORE-subclasses.
        """
        self._communicator.check_same(
            scale_sense=self._scale_constants(), max_norm=self._max_norm, gradient_accumulation_steps=self._micro_batches,
            optimizer=self._optimizer_numbers.number(self._communicator, self)[0],
        )  # fmt: skip
        return self._communicator.mean(gradients)

    def apply_gradients(self, gradients: Tree, skip: Flag) -> Flag:
        """
        Apply the optimizer unless *skip* is True; return a bool of shape (), True if the parameters were updated.

        Args:
            gradients: Unscaled, in the structure of the parameters.
            skip: Bool, shape (): result of `process_loss_scale`.

        Raises:
            TypeError: *skip* is not a bool, or a gradient is not an array of a supported dtype. Nothing was changed.
            ValueError: *skip* or a gradient has the wrong shape. Nothing was changed.

        Spec: MINDSPORE-subclasses, MINDSPORE-cell-skip.
        """
        return self._apply_unless(skip, self._optimizer_wrapper.prepare(gradients))

    def start_overflow_check(self, pre_cond: Array, compute_input: Any) -> tuple[Any, Any]:
        """
        Start an overflow check with a cleared status.

        Args:
            pre_cond: Value to compute before the check starts: the loss.
            compute_input: Input of the computation to check: the scale.

        Returns:
            An opaque status object for `get_overflow_status`, and *compute_input* itself.

        Spec: MINDSPORE-start-overflow-check, MINDSPORE-status-token.
        """
        return self._detector.start(pre_cond), compute_input

    def get_overflow_status(self, status: Any, compute_output: Tree) -> Flag:
        """
        Return a bool array of shape (): True if an overflow occurred since the start of the check, on any replica.

        Args:
            status: Status object of `start_overflow_check`. With any other object, only *compute_output* is checked.
            compute_output: Output of the checked computation: the gradients.

        Spec: MINDSPORE-get-overflow-status, MINDSPORE-detectors.
        """
        finite = self._detector.finite(status, compute_output)
        if self._is_partial:
            return as_array(logical_not(finite), self.scale_sense)
        if not isinstance(self._communicator, SingleReplica):
            finite = as_array(finite, self.scale_sense) & logical_not(self._overflow)
            if hasattr(self._optimizer_wrapper, "fits"):  # the wrapper of torch's optimizers, which casts the gradients
                finite = finite & self._optimizer_wrapper.fits(compute_output, self._max_norm)
        agree = self._communicator.agree
        self._agreement = agree(finite, self._compared_numbers(), compute_output, norm=self._max_norm is not None)
        return as_array(logical_not(self._agreement.finite), self.scale_sense)

    def process_loss_scale(self, overflow: Flag) -> Flag:
        """
        Update the scale if there is an update cell, and return True to skip the step.

        Args:
            overflow: Bool, shape (), or Python bool.

        Returns:
            A bool of shape (): the result of the update cell, or *overflow* if there is no cell or arrays are immutable.

        Raises:
            TypeError: *overflow* is not a bool.
            ValueError: *overflow* has the wrong shape.

        Spec: MINDSPORE-process-loss-scale.
        """
        check_flag(overflow, "overflow")
        if self.loss_scaling_manager is None:
            return overflow
        self._writes += 1
        if array_api_compat.is_writeable_array(self.scale_sense):
            return self.loss_scaling_manager(self.scale_sense, overflow)
        self.scale_sense = self.loss_scaling_manager.next_scale(self.scale_sense, overflow)
        return overflow

    def set_sense_scale(self, sens: Array) -> None:
        """
        Set the scale of the next steps.

        Args:
            sens: Array with the shape and dtype of the current scale; positive and finite. It is copied.

        Raises:
            TypeError: *sens* is not an array, or has another dtype, library or device than the current scale.
            ValueError: *sens* has the wrong shape, or is NaN, infinite, zero or negative.

        Spec: MINDSPORE-set-sense-scale, MINDSPORE-set-sense-scale-checked.
        """
        self.scale_sense = self._checked_copy(sens, "sens")

    def state_dict(self) -> dict[str, Any]:
        """
        Return the scale as an array, and the state dict of the update cell.

        The latter is {} if there is no update cell, or if the cell has no method `state_dict`.

        Raises:
            RuntimeError: The last step was interrupted while writing its results.
        """
        check_not_interrupted(self)
        update_cell_state = getattr(self.loss_scaling_manager, "state_dict", dict)
        return {"scale_sense": snapshot(self.scale_sense), "update_cell": update_cell_state()}

    @guarded_load
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """
        Restore the scale and the update cell from the result of `state_dict` of this or another cell.

        Raises:
            TypeError: *state_dict* is not a mapping, or a value has the wrong type. Nothing was changed.
            ValueError: A key is missing or unknown, or a value is out of range. Nothing was changed.
        """
        check_keys(state_dict, ("scale_sense", "update_cell"))
        scale_sense = self._checked_copy(state_dict["scale_sense"], "scale_sense")
        self._writes += 1
        load_update_cell = getattr(self.loss_scaling_manager, "load_state_dict", None)
        if load_update_cell is not None:
            load_update_cell(state_dict["update_cell"])
        elif not is_empty(state_dict["update_cell"]):
            raise ValueError(
                "update_cell must be empty, because this cell has no update cell that can load it, got "
                f"{excerpt(state_dict['update_cell'])}; create the cell with an update cell as scale_sense"
            )
        self.scale_sense = scale_sense

    def _apply_unless(self, skip: Flag, apply: Callable[[Flag], Flag]) -> Flag:
        check_flag(skip, "skip")
        self._writes += 1
        return apply(logical_not(skip))

    def _learning_rate(self, like: Array) -> Array | None:
        """Return the learning rate of the next step as an array; None if the optimizer does not report it."""
        rate = self._optimizer_wrapper.learning_rate
        if isinstance(rate, int | float):
            return scalar_like(rate, like, array_api_compat.array_namespace(like).float32)
        return snapshot(rate) if is_array(rate) else None

    def _compared_numbers(self) -> dict[str, Any]:
        """Return the numbers that must be equal on all ranks: the scale, and the counts of a dynamic update cell."""
        numbers = {"scale": self.scale_sense}
        if isinstance(self.loss_scaling_manager, DynamicLossScaleUpdateCell):
            numbers["calls"], numbers["good_steps"] = self.loss_scaling_manager._counts
        return numbers

    def _scale_constants(self) -> Any:
        """Return the rule of a dynamic update cell, the class name of another one, or "array": all ranks must have the same."""
        if self.loss_scaling_manager is None:
            return "array"
        return getattr(self.loss_scaling_manager, "_rule", type(self.loss_scaling_manager).__name__)

    def _initial_scale(self, scale_sense: Any) -> Array:
        """Return a copy of the array *scale_sense*, or the initial scale of the update cell as an array."""
        like = next(iter(leaves(self.network.params)), None)
        if self.loss_scaling_manager is None:
            scale_as_float(scale_sense, "scale_sense")  # checks the value
            check_one_library(params=like, scale_sense=scale_sense)
            return snapshot(scale_sense)
        number = scale_as_float(self.loss_scaling_manager.get_loss_scale(), "scale_sense.get_loss_scale()")
        scale = presets.static(number).init(like=like).scale
        if not array_api_compat.is_writeable_array(scale):
            check_methods(self.loss_scaling_manager, "scale_sense, for a network with immutable arrays,", "next_scale")
        return scale

    def _checked_copy(self, scale: Array, name: str) -> Array:
        """Return a copy of *scale* after checking that it can replace the current scale. Error messages call it *name*."""
        check_scale_array(scale, name)
        check_one_library(current_scale=self.scale_sense, **{name: scale})
        if tuple(scale.shape) != tuple(self.scale_sense.shape):
            raise ValueError(f"{name} must have shape {tuple(self.scale_sense.shape)}, got {tuple(scale.shape)}")
        if scale.dtype != self.scale_sense.dtype:
            raise TypeError(f"{name} must be {self.scale_sense.dtype}, got {scale.dtype}")
        scale_as_float(scale, name)  # checks the value
        return snapshot(scale)


def step_report(
    output: Any, applied: Flag, scale: Array, rate: Array | None, norm: Array | None = None, *, accumulated: bool = False
) -> StepReport:
    """Return the report of a step. *output* starts with the loss, the overflow flag and the next scale."""
    loss, overflow, next_scale = output[:3]
    xp = array_api_compat.array_namespace(loss)
    applied = as_array(applied, loss)
    status = xp.astype(~applied, xp.int32)  # APPLIED, which is 0, or OVERFLOW, which is 1
    if accumulated:
        status = xp.full_like(status, StepStatus.ACCUMULATED.value)
    return StepReport(loss, ~overflow, applied, scale, next_scale, rate, norm, status)


def _checked_cell(scale_sense: Any) -> UpdateCell:
    """Return *scale_sense* if it is an update cell; otherwise raise a TypeError."""
    if isinstance(scale_sense, UpdateCell):
        return scale_sense
    expected_array = "an array of shape () or (1,), such as np.float32(1024)"
    expected = f"{expected_array}, or a callable update cell with get_loss_scale(), such as manager.get_update_cell()"
    raise TypeError(f"scale_sense must be {expected}, got {excerpt(scale_sense, 200)} of type {type(scale_sense).__name__}")
