"""
MindFormers' `MFTrainOneStepCell`.

Spec: spec/profiles/mindformers.md.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from .. import functional
from ..core.dtypes import compute_dtype, name_of
from ..core.namespaces import device_of, namespace_of, quiet
from ..core.norms import sizes
from ..core.replicas import SINGLE_REPLICA, Communicator
from ..core.scaling import in_dtype, scalar_like
from ..core.trees import map_leaves, select
from ..core.typing import Array, Flag, Tree
from ..core.validation import check_bool, check_count, check_number, check_scale_number
from ._arrays import as_array, copied, either, negated, snapshot
from ._validation import check_keys, check_wide_like, network_of
from .mindspore import TrainOneStepWithLossScaleCell
from .mindspore.detectors import OverflowDetector
from .mindspore.interruption import load, step
from .mindspore.train_one_step import report

KEYWORDS = (
    "use_clip_grad",
    "max_grad_norm",
    "scale_sense",
    "local_norm",
    "gradient_accumulation_steps",
    "ema_decay",
    "detector",
    "communicator",
)


class MFTrainOneStepOutput(NamedTuple):
    """The documented five outputs."""

    loss: Array  # as the network returned it: unscaled, of the parameters before the step
    overflow: Flag  # bool, shape (): whether the step was skipped
    loss_scale: Array  # shape () or (1,): the scale of the next step, a snapshot
    learning_rate: Array | None  # shape (): the rate of this step; None where the optimizer tells no number
    global_norm: Array | None  # shape (): before clipping; None unless `use_clip_grad`


class MFTrainOneStepLocalOutput(NamedTuple):
    """The documented seven outputs, with `local_norm`."""

    loss: Array
    overflow: Flag
    loss_scale: Array
    learning_rate: Array | None
    global_norm: Array | None
    local_norm: Array  # shape (number of gradients,): the norm of each, before reduction and clipping
    size: Array  # int64, shape (number of gradients,): the number of values in each


class MFTrainOneStepCell(TrainOneStepWithLossScaleCell):
    """
    One training step with loss scaling, clipping, accumulation of gradients, and a moving average of the parameters.

    Args:
        network: As for `TrainOneStepWithLossScaleCell`.
        optimizer: As for `TrainOneStepWithLossScaleCell`; 16-bit gradients reach it as float32, a `torch.optim.Optimizer`
            in the parameter's dtype.
        use_clip_grad: Whether to clip by the global norm.
        max_grad_norm: The largest global norm; positive and finite, also where it is not used.
        scale_sense: A Python number, or as for `TrainOneStepWithLossScaleCell`.
        local_norm: Whether to return the norm and the size of each gradient.
        gradient_accumulation_steps: Calls that make one step. Each call is a micro-batch; their gradients are averaged
            in float32, an overflow in any of them skips the whole step, and the scale moves once a step. The calls
            before the last report the micro-batch's own overflow, and no global norm.
        ema_decay: Keep a moving average of the parameters in float32, in `ema_params`; in (0, 1). It moves on applied
            steps only.
        detector: As for `TrainOneStepWithLossScaleCell`.
        communicator: As for `TrainOneStepWithLossScaleCell`.
        kwargs: None is known.

    Raises:
        TypeError: *scale_sense* is no number, array or update cell, a keyword is unknown, or another argument is of
            the wrong type.
        ValueError: The shape of *scale_sense* is neither () nor (1,), or an argument is out of range.

    Spec: MINDFORMERS-outputs, MINDFORMERS-clip, MINDFORMERS-accumulation, MINDFORMERS-ema.
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
            raise TypeError(f"unknown keywords {sorted(kwargs)}; known are {list(KEYWORDS)}")
        check_bool(use_clip_grad, "use_clip_grad")
        check_bool(local_norm, "local_norm")
        check_number(max_grad_norm, "max_grad_norm", "a positive, finite number", 0, above=True)
        check_count(gradient_accumulation_steps, "gradient_accumulation_steps")
        if ema_decay is not None:
            check_number(ema_decay, "ema_decay", "a number above 0 and below 1", 0, 1 - 2**-53, above=True)
        network = network_of(network)
        super().__init__(network, optimizer, _as_array(scale_sense, network), detector=detector, communicator=communicator)
        self._max_norm = max_grad_norm if use_clip_grad else None
        self._local_norm = local_norm
        self._micro_batches = gradient_accumulation_steps
        self._accumulated: Tree = None  # float32 or float64: the sum of the gradients of the step's calls so far
        self._overflow: Flag = False  # bool, shape (): whether one of them overflowed
        self._calls = 0
        self._ema_decay = ema_decay
        self.ema_params: Tree = None if ema_decay is None else map_leaves(_wide_copy, self.network.params)

    @step
    def construct(self, *inputs: Any) -> Any:
        """
        One step, or one micro-batch of it.

        Returns:
            A `MFTrainOneStepOutput`, five outputs; with `local_norm` a `MFTrainOneStepLocalOutput`, seven. The `status` of
            `last_step` is `StepStatus.ACCUMULATED` for a micro-batch that does not complete a step, so that a schedule can wait.

        Raises:
            TypeError: The network returned something else than one array. Nothing has changed then.
            RuntimeError: The step before was interrupted while it wrote.
        """
        loss, status, scaled, sense = self.compute_gradients(*inputs)
        gradients = functional.unscale(scaled, sense, dtype="float32")
        scale, rate = copied(sense, loss), self._learning_rate(loss)
        if self._calls + 1 < self._micro_batches:
            return self._accumulate(loss, self.get_overflow_status(status, gradients), gradients, scale, rate)

        local = functional.unscale(self._summed(gradients), self._micro_batches) if self._calls else gradients
        gradients = self.reduce_gradients(local)
        overflow = either(self._overflow, self.get_overflow_status(status, gradients))
        norm = None
        if self._max_norm is not None:
            gradients, norm = functional.clip_by_global_norm(gradients, self._max_norm)
        apply, locals_of = self._applier.prepare(gradients), self._locals(local, loss)
        skip = self.process_loss_scale(overflow)
        self._writes += 1
        applied = apply(negated(skip))
        self._average(skip)
        output = self._output(loss, skip, rate, norm, locals_of)
        last = report(output, applied, scale, rate, output.global_norm)
        self._accumulated, self._overflow, self._calls, self.last_step = None, False, 0, last
        return output

    def state_dict(self) -> dict[str, Any]:
        """The scale, the update cell, the micro-batches of an incomplete step, and the moving average."""
        return {
            **super().state_dict(),
            "accumulated": map_leaves(snapshot, self._accumulated),
            "overflow": bool(self._overflow),
            "calls": self._calls,
            "ema_params": map_leaves(snapshot, self.ema_params),
        }

    @load
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """
        Goes on where another cell was when it gave *state_dict*.

        Raises:
            TypeError, ValueError: A key is missing or unknown, or a value is wrong. Nothing has changed then.
        """
        check_keys(state_dict, ("scale_sense", "update_cell", "accumulated", "overflow", "calls", "ema_params"))
        check_bool(state_dict["overflow"], "overflow")
        check_count(state_dict["calls"], "calls", low=0)
        if state_dict["calls"] >= self._micro_batches:
            raise ValueError(f"calls must be below gradient_accumulation_steps {self._micro_batches}, got {state_dict['calls']}")
        if state_dict["overflow"] and not state_dict["calls"]:
            raise ValueError("overflow must be False where calls is 0: there has been no call to overflow")
        for key, wanted in (("accumulated", state_dict["calls"] > 0), ("ema_params", self._ema_decay is not None)):
            if (state_dict[key] is not None) != wanted:
                raise ValueError(f"{key} must {'not ' if wanted else ''}be None here, got {type(state_dict[key]).__name__}")
            check_wide_like(state_dict[key], self.network.params, key)
        accumulated, averaged = (map_leaves(snapshot, state_dict[key]) for key in ("accumulated", "ema_params"))
        super().load_state_dict({key: state_dict[key] for key in ("scale_sense", "update_cell")})
        self._accumulated, self._overflow, self._calls = accumulated, state_dict["overflow"], state_dict["calls"]
        self.ema_params = averaged

    def _summed(self, gradients: Tree) -> Tree:
        with quiet(namespace_of(gradients)):
            return map_leaves(_sum, self.network.params, self._accumulated, gradients)

    def _accumulate(self, loss: Array, overflow: Flag, gradients: Tree, scale: Array, rate: Array | None) -> Any:
        total, either_overflow = self._summed(gradients), either(self._overflow, overflow)
        output = self._output(loss, overflow, rate, None, self._locals(gradients, loss))
        last = report(output, False, scale, rate, accumulated=True)
        self._writes += 1
        self._accumulated, self._overflow, self._calls, self.last_step = total, either_overflow, self._calls + 1, last
        return output

    def _average(self, skip: Flag) -> None:
        if self._ema_decay is None:
            return
        params = map_leaves(_wide_copy, self.network.params)
        averaged = map_leaves(partial(_averaged, decay=self._ema_decay), self.ema_params, params)
        self.ema_params = select(negated(skip), averaged, self.ema_params)

    def _locals(self, local: Tree, like: Array) -> tuple[Array, ...]:
        """Return the norms and the sizes of the arrays of *local*; nothing unless they were asked for."""
        return (as_array(functional.local_norms(local), like), as_array(sizes(local), like)) if self._local_norm else ()

    def _output(self, loss: Array, overflow: Flag, rate: Array | None, norm: Array | None, locals_of: tuple[Array, ...]) -> Any:
        norm = None if norm is None else as_array(norm, loss)  # that of no gradient at all comes from elsewhere
        five = MFTrainOneStepOutput(loss, as_array(overflow, loss), snapshot(self.scale_sense), rate, norm)
        return MFTrainOneStepLocalOutput(*five, *locals_of) if locals_of else five


def _as_array(scale_sense: Any, network: Any) -> Any:
    if isinstance(scale_sense, bool) or not isinstance(scale_sense, int | float):
        return scale_sense
    check_scale_number(scale_sense, "scale_sense")
    xp = namespace_of(network.params)
    return xp.asarray(scale_sense, dtype=xp.float32, device=device_of(network.params))


def _sum(_: Array, total: Array | None, new: Array | None) -> Array | None:
    if total is None or new is None:
        return new if total is None else total
    return total + new


def _averaged(average: Array, param: Array, decay: float) -> Array:
    kept, moved = (scalar_like(share, average, average.dtype) for share in (decay, 1 - decay))
    return kept * average + moved * param


def _wide_copy(array: Array) -> Array:
    return snapshot(in_dtype(array, compute_dtype(name_of(array.dtype))))
