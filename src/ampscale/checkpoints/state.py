"""Where a scaler stands, as a checkpoint says it: its rule and its state, and what of it was not in the file."""

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
    All that the next steps of a scaler depend on.

    Args:
        rule: Its constants. `init_scale` has no say any more; where a file does not hold it, it is the saved scale.
        state: Python numbers, or NumPy arrays of shape ().
        assumed: The constants that the file does not hold, by the rule's names: they are the published scaler's defaults.
        at: Where in a larger checkpoint the mapping was found; empty for the top.
        ignored: The keys beside the scaler's own, which are something else's.
    """

    rule: LossScaleRule
    state: LossScaleState
    assumed: Mapping[str, Any] = field(default_factory=dict)
    at: str = ""
    ignored: tuple[str, ...] = ()


def arrays_of(rule: LossScaleRule, state: LossScaleState) -> LossScaleState:
    """A state in Python numbers as *rule* takes it: NumPy arrays of shape (), in the rule's dtypes."""
    dtypes = (rule.dtype, "int32", "int32", "int32", rule.dtype)
    return LossScaleState(
        *(None if value is None else np.asarray(value, dtype) for value, dtype in zip(state, dtypes, strict=True))
    )


def numbers_of(state: LossScaleState) -> LossScaleState:
    """A state as Python numbers."""
    held: tuple[Any, ...] = state
    return LossScaleState(*(value.item() if hasattr(value, "item") else value for value in held))


def check_reachable(rule: LossScaleRule, state: LossScaleState) -> None:
    """
    A run of *rule* can pass through *state*, which is in Python numbers.

    Raises:
        ValueError: No run reaches such a count.
    """
    interval, most = rule.growth_interval, rule.hysteresis - ("backoff" in rule.reset_bad_steps_on)
    if state.good_steps < rule.initial_good_steps or (state.good_steps >= interval and not rule.block_at_bounds):
        wanted = f"from {rule.initial_good_steps} to {interval - 1}, since the growth interval is {interval}"
        raise ValueError(f"the count of finite steps must be {wanted}, got {state.good_steps}")
    if state.window_steps is not None:
        most = state.window_steps
    if not 0 <= state.bad_steps <= most:
        wanted = f"from 0 to {most}, since the hysteresis is {rule.hysteresis}"
        raise ValueError(f"the count of overflows must be {wanted}, got {state.bad_steps}")
    if (
        state.bad_steps
        and state.good_steps != rule.initial_good_steps
        and "finite" in rule.reset_bad_steps_on
        and not rule.block_at_bounds
    ):
        wanted = f"0 after {state.good_steps} finite steps, since each of them resets it"
        raise ValueError(f"the count of overflows must be {wanted}, got {state.bad_steps}")


def plain(checkpoint: Checkpoint) -> tuple[LossScaleRule, LossScaleState]:
    """The rule and the state, made alike in all that can have no effect: equal ones behave alike for ever."""
    rule, state = checkpoint.rule, numbers_of(checkpoint.state)
    if rule.overflow_tolerance is None and rule.warmup_growth_factor is None:  # from the last count on, each overflow is due
        state = state._replace(bad_steps=min(state.bad_steps, rule.hysteresis - 1))
        rule = replace(rule, reset_bad_steps_on=()) if rule.hysteresis == 1 else rule
    if math.frexp(rule.backoff_factor)[0] == 0.5:  # a power of two
        rule = replace(rule, divide_on_backoff=False)
    if rule.dtype == "float64" or all(map(_is_float32, _factors(rule))):
        rule = replace(rule, float64_factor=False)
    return replace(rule, init_scale=rule.min_scale or rule.max_scale or 1.0), state


def _factors(rule: LossScaleRule) -> tuple[float, ...]:
    backoff = rule.backoff_divisor if rule.divide_on_backoff else rule.backoff_factor
    first = rule.growth_factor if rule.warmup_growth_factor is None else rule.warmup_growth_factor
    return rule.growth_factor, first, backoff


def _is_float32(value: float) -> bool:
    return float(np.float32(value)) == value
