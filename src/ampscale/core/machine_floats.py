"""
State machine on Python numbers, for states in host memory: NumPy arrays and Python numbers.

The results equal those of machine.py, which is the reference, bit for bit; the steps are faster. All arithmetic is in float64,
followed by one rounding to the dtype of the rule. This equals float32 arithmetic: the product of two float32 numbers has at
most 48 bits, which float64 represents exactly, and their quotient is so far from every midpoint between two float32 numbers
that rounding it to the 53 bits of float64 first does not change the result.
"""

import math
from collections.abc import Callable
from ctypes import c_float
from typing import Any, Generic, NamedTuple, TypeVar

from array_api_compat import is_numpy_array

from ..parsing import excerpt
from .machine import LossScaleState
from .rule_constants import RuleConstants
from .typing import Array, Flag

Number = TypeVar("Number")

# Values of a LossScaleState: scale, good_steps, bad_steps, window_steps and pending_scale. A rule without `overflow_tolerance`
# ignores window_steps; without `delayed_update`, pending_scale equals scale.
HostState = tuple[float, int, int, int, float]
Step = Callable[[HostState, bool], HostState | None]


class RoundedConstants(NamedTuple, Generic[Number]):
    """
    Constants of a rule, rounded to its dtype. A constant that the rule does not set has a value without effect.

    Each constant is a float or, for a batch of rules, a float64 array with one entry per rule.
    """

    init: Number
    growth: Number
    warmup_growth: Number  # growth factor while no overflow is counted
    backoff: Number  # a backoff multiplies by this and divides by `divisor`; one of the two is 1
    divisor: Number
    lower_clamp: Number
    upper_clamp: Number
    blocks_backoff_at: Number  # a scale at or below this does not back off; -inf without `block_at_bounds`
    blocks_growth_at: Number  # a scale at or above this does not grow; NaN, which no scale reaches, without `block_at_bounds`
    raises_at_min: Number  # a backoff that is due at this scale or below raises an error; -inf without `raise_at_min_scale`
    raise_at_or_below: Number  # an overflow that leaves the scale at or below this raises an error; -inf if not set
    overflow_tolerance: Number  # NaN for a rule that counts overflows


def init_host(rule: RuleConstants) -> LossScaleState:
    """Create the state before the first step as Python numbers."""
    scale = rounded_constants(rule).init
    window_steps = None if rule.overflow_tolerance is None else 0
    return LossScaleState(scale, rule.initial_good_steps, 0, window_steps, scale if rule.delayed_update else None)


def transition_host(rule: Any, state: LossScaleState, finite: Flag) -> tuple[LossScaleState, bool] | None:
    """
    Return the next state, and True if the published scaler raises an error; see `LossScaleRule.transition`.

    Return None if *state* consists of neither Python numbers nor NumPy arrays of shape (), if *finite* is neither a Python bool
    nor a NumPy bool of shape (), or if *state* does not have exactly the fields that *rule* requires. The caller then uses
    `machine.transition`, which also raises the error for an invalid argument.

    Raises:
        TypeError: *state* consists of Python numbers and *finite* is not a bool.
    """
    # Read `rule._step` only after all checks, because torch.compile cannot trace a cached property.
    has_window, has_pending = state.window_steps is not None, state.pending_scale is not None
    if has_window != (rule.overflow_tolerance is not None) or has_pending != rule.delayed_update:
        return None
    if type(state.scale) is float:
        if type(finite) is not bool and not _is_flag(finite):
            expected = "a bool for a state of Python numbers"
            raise TypeError(f"finite must be {expected}, got {excerpt(finite)} of type {type(finite).__name__}")
        return _transition(rule._step, state, bool(finite))
    if not (_are_arrays(state, rule.dtype) and _is_flag(finite)):
        return None
    numbers = LossScaleState(*[None if value is None else value.item() for value in state])
    new_numbers, raises = _transition(rule._step, numbers, bool(finite))
    return LossScaleState(*map(_like, state, new_numbers)), raises


def flag_like(scale: Array, flag: Flag) -> Flag:
    """Return *flag*, converted to a NumPy array if it is a Python bool and *scale* is a NumPy array."""
    if isinstance(flag, bool) and type(scale) is not float:
        return _like(scale.astype("bool"), flag)
    return flag


