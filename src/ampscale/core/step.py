"""
Training step as a pure function. It copies no array to the host, so a compiler can trace all of it.

    params, inputs ─► vjp ─► loss
                       └───► pullback ◄─ seed = scale
                                │ scaled gradients ─► measure   optional: statistics of this rank
                                │ communicator.mean          optional: mean over the replicas
                                │ unscale_and_check
                                │ communicator.agree         one flag and one norm for all ranks
                                ▼
                             gradients ─► clip ─► optimizer ─► candidate ─► select(finite, candidate, old)
                                │
                                └─ finite ─► rule.update(state, finite) ─► state'

Spec: STEP-order, STEP-seed, STEP-loss-unscaled, STEP-skip, STEP-counters, STEP-report, STEP-no-gradients.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import array_api_compat

from .dtypes import compute_dtype, name_of
from .machine import LossScaleState
from .machine import init as init_scaler
from .namespaces import check_one_library, namespace_of, quiet
from .norms import LiftedNorm, coefficient_of, unlifted
from .replicas import SINGLE_REPLICA, Communicator
from .rule import LossScaleRule
from .scaling import in_dtype, scalar_like, widened
from .trees import is_array, leaves, map_leaves, select
from .typing import Array, Flag, Tree
from .validation import check_scalable, check_type


class Differentiable(Protocol):
    """Network that `train_step` can differentiate."""

    def vjp(self, params: Tree, *inputs: Any) -> tuple[Array, Callable[[Array], Tree]]:
        """Return the loss, and the pullback: a function from an output cotangent of the loss's shape to gradients."""


class FunctionalOptimizer(Protocol):
    """
    Optimizer with the interface of an optax transformation.

    Two members are optional. `learning_rate_at(state)` returns the learning rate of the next step, for the report. If
    `keeps_master_weights` is True, `init` receives 16-bit parameters in their own dtype instead of float32, and a state has their
    float32 weights in its attribute `master`. After a step, these parameters are the new weights, rounded.
    """

    def init(self, params: Tree) -> Tree:
        """Create the state before the first step."""

    def update(self, updates: Tree, state: Tree, params: Tree) -> tuple[Tree, Tree]:
        """Return the updates to add to *params*, and the next state."""


class StepStatus(IntEnum):
    """
    Reason why a step was or was not applied: the values of `StepReport.status`, an array that `int` converts.

    Args:
        APPLIED: The gradients were finite and the parameters were updated.
        OVERFLOW: A gradient was infinite or NaN, so the step was skipped.
        NO_GRADIENTS: The network returned no gradients on any rank.
        WOULD_RAISE: An overflow in which the published scaler would raise an error; the scale is unchanged. See
            `LossScaleRule.would_raise`.
        ACCUMULATED: The call was a micro-batch that does not complete a step; only `MFTrainOneStepCell` reports this.

    >>> StepStatus(1).name
    'OVERFLOW'
    """

    APPLIED = 0
    OVERFLOW = 1
    NO_GRADIENTS = 2
    WOULD_RAISE = 3
    ACCUMULATED = 4


class TrainState(NamedTuple):
    """
    State of a training run between two steps. A skipped step changes only `scaler` and `attempted`.

    Args:
        params: Parameters of the network.
        optimizer: State of the optimizer.
        scaler: State of the loss scaler.
        attempted: Number of steps; int32, shape ().
        applied: Number of steps that updated the parameters; int32, shape ().

    >>> network = ampscale.Network(lambda w, x: anp.sum(w * x), np.float32([1.0, 2.0]))
    >>> optimizer = ampscale.optimizers.SGD(network, 0.5)
    >>> state = ampscale.init_train_state(network.params, optimizer, ampscale.LossScaleRule())
    >>> float(state.scaler.scale), int(state.attempted), int(state.applied)
    (65536.0, 0, 0)
    """

    params: Tree
    optimizer: Tree
    scaler: LossScaleState
    attempted: Array
    applied: Array


