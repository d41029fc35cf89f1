"""
One training step, as a pure function: no array is read on the host, so a compiler can trace all of it.

    params, inputs ─► vjp ─► loss
                       └───► pullback ◄─ seed = scale
                                │ scaled gradients
                                │ communicator.mean          replicas agree on the gradients
                                │ unscale_and_check
                                │ communicator.all_finite    one flag for all replicas
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

from .dtypes import name_of, wide
from .machine import LossScaleState
from .namespaces import quiet
from .norms import clip_by_global_norm
from .overflow import unscale_and_check
from .replicas import SINGLE_REPLICA, Communicator
from .rule import LossScaleRule
from .scaling import in_dtype, scalar_like
from .trees import leaves, map_leaves, select
from .typing import Array, Flag, Tree


class Differentiable(Protocol):
    """A network, as a step sees it."""

    def vjp(self, params: Tree, *inputs: Any) -> tuple[Array, Callable[[Array], Tree]]:
        """The loss, of shape () or more, and what turns a seed of the loss's shape into gradients."""


class FunctionalOptimizer(Protocol):
    """
    An optimizer in optax's shape. With a `learning_rate_at(state)` it also reports the rate of the coming step; with a true
    `keeps_master_weights` its `init` sees 16-bit parameters as they are.
    """

    def init(self, params: Tree) -> Tree:
        """The state before the first step."""

    def update(self, updates: Tree, state: Tree, params: Tree) -> tuple[Tree, Tree]:
        """What to add to *params*, and the next state."""


class StepKernels(Protocol):
    """The two kernels of a step that a backend may have in a faster form."""

    def unscale_and_check(self, tree: Tree, scale: Array, out: Tree = None, dtype: str | None = None) -> tuple[Tree, Flag]:
        """As `core.overflow.unscale_and_check`."""

    def clip_by_global_norm(self, tree: Tree, max_norm: float) -> tuple[Tree, Array]:
        """As `core.norms.clip_by_global_norm`."""


class ReferenceKernels:
    """The two kernels as they are defined."""

    unscale_and_check = staticmethod(unscale_and_check)
    clip_by_global_norm = staticmethod(clip_by_global_norm)


class StepStatus(IntEnum):
    """Why a step was applied or not."""

    APPLIED = 0
    OVERFLOW = 1
    NO_GRADIENTS = 2
    WOULD_RAISE = (
        3  # an overflow in which the published scaler would raise, and the scale is held: see `LossScaleRule.would_raise`
    )
    ACCUMULATED = 4  # a micro-batch that does not complete a step; only of `MFTrainOneStepCell`


class TrainState(NamedTuple):
    """All that a run carries from step to step. Only `scaler` and `attempted` move on a skipped step."""

    params: Tree
    optimizer: Tree
    scaler: LossScaleState
    attempted: Array  # int32, shape (): steps tried
    applied: Array  # int32, shape (): steps that changed the parameters


class StepReport(NamedTuple):
    """What a step tells: arrays, or None for what was not computed."""

    loss: Array  # as the network returned it: unscaled, of the parameters before the step
    finite: Flag  # bool, shape ()
    applied: Flag  # bool, shape ()
    scale: Array  # shape (): the scale that this step used
    next_scale: Array  # shape ()
    learning_rate: Array | None  # shape (): the rate of this step, where the optimizer tells it
    global_norm: Array | None  # shape (): after unscaling, before clipping; where `max_norm` is given
    status: Array  # int32, shape (): a StepStatus


def init_train_state(params: Tree, optimizer: FunctionalOptimizer, rule: LossScaleRule) -> TrainState:
    """The state before the first step, in the library and on the device of the first parameter."""
    scaler = rule.init(like=next(iter(leaves(params)), None))
    zeros_like = array_api_compat.array_namespace(scaler.scale).zeros_like
    attempted, applied = zeros_like(scaler.good_steps), zeros_like(scaler.good_steps)  # two buffers, so that both can be donated
    return TrainState(params, init_optimizer(optimizer, params), scaler, attempted, applied)


def init_optimizer(optimizer: FunctionalOptimizer, params: Tree) -> Tree:
    """The state before the first step: for float32 ones, as the gradients will be, save where master weights are kept."""
    if getattr(optimizer, "keeps_master_weights", False):
        return optimizer.init(params)
    return optimizer.init(map_leaves(lambda param: in_dtype(param, "float32") if _is_narrow(param) else param, params))


