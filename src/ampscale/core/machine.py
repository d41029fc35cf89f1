"""
State machine of every published loss scaler. `transition` computes the next state from a rule, a state and a finite flag.

    finite step    increments `good_steps`; when `good_steps` reaches `growth_interval`, the scale grows and the count restarts
    overflow       resets `good_steps`, increments `bad_steps`; when `bad_steps` reaches `hysteresis`, the scale backs off

Spec: MACHINE-growth-window, MACHINE-growth-resets, MACHINE-skip-infinite-growth, MACHINE-backoff, MACHINE-overflow-resets,
MACHINE-min-scale, MACHINE-max-scale, MACHINE-hysteresis, MACHINE-reset-bad-steps, MACHINE-static, MACHINE-pure,
MACHINE-float64-factor, MACHINE-warmup-growth-factor, MACHINE-block-at-bounds, MACHINE-overflow-tolerance,
MACHINE-would-raise, MACHINE-delayed-update.
"""

from collections.abc import Callable
from ctypes import c_float
from math import frexp
from typing import Any, NamedTuple

import array_api_compat

from ..parsing import excerpt
from .dtypes import name_of
from .namespaces import check_one_library, default_namespace, device_of, divide, multiply, quiet
from .rule_constants import RuleConstants
from .trees import is_array, select
from .typing import Array, Flag, Namespace
from .validation import check_flag


class LossScaleState(NamedTuple):
    """
    State of a loss scaler between two steps: arrays of shape (), or of one common shape for a batch of scalers.

    `LossScaleRule.init` creates it with arrays or with Python numbers. As a NamedTuple, it is a pytree in every library.

    Args:
        scale: Factor by which the next loss is multiplied; float32 or float64, as the rule specifies.
        good_steps: Number of finite steps counted towards the next growth; int32.
        bad_steps: Number of overflows counted towards the next backoff; int32.
        window_steps: Number of steps since the last growth or due backoff; int32. None unless the rule sets
            `overflow_tolerance`.
        pending_scale: Scale of the step after the next, in the dtype of *scale*. None unless the rule sets `delayed_update`.

    >>> LossScaleState(scale=1024.0, good_steps=0, bad_steps=0)
    LossScaleState(scale=1024.0, good_steps=0, bad_steps=0, window_steps=None, pending_scale=None)
    """

    scale: Array
    good_steps: Array
    bad_steps: Array
    window_steps: Array | None = None
    pending_scale: Array | None = None


class Events(NamedTuple):
    """Events of one step, as bool arrays of the state's shape."""

    finite: Array
    grows: Array
    due: Array  # a backoff is due, even if `block_at_bounds` blocks it
    backs_off: Array


def init(rule: RuleConstants, like: Array | None) -> LossScaleState:
    """Create the state before the first step; see `LossScaleRule.init`."""
    xp = default_namespace() if like is None else array_api_compat.array_namespace(like)
    device = device_of(like)
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
    """Return the next state, and True if the published scaler would raise an error; see `LossScaleRule.transition`."""
    check_optional_arrays(rule, state)
    check_flag(finite, "finite", shape=tuple(state.scale.shape))
    if (dtype := name_of(state.scale.dtype)) not in ("float32", "float64"):
        raise TypeError(f"state.scale must be float32 or float64, got {dtype}")
    xp = array_api_compat.array_namespace(state.scale)
    _check_float64(rule, xp)
    if isinstance(finite, bool):
        finite = xp.full_like(state.good_steps, finite, dtype=xp.bool)
    else:
        check_one_library(state=state, finite=finite)
    scale = state.scale if state.pending_scale is None else state.pending_scale
    events = _events(rule, state, scale, finite)

    with quiet(xp):
        grown = _grown(rule, scale, state.bad_steps)
        backed_off = _backed_off(rule, scale)
    new_scale = xp.where(events.grows, grown, xp.where(events.backs_off, backed_off, scale))
    new_state = LossScaleState(
        scale=new_scale if state.pending_scale is None else scale,
        good_steps=_next_good_steps(rule, state.good_steps, events),
        bad_steps=_next_bad_steps(rule, state.bad_steps, events),
        window_steps=None if state.window_steps is None else _next_window_steps(state.window_steps, events),
        pending_scale=None if state.pending_scale is None else new_scale,
    )
    raises = _raises(rule, scale, new_scale, events)
    if rule.can_raise:
        new_state = select(raises, state, new_state)
    return new_state, raises


