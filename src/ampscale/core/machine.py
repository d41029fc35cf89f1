"""
The machine that every published loss scaler is: constants in a rule, state in a few arrays, one transition.

    finite step      count it; at the `growth_interval`-th in a row the scale grows and the count starts again
    overflow step    the count starts again; at the `hysteresis`-th overflow the scale backs off

Spec: MACHINE-growth-window, MACHINE-growth-resets, MACHINE-skip-infinite-growth, MACHINE-backoff, MACHINE-overflow-resets,
MACHINE-min-scale, MACHINE-max-scale, MACHINE-hysteresis, MACHINE-reset-bad-steps, MACHINE-static, MACHINE-pure,
MACHINE-float64-factor, MACHINE-warmup-growth-factor, MACHINE-block-at-bounds, MACHINE-overflow-tolerance,
MACHINE-would-raise, MACHINE-delayed-update.
"""

import operator
from collections.abc import Callable
from ctypes import c_float
from math import frexp
from typing import Any, NamedTuple

import array_api_compat

from ..parsing import excerpt
from .dtypes import name_of
from .namespaces import default_namespace, quiet
from .rule_constants import RuleConstants
from .typing import Array, Flag, Namespace
from .validation import check_flag


class LossScaleState(NamedTuple):
    """
    Where a scaler stands between two steps: arrays of shape (), or of one common shape for a batch of scalers.

    A NamedTuple, so that every tree library flattens it whole.
    """

    scale: Array  # float32 or float64, as the rule says: multiplies the next loss
    good_steps: Array  # int32: finite steps since the last growth or overflow
    bad_steps: Array  # int32: overflows counted towards the next backoff
    window_steps: Array | None = None  # int32: steps since the last growth or backoff, where the rule has a rate
    pending_scale: Array | None = None  # as scale: what the step after the next will use, where the rule lags


class Events(NamedTuple):
    """What a step brings about: bool arrays of the state's shape."""

    finite: Array  # no overflow
    grows: Array
    due: Array  # a backoff is due
    backs_off: Array  # a backoff is due and no gate forbids it


def init(rule: RuleConstants, like: Array | None) -> LossScaleState:
    """The state before the first step: see `LossScaleRule.init`."""
    xp = default_namespace() if like is None else array_api_compat.array_namespace(like)
    device = None if like is None else array_api_compat.device(like)
    _check_float64(rule, xp)
    scale = xp.asarray(rule.init_scale, dtype=getattr(xp, rule.dtype), device=device)
    return LossScaleState(
        scale=scale,
        good_steps=xp.asarray(rule.initial_good_steps, dtype=xp.int32, device=device),
        bad_steps=xp.asarray(0, dtype=xp.int32, device=device),
        window_steps=None if rule.overflow_tolerance is None else xp.asarray(0, dtype=xp.int32, device=device),
        pending_scale=xp.asarray(scale, copy=True) if rule.delayed_update else None,
    )


def transition(rule: RuleConstants, state: LossScaleState, finite: Flag) -> tuple[LossScaleState, Array]:
    """Return the next state, and whether the published scaler stops instead: see `LossScaleRule.transition`."""
    _check_state(rule, state)
    check_flag(finite, "finite", shape=tuple(state.scale.shape))
    xp = array_api_compat.array_namespace(state.scale)
    _check_float64(rule, xp)
    finite = xp.full_like(state.good_steps, finite, dtype=xp.bool) if isinstance(finite, bool) else finite
    scale = state.scale if state.pending_scale is None else state.pending_scale
    happened = _events(rule, state, scale, finite)

    with quiet(xp):
        grown, backed_off = _grown(rule, scale, state.bad_steps), _backed_off(rule, scale)
    moved = xp.where(happened.grows, grown, xp.where(happened.backs_off, backed_off, scale))
    after = LossScaleState(
        scale=moved if state.pending_scale is None else scale,
        good_steps=_next_good_steps(rule, state.good_steps, happened),
        bad_steps=_next_bad_steps(rule, state.bad_steps, happened),
        window_steps=None if state.window_steps is None else _next_window_steps(state.window_steps, happened),
        pending_scale=None if state.pending_scale is None else moved,
    )
    stopped = _stops(rule, scale, moved, happened)
    if not rule.can_raise:
        return after, stopped
    held = (None if new is None else xp.where(stopped, old, new) for old, new in zip(state, after, strict=True))
    return LossScaleState(*held), stopped


def _events(rule: RuleConstants, state: LossScaleState, scale: Array, finite: Array) -> Events:
    xp = array_api_compat.array_namespace(scale)
    grows = finite & (state.good_steps >= rule.growth_interval - 1)
    if state.window_steps is None:
        due = ~finite & (state.bad_steps >= rule.hysteresis - 1)
    else:
        overflows, steps = (xp.astype(count + 1, scale.dtype) for count in (state.bad_steps, state.window_steps))
        due = ~finite & (xp.full_like(scale, rule.overflow_tolerance) <= overflows / steps)
    if rule.block_at_bounds and rule.max_scale is not None:
        grows = grows & (scale < xp.full_like(scale, rule.max_scale))
    backs_off = due
    if rule.block_at_bounds and rule.min_scale is not None:
        backs_off = due & (xp.full_like(scale, rule.min_scale) < scale)
    return Events(finite, grows, due, backs_off)


def _next_good_steps(rule: RuleConstants, good: Array, happened: Events) -> Array:
    xp = array_api_compat.array_namespace(good)
    restart = xp.full_like(good, rule.initial_good_steps)
    if rule.block_at_bounds:
        restart = xp.where(happened.due & ~happened.backs_off, good, restart)
    return xp.where(happened.finite, xp.where(happened.grows, xp.zeros_like(good), good + 1), restart)


