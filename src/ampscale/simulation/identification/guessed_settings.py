"""Likely values of the settings of a scaler, inferred from an observation. `identify` tries each of them."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ..traces import Observed, Overflow

HYSTERESIS, TOLERANCES = (1, 2, 3, 4), (0.05, 0.1, 0.2, 0.25, 0.3, 0.5)  # values to try
RATIO_RTOL = 1e-6  # relative tolerance of the ratio of two float32 scales


class Change(NamedTuple):
    """Change between two successive known scales, or an overflow, with the first and the last step that may be its cause."""

    first: int
    last: int
    ratio: float  # new scale divided by old scale; 0 for an overflow, and for the start of a run


def guesses(
    seen: Observed | Sequence[Overflow], tried: Mapping[str, Any], *, rtol: float = 0.0, resumed: bool = False
) -> dict[str, list[Any]]:
    """
    Return the values to try for each setting, the most likely first. Settings without values to try are omitted.

    *tried* maps the settings of the scaler to the values that were tried already. *rtol* is the relative error of the scales.
    If *resumed* is True, the first growth window may have started before the first step.
    """
    scales = scales_in_order(seen)
    finite_scales = scales[np.isfinite(scales)]
    ratios = [change.ratio for change in _changes(scales)]
    growths = [ratio for ratio in ratios if ratio > 1]
    backoffs = [ratio for ratio in ratios if ratio <= 1]
    inverted = [] if "backoff_factor" in tried else [1 / ratio for ratio in backoffs]
    growth_factors = _factors(growths or inverted, tried.get("growth_factor"), RATIO_RTOL + 2 * rtol)
    intervals = list[int]()
    if isinstance(seen, Observed):
        factors = tried.get("growth_factor", 2.0), *growth_factors[:1]
        for observed, factor in product((seen, *_without_blocked_backoffs(seen)), factors):
            intervals += _intervals(observed, resumed, max(factor, 1.01))
        intervals += _gradual(growths)
    candidates: dict[str, Iterable[Any]] = {
        "hysteresis": HYSTERESIS,
        "overflow_tolerance": TOLERANCES if tried.get("overflow_tolerance") else (),
        "growth_interval": intervals,
        "growth_factor": growth_factors,
        "backoff_factor": _factors(backoffs, tried.get("backoff_factor"), RATIO_RTOL + 2 * rtol),
        "min_scale": [float(finite_scales.min(initial=math.inf))],
        "max_scale": [float(finite_scales.max(initial=0.0))],
        "raise_at_min_scale": (False,),
    }
    names = [name for name in candidates if name in tried]
    untried = {name: [value for value in dict.fromkeys(candidates[name]) if value != tried[name]] for name in names}
    return {name: values for name, values in untried.items() if values}


def scales_in_order(seen: Observed | Sequence[Overflow]) -> np.ndarray:
    """Return all scales of an observation as float64; NaN for an unknown scale."""
    if isinstance(seen, Observed):
        return seen.scales
    return np.array([(overflow.before, overflow.after) for overflow in seen], np.float64).reshape(-1)


def _without_blocked_backoffs(seen: Observed) -> Iterator[Observed]:
    """
    Yield *seen* without the overflows that left the smallest scale unchanged, if there are any.

    A rule with `block_at_bounds` does not reset its count of finite steps at these overflows.
    """
    scales = seen.scales
    is_blocked = (seen.finite == 0) & (scales[1:] == scales[:-1]) & (scales[1:] == np.nanmin(scales))
    if is_blocked.any():
        yield Observed(scales[np.append(~is_blocked, True)], seen.finite[~is_blocked])


def _changes(scales: np.ndarray) -> list[Change]:
    """Return the changes between successive known scales, except changes from or to zero or infinity, which have no ratio."""
    indices = np.flatnonzero((scales > 0) & (scales < math.inf))
    changed = np.flatnonzero(scales[indices[1:]] != scales[indices[:-1]])
    pairs = zip(indices[changed].tolist(), indices[changed + 1].tolist(), strict=True)
    return [Change(old, new - 1, float(scales[new] / scales[old])) for old, new in pairs]


def _intervals(observed: Observed, resumed: bool, factor: float) -> list[int]:
    """
    Return growth intervals that fit the smallest number of steps from a scale change, an overflow or the start to a growth.

    Several growths between two known scales bound the interval, too. Each interval minus one is returned as well, because some
    scalers grow one step later than their interval, always or only in the first window.
    """
    changes = _changes(observed.scales)
    # A delayed growth can take effect at a step that overflows, which does not limit the interval.
    growth_steps = {change.last for change in changes if change.ratio > 1 and change.first == change.last}
    overflows = [Change(step, step, 0.0) for step in np.flatnonzero(observed.finite == 0).tolist() if step not in growth_steps]
    start = [] if resumed else [Change(-1, -1, 0.0)]
    events = sorted([*start, *changes, *overflows])
    upper_bounds, lower_bounds = [], [1]
    for previous, event in zip([None, *events], events, strict=False):
        if event.ratio > 1:
            growths = min(max(1, round(math.log(event.ratio, factor))), event.last - event.first + 1)
            if growths > 1:
                upper_bounds.append((event.last - event.first) // (growths - 1))
            if previous is not None:
                upper_bounds.append((event.last - previous.first) // growths)
                lower_bounds.append(event.first - previous.last)
    if not upper_bounds:
        return []
    high = max(1, min(upper_bounds))
    intervals = _roundest(range(max(bound for bound in lower_bounds if bound <= high), high + 1))
    if ((observed.finite == -1) & np.isnan(observed.scales[1:] + observed.scales[:-1])).any():  # an overflow can be invisible
        intervals += _roundest(range(1, high + 1))
    return [interval for whole in intervals for interval in (whole, whole - 1) if interval]


def _roundest(numbers: range) -> list[int]:
    """
    Return the three roundest numbers, the larger of two equally round ones first.

    A round number has few decimal digits before its trailing zeros, like 2000, or few one bits, like 2048.
    """

    def key(number: int) -> tuple[int, int]:
        decimal_digits = len(str(number).rstrip("0"))
        return min(decimal_digits, number.bit_count()), -number

    return sorted(numbers, key=key)[:3]


def _gradual(growths: list[float]) -> list[int]:
    """Return the most common number of small growths that double the scale: the interval of Chainer's scaler."""
    intervals = Counter(round(1 / math.log2(ratio)) for ratio in growths if ratio < 2)
    return [interval for interval, _ in intervals.most_common(1)]


def _factors(ratios: list[float], tried: float | None, rtol: float) -> list[float]:
    """Return the most common ratios, rounded to few digits; [] if at least half of the ratios equal the factor *tried*."""
    if 2 * sum(math.isclose(ratio, tried or 0.0, rel_tol=rtol) for ratio in ratios) >= len(ratios):
        return []
    pairs = Counter((_shortest(ratio, rtol), _shortest(1 / ratio, rtol)) for ratio in ratios)
    factors = list[float]()
    for (ratio, inverse), _ in pairs.most_common(2):
        # Try the number with fewer digits first, either the factor or its reciprocal: 1/3 rather than 0.333333.
        factors += [1 / inverse, ratio] if len(repr(inverse)) < len(repr(ratio)) else [ratio, 1 / inverse]
    return factors


def _shortest(ratio: float, rtol: float) -> float:
    """Return *ratio*, rounded to as few digits as possible with a relative error of at most *rtol*."""
    numbers = (float(f"{ratio:.{digits}g}") for digits in range(1, 18))
    return next(number for number in numbers if math.isclose(number, ratio, rel_tol=rtol))
