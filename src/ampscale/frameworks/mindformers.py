"""
MindFormers' `MFTrainOneStepCell`.

Spec: spec/profiles/mindformers.md.
"""

from collections.abc import Mapping
from functools import partial
from inspect import signature
from typing import Any, NamedTuple

from .. import functional
from ..backends import get_backend
from ..core.namespaces import as_array, device_of, namespace_of, quiet
from ..core.norms import sizes
from ..core.replicas import SINGLE_REPLICA, Communicator
from ..core.scaling import scalar_like, widened
from ..core.step import clip_gradients
from ..core.trees import map_leaves, select
from ..core.typing import Array, Flag, Tree
from ..core.validation import check_bool, check_count, check_number, check_positive, check_scale_number
from ..parsing import excerpt
from ._arrays import logical_not, logical_or, scale_snapshot, snapshot
from ._validation import callable_network, check_keys, check_matches_params
from .mindspore import TrainOneStepWithLossScaleCell
from .mindspore.detectors import OverflowDetector
from .mindspore.interruption import guarded_load, guarded_step
from .mindspore.train_one_step import step_report

__all__ = ["MFTrainOneStepCell", "MFTrainOneStepLocalOutput", "MFTrainOneStepOutput"]


class MFTrainOneStepOutput(NamedTuple):
    """The five documented outputs of a step."""

    loss: Array  # unscaled loss before the parameter update
    overflow: Flag  # bool, shape (): True if the step was skipped
    loss_scale: Array  # shape () or (1,): copy of the scale of the next step
    learning_rate: Array | None  # shape (): learning rate of this step; None if the optimizer does not report it
    global_norm: Array | None  # shape (): global norm before clipping; None without `use_clip_grad`


class MFTrainOneStepLocalOutput(NamedTuple):
    """The seven documented outputs of a step with `local_norm`."""

    loss: Array
    overflow: Flag
    loss_scale: Array
    learning_rate: Array | None
    global_norm: Array | None
    local_norm: Array  # shape (number of gradients,): norm of each gradient before reduction and clipping
    size: Array  # int64, shape (number of gradients,): number of elements of each gradient