def rounded_constants(rule: RuleConstants) -> RoundedConstants[float]:
    """Return the constants of *rule* as Python floats. Factors that are applied in float64 are not rounded."""
    rounded = _rounding(rule)
    factor = float if rule.float64_factor else rounded
    warmup = rule.growth_factor if rule.warmup_growth_factor is None else rule.warmup_growth_factor
    least = rounded(rule.min_scale or 0.0)
    largest = rounded(math.inf if rule.max_scale is None else rule.max_scale)
    return RoundedConstants(
        init=rounded(rule.init_scale),
        growth=factor(rule.growth_factor),
        warmup_growth=factor(warmup),
        backoff=1.0 if rule.divide_on_backoff else factor(rule.backoff_factor),
        divisor=factor(rule.backoff_divisor) if rule.divide_on_backoff else 1.0,
        lower_clamp=0.0 if rule.block_at_bounds else least,
        upper_clamp=math.inf if rule.block_at_bounds else largest,
        blocks_backoff_at=least if rule.block_at_bounds and rule.min_scale is not None else -math.inf,
        blocks_growth_at=largest if rule.block_at_bounds and rule.max_scale is not None else math.nan,
        raises_at_min=least if rule.raise_at_min_scale else -math.inf,
        raise_at_or_below=-math.inf if rule.raise_at_or_below is None else rounded(rule.raise_at_or_below),
        overflow_tolerance=math.nan if rule.overflow_tolerance is None else rounded(rule.overflow_tolerance),
    )


def step_of(rule: RuleConstants) -> Step:
    """Return a function from a state and a finite flag to the next state, or to None if the published scaler raises an error."""
    constants, rounded = rounded_constants(rule), _rounding(rule)
    # Python reads local names faster than attributes.
    interval, hysteresis, delayed = rule.growth_interval, rule.hysteresis, rule.delayed_update
    finite_resets, growth_resets = "finite" in rule.reset_bad_steps_on, "growth" in rule.reset_bad_steps_on
    bad_after_backoff = 0 if "backoff" in rule.reset_bad_steps_on else hysteresis

    def step(state: HostState, finite: bool) -> HostState | None:
        _, good_steps, bad_steps, window_steps, old_scale = state
        scale = old_scale
        # Do not add in place, which would change an array that stands for a number.
        window_steps = window_steps + 1
        if finite:
            good_steps = good_steps + 1
            if good_steps >= interval and not scale >= constants.blocks_growth_at:  # not "<", since the bound can be NaN
                grown = rounded(scale * (constants.growth if bad_steps else constants.warmup_growth))
                is_skipped = rule.skip_infinite_growth and math.isinf(grown)
                scale = min(scale if is_skipped else grown, constants.upper_clamp)
                good_steps = window_steps = 0
                if growth_resets:
                    bad_steps = 0
            if finite_resets:
                bad_steps = 0
        else:
            bad_steps = bad_steps + 1
            due = (
                bad_steps >= hysteresis
                if rule.overflow_tolerance is None
                else rounded(rounded(bad_steps) / rounded(window_steps)) >= constants.overflow_tolerance
            )
            may_back_off = scale > constants.blocks_backoff_at
            if due and may_back_off:
                scale = max(rounded(scale * constants.backoff / constants.divisor), constants.lower_clamp)
            if (due and old_scale <= constants.raises_at_min) or scale <= constants.raise_at_or_below:
                return None
            if may_back_off or not due:
                good_steps = rule.initial_good_steps
            if due:
                bad_steps, window_steps = bad_after_backoff, 0
        return (old_scale if delayed else scale), good_steps, bad_steps, window_steps, scale

    return step


def _rounding(rule: RuleConstants) -> Callable[[float], float]:
    """Return the function that converts an int or a float to the dtype of *rule*."""
    return _to_float32 if rule.dtype == "float32" else float


def _to_float32(value: float) -> float:
    return c_float(value).value  # faster than numpy.float32, and without its warnings at infinity


def _transition(step: Step, state: LossScaleState, finite: bool) -> tuple[LossScaleState, bool]:
    """Do what `transition_host` does, for a state of Python numbers."""
    scale, good_steps, bad_steps, window_steps, pending = state
    new_state = step((scale, good_steps, bad_steps, window_steps or 0, scale if pending is None else pending), finite)
    if new_state is None:
        return state, True
    scale, good_steps, bad_steps, new_window_steps, new_pending = new_state
    window_steps = None if window_steps is None else new_window_steps
    pending = None if pending is None else new_pending
    return LossScaleState(scale, good_steps, bad_steps, window_steps, pending), False


def _are_arrays(state: LossScaleState, dtype: str) -> bool:
    """Return True if *state* consists of NumPy arrays and its scale has *dtype* and shape (). NumPy scalars do not count."""
    types = {*map(type, state)} - {type(None)}
    return len(types) == 1 and _is_array(state.scale, dtype) and hasattr(state.scale, "__setitem__")


def _is_array(value: Any, dtype: str) -> bool:
    """Return True if *value* is a NumPy array or scalar of *dtype* and shape ()."""
    return is_numpy_array(value) and value.shape == () and value.dtype == dtype


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or _is_array(value, "bool")


def _like(array: Array, number: float | None) -> Array:
    """Return a copy of *array* with the value *number*, or None if *array* is None. Creating an array would be slower."""
    if array is None:
        return None
    new = array.copy()
    new[()] = number
    return new