def _next_bad_steps(rule: RuleConstants, bad: Array, happened: Events) -> Array:
    xp = array_api_compat.array_namespace(bad)
    zero = xp.zeros_like(bad)
    spent = zero if "backoff" in rule.reset_bad_steps_on else xp.full_like(bad, rule.hysteresis)
    after_finite = zero if "finite" in rule.reset_bad_steps_on else bad
    after_growth = zero if "growth" in rule.reset_bad_steps_on else after_finite
    after_overflow = xp.where(happened.due, spent, bad + 1)
    return xp.where(happened.grows, after_growth, xp.where(happened.finite, after_finite, after_overflow))


def _next_window_steps(steps: Array, happened: Events) -> Array:
    xp = array_api_compat.array_namespace(steps)
    return xp.where(happened.grows | happened.due, xp.zeros_like(steps), steps + 1)


def _stops(rule: RuleConstants, scale: Array, moved: Array, happened: Events) -> Array:
    xp = array_api_compat.array_namespace(scale)
    stopped = xp.zeros_like(happened.due)
    if rule.raise_at_min_scale:
        stopped = stopped | (happened.due & (scale <= xp.full_like(scale, rule.min_scale)))
    if rule.raise_at_or_below is not None:
        stopped = stopped | (~happened.finite & (moved <= xp.full_like(scale, rule.raise_at_or_below)))
    return stopped


def _grown(rule: RuleConstants, scale: Array, bad: Array) -> Array:
    xp = array_api_compat.array_namespace(scale)
    grown = _moved(rule, operator.mul, scale, rule.growth_factor)
    if rule.warmup_growth_factor is not None:
        grown = xp.where(bad == 0, _moved(rule, operator.mul, scale, rule.warmup_growth_factor), grown)
    if rule.skip_infinite_growth:
        grown = xp.where(xp.isfinite(grown), grown, scale)
    unbounded = rule.max_scale is None or rule.block_at_bounds
    return grown if unbounded else xp.minimum(grown, xp.full_like(scale, rule.max_scale))


def _backed_off(rule: RuleConstants, scale: Array) -> Array:
    xp = array_api_compat.array_namespace(scale)
    operation, factor = (
        (operator.truediv, rule.backoff_divisor) if rule.divide_on_backoff else (operator.mul, rule.backoff_factor)
    )
    backed_off = _moved(rule, operation, scale, factor)
    unbounded = rule.min_scale is None or rule.block_at_bounds
    return backed_off if unbounded else xp.maximum(backed_off, xp.full_like(scale, rule.min_scale))


def _moved(rule: RuleConstants, operation: Callable[[Array, Array], Array], scale: Array, factor: float) -> Array:
    xp = array_api_compat.array_namespace(scale)
    wide = xp.astype(scale, xp.float64) if _widens(rule, factor) else scale
    # A compiler that saw a constant would multiply by its reciprocal instead of dividing, and round twice.
    hidden = xp.where(xp.isnan(wide), wide, xp.full_like(wide, factor))
    return xp.astype(operation(wide, hidden), scale.dtype, copy=False)


def check_state(state: Any) -> None:
    """
    *state* is a `LossScaleState` of arrays, or of a Python float and ints.

    Raises:
        TypeError: It is something else.
    """
    wanted = "state must be a LossScaleState of arrays or of a float and ints, as init() returns it, got"
    if not isinstance(state, LossScaleState):
        raise TypeError(f"{wanted} {type(state).__name__}")
    held = [value for place, value in enumerate(state) if place < 3 or value is not None]
    are_numbers = type(state.scale) is float and all(isinstance(value, int | float) for value in held)
    if not are_numbers and not all(map(array_api_compat.is_array_api_obj, held)):
        raise TypeError(f"{wanted} {excerpt(tuple(state))}")


def _check_state(rule: RuleConstants, state: LossScaleState) -> None:
    for name, wanted in (("window_steps", rule.overflow_tolerance is not None), ("pending_scale", rule.delayed_update)):
        if (getattr(state, name) is not None) != wanted:
            raise ValueError(f"state.{name} must be {'an array' if wanted else 'None'} for this rule: take a state that it made")


def _check_float64(rule: RuleConstants, xp: Namespace) -> None:
    backoff = "backoff_divisor" if rule.divide_on_backoff else "backoff_factor"
    wide = [name for name in ("growth_factor", "warmup_growth_factor", backoff) if _widens(rule, getattr(rule, name))]
    if (rule.dtype == "float32" and not wide) or name_of(xp.result_type(xp.float64)) == "float64":
        return
    remedy = "; on JAX, set jax_enable_x64"
    if rule.dtype == "float64":
        raise TypeError(f"dtype must be 'float32' on a library without float64, got 'float64'{remedy}")
    factor = getattr(rule, wide[0])
    nearest = f"a number that float32 can hold on a library without float64, such as {c_float(factor).value!r}"
    raise TypeError(f"{wide[0]} must be {nearest}, got {factor!r}{remedy}")


def _widens(rule: RuleConstants, factor: float | None) -> bool:
    """Return True if *factor* must be applied in float64."""
    # Of two float32 numbers, float64 holds the product exactly, and the quotient with more than twice as many digits, so that
    # rounding it a second time changes nothing (Figueroa 1995): float32 gives the same. Only other factors need float64.
    if not rule.float64_factor or factor is None:
        return False
    mantissa, exponent = frexp(factor)
    return not ((mantissa * 2.0**24).is_integer() and -125 <= exponent <= 128)