class MFTrainOneStepCell(TrainOneStepWithLossScaleCell):
    """
    MindFormers' `mindformers.wrapper.MFTrainOneStepCell`: MindSpore's training step with clipping, gradient accumulation and EMA.

    Works on parameters and inputs of all supported libraries. Each call runs one micro-batch, and `gradient_accumulation_steps`
    calls are one step. Gradients are averaged over these calls in at least float32, an overflow in any of them skips the step,
    and the scale is updated once per step. Calls before the last return the overflow flag of their own micro-batch on this rank,
    and no global norm; with a communicator, ranks exchange gradients and flags once per step, in the last call.

    Args:
        network: See `TrainOneStepWithLossScaleCell`.
        optimizer: See `TrainOneStepWithLossScaleCell`. It receives 16-bit gradients as float32; a `torch.optim.Optimizer`
            receives all gradients in the dtypes of its parameters.
        use_clip_grad: If True, clip the gradients by their global norm.
        max_grad_norm: Largest global norm; positive and finite, even if *use_clip_grad* is False.
        scale_sense: Python number, or array or update cell as for `TrainOneStepWithLossScaleCell`.
        local_norm: If True, also return the norm and the size of each gradient.
        gradient_accumulation_steps: Number of calls per step.
        ema_decay: Decay of an exponential moving average of the parameters, in (0, 1), or None for no average. The average is
            stored in `ema_params` with at least float32 precision, and updated at applied steps only.
        detector: See `TrainOneStepWithLossScaleCell`.
        communicator: See `TrainOneStepWithLossScaleCell`.
        kwargs: Not supported; any other keyword raises a TypeError.

    Raises:
        TypeError: *scale_sense* is not a number, array or update cell, a keyword is unknown, or an argument has the wrong type.
        ValueError: *scale_sense* has a shape other than () or (1,), or an argument is out of range.

    Spec: MINDFORMERS-outputs, MINDFORMERS-clip, MINDFORMERS-accumulation, MINDFORMERS-ema.

    >>> network = ampscale.Network(lambda w, x: anp.sum(w * x), np.float32([1.0, 2.0]))
    >>> optimizer = ampscale.optimizers.SGD(network, 0.5)
    >>> train = MFTrainOneStepCell(network, optimizer, use_clip_grad=True, max_grad_norm=1.0, scale_sense=1024.0)
    >>> loss, overflow, loss_scale, learning_rate, global_norm = train(np.float32([3.0, 4.0]))
    >>> bool(overflow), float(global_norm), np.round(network.params, 3)
    (False, 5.0, array([0.7, 1.6], dtype=float32))
    """

    def __init__(
        self,
        network: Any,
        optimizer: Any,
        use_clip_grad: bool = False,
        max_grad_norm: float = 1.0,
        scale_sense: Any = 1.0,
        local_norm: bool = False,
        *,
        gradient_accumulation_steps: int = 1,
        ema_decay: float | None = None,
        detector: OverflowDetector | None = None,
        communicator: Communicator = SINGLE_REPLICA,
        **kwargs: Any,
    ) -> None:
        if kwargs:
            known = list(signature(MFTrainOneStepCell).parameters)[2:-1]  # without network, optimizer and kwargs
            raise TypeError(f"keywords must be among {known}, got {excerpt(sorted(kwargs))}")
        check_bool(use_clip_grad, "use_clip_grad")
        check_bool(local_norm, "local_norm")
        check_positive(max_grad_norm, "max_grad_norm")
        check_count(gradient_accumulation_steps, "gradient_accumulation_steps")
        if ema_decay is not None:
            check_number(ema_decay, "ema_decay", "a number above 0 and below 1", 0, 1 - 2**-53, above=True)
        network = callable_network(network)
        super().__init__(network, optimizer, _scale_array(scale_sense, network), detector=detector, communicator=communicator)
        self._max_norm = max_grad_norm if use_clip_grad else None
        self._local_norm = local_norm
        self._micro_batches = gradient_accumulation_steps
        self._accumulated: Tree = None  # sum of the gradients of this step's calls, float32 or float64
        self._calls = 0
        self._ema_decay = ema_decay
        self.ema_params: Tree = None if ema_decay is None else map_leaves(_wide_copy, self.network.params)

    @guarded_step
    def construct(self, *inputs: Any) -> Any:
        """
        Run one step, or one micro-batch of it.

        Args:
            inputs: Passed to the network unchanged; usually arrays of shape (N, ...).

        Returns:
            A `MFTrainOneStepOutput` of five values, or with `local_norm` a `MFTrainOneStepLocalOutput` of seven. If the call
            does not complete a step, the `status` of `last_step` is `StepStatus.ACCUMULATED`.

        Raises:
            TypeError: The network returned something other than one array. Nothing was changed.
            RuntimeError: The previous step was interrupted while writing its results.

        Spec: MINDFORMERS-outputs, MINDFORMERS-accumulation.
        """
        loss, status, scaled, scale = self.compute_gradients(*inputs)
        gradients = functional.unscale(scaled, scale, dtype="float32")
        old_scale = scale_snapshot(scale, loss)
        learning_rate = self._learning_rate(loss)
        if self._calls + 1 < self._micro_batches:
            return self._accumulate(loss, self._local_overflow(status, gradients), gradients, old_scale, learning_rate)

        local_mean = functional.unscale(self._sum_with(gradients), self._micro_batches) if self._calls else gradients
        gradients = self.reduce_gradients(local_mean)
        overflow = logical_or(self._overflow, self.get_overflow_status(status, gradients))
        gradients, norm = self._clipped(gradients)
        apply = self._optimizer_wrapper.prepare(gradients)
        local_outputs = self._local_outputs(local_mean, loss)
        skip = self.process_loss_scale(overflow)
        self._writes += 1
        applied = apply(logical_not(skip))
        self._update_average(skip)
        output = self._output(loss, skip, learning_rate, norm, local_outputs)
        report = step_report(output, applied, old_scale, learning_rate, output.global_norm)
        self._accumulated, self._overflow, self._calls, self.last_step = None, False, 0, report
        return output

    def state_dict(self) -> dict[str, Any]:
        """Return the base class's state; the gradients, flag and call count of an incomplete step; and the moving average."""
        return {
            **super().state_dict(),
            "accumulated": map_leaves(snapshot, self._accumulated),
            "overflow": bool(self._overflow),
            "calls": self._calls,
            "ema_params": map_leaves(snapshot, self.ema_params),
        }

    @guarded_load
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """
        Restore the state that `state_dict` of this or another cell returned.

        Raises:
            TypeError: *state_dict* is not a mapping, or a value has the wrong type. Nothing was changed.
            ValueError: A key is missing or unknown, or a value is out of range. Nothing was changed.
        """
        check_keys(state_dict, ("scale_sense", "update_cell", "accumulated", "overflow", "calls", "ema_params"))
        check_bool(state_dict["overflow"], "overflow")
        check_count(state_dict["calls"], "calls", low=0)
        if state_dict["calls"] >= self._micro_batches:
            raise ValueError(f"calls must be below gradient_accumulation_steps={self._micro_batches}, got {state_dict['calls']}")
        if state_dict["overflow"] and not state_dict["calls"]:
            raise ValueError("overflow must be False with calls=0, got True")
        accumulated = self._checked_tree_copy(state_dict, "accumulated", "calls", state_dict["calls"])
        ema_params = self._checked_tree_copy(state_dict, "ema_params", "ema_decay", self._ema_decay)
        super().load_state_dict({key: state_dict[key] for key in ("scale_sense", "update_cell")})
        self._accumulated, self._overflow, self._calls = accumulated, state_dict["overflow"], state_dict["calls"]
        self.ema_params = ema_params

    def _checked_tree_copy(self, state_dict: Mapping[str, Any], key: str, setting: str, value: float | None) -> Tree:
        """Return a copy of the arrays under *key*, which must match the parameters, or be None if *value* is 0 or None."""
        tree = state_dict[key]
        if value and tree is None:
            raise ValueError(f"{key} must not be None with {setting}={value}, got None")
        if not value and tree is not None:
            raise ValueError(f"{key} must be None with {setting}={value}, got {type(tree).__name__}")
        check_matches_params(tree, self.network.params, key)
        return map_leaves(snapshot, tree)

    def _local_overflow(self, status: Any, gradients: Tree) -> Flag:
        """Return the overflow flag of a micro-batch on this rank; ranks combine their flags in the last call of the step."""
        self._is_partial = True
        try:
            return self.get_overflow_status(status, gradients)
        finally:
            self._is_partial = False

    def _sum_with(self, gradients: Tree) -> Tree:
        """Return the sum of *gradients* and the accumulated ones; a gradient that is None counts as zero."""
        with quiet(namespace_of(gradients)):
            return map_leaves(_sum, self.network.params, self._accumulated, gradients)

    def _clipped(self, gradients: Tree) -> tuple[Tree, Array | None]:
        """Return *gradients* clipped by their global norm, and this norm; or *gradients* and None without `use_clip_grad`."""
        if self._max_norm is None:
            return gradients, None
        agreed_norm = None if self._agreement is None else self._agreement.norm
        return clip_gradients(gradients, self._max_norm, agreed_norm, get_backend(gradients))

    def _accumulate(self, loss: Array, overflow: Flag, gradients: Tree, scale: Array, rate: Array | None) -> Any:
        """Add the gradients of a call that does not complete a step to the accumulated ones, and return the call's outputs."""
        total = self._sum_with(gradients)
        any_overflow = logical_or(self._overflow, overflow)
        output = self._output(loss, overflow, rate, None, self._local_outputs(gradients, loss))
        report = step_report(output, False, scale, rate, accumulated=True)
        self._writes += 1
        self._accumulated, self._overflow, self._calls, self.last_step = total, any_overflow, self._calls + 1, report
        return output

    def _update_average(self, skip: Flag) -> None:
        """Update the moving average of the parameters, if there is one, unless *skip* is True."""
        if self._ema_decay is None:
            return
        params = map_leaves(_wide_copy, self.network.params)
        with quiet(namespace_of(params)):
            average = map_leaves(partial(_averaged, decay=self._ema_decay), self.ema_params, params)
        self.ema_params = select(logical_not(skip), average, self.ema_params)

    def _local_outputs(self, gradients: Tree, like: Array) -> tuple[Array, ...]:
        """Return the norms and sizes of *gradients*; an empty tuple without `local_norm`."""
        if not self._local_norm:
            return ()
        return as_array(functional.local_norms(gradients), like), as_array(sizes(gradients), like)

    def _output(
        self, loss: Array, overflow: Flag, rate: Array | None, norm: Array | None, local_outputs: tuple[Array, ...]
    ) -> Any:
        norm = None if norm is None else as_array(norm, loss)  # without gradients, the norm is in the default library
        output = MFTrainOneStepOutput(loss, as_array(overflow, loss), snapshot(self.scale_sense), rate, norm)
        return MFTrainOneStepLocalOutput(*output, *local_outputs) if local_outputs else output


def _scale_array(scale_sense: Any, network: Any) -> Any:
    """Return a number as a float32 array in the library of the parameters; return an array or update cell unchanged."""
    if isinstance(scale_sense, bool) or not isinstance(scale_sense, int | float):
        return scale_sense
    check_scale_number(scale_sense, "scale_sense")
    xp = namespace_of(network.params)
    return xp.asarray(scale_sense, dtype=xp.float32, device=device_of(network.params))


def _sum(_param: Array, total: Array | None, new: Array | None) -> Array | None:
    """Return the sum of two gradients of a parameter, either of which may be None."""
    if total is None:
        return new
    return total if new is None else total + new


def _averaged(average: Array, param: Array, decay: float) -> Array:
    """Return the next moving average of a parameter; *average* and *param* have the same dtype."""
    old_weight, new_weight = (scalar_like(weight, average, average.dtype) for weight in (decay, 1 - decay))
    return old_weight * average + new_weight * param


def _wide_copy(array: Array) -> Array:
    """Return a copy of *array* in at least float32."""
    return snapshot(widened(array))
