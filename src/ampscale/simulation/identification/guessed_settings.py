"""Settings that a scaler may have been given, guessed from what was seen of it. `identify` tries each guess."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ..traces import Observed, Overflow

PATIENCE = (1, 2, 3, 4)  # every hysteresis that is tried
CLOSE = 1e-6  # the relative error of a ratio of two float32 scales, with room


class Change(NamedTuple):
    """A change of the scale between two sights of it, or an overflow: the first and the last step that can have made it."""

    first: int
    last: int
    ratio: float  # 0 for an overflow


def guesses(
    seen: Observed | Sequence[Overflow], tried: Mapping[str, Any], *, rtol: float = 0.0, resumed: bool = False
) -> dict[str, list[Any]]:
    """
    Other values that a scaler's settings may have had.

    Args:
        seen: What was seen of it.
        tried: Its settings by name, with the values that were tried before.
        rtol: The relative error of its scales.
        resumed: Its first window may have begun before.

    Returns:
        The values to try for each setting that has any, the likeliest first.
    """
    scales = seen.scales if isinstance(seen, Observed) else np.array([(each.before, each.after) for each in seen]).reshape(-1)
    changes, known = _changes(scales), scales[np.isfinite(scales)]
    ups, downs = ([change.ratio for change in changes if (change.ratio > 1) is up] for up in (True, False))
    inverted = [] if "backoff_factor" in tried else [1 / ratio for ratio in downs]
    factor = max(tried.get("growth_factor", 2.0), 1.01)
    found: dict[str, Iterable[Any]] = {
        "hysteresis": PATIENCE,
        "growth_interval": _intervals(seen, changes, resumed, factor) + _gradual(ups) if isinstance(seen, Observed) else (),
        "growth_factor": _factors(ups or inverted, tried.get("growth_factor"), CLOSE + 2 * rtol),
        "backoff_factor": _factors(downs, tried.get("backoff_factor"), CLOSE + 2 * rtol),
        "min_scale": known.min(initial=math.inf, keepdims=True).tolist(),
        "max_scale": known.max(initial=0.0, keepdims=True).tolist(),
        "raise_at_min_scale": (False,),
    }
    others = {name: [value for value in dict.fromkeys(found[name]) if value != tried[name]] for name in found if name in tried}
    return {name: values for name, values in others.items() if values}


def _changes(scales: np.ndarray) -> list[Change]:
    """Every change between two successive scales that were seen; those from or to zero and infinity tell nothing."""
    at = np.flatnonzero((scales > 0) & (scales < math.inf))
    moved = np.flatnonzero(scales[at[1:]] != scales[at[:-1]])
    pairs = zip(at[moved].tolist(), at[moved + 1].tolist(), strict=True)
    return [Change(before, after - 1, float(scales[after] / scales[before])) for before, after in pairs]


def _intervals(observed: Observed, changes: list[Change], resumed: bool, factor: float) -> list[int]:
    """
    Intervals that fit the shortest time from an event to a growth, and between growths that were seen as one.

    What a setting says can be one less than what is counted: the first window of some scalers, and each of others, is longer.
    """
    overflows = [Change(step, step, 0.0) for step in np.flatnonzero(observed.finite == 0).tolist()]
    events = sorted([*changes, *overflows] if resumed else [Change(-1, -1, 0.0), *changes, *overflows])
    most, least = [], [1]
    for before, after in pairwise([None, *events]):
        if after is not None and after.ratio > 1:
            growths = min(max(1, round(math.log(after.ratio, factor))), after.last - after.first + 1)
            most += [(after.last - after.first) // (growths - 1)] if growths > 1 else []
            most += [] if before is None else [(after.last - before.first) // growths]
            least += [] if before is None else [after.first - before.last]
    if not most:
        return []
    high = max(1, min(most))
    found = _roundest(range(max(length for length in least if length <= high), high + 1))
    if ((observed.finite == -1) & np.isnan(observed.scales[1:] + observed.scales[:-1])).any():  # an overflow may have gone unseen
        found += _roundest(range(1, high + 1))
    return [interval for whole in found for interval in (whole, whole - 1) if interval]


def _roundest(numbers: range) -> list[int]:
    """Three of *numbers*, those with the fewest digits before the zeros, in base ten or two, and of these the largest."""
    return sorted(numbers, key=lambda number: (min(len(str(number).rstrip("0")), number.bit_count()), -number))[:3]


def _gradual(ups: list[float]) -> list[int]:
    """The interval in which steps that each grow a little grow to the double, as Chainer's do."""
    intervals = Counter(round(1 / math.log2(ratio)) for ratio in ups if ratio < 2)
    return [interval for interval, _ in intervals.most_common(1)]


def _factors(ratios: list[float], tried: float | None, close: float) -> list[float]:
    """The commonest ratios as short numbers, where the factor that was tried is none of them."""
    if any(math.isclose(ratio, tried or 0.0, rel_tol=close) for ratio in ratios):
        return []
    pairs = Counter((_shortest(ratio, close), _shortest(1 / ratio, close)) for ratio in ratios).most_common(2)
    return [
        factor
        for (ratio, inverse), _ in pairs
        for factor in ((1 / inverse, ratio) if len(repr(inverse)) < len(repr(ratio)) else (ratio, 1 / inverse))
    ]


def _shortest(ratio: float, close: float) -> float:
    """The number of the fewest digits that is close."""
    numbers = (float(f"{ratio:.{digits}g}") for digits in range(1, 18))
    return next(number for number in numbers if math.isclose(number, ratio, rel_tol=close))
