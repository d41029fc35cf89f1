"""Checkpoints, conversion of states to arrays and numbers, and the check that a run can reach a state."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..core.machine import LossScaleState
from ..core.rule import LossScaleRule


@dataclass(frozen=True)
class Checkpoint:
    """
    Rule and state of a scaler, which determine its next steps.

    Args:
        rule: Constants of the scaler. `init_scale` has no effect; if it is unknown, `load` sets it to the saved scale.
        state: State of Python numbers, or of arrays of shape ().
        assumed: Rule fields that the file does not contain, with the defaults of the published scaler, which were assumed.
        at: Path of the entries in a larger checkpoint; "" for the top level.
        ignored: Keys beside the entries, in the same mapping, that do not belong to the scaler.

    >>> from ampscale import checkpoints
    >>> checkpoint = checkpoints.load("mindspore", {"scale_value": 1024.0, "counter": 7, "dense.bias": 0.5})
    >>> float(checkpoint.state.scale), checkpoint.assumed, checkpoint.ignored
    (1024.0, {'growth_factor': 2.0, 'growth_interval': 2000}, ('dense.bias',))
    """

    rule: LossScaleRule
    state: LossScaleState
    assumed: Mapping[str, Any] = field(default_factory=dict)
    at: str = ""
    ignored: tuple[str, ...] = ()


def arrays_of(rule: LossScaleRule, state: LossScaleState) -> LossScaleState:
    """Convert *state* from Python numbers to NumPy arrays of shape () in the dtypes of *rule*."""
    dtypes = (rule.dtype, "int32", "int32", "int32", rule.dtype)
    pairs = zip(state, dtypes, strict=True)
    return LossScaleState(*(None if value is None else np.asarray(value, dtype) for value, dtype in pairs))


def numbers_of(state: LossScaleState) -> LossScaleState:
    """Convert *state* to Python numbers."""
    values: tuple[Any, ...] = state
    try:
        return LossScaleState(*(value.item() if hasattr(value, "item") else value for value in values))
    except RuntimeError as error:  # of torch, for a tensor on the device meta
        raise ValueError(f"each member of the state must have a value: {error}") from None


def check_reachable(rule: LossScaleRule, state: LossScaleState) -> None:
    """Raise a ValueError if no run of *rule* reaches the counts of *state*, which consists of Python numbers."""
    interval, initial = rule.growth_interval, rule.initial_good_steps
    least, largest = min(0, initial), max(interval - 1, initial)  # a growth sets the count to 0, an overflow to `initial`
    if state.good_steps < least or (state.good_steps > largest and not rule.block_at_bounds):
        expected = f"from {least} to {largest}, since the growth interval is {interval}"
        raise ValueError(f"the count of finite steps must be {expected}, got {state.good_steps}")
    most_bad_steps, reason = _most_bad_steps(rule, state)
    if not 0 <= state.bad_steps <= most_bad_steps:
        raise ValueError(f"the count of overflows must be from 0 to {most_bad_steps}, since {reason}, got {state.bad_steps}")
    follows_finite_step = state.good_steps != rule.initial_good_steps and not rule.block_at_bounds
    if state.bad_steps and follows_finite_step and "finite" in rule.reset_bad_steps_on:
        finite_steps = state.good_steps - min(0, initial)  # a negative `initial` delays the growth by as many steps
        expected = f"0 after {finite_steps} finite steps, since a finite step resets this count"
        raise ValueError(f"the count of overflows must be {expected}, got {state.bad_steps}")


def _most_bad_steps(rule: LossScaleRule, state: LossScaleState) -> tuple[int, str]:
    """Return the largest count of overflows that a run of *rule* reaches, and the reason for an error message."""
    resets_at_backoff = "backoff" in rule.reset_bad_steps_on
    if state.window_steps is None:
        # If a backoff resets the count, the overflow that reaches the hysteresis sets the count to 0.
        most = rule.hysteresis - 1 if resets_at_backoff else rule.hysteresis
        return most, f"the hysteresis is {rule.hysteresis}"
    if resets_at_backoff and {"growth", "finite"} & set(rule.reset_bad_steps_on):
        return state.window_steps, "window_steps counts all steps"
    # A growth or a backoff begins a window without resetting this count, which can then exceed `window_steps`.
    return 2**31 - 1, "it is an int32"


def canonical(checkpoint: Checkpoint) -> tuple[LossScaleRule, LossScaleState]:
    """Return rule and state, with fixed values for fields without effect. Two scalers with equal return values behave alike."""
    rule, state = checkpoint.rule, numbers_of(checkpoint.state)
    # From the `hysteresis`-th counted overflow on, every overflow backs off.
    if rule.overflow_tolerance is None and rule.warmup_growth_factor is None:
        state = state._replace(bad_steps=min(state.bad_steps, rule.hysteresis - 1))
        if rule.hysteresis == 1:
            rule = replace(rule, reset_bad_steps_on=())
    if math.frexp(rule.backoff_factor)[0] == 0.5:  # a power of two: dividing and multiplying give the same result
        rule = replace(rule, divide_on_backoff=False)
    backoff = rule.backoff_divisor if rule.divide_on_backoff else rule.backoff_factor
    factors = (rule.growth_factor, rule.warmup_growth_factor or rule.growth_factor, backoff)
    # If float32 represents all factors, applying them in float32 or in float64 gives the same scale.
    if rule.dtype == "float64" or all(float(np.float32(factor)) == factor for factor in factors):
        rule = replace(rule, float64_factor=False)
    # The initial scale has no effect, but a rule requires one within its bounds.
    return replace(rule, init_scale=rule.min_scale or rule.max_scale or 1.0), state
