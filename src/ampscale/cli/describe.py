"""A rule in words: what its scaler does, one sentence a fact."""

import math
from collections.abc import Iterator

from ..core.rule import LossScaleRule


def power(value: float) -> str:
    """``2^16`` for 65536.0, ``1`` for 1.0, ``0.8`` for 0.8."""
    if value <= 0 or not math.isfinite(value):
        return f"{value:g}"
    mantissa, exponent = math.frexp(value)
    return f"2^{exponent - 1}" if mantissa == 0.5 and not -1 <= exponent - 1 <= 3 else f"{value:.6g}"


def exact(scale: float) -> str:
    """``2^15`` for 32768.0, ``1.5*2^15`` for 49152.0: what a scale is made of; zero and infinity as they are."""
    if scale == 0 or math.isinf(scale):
        return f"{scale:g}"
    fraction, exponent = math.frexp(scale)
    return f"2^{exponent - 1}" if fraction == 0.5 else f"{2 * fraction:.6g}*2^{exponent - 1}"


def counted(number: int, word: str) -> str:
    """``1 step``, ``2,000 steps``."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def sentences(rule: LossScaleRule) -> Iterator[str]:
    """What the scaler does, in the order of a run: start, growth, backoff, bounds, stops, arithmetic."""
    yield f"The scale begins at {power(rule.init_scale)}."
    yield from _growth(rule)
    if rule.backoff_factor == 1:
        yield "It never backs off."
    else:
        yield from _backoff(rule)
    yield from _bounds(rule)
    yield from _stops(rule)
    yield from _arithmetic(rule)


def ordinal(number: int) -> str:
    """``2nd`` for 2."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _growth(rule: LossScaleRule) -> Iterator[str]:
    if rule.growth_factor == 1 and rule.warmup_growth_factor is None:
        yield "It never grows."
        return
    when = "at every finite step" if rule.growth_interval == 1 else f"at the {ordinal(rule.growth_interval)} finite step in a row"
    if rule.warmup_growth_factor is not None:
        until = "until the first overflow ever" if not rule.reset_bad_steps_on else "while no overflow is counted"
        yield f"It grows times {power(rule.warmup_growth_factor)} {when} {until}, and then times {rule.growth_factor:.10g}."
    else:
        yield f"It grows times {power(rule.growth_factor)} {when}, and the count starts again."
    if rule.initial_good_steps:
        steps, side = abs(rule.initial_good_steps), "later" if rule.initial_good_steps < 0 else "sooner"
        yield f"From the start and after each overflow, that is {steps} step{'s'[: steps > 1]} {side}."


def _backoff(rule: LossScaleRule) -> Iterator[str]:
    how = (
        f"is divided by {power(rule.backoff_divisor)}"
        if rule.divide_on_backoff
        else f"is multiplied by {power(rule.backoff_factor)}"
    )
    if rule.overflow_tolerance is not None:
        share = f"{rule.overflow_tolerance:.6g} of the steps since it last moved"
        yield f"It {how} when overflows are at least {share}."
    elif rule.hysteresis == 1:
        yield f"It {how} at every overflow, which also starts the count again."
    else:
        yield f"It {how} at the {ordinal(rule.hysteresis)} overflow that is counted."
        yield "Each overflow starts the count of finite steps again."
    if rule.hysteresis > 1 or rule.overflow_tolerance is not None:
        yield from _refill(rule)


def _refill(rule: LossScaleRule) -> Iterator[str]:
    names = {"finite": "any finite step", "growth": "a growth", "backoff": "a backoff"}
    events = [names[event] for event in names if event in rule.reset_bad_steps_on]
    yield f"{' or '.join(events).capitalize() if events else 'Nothing'} makes it forget the overflows before."
    if "backoff" not in rule.reset_bad_steps_on:
        yield "Once its patience is spent, each further overflow backs off, until it forgets."


def _bounds(rule: LossScaleRule) -> Iterator[str]:
    low, high = rule.min_scale, rule.max_scale
    if rule.block_at_bounds:
        yield from (f"It backs off only from above {power(low)}, and may land below." for _ in "1" if low is not None)
        yield from (f"It grows only from below {power(high)}, and may land above." for _ in "1" if high is not None)
        return
    floor = "has no floor, and can reach zero" if low is None and rule.backoff_factor < 1 else ""
    floor = f"never backs off below {power(low)}" if low is not None else floor
    cap = f"never grows above {power(high)}" if high is not None else ""
    if floor or cap:
        yield f"It {' and '.join(filter(None, [floor, cap]))}."
    if high is None and rule.growth_factor > 1:
        yield (
            "A growth that would not be finite keeps it."
            if rule.skip_infinite_growth
            else "Nothing keeps it from growing to infinity."
        )


def _stops(rule: LossScaleRule) -> Iterator[str]:
    if rule.raise_at_min_scale:
        yield "A backoff that is due at the floor raises, and ends the run."
    if rule.raise_at_or_below is not None:
        yield f"An overflow that leaves it at {power(rule.raise_at_or_below)} or below raises, and ends the run."


def _arithmetic(rule: LossScaleRule) -> Iterator[str]:
    held = "It is a float64 on the host" if rule.dtype == "float64" else "It is a float32"
    yield f"{held}, multiplied in float64 and rounded once." if rule.float64_factor else f"{held}, and so are its factors."
    if rule.delayed_update:
        yield "A change comes into force one step late."
