"""
`mindspore.nn`: the step cell.

Spec: MINDSPORE-cell-*.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import array_api_compat

from ... import functional, presets
from ...core.replicas import SINGLE_REPLICA, Communicator
from ...core.scaling import scalar_like
from ...core.step import StepReport, StepStatus, seed_like
from ...core.trees import leaves
from ...core.typing import Array, Flag, Tree
from ...core.validation import check_flag, check_loss, check_methods, check_scale_array, check_scale_host
from ...parsing import excerpt
from .._arrays import as_array, copied, negated, snapshot
from .._validation import check_keys, is_empty, network_of, number_of
from .apply_optimizer import applier_of
from .detectors import GradientScan, OverflowDetector
from .interruption import check_whole, load, step
from .update_cells import UpdateCell


class TrainOneStepWithLossScaleOutput(NamedTuple):
    """The documented three outputs."""

    loss: Array  # as the network returned it: unscaled, of the parameters before the step
    overflow: Flag  # bool, shape (): what the check saw
    loss_scale: Array  # shape () or (1,): the scale of the next step, a snapshot


class TrainOneStepWithLossScaleCell:
    """
    One training step with loss scaling, made for heirs.

    Args:
        network: A `Network`, a `torch.nn.Module` or any callable with `params` and ``vjp(params, *inputs)``, that returns
            one loss.
        optimizer: One of `ampscale.optimizers` or an optax transformation, which are never looked at on the host; or
            a `torch.optim.Optimizer` or any callable ``optimizer(gradients)``, which cost one look a step and are not
            called on an overflow; a fused `torch.optim` one is told by the flag, and costs none.
        scale_sense: The scale, as a float32 or float64 array of shape () or (1,), which stays until
            `set_sense_scale`; or an update cell, which moves it: an object with ``get_loss_scale()`` that is called
            with the scale and the overflow, writes the next scale into the array, and returns whether to skip. Where
            arrays cannot be written to, as JAX's, its ``next_scale(loss_scale, overflow)`` is called instead.
        detector: What finds an overflow; by default a scan of the gradients.
        communicator: How to agree with the other replicas.

    A step calls `start_overflow_check` after the loss, then `get_overflow_status` and `process_loss_scale` after the
    gradients; a subclass that overrides one of them takes part in every step. The optimizer is skipped where
    `process_loss_scale` returns True. `last_step` is the `StepReport` of the last call, None before the first.

    A subclass may write its own `construct` from these three, `compute_gradients`, `reduce_gradients` and `apply_gradients`:

    >>> class Halved(TrainOneStepWithLossScaleCell):
    ...     def construct(self, *inputs):
    ...         loss, status, scaled, scale = self.compute_gradients(*inputs)
    ...         gradients = self.reduce_gradients(functional.unscale(scaled, scale))
    ...         overflow = self.get_overflow_status(status, gradients)
    ...         skip = self.process_loss_scale(overflow)
    ...         self.apply_gradients([gradient / 2 for gradient in gradients], skip)
    ...         return loss, overflow
    >>> from ampscale import Network, optimizers
    >>> import numpy as np
    >>> product = Network(lambda p, x: p[0] * x, [np.float32(3)], vjp=lambda p, x: (p[0] * x, lambda seed: [x * seed]))
    >>> cell = Halved(product, optimizers.SGD(product, 0.5), np.float32(1024))
    >>> cell(np.float32(2))
    (np.float32(6.0), array(False))
    >>> product.params
    [array(2.5, dtype=float32)]

    An error before the first write leaves everything as it was. After a later one, from an optimizer that raises for
    instance, steps are RuntimeErrors until `load_state_dict` has succeeded.

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
        detector: OverflowDetector | None = None,
        communicator: Communicator = SINGLE_REPLICA,
    ) -> None:
        self.network = network_of(network)
        self.loss_scaling_manager: Any = None if array_api_compat.is_array_api_obj(scale_sense) else _update_cell(scale_sense)
        self.scale_sense = self._first_scale(scale_sense)
        self.optimizer = optimizer
        self._applier = applier_of(optimizer, self.network)
        self._detector = GradientScan() if detector is None else detector
        self._communicator = communicator
        self.last_step: StepReport | None = None
        self._writes = 0
        self._interrupted = False
        check_methods(self._detector, "detector", "start", "observe", "finite")
        check_methods(communicator, "communicator", "mean", "all_finite")

    @step
    def __call__(self, *inputs: Any) -> Any:
        """One step; what `construct` returns."""
        return self.construct(*inputs)

    @step
    def construct(self, *inputs: Any) -> Any:
        """
        One step.

        Args:
            inputs: Handed to the network as they are; usually arrays of shape (N, ...).

        Returns:
            A `TrainOneStepWithLossScaleOutput`: loss, overflow, and the scale after the step.

        Raises:
            TypeError: The network returned something else than one array. Nothing has changed then.
            RuntimeError: The step before was interrupted while it wrote.
        """
        loss, status, scaled, sense = self.compute_gradients(*inputs)
        scale, rate = copied(sense, loss), self._learning_rate(loss)
        gradients = self.reduce_gradients(functional.unscale(scaled, sense))
        overflow = self.get_overflow_status(status, gradients)
        apply = self._applier.prepare(gradients)
        skip = self.process_loss_scale(overflow)
        self._writes += 1
        applied = apply(negated(skip))
        output = TrainOneStepWithLossScaleOutput(loss, as_array(overflow, loss), snapshot(self.scale_sense))
        self.last_step = report(output, applied, scale, rate)
        return output

    def compute_gradients(self, *inputs: Any) -> tuple[Array, Any, Tree, Array]:
        """
        Compute the loss and its gradients, and start the overflow check between the two.

        Returns:
            The loss; the status object of the check; the gradients times the scale; and the scale.

        Raises:
            TypeError: The network returned something else than one array.
        """
        loss, pullback = self.network.vjp(self.network.params, *inputs)
        check_loss(loss)
        status, sense = self.start_overflow_check(loss, self.scale_sense)
        scaled = pullback(seed_like(loss, sense))
        self._detector.observe(status, scaled)
        return loss, status, scaled, sense

    def reduce_gradients(self, gradients: Tree) -> Tree:
        """Return the mean of *gradients* over the replicas."""
        return self._communicator.mean(gradients)

    def apply_gradients(self, gradients: Tree, skip: Flag) -> Flag:
        """
        Apply the optimizer unless *skip* is True.

        Args:
            gradients: Unscaled, in the structure of the parameters.
            skip: Bool, shape (): what `process_loss_scale` returned.

        Returns:
            Bool, shape (): whether the parameters were updated.
        """
        apply = self._applier.prepare(gradients)
        self._writes += 1
        return apply(negated(skip))

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
        return as_array(~finite, self.scale_sense)

    def process_loss_scale(self, overflow: Flag) -> Flag:
        """
        Moves the scale where an update cell was given; returns whether the step is to be skipped: *overflow*.

        Args:
            overflow: Bool, shape ().

        Raises:
            TypeError, ValueError: *overflow* is no bool of shape ().
        """
        check_flag(overflow, "overflow")
        if self.loss_scaling_manager is None:
            return overflow
        self._writes += 1
        if array_api_compat.is_writeable_array(self.scale_sense):
            skip: Flag = self.loss_scaling_manager(self.scale_sense, overflow)
            return skip
        self.scale_sense = self.loss_scaling_manager.next_scale(self.scale_sense, overflow)
        return overflow

    def set_sense_scale(self, sens: Array) -> None:
        """
        Sets the scale.

        Args:
            sens: An array of the shape and dtype of the present scale; copied.

        Raises:
            TypeError: *sens* is no array, or of another dtype.
            ValueError: It has another shape, or is NaN, infinite, zero or negative.
        """
        self.scale_sense = self._checked(sens)

    def state_dict(self) -> dict[str, Any]:
        """The scale, as an array, and the state of the update cell; empty where it gives none."""
        check_whole(self)
        of_cell = getattr(self.loss_scaling_manager, "state_dict", dict)
        return {"scale_sense": snapshot(self.scale_sense), "update_cell": of_cell()}

    @load
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """
        Goes on with the scale where another cell was when it gave *state_dict*.

        Raises:
            TypeError, ValueError: A key is missing or unknown, or a value is wrong. Nothing has changed then.
        """
        check_keys(state_dict, ("scale_sense", "update_cell"))
        scale_sense = self._checked(state_dict["scale_sense"])
        self._writes += 1
        self._load_update_cell(state_dict["update_cell"])
        self.scale_sense = scale_sense

    def _learning_rate(self, like: Array) -> Array | None:
        rate = self._applier.learning_rate
        if isinstance(rate, int | float):
            return scalar_like(rate, like, array_api_compat.array_namespace(like).float32)
        return snapshot(rate) if array_api_compat.is_array_api_obj(rate) else None

    def _first_scale(self, scale_sense: Any) -> Array:
        if self.loss_scaling_manager is None:
            check_scale_host(scale_sense, "scale_sense")
            return snapshot(scale_sense)
        value = self.loss_scaling_manager.get_loss_scale()
        number = number_of(value, "scale_sense.get_loss_scale()")
        scale = presets.static(number).init(like=next(iter(leaves(self.network.params)), None)).scale
        if not array_api_compat.is_writeable_array(scale):
            check_methods(self.loss_scaling_manager, "scale_sense, for arrays that cannot be written to,", "next_scale")
        return scale

    def _checked(self, sens: Array) -> Array:
        check_scale_array(sens, "sens")
        if tuple(sens.shape) != tuple(self.scale_sense.shape):
            raise ValueError(f"sens must have shape {tuple(self.scale_sense.shape)}, got {tuple(sens.shape)}")
        if sens.dtype != self.scale_sense.dtype:
            raise TypeError(f"sens must be {self.scale_sense.dtype}, got {sens.dtype}")
        check_scale_host(sens, "sens")
        return snapshot(sens)

    def _load_update_cell(self, state_dict: Any) -> None:
        load = getattr(self.loss_scaling_manager, "load_state_dict", None)
        if load is not None:
            load(state_dict)
        elif not is_empty(state_dict):
            raise ValueError(f"update_cell must be empty for this scale_sense, got {excerpt(state_dict)}")


