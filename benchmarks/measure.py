"""
Measurement of times. The contenders of a row run alternately in one process, in rounds.

A contender is called as users would call it. State that must be reset between two calls is reset outside of the timed part.

A ratio is a ratio of medians; its spread is half the interquartile range of the ratios within the rounds. A disturbance of a
whole round therefore affects neither the ratio nor its spread.
"""

import gc
import os
import statistics
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

LEAST, MOST = 7, 31  # samples of a contender
SLOW = 0.08  # seconds from which a call is slow
LEAST_SLOW = 3  # samples of a slow contender without a target
SAMPLE = 0.5e-3  # minimum seconds of a sample; a short call is repeated

Cell = dict[str, Any]


@dataclass(frozen=True)
class Contender:
    """Implementation of a row's work: ampscale's, another one, or a baseline, which does only the part that is unavoidable."""

    name: str
    run: Callable[[], object]
    reset: Callable[[], object] | None = None  # called before each call, outside of the timed part
    kind: str = "other"  # or "ours" or "baseline"


@dataclass(frozen=True)
class Absent:
    """Implementation that cannot be measured, and the reason."""

    name: str
    why: str


def pin() -> None:
    """Pin this process and all threads that it starts to one core, so that all libraries have the same resources."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def in_turn(contenders: list[Contender], seconds: float | None, thorough: Collection[str] = ()) -> list[dict[int, float]]:
    """
    Return for each contender the seconds of one call, by round.

    Args:
        contenders: Implementations to measure, after a warm-up. Each round starts with another contender, and may omit slow ones.
        seconds: Approximate duration, shared equally by the contenders; None for one call of each.
        thorough: Names of contenders that have the same minimum number of samples as ampscale, even if they are slow.
    """
    once = [_sample(contender, 1) for contender in contenders]
    if seconds is None:
        return [{0: duration} for duration in once]
    plans = [
        _plan(contender, first, seconds / len(contenders), thorough) for contender, first in zip(contenders, once, strict=True)
    ]
    times: list[dict[int, float]] = [{} for _ in contenders]
    rounds = max((samples for _, samples in plans), default=0)
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            for offset in range(len(contenders)):
                index = (turn + offset) % len(contenders)
                calls, samples = plans[index]
                if (turn + 1) * samples // rounds > turn * samples // rounds:  # spreads the samples over all rounds
                    times[index][turn] = _sample(contenders[index], calls)
    finally:
        gc.enable()
    return times


def _plan(contender: Contender, first: float, seconds: float, thorough: Collection[str]) -> tuple[int, int]:
    """Return the number of calls in a sample, and the number of samples, given the seconds of a first call and of all calls."""
    is_slow = contender.kind == "other" and first > SLOW
    duration = first if is_slow else _sample(contender, 1)  # the first call of ampscale may have compiled a kernel
    calls = max(1, min(1000, round(SAMPLE / duration)))
    least = LEAST_SLOW if is_slow and contender.name not in thorough else LEAST
    return calls, max(least, min(MOST, int(seconds / max(duration, SAMPLE))))


def _sample(contender: Contender, calls: int) -> float:
    """Return the mean time of some calls. With a reset, each call is timed separately."""
    clock = time.perf_counter
    run = contender.run
    if contender.reset is None:
        start = clock()
        for _ in range(calls):
            run()
        return (clock() - start) / calls
    total = 0.0
    for _ in range(calls):
        contender.reset()
        start = clock()
        run()
        total += clock() - start
    return total / calls


def cells(contenders: Iterable[Contender | Absent], seconds: float | None, thorough: Collection[str] = ()) -> list[Cell]:
    """
    Return the cells of a row: for each contender median and quartiles in seconds, the number of samples, and ratios.

    All contenders have a ratio to the fastest baseline. Contenders of ampscale also have ratios to all other contenders.
    """
    contenders = list(contenders)
    present = [contender for contender in contenders if isinstance(contender, Contender)]
    times = {contender.name: durations for contender, durations in zip(present, in_turn(present, seconds, thorough), strict=True)}
    baseline = min((times[contender.name] for contender in present if contender.kind == "baseline"), key=_median, default=None)
    return [
        {"name": contender.name, "absent": contender.why} if isinstance(contender, Absent) else _cell(contender, times, baseline)
        for contender in contenders
    ]


def _cell(contender: Contender, times: dict[str, dict[int, float]], baseline: dict[int, float] | None) -> Cell:
    runs = times[contender.name]
    cell: Cell = {"name": contender.name, "kind": contender.kind, "median": _median(runs)}
    cell |= {"quartiles": quartiles(runs.values()), "samples": len(runs)}
    if baseline is not None:
        cell["over_baseline"] = ratio(runs, baseline)
    if contender.kind == "ours":
        cell["over"] = {name: ratio(runs, other) for name, other in times.items() if name != contender.name}
    return cell


def ratio(over: dict[int, float], under: dict[int, float]) -> dict[str, Any]:
    """Return the ratio of the medians, and the quartiles of the ratios in the rounds that both contenders have."""
    ratios = [over[turn] / under[turn] for turn in over if turn in under]
    return {"ratio": _median(over) / _median(under), "quartiles": quartiles(ratios)}


def quartiles(values: Iterable[float]) -> list[float]:
    """Return the first and the third quartile."""
    values = list(values)
    if len(values) < 2:
        return [*values, *values]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return [low, high]


def _median(times: dict[int, float]) -> float:
    return statistics.median(times.values())
