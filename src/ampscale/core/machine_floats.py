"""
The machine on Python numbers, for states that lie in the host's memory: NumPy's, and those that are Python numbers themselves.

The definition is machine.py, which this equals bit for bit. It computes in float64. For a rule of float32 that is exact: its
scales and its rounded factors are float64 numbers, the product of two float32 has at most 48 bits and so is not rounded by
float64, and a quotient of two float32 lies too far from every halfway point between two float32 for float64, with 53 bits, to
move it there. So one rounding to float32 at the end gives what float32 arithmetic gives.
"""

import math
from collections.abc import Callable
from ctypes import c_float
from typing import Any, Generic, NamedTuple, TypeVar

from array_api_compat import array_namespace, is_numpy_array

from ..parsing import excerpt
from .machine import LossScaleState
from .rule_constants import RuleConstants
from .typing import Array, Flag

Number = TypeVar("Number")

# Where a scaler stands between two steps: the scale in force; finite steps since the last growth or overflow; overflows counted
# towards the next backoff; steps since the last growth or backoff; and the scale that moves, which is in force a step later
# where the rule lags, and at once where it does not.
HostState = tuple[float, int, int, int, float]
Step = Callable[[HostState, bool], HostState | None]


class RoundedConstants(NamedTuple, Generic[Number]):
    """
    A rule's numbers as its arithmetic sees them, rounded to its dtype; what a rule lacks has a value that does nothing.

    Each a float, or for many rules an array of one float64 for each.
    """

    init: Number
    growth: Number
    first_growth: Number  # while no overflow is counted
    backoff: Number  # a backoff multiplies by this and divides by the next; one of the two is 1
    divisor: Number
    floor: Number
    ceiling: Number
    closed_below: Number  # the gates: a scale at this or below does not back off,
    closed_above: Number  # and one at this or above does not grow; NaN, which no number is at, where there is no gate
    stop_floor: Number
    raise_at_or_below: Number
    overflow_tolerance: Number  # NaN where overflows are counted


def init_host(rule: RuleConstants) -> tuple[float, int, int, int | None, float | None]:
    """The fields of the first state, as Python numbers."""
    scale = rounded_constants(rule).init
    return (
        scale,
        rule.initial_good_steps,
        0,
        None if rule.overflow_tolerance is None else 0,
        scale if rule.delayed_update else None,
    )


def takes_host(rule: RuleConstants, state: LossScaleState, finite: Flag) -> bool:
    """Return True if *state*, one that *rule* made, and *finite* are Python numbers, or NumPy's arrays of shape ()."""
    if not _fits(state, rule):  # the definition says what is wrong
        return False
    return type(state.scale) is float or (_are_arrays(state, rule.dtype) and _is_flag(finite))


def transition_host(step: Step, state: LossScaleState, finite: Flag) -> tuple[LossScaleState, bool]:
    """
    Return the next state, and whether the published scaler stops, as `LossScaleRule.transition` says.

    Args:
        step: The rule's step, from `step_of`.
        state: A state that `takes_host`.
        finite: A Python or NumPy bool, or NumPy's array of shape ().

    Raises:
        TypeError: *finite* is something else beside Python numbers.
    """
    if type(state.scale) is float:
        return _transition(step, state, finite if type(finite) is bool else _flag_host(finite))
    numbers = LossScaleState(*(None if value is None else value.item() for value in state))
    after, stopped = _transition(step, numbers, bool(finite))
    return LossScaleState(*map(_like, state, after)), stopped


def flag_beside(scale: Array, flag: Flag) -> Flag:
    """Return *flag* as an array if *scale* is one."""
    return array_namespace(scale).asarray(flag) if isinstance(flag, bool) and type(scale) is not float else flag


def rounded_constants(rule: RuleConstants) -> RoundedConstants[float]:
    """The numbers of *rule*, as Python floats. A wide factor alone is not rounded."""
    rounded = _rounding(rule)
    factor = _kept if rule.float64_factor else rounded
    first = rule.growth_factor if rule.warmup_growth_factor is None else rule.warmup_growth_factor
    least, largest = rule.min_scale or 0.0, math.inf if rule.max_scale is None else rule.max_scale
    return RoundedConstants(
        init=rounded(rule.init_scale),
        growth=factor(rule.growth_factor),
        first_growth=factor(first),
        backoff=1.0 if rule.divide_on_backoff else factor(rule.backoff_factor),
        divisor=factor(rule.backoff_divisor) if rule.divide_on_backoff else 1.0,
        floor=0.0 if rule.block_at_bounds else rounded(least),
        ceiling=math.inf if rule.block_at_bounds else rounded(largest),
        closed_below=rounded(least) if rule.block_at_bounds and rule.min_scale is not None else -math.inf,
        closed_above=rounded(largest) if rule.block_at_bounds and rule.max_scale is not None else math.nan,
        stop_floor=rounded(least) if rule.raise_at_min_scale else -math.inf,
        raise_at_or_below=-math.inf if rule.raise_at_or_below is None else rounded(rule.raise_at_or_below),
        overflow_tolerance=math.nan if rule.overflow_tolerance is None else rounded(rule.overflow_tolerance),
    )