def _events(rule: RuleConstants, state: LossScaleState, scale: Array, finite: Array) -> Events:
    """Return the events of a step. *scale* is the value that the step changes: the scale or the pending scale of *state*."""
    xp = array_api_compat.array_namespace(scale)
    grows = finite & (state.good_steps >= rule.growth_interval - 1)
    if state.window_steps is None:
        due = ~finite & (state.bad_steps >= rule.hysteresis - 1)
    else:
        share = divide(xp.astype(state.bad_steps + 1, scale.dtype), xp.astype(state.window_steps + 1, scale.dtype))
        due = ~finite & (_constant(rule.overflow_tolerance, scale) <= share)
    if rule.block_at_bounds and rule.max_scale is not None:
        grows = grows & (scale < _constant(rule.max_scale, scale))
    backs_off = due
    if rule.block_at_bounds and rule.min_scale is not None:
        backs_off = due & (_constant(rule.min_scale, scale) < scale)
    return Events(finite, grows, due, backs_off)


def _next_good_steps(rule: RuleConstants, good_steps: Array, events: Events) -> Array:
    xp = array_api_compat.array_namespace(good_steps)
    after_overflow = xp.full_like(good_steps, rule.initial_good_steps)
    if rule.block_at_bounds:
        after_overflow = xp.where(events.due & ~events.backs_off, good_steps, after_overflow)
    after_finite = xp.where(events.grows, xp.zeros_like(good_steps), _incremented(good_steps))
    return xp.where(events.finite, after_finite, after_overflow)


def _next_bad_steps(rule: RuleConstants, bad_steps: Array, events: Events) -> Array:
    xp = array_api_compat.array_namespace(bad_steps)
    zero = xp.zeros_like(bad_steps)
    after_backoff = zero if "backoff" in rule.reset_bad_steps_on else xp.full_like(bad_steps, rule.hysteresis)
    after_finite = zero if "finite" in rule.reset_bad_steps_on else bad_steps
    after_growth = zero if "growth" in rule.reset_bad_steps_on else after_finite
    after_overflow = xp.where(events.due, after_backoff, _incremented(bad_steps))
    return xp.where(events.grows, after_growth, xp.where(events.finite, after_finite, after_overflow))


def _next_window_steps(window_steps: Array, events: Events) -> Array:
    xp = array_api_compat.array_namespace(window_steps)
    return xp.where(events.grows | events.due, xp.zeros_like(window_steps), _incremented(window_steps))


def _incremented(count: Array) -> Array:
    # NumPy 1 returns the sum of an int32 array of shape () and a Python int as int64.
    return array_api_compat.array_namespace(count).astype(count + 1, count.dtype, copy=False)


def _raises(rule: RuleConstants, scale: Array, new_scale: Array, events: Events) -> Array:
    """Return True if the published scaler raises an error in this step."""
    xp = array_api_compat.array_namespace(scale)
    raises = xp.zeros_like(events.due)
    if rule.raise_at_min_scale:
        raises = raises | (events.due & (scale <= _constant(rule.min_scale, scale)))
    if rule.raise_at_or_below is not None:
        raises = raises | (~events.finite & (new_scale <= _constant(rule.raise_at_or_below, scale)))
    return raises


def _grown(rule: RuleConstants, scale: Array, bad_steps: Array) -> Array:
    """Return the scale after a growth."""
    xp = array_api_compat.array_namespace(scale)
    grown = _scaled(rule, multiply, scale, rule.growth_factor)
    if rule.warmup_growth_factor is not None:
        grown = xp.where(bad_steps == 0, _scaled(rule, multiply, scale, rule.warmup_growth_factor), grown)
    if rule.skip_infinite_growth:
        grown = xp.where(xp.isfinite(grown), grown, scale)
    unclamped = rule.max_scale is None or rule.block_at_bounds
    return grown if unclamped else xp.minimum(grown, _constant(rule.max_scale, scale))


