"""Descriptions of rules and numbers as text."""

import math
import textwrap
from collections.abc import Iterator

from ..core.rule import LossScaleRule

WIDTH = 80


def fold(text: str, indent: str = "") -> str:
    """Return *text* in lines of at most 80 characters; *indent* precedes all lines but the first. Words stay whole."""
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def power(value: float) -> str:
    """Return a power of two as "2^16", unless it is from 0.5 to 8, and any other number with up to six digits."""
    fraction, exponent = math.frexp(value)
    return f"2^{exponent - 1}" if fraction == 0.5 and not 0.5 <= value <= 8 else f"{value:.6g}"


def exact(scale: float) -> str:
    """Return a scale as a power of two, with a factor from 1 to 2 if necessary: "2^16", "1.5*2^15"."""
    if not 0 < scale < math.inf:
        return f"{scale:g}"
    fraction, exponent = math.frexp(scale)
    return f"2^{exponent - 1}" if fraction == 0.5 else f"{2 * fraction:.6g}*2^{exponent - 1}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as "2,000 steps"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def percent(share: float) -> str:
    """Return a share with two significant digits, such as "0.13 %", or three near "100 %"; "-" for NaN."""
    if math.isnan(share):
        return "-"
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.3g} %"


def sentences(rule: LossScaleRule) -> Iterator[str]:
    """Yield sentences about the scaler of *rule*, in this order: start, growth, backoff, bounds, errors, arithmetic, delay."""
    yield f"The scale starts at {power(rule.init_scale)}."
    yield from _growth(rule)
    yield from _backoff(rule)
    yield from _bounds(rule)
    if rule.raise_at_min_scale:
        yield "The published scaler raises an error when a backoff is due at the lower bound."
    if rule.raise_at_or_below is not None:
        yield f"The published scaler raises an error when an overflow leaves a scale of {power(rule.raise_at_or_below)} or below."
    storage = "The scale is a float64 on the host" if rule.dtype == "float64" else "The scale is a float32"
    if rule.float64_factor:
        yield f"{storage}; its factors are applied in float64, and the result is rounded once."
    else:
        yield f"{storage}, and so are its factors."
    if rule.delayed_update:
        yield "Each change takes effect one step later."


def ordinal(number: int) -> str:
    """Return an ordinal number, such as "2nd"."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _growth(rule: LossScaleRule) -> Iterator[str]:
    if rule.growth_factor == 1 and rule.warmup_growth_factor is None:
        yield "It never grows."
        return
    when = "at every finite step" if rule.growth_interval == 1 else f"at the {ordinal(rule.growth_interval)} finite step in a row"
    if rule.warmup_growth_factor is not None:
        until = "before the first overflow" if not rule.reset_bad_steps_on else "while the overflow count is zero"
        yield f"It is multiplied by {power(rule.warmup_growth_factor)} {when} {until}, and by {rule.growth_factor:.10g} later."
    else:
        yield f"It is multiplied by {power(rule.growth_factor)} {when}; the count of finite steps then restarts."
    if rule.initial_good_steps:
        side = "later" if rule.initial_good_steps < 0 else "earlier"
        yield f"After the start and after each overflow, the growth comes {counted(abs(rule.initial_good_steps), 'step')} {side}."


def _backoff(rule: LossScaleRule) -> Iterator[str]:
    if rule.backoff_factor == 1:
        yield "It never backs off."
        return
    how = f"divided by {power(rule.backoff_divisor)}" if rule.divide_on_backoff else f"multiplied by {power(rule.backoff_factor)}"
    if rule.overflow_tolerance is not None:
        share = f"{rule.overflow_tolerance:.6g} of the steps since the last growth or due backoff"
        yield f"It is {how} when overflows reach {share}."
    elif rule.hysteresis == 1:
        yield f"It is {how} at every overflow, which also restarts the count of finite steps."
    else:
        yield f"It is {how} at the {ordinal(rule.hysteresis)} counted overflow."
        yield "Each overflow restarts the count of finite steps."
    if rule.hysteresis > 1 or rule.overflow_tolerance is not None:
        names = {"finite": "a finite step", "growth": "a growth", "backoff": "a backoff"}
        events = [names[event] for event in names if event in rule.reset_bad_steps_on]
        yield f"{' or '.join(events).capitalize() if events else 'Nothing'} resets the overflow count."
        if "backoff" not in rule.reset_bad_steps_on and rule.overflow_tolerance is None:
            yield "After the first backoff, every overflow backs off until the count is reset."


def _bounds(rule: LossScaleRule) -> Iterator[str]:
    low, high = rule.min_scale, rule.max_scale
    if rule.block_at_bounds:
        if low is not None:
            yield f"The scale backs off only from above {power(low)}; the result may be lower."
        if high is not None:
            yield f"The scale grows only from below {power(high)}; the result may be higher."
        return
    predicates = []
    if low is not None:
        predicates.append(f"never backs off below {power(low)}")
    elif rule.backoff_factor < 1:
        predicates.append("has no lower bound and can reach zero")
    if high is not None:
        predicates.append(f"never grows above {power(high)}")
    if predicates:
        yield f"The scale {' and '.join(predicates)}."
    if high is None and rule.growth_factor > 1:
        yield "A growth that would be non-finite is skipped." if rule.skip_infinite_growth else "The scale can grow to infinity."