def step_of(rule: RuleConstants) -> Step:
    """What a step does: from a place and whether it was finite to the next place; to None where the published scaler stops."""
    constants, rounded = rounded_constants(rule), _rounding(rule)
    grown, backed_off = _grown(rule, constants), _backed_off(rule, constants)
    closed_below, closed_above = constants.closed_below, constants.closed_above
    interval, hysteresis, offset, lag = rule.growth_interval, rule.hysteresis, rule.initial_good_steps, rule.delayed_update
    finite_refills, growth_refills = "finite" in rule.reset_bad_steps_on, "growth" in rule.reset_bad_steps_on
    spent = 0 if "backoff" in rule.reset_bad_steps_on else hysteresis

    def step(state: HostState, finite: bool) -> HostState | None:
        _, good, bad, since, scale = state
        before = scale
        since += 1
        if finite:
            good += 1
            if good >= interval and not scale >= closed_above:
                scale = grown(scale, bad)
                good = since = 0
                if growth_refills:
                    bad = 0
            if finite_refills:
                bad = 0
        else:
            bad += 1
            due = (
                bad >= hysteresis
                if rule.overflow_tolerance is None
                else rounded(rounded(bad) / rounded(since)) >= constants.overflow_tolerance
            )
            allowed = scale > closed_below
            if due and allowed:
                scale = backed_off(scale)
            if (due and before <= constants.stop_floor) or scale <= constants.raise_at_or_below:
                return None
            if allowed or not due:
                good = offset
            if due:
                bad, since = spent, 0
        return (before if lag else scale), good, bad, since, scale

    return step


def _grown(rule: RuleConstants, constants: RoundedConstants[float]) -> Callable[[float, int], float]:
    rounded = _rounding(rule)

    def grown(scale: float, bad: int) -> float:
        larger = rounded(scale * (constants.growth if bad else constants.first_growth))
        return min(scale if rule.skip_infinite_growth and math.isinf(larger) else larger, constants.ceiling)

    return grown


def _backed_off(rule: RuleConstants, constants: RoundedConstants[float]) -> Callable[[float], float]:
    rounded = _rounding(rule)
    return lambda scale: max(rounded(scale * constants.backoff / constants.divisor), constants.floor)


def _rounding(rule: RuleConstants) -> Callable[[float], float]:
    return _to_float32 if rule.dtype == "float32" else _kept


def _to_float32(value: float) -> float:
    return c_float(value).value  # quick, and silent where NumPy warns of infinity, which is data here


def _kept(value: float) -> float:
    return value


def _transition(step: Step, state: LossScaleState, finite: bool) -> tuple[LossScaleState, bool]:
    scale, good, bad, since, moving = state
    after = step((scale, good, bad, since or 0, scale if moving is None else moving), finite)
    if after is None:
        return state, True
    scale, good, bad, steps, moved = after
    return LossScaleState(scale, good, bad, None if since is None else steps, None if moving is None else moved), False


def _fits(state: LossScaleState, rule: RuleConstants) -> bool:
    """Whether *state* has what the rule needs, and no more."""
    return (state.window_steps is None) is (rule.overflow_tolerance is None) and (
        state.pending_scale is not None
    ) is rule.delayed_update


def _are_arrays(state: LossScaleState, dtype: str) -> bool:
    """Whether all of *state* can be written to: NumPy has scalars of shape () too."""
    kinds = {type(value) for value in state if value is not None}
    return len(kinds) == 1 and _is_array(state.scale, dtype) and hasattr(state.scale, "__setitem__")


def _is_array(value: Any, dtype: str) -> bool:
    return is_numpy_array(value) and value.shape == () and value.dtype == dtype


def _flag_host(finite: Flag) -> bool:
    if not _is_flag(finite):
        raise TypeError(
            f"finite must be a bool beside a state of Python numbers, got {excerpt(finite)} of type {type(finite).__name__}"
        )
    return bool(finite)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or _is_array(value, "bool")


def _like(array: Array, number: float | None) -> Array:
    """A new array like *array* that holds *number*; quicker than to make one from nothing."""
    if array is None:
        return None
    new = array.copy()
    new[()] = number
    return new