def _backed_off(rule: RuleConstants, scale: Array) -> Array:
    """Return the scale after a backoff."""
    xp = array_api_compat.array_namespace(scale)
    if rule.divide_on_backoff:
        backed_off = _scaled(rule, divide, scale, rule.backoff_divisor)
    else:
        backed_off = _scaled(rule, multiply, scale, rule.backoff_factor)
    unclamped = rule.min_scale is None or rule.block_at_bounds
    return backed_off if unclamped else xp.maximum(backed_off, _constant(rule.min_scale, scale))


def _scaled(rule: RuleConstants, operation: Callable[[Array, Array], Array], scale: Array, factor: float) -> Array:
    """Return *scale* times or divided by *factor*, in the dtype of *scale*; computed in float64 if *rule* requires it."""
    xp = array_api_compat.array_namespace(scale)
    operand = xp.astype(scale, xp.float64) if _needs_float64(rule, factor) else scale
    # Hide the constant from compilers, which would replace the division by a multiplication with the reciprocal and so
    # round twice.
    hidden = xp.where(xp.isnan(operand), operand, _constant(factor, operand))
    return xp.astype(operation(operand, hidden), scale.dtype, copy=False)


def _constant(value: Any, like: Array) -> Array:
    """Return the number *value* as an array like *like*: as a float, since torch rejects ints of more than 64 bits."""
    return array_api_compat.array_namespace(like).full_like(like, 1.0 * value)


def check_state(state: Any) -> None:
    """Raise a TypeError unless *state* is a `LossScaleState` of arrays, or of a Python float and ints."""
    expected = "state must be a LossScaleState of arrays or of a float and ints, as init() returns it, got"
    if not isinstance(state, LossScaleState):
        raise TypeError(f"{expected} {type(state).__name__}")
    values = [*state[:3], *(value for value in state[3:] if value is not None)]
    are_numbers = type(state.scale) is float and all(isinstance(value, int | float) for value in values)
    if not are_numbers and not all(map(is_array, values)):
        raise TypeError(f"{expected} {excerpt(tuple(state))}")


def check_optional_arrays(rule: RuleConstants, state: LossScaleState) -> None:
    """Raise a ValueError unless *state* has exactly the optional arrays that *rule* requires."""
    for name, required in (("window_steps", rule.overflow_tolerance is not None), ("pending_scale", rule.delayed_update)):
        if (getattr(state, name) is not None) != required:
            expected = "an array or a number" if required else "None"
            raise ValueError(f"state.{name} must be {expected} for this rule; create the state with rule.init()")


def _check_float64(rule: RuleConstants, xp: Namespace) -> None:
    """Raise a TypeError if *rule* requires float64 and the library of *xp* lacks it."""
    backoff = "backoff_divisor" if rule.divide_on_backoff else "backoff_factor"
    names = [name for name in ("growth_factor", "warmup_growth_factor", backoff) if _needs_float64(rule, getattr(rule, name))]
    if (rule.dtype == "float32" and not names) or name_of(xp.result_type(xp.float64)) == "float64":
        return
    remedy = "; on JAX, set jax_enable_x64"
    if rule.dtype == "float64":
        raise TypeError(f"rule.dtype must be 'float32' on a library without float64, got 'float64'{remedy}")
    name, factor = names[0], getattr(rule, names[0])
    expected = f"a number that float32 represents exactly on a library without float64, such as {c_float(factor).value!r}"
    raise TypeError(f"rule.{name} must be {expected}, got {factor!r}{remedy}")


def _needs_float64(rule: RuleConstants, factor: float | None) -> bool:
    """Return True if *factor* must be applied in float64, since float32 does not represent it exactly."""
    # Any other factor gives the same result in float32: float64 represents the product of two float32 numbers exactly, and has
    # more than twice as many digits as float32, so rounding their quotient to float64 first changes nothing (Figueroa 1995).
    if not rule.float64_factor or factor is None:
        return False
    mantissa, exponent = frexp(factor)  # torch.compile cannot trace c_float
    return not ((mantissa * 2.0**24).is_integer() and -125 <= exponent <= 128)
