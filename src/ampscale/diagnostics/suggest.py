"""
Suggestions for the scale, from measured exponents.

An exponent determines a value up to a factor of two. The results of `suggest` and `limits` err on the safe side, by less than a
factor of four.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from .. import functional, presets
from ..core.rule import LossScaleRule
from ..core.statistics import NO_LARGEST
from ..core.typing import Tree
from ..core.validation import check_count, check_number, check_positive, check_type
from ..parsing import excerpt
from ..simulation.simulate import simulate
from ..simulation.traces import Trace
from .float16 import LARGEST_EXPONENT, SMALLEST_SUBNORMAL
from .records import Histogram, StepRecord, statistics_of
from .verdicts import Diagnoser, Verdict

MOST_EXPONENT = 1000  # largest absolute value of an exponent, so that the suggested scales are finite
LOST_SHARE = 0.01  # share of the non-zero values that may be lost; most healthy float16 runs lose fewer
COARSE_POWERS = 8  # powers of two between the first attempts of `calibrate`
LEAST_SCALE, MOST_SCALE = 2.0**-24, 2.0**120  # bounds of the attempts of `calibrate`


class Suggestion(NamedTuple):
    """
    Scales that suit measured gradients. If `low` exceeds `high`, no scale fulfils both conditions.

    Args:
        low: Smallest scale at which float16 loses at most the stated share of the values.
        high: Largest scale at which no value overflows in float16.
        recommended: Largest power of two up to a quarter of `high`; if this is below `low`, the smallest power of two from `low`
            on, unless it exceeds `high`: then the largest power of two up to `high`.
        lost_share: Share of the non-zero values that are lost at `recommended`.
    """

    low: float
    high: float
    recommended: float
    lost_share: float


class Replay(NamedTuple):
    """Result of another rule on a recorded run."""

    name: str  # name of the rule
    skipped: int  # number of skipped steps
    final_scale: float


def suggest(histograms: Sequence[Histogram], scale: float = 1.0, share: float = LOST_SHARE) -> Suggestion:
    """
    Return the interval of scales that neither overflow nor lose more than *share* of the values in float16.

    A value is lost if float16 rounds it to zero, that is at 2**-25 and below; it overflows from 65520 on. Only its exponent is
    known: it counts as lost if any number with this exponent is lost, and as an overflow if any overflows.

    Args:
        histograms: Exponents of gradients, of one or several steps.
        scale: Factor by which these gradients were scaled; positive.
        share: Share of the non-zero values that may be lost, from 0 to 1.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: There is no value that is finite and not zero, or an exponent or another argument is out of range.

    >>> suggest([Histogram(-30, (1, 0, 99))])
    Suggestion(low=16.0, high=4398046511104.0, recommended=1099511627776.0, lost_share=0.0)
    """
    check_positive(scale, "scale")
    check_number(share, "share", "a number from 0 to 1", 0, 1)
    counts = _counts_of(histograms)
    exponents = sorted(counts)
    smallest, largest = exponents[0], exponents[-1]
    power = math.frexp(scale)[1] - 1
    if any(abs(exponent) > MOST_EXPONENT for exponent in (smallest, largest, smallest - power, largest - power)):
        got = f"{smallest} to {largest} at a scale of {scale:g}"
        raise ValueError(f"histograms must have exponents from -1000 to 1000, both before and after unscaling, got {got}")
    high = scale * 2.0 ** (LARGEST_EXPONENT - 1 - largest)
    totals = accumulate(counts[exponent] for exponent in exponents)
    allowed = share * counts.total()
    least_kept = next((exponent for exponent, total in zip(exponents, totals, strict=True) if total > allowed), largest)
    low = scale * 2.0 ** (SMALLEST_SUBNORMAL - least_kept)
    largest_power = math.floor(math.log2(high))
    recommended = 2.0 ** min(largest_power, max(largest_power - 2, math.ceil(math.log2(low))))
    shift = math.floor(math.log2(recommended / scale))
    lost = sum(count for exponent, count in counts.items() if exponent + shift < SMALLEST_SUBNORMAL)
    return Suggestion(low, high, recommended, lost / counts.total())


def _counts_of(histograms: Sequence[Histogram]) -> Counter[int]:
    """Return the number of values with each exponent in *histograms*, which must contain at least one value."""
    is_sequence = isinstance(histograms, Sequence) and not isinstance(histograms, Histogram)
    if not (is_sequence and all(isinstance(histogram, Histogram) for histogram in histograms)):
        raise TypeError(f"histograms must be a sequence of Histogram, got {excerpt(histograms)}")
    counts = Counter[int]()
    for lowest, row in histograms:
        counts.update({lowest + index: count for index, count in enumerate(row) if count})
    if not counts:
        raise ValueError("histograms must contain a value that is finite and not zero, got none")
    return counts


def calibrate(backward: Callable[[float], Tree], rule: LossScaleRule, headroom: int = 2) -> LossScaleRule:
    """
    Return *rule* with an initial scale that suits the gradients of one batch, so that a run need not skip steps to find it.

    The scale is computed from the largest exponent in the first attempt with finite gradients, then tried, and halved until the
    gradients are finite. This takes two or three backward passes if the initial scale of *rule* is approximately right, and
    otherwise about one more for each factor of 256.

    Args:
        backward: ``backward(scale) -> gradients``: computes the scaled gradients of one batch, and changes nothing.
        rule: Constants of the scaler. Its initial scale is tried first, and its bounds are kept.
        headroom: Powers of two between the largest scaled gradient and the largest float16 number; at least 0.

    Returns:
        The rule with another `init_scale`: a power of two, or a bound of the rule.

    Raises:
        TypeError: *rule* is not a `LossScaleRule`, or *headroom* is not an int.
        ValueError: *headroom* is negative; or the initial scale of *rule* is not from 2**-24 to 2**120; or the gradients
            are not finite at any scale from 2**-24 on, are zero at every scale up to 2**120, or do not grow with the scale.

    >>> rule = calibrate(lambda scale: np.float32([3.0]) * np.float32(scale), LossScaleRule(init_scale=2.0**24))
    >>> rule.init_scale
    4096.0
    """
    check_type(rule, "rule", LossScaleRule)
    check_count(headroom, "headroom", low=0)
    if not LEAST_SCALE <= rule.init_scale <= MOST_SCALE:
        raise ValueError(f"rule must have an init_scale from 2**-24 to 2**120, got {rule.init_scale:g}")
    low, high = rule.min_scale or LEAST_SCALE, rule.max_scale or MOST_SCALE
    first_scale, largest = _first_finite_host(backward, rule.init_scale)
    power = math.floor(math.log2(first_scale)) + LARGEST_EXPONENT - headroom - largest
    scale = min(max(2.0**power, low), high)
    while (largest_now := _largest_host(backward(scale))) is None:
        if scale <= low:
            raise ValueError(f"the gradients are not finite at the smallest scale {scale:g}: no scale helps")
        scale = max(scale / 2, low)
    if largest_now == largest and not 0.25 < scale / first_scale < 4:
        scales = f"{first_scale:g} and {scale:g}"
        raise ValueError(f"backward must multiply the loss by its argument, got gradients of the same size at scales {scales}")
    return replace(rule, init_scale=scale)


def _first_finite_host(backward: Callable[[float], Tree], scale: float) -> tuple[float, int]:
    """Return the first scale at which the gradients are finite and not all zero, and the largest exponent among them."""
    powers = COARSE_POWERS  # of two, between this attempt and the next one
    was_finite = None
    while True:
        largest = _largest_host(backward(scale))
        if largest is not None and largest != NO_LARGEST:
            return scale, largest
        is_finite = largest is not None
        if was_finite not in (None, is_finite):  # a suitable scale lies between this one and the previous one
            if powers == 1:
                raise ValueError("the gradients are either zero or not finite at every scale: no scale helps")
            powers = 1
        if scale == (MOST_SCALE if is_finite else LEAST_SCALE):
            fault = "zero at every scale up to 2**120" if is_finite else "not finite at any scale from 2**-24 on: no scale helps"
            raise ValueError(f"the gradients are {fault}")
        was_finite = is_finite
        scale = min(scale * 2.0**powers, MOST_SCALE) if is_finite else max(scale / 2.0**powers, LEAST_SCALE)


def _largest_host(gradients: Tree) -> int | None:
    """Return the largest exponent of *gradients*, `NO_LARGEST` if all are zero; None if one is not finite."""
    rows = statistics_of(functional.measure(gradients).tolist())
    if not rows:
        raise ValueError(f"backward must return gradients, got {excerpt(gradients)}")
    return None if any(row.nonfinite for row in rows) else max(row.largest for row in rows)


def limits(records: Iterable[StepRecord]) -> Trace:
    """
    Return the overflow trace of a run: for each step, the largest scale at which it would have been finite.

    The limit of a finite step is computed from its largest exponent, and is less than a factor of four below the true limit; it
    is inf without statistics, or if all gradients are zero. The limit of an overflow is the scale of the next finite step, but at
    most half the scale of the overflow; it is -inf if the verdict of `Diagnoser` is NO_SCALE_HELPS or FORWARD.

    Args:
        records: Steps of a run, in their order.

    Raises:
        TypeError: A record is not a `StepRecord`.

    >>> overflow = StepRecord(0, 1024.0, 512.0, finite=False, applied=False)
    >>> limits([overflow, StepRecord(1, 512.0, 512.0, finite=True, applied=True)]).limits.tolist()
    [512.0, inf]
    """
    records = list(records)
    for record in records:
        check_type(record, "each record", StepRecord)
    diagnoser = Diagnoser()
    verdicts = [diagnoser.diagnose(record).verdict for record in records]
    values: list[float] = []  # from the last step to the first
    next_finite = math.inf
    for record, verdict in zip(reversed(records), reversed(verdicts), strict=True):
        if record.finite:
            next_finite = record.scale
            exponent = record.largest_exponent()
            values.append(math.inf if exponent is None else max(record.scale, 2.0 ** (LARGEST_EXPONENT - exponent)))
        else:
            is_helpless = verdict in (Verdict.NO_SCALE_HELPS, Verdict.FORWARD)
            values.append(-math.inf if is_helpless else min(next_finite, record.scale / 2))
    return Trace(np.array(values[::-1], np.float64))


def replay(records: Iterable[StepRecord], rules: dict[str, LossScaleRule] | None = None) -> list[Replay]:
    """
    Simulate rules on the gradients of a recorded run, and return the results, those with the fewest skipped steps first.

    The results compare rules and do not predict a run: with other skipped steps, the gradients would have been different.

    Args:
        records: Steps of a run, in their order, such as ``read_run("run.jsonl").records()``.
        rules: Rules by name; by default every preset.

    Raises:
        TypeError: A record is not a `StepRecord`, or a rule is not a `LossScaleRule`.

    >>> overflow = StepRecord(0, 1024.0, 512.0, finite=False, applied=False)
    >>> replay([overflow, overflow], {"torch": presets.torch(), "static": presets.static(128.0)})
    [Replay(name='static', skipped=0, final_scale=128.0), Replay(name='torch', skipped=2, final_scale=16384.0)]
    """
    trace = limits(records)
    results = []
    for name, rule in (rules or {name: preset.rule() for name, preset in presets.PRESETS.items()}).items():
        trajectory = simulate(rule, trace)
        results.append(Replay(name, trajectory.overflows, float(trajectory.scales[-1])))
    return sorted(results, key=lambda result: result.skipped)