class StepReport(NamedTuple):
    """
    Results of a training step as arrays, of shape () except `loss` and `statistics`.

    Args:
        loss: Loss of the parameters before the step, unscaled.
        finite: True if all gradients were finite; bool.
        applied: True if the parameters were updated; bool.
        scale: Loss scale that this step used.
        next_scale: Loss scale of the next step.
        learning_rate: Learning rate of this step; None if the optimizer does not report it.
        global_norm: Norm of the unscaled gradients before clipping; None unless `max_norm` was given.
        status: Value of a `StepStatus`; int32.
        statistics: Result of `ampscale.measure` for the scaled gradients of this rank, before the mean over the ranks; None
            unless requested.

    >>> network = ampscale.Network(lambda w, x: anp.sum(w * x), np.float32([1.0, 2.0]))
    >>> optimizer, rule = ampscale.optimizers.SGD(network, 0.5), ampscale.LossScaleRule()
    >>> state = ampscale.init_train_state(network.params, optimizer, rule)
    >>> state, report = ampscale.train_step(network, optimizer, rule, state, np.float32([3.0, 4.0]), max_norm=1.0)
    >>> float(report.loss), float(report.global_norm), ampscale.StepStatus(int(report.status)).name
    (11.0, 5.0, 'APPLIED')
    """

    loss: Array
    finite: Flag
    applied: Flag
    scale: Array
    next_scale: Array
    learning_rate: Array | None
    global_norm: Array | None
    status: Array
    statistics: Array | None = None


def init_train_state(params: Tree, optimizer: FunctionalOptimizer, rule: LossScaleRule) -> TrainState:
    """Create the state before the first step, in the library and on the device of the first parameter."""
    scaler = init_scaler(rule, like=next(iter(leaves(params)), None))
    zeros_like = array_api_compat.array_namespace(scaler.scale).zeros_like
    # Create two buffers, so that JAX can donate both.
    attempted, applied = zeros_like(scaler.good_steps), zeros_like(scaler.good_steps)
    return TrainState(params, init_optimizer(optimizer, params), scaler, attempted, applied)


def check_train_state(state: Any) -> None:
    """Raise a TypeError unless *state* is a `TrainState` of arrays whose scaler has a state in the library of the parameters."""
    check_type(state, "state", TrainState)
    check_type(state.scaler, "state.scaler", LossScaleState)
    for name in ("attempted", "applied"):
        if not is_array(count := getattr(state, name)):
            raise TypeError(
                f"state.{name} must be an array, got {type(count).__name__}; create the state with init_train_state()"
            )
    if namespace_of(state.params) is not namespace_of(state.scaler):
        check_one_library(params=state.params, scaler=state.scaler)


def init_optimizer(optimizer: FunctionalOptimizer, params: Tree) -> Tree:
    """
    Create the optimizer's state for *params*.

    Unless the optimizer keeps master weights, it receives 16-bit parameters in float32.
    """
    return optimizer.init(params if _keeps_master_weights(optimizer) else map_leaves(widened, params))


def train_step(
    network: Differentiable,
    optimizer: FunctionalOptimizer,
    rule: LossScaleRule,
    state: TrainState,
    *inputs: Any,
    kernels: Any,
    max_norm: float | None = None,
    communicator: Communicator = SINGLE_REPLICA,
    measure: bool = False,
) -> tuple[TrainState, StepReport]:
    """
    Run one training step with *kernels*, which are a backend; see `ampscale.train_step`.

    16-bit gradients are unscaled to float32, so that small ones do not become zero, and stay float32 for the optimizer.
    """
    loss, pullback = network.vjp(state.params, *inputs)
    scale = state.scaler.scale
    scaled = pullback(seed_like(loss, scale))
    check_scalable(scaled, "gradients")
    measured = kernels.measure(scaled) if measure else None  # first, because a communicator may write the mean in place
    communicator.check_same(rule=rule, max_norm=max_norm)
    gradients, finite = kernels.unscale_and_check(communicator.mean(scaled), scale, dtype="float32")
    xp = array_api_compat.array_namespace(scale)
    numbers = {**state.scaler._asdict(), "attempted": state.attempted}
    finite, has_gradients, lifted = communicator.agree(finite, numbers, gradients, norm=max_norm is not None)
    learning_rate = optimizer.learning_rate_at(state.optimizer) if hasattr(optimizer, "learning_rate_at") else None
    if not has_gradients:
        return _without_gradients(state, loss, finite, learning_rate, measured)

    norm = None
    if max_norm is not None:
        gradients, norm = clip_gradients(gradients, max_norm, lifted, kernels)
    updates, optimizer_state = optimizer.update(gradients, state.optimizer, state.params)
    master = optimizer_state.master if _keeps_master_weights(optimizer) else None
    scaler, would_raise = rule.transition(state.scaler, finite)
    new_state = TrainState(
        params=select(finite, apply_updates(state.params, updates, master), state.params),
        optimizer=select(finite, optimizer_state, state.optimizer),
        scaler=scaler,
        attempted=incremented(state.attempted),
        applied=xp.where(finite, incremented(state.applied), state.applied),
    )
    status = xp.where(finite, _status(StepStatus.APPLIED, state.applied), _status(StepStatus.OVERFLOW, state.applied))
    if rule.can_raise:
        status = xp.where(would_raise, _status(StepStatus.WOULD_RAISE, state.applied), status)
    return new_state, StepReport(loss, finite, finite, scale, scaler.scale, learning_rate, norm, status, measured)