def train_step(
    network: Differentiable,
    optimizer: FunctionalOptimizer,
    rule: LossScaleRule,
    state: TrainState,
    *inputs: Any,
    max_norm: float | None = None,
    communicator: Communicator = SINGLE_REPLICA,
    kernels: StepKernels = ReferenceKernels,
) -> tuple[TrainState, StepReport]:
    """
    One step of training: the next state, and what happened.

    Args:
        network: Gives ``vjp(params, *inputs) -> (loss, pullback)``.
        optimizer: Gives ``init(params)`` and ``update(gradients, state, params) -> (updates, state)``.
        rule: The constants of the scaler.
        state: From `init_train_state`, or from the step before.
        inputs: Handed to the network as they are.
        max_norm: Clip the unscaled gradients to this global norm.
        communicator: How to agree with the other replicas.
        kernels: A backend's `unscale_and_check` and `clip_by_global_norm`, which equal the definitions bit for bit.

    16-bit gradients are unscaled into float32, where the small ones survive, and reach the optimizer so.

    On an overflow, and where there is no gradient at all, parameters and optimizer are those of *state*, and so is
    everything that counts; without a gradient the scaler does not move either.
    """
    loss, pullback = network.vjp(state.params, *inputs)
    scale = state.scaler.scale
    scaled = communicator.mean(pullback(seed_like(loss, scale)))
    gradients, finite = kernels.unscale_and_check(scaled, scale, dtype="float32")
    xp = array_api_compat.array_namespace(scale)
    finite = communicator.all_finite(finite if leaves(gradients) else xp.ones_like(scale, dtype=xp.bool))
    rate = optimizer.learning_rate_at(state.optimizer) if hasattr(optimizer, "learning_rate_at") else None
    if not leaves(gradients):
        return _without_gradients(state, loss, finite, rate)

    norm = None
    if max_norm is not None:
        gradients, norm = kernels.clip_by_global_norm(gradients, max_norm)
    updates, candidate = optimizer.update(gradients, state.optimizer, state.params)
    scaler, stopped = rule.transition(state.scaler, finite)
    one = xp.ones_like(state.applied)
    after = TrainState(
        params=select(finite, apply_updates(state.params, updates), state.params),
        optimizer=select(finite, candidate, state.optimizer),
        scaler=scaler,
        attempted=xp.asarray(state.attempted + one),
        applied=xp.where(finite, state.applied + one, state.applied),
    )
    status = xp.where(finite, xp.full_like(one, StepStatus.APPLIED), xp.full_like(one, StepStatus.OVERFLOW))
    if rule.can_raise:
        status = xp.where(stopped, xp.full_like(one, StepStatus.WOULD_RAISE), status)
    return after, StepReport(loss, finite, finite, scale, scaler.scale, rate, norm, status)


def seed_like(loss: Array, scale: Array) -> Array:
    """What the backward pass starts from: *scale* in the shape of *loss*, in float32 where the loss is 16-bit."""
    xp = array_api_compat.array_namespace(loss)
    dtype = getattr(xp, wide(name_of(loss.dtype)))
    with quiet(xp):
        return xp.ones_like(loss, dtype=dtype) * scalar_like(scale, loss, dtype)


def apply_updates(params: Tree, updates: Tree) -> Tree:
    """*params* plus *updates*, added wide and rounded once to each parameter's dtype; None updates nothing."""
    return map_leaves(lambda param, update: param if update is None else _moved(param, update), params, updates)


def _is_narrow(param: Array) -> bool:
    return name_of(param.dtype) in ("float16", "bfloat16")


def _moved(param: Array, update: Array) -> Array:
    xp = array_api_compat.array_namespace(param)
    dtype = wide(name_of(param.dtype))
    with quiet(xp):
        return xp.asarray(xp.astype(in_dtype(param, dtype) + in_dtype(update, dtype), param.dtype, copy=False))


def _without_gradients(state: TrainState, loss: Array, finite: Flag, rate: Array | None) -> tuple[TrainState, StepReport]:
    xp = array_api_compat.array_namespace(state.attempted)
    scale = state.scaler.scale
    after = state._replace(attempted=xp.asarray(state.attempted + xp.ones_like(state.attempted)))
    status = xp.full_like(state.applied, StepStatus.NO_GRADIENTS)
    return after, StepReport(loss, finite, xp.zeros_like(finite), scale, scale, rate, None, status)