def _update_cell(scale_sense: Any) -> UpdateCell:
    if isinstance(scale_sense, UpdateCell):
        return scale_sense
    wanted = "an array of shape () or (1,), or an update cell with get_loss_scale() that can be called"
    raise TypeError(f"scale_sense must be {wanted}, got {excerpt(scale_sense, 200)} of type {type(scale_sense).__name__}")


def report(
    output: Any, applied: Flag, scale: Array, rate: Array | None, norm: Array | None = None, *, accumulated: bool = False
) -> StepReport:
    """
    Return the report of a step that returned *output*.

    Args:
        output: Begins with the loss, the overflow, as an array beside it, and the scale after the step.
        applied: Bool, shape (): whether the parameters were updated.
        scale: Shape () or (1,): the scale of the step.
        rate: Shape (): the learning rate; None if the optimizer does not report it.
        norm: Shape (): the global norm before clipping; None if nothing was clipped.
        accumulated: True for a micro-batch that does not complete a step.
    """
    loss, overflow, next_scale = output[:3]
    xp = array_api_compat.array_namespace(loss)
    applied = as_array(applied, loss)
    status = xp.full_like(overflow, StepStatus.ACCUMULATED, dtype=xp.int32) if accumulated else xp.astype(~applied, xp.int32)
    return StepReport(loss, ~overflow, applied, scale, next_scale, rate, norm, status)