def seed_like(loss: Array, scale: Array) -> Array:
    """Return the output cotangent of the backward pass: *scale* in the shape of *loss*, float32 for a 16-bit loss."""
    xp = array_api_compat.array_namespace(loss)
    dtype = getattr(xp, compute_dtype(name_of(loss.dtype)))
    with quiet(xp):
        return xp.ones_like(loss, dtype=dtype) * scalar_like(scale, loss, dtype)


def clip_gradients(gradients: Tree, max_norm: float, lifted: LiftedNorm | None, kernels: Any) -> tuple[Tree, Array]:
    """Return the clipped *gradients*, and the norm before clipping: *lifted*, or the norm of *gradients* if *lifted* is None."""
    if lifted is None:
        clipped, norm = kernels.clip_by_global_norm(gradients, max_norm)
        return clipped, norm
    # Divide with *kernels*: XLA's own division flushes a subnormal coefficient to zero, and is not correctly rounded on CUDA.
    return kernels.scale(gradients, coefficient_of(lifted, max_norm, kernels.unscale)), unlifted(lifted)


def apply_updates(params: Tree, updates: Tree, master: Tree = None) -> Tree:
    """
    Return *params* plus *updates*, added in the compute dtype and rounded once; an update of None changes nothing.

    A parameter that has a weight in *master* becomes this weight, rounded: the sum would be NaN for a 16-bit parameter that has
    become infinite, even if its weight is finite again.
    """
    return map_leaves(_updated, params, updates, master)


def incremented(count: Array) -> Array:
    """Return *count*, of shape (), plus 1. The result is an array, unlike NumPy's sum of two arrays of shape ()."""
    xp = array_api_compat.array_namespace(count)
    return xp.asarray(count + xp.ones_like(count))


def _updated(param: Array, update: Array | None, weight: Array | None) -> Array:
    if update is None:
        return param
    xp = array_api_compat.array_namespace(param)
    dtype = compute_dtype(name_of(param.dtype))
    with quiet(xp):
        value = in_dtype(param, dtype) + in_dtype(update, dtype) if weight is None else weight
        return xp.asarray(xp.astype(value, param.dtype, copy=False))


def _status(status: StepStatus, like: Array) -> Array:
    return array_api_compat.array_namespace(like).full_like(like, status.value)  # CuPy rejects an IntEnum


def _keeps_master_weights(optimizer: FunctionalOptimizer) -> bool:
    return getattr(optimizer, "keeps_master_weights", False)


def _without_gradients(
    state: TrainState, loss: Array, finite: Flag, learning_rate: Array | None, statistics: Array | None
) -> tuple[TrainState, StepReport]:
    """Return the state and the report of a step in which no rank has gradients."""
    xp = array_api_compat.array_namespace(state.attempted)
    scale = state.scaler.scale
    new_state = state._replace(attempted=incremented(state.attempted))
    status = _status(StepStatus.NO_GRADIENTS, state.applied)
    return new_state, StepReport(loss, finite, xp.zeros_like(finite), scale, scale, learning_rate, None, status, statistics)
