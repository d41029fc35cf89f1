"""
Measurement of times. The contenders of a row run alternately in one process, in rounds.

A contender is called as users would call it. State that must be reset between two calls is reset outside of the timed part. A
ratio is a ratio of medians; its spread is the interquartile range of the ratios within the rounds, so that a disturbance of a
whole round affects neither.
"""

import gc
import os
import statistics
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

LEAST, MOST = 7, 31  # samples of a contender
SLOW, LEAST_SLOW = 0.08, 3  # seconds of a slow call, and its samples unless a target bounds it
SAMPLE = 0.5e-3  # minimum seconds of a sample; a short call is repeated

Cell = dict[str, Any]


@dataclass(frozen=True)
class Contender:
    """Implementation of a row's work: ampscale's, another one, or a baseline, which only passes over the memory."""

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
        contenders: Implementations to measure. All run in each round, and another one is first in each. A warm-up precedes them.
        seconds: Approximate duration, shared equally by the contenders; None for one call of each.
        thorough: Names of contenders that have the same minimum of samples as others even if they are slow.
    """
    once = [_sample(contender, 1) for contender in contenders]
    if seconds is None:
        return [{0: taken} for taken in once]
    once = [  # The first call of ampscale may have compiled a kernel.
        taken if taken > SLOW and each.kind == "other" else _sample(each, 1) for each, taken in zip(contenders, once, strict=True)
    ]
    calls = [max(1, min(1000, round(SAMPLE / taken))) for taken in once]
    least = [
        LEAST_SLOW if taken > SLOW and each.kind == "other" and each.name not in thorough else LEAST
        for each, taken in zip(contenders, once, strict=True)
    ]
    share = seconds / len(contenders)
    numbers = [max(few, min(MOST, int(share / max(taken, SAMPLE)))) for few, taken in zip(least, once, strict=True)]
    times: list[dict[int, float]] = [{} for _ in contenders]
    rounds = max(numbers, default=0)
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            for offset in range(len(contenders)):
                index = (turn + offset) % len(contenders)
                if (turn + 1) * numbers[index] // rounds > turn * numbers[index] // rounds:
                    times[index][turn] = _sample(contenders[index], calls[index])
    finally:
        gc.enable()
    return times


def _sample(contender: Contender, calls: int) -> float:
    """Return the mean time of some calls. With a reset, each call is timed separately."""
    clock, run = time.perf_counter, contender.run
    if contender.reset is None:
        start = clock()
        for _ in range(calls):
            run()
        return (clock() - start) / calls
    taken = 0.0
    for _ in range(calls):
        contender.reset()
        start = clock()
        run()
        taken += clock() - start
    return taken / calls


def cells(contenders: Iterable[Contender | Absent], seconds: float | None, thorough: Collection[str] = ()) -> list[Cell]:
    """
    Return the cells of a row: for each contender median and quartiles in seconds, the number of samples, and ratios.

    All contenders have a ratio to the fastest baseline. Those of ampscale have ratios to all other contenders.
    """
    contenders = list(contenders)
    measured = [each for each in contenders if isinstance(each, Contender)]
    taken = {each.name: times for each, times in zip(measured, in_turn(measured, seconds, thorough), strict=True)}
    baseline = min((taken[each.name] for each in measured if each.kind == "baseline"), key=_median, default=None)
    return [
        {"name": each.name, "absent": each.why} if isinstance(each, Absent) else _cell(each, taken, baseline)
        for each in contenders
    ]


def _cell(each: Contender, taken: dict[str, dict[int, float]], baseline: dict[int, float] | None) -> Cell:
    times = taken[each.name]
    cell: Cell = {"name": each.name, "kind": each.kind, "median": _median(times), "quartiles": quartiles(times.values())}
    cell["samples"] = len(times)
    if baseline is not None:
        cell["over_baseline"] = ratio(times, baseline)
    if each.kind == "ours":
        cell["over"] = {name: ratio(times, other) for name, other in taken.items() if name != each.name}
    return cell


def ratio(over: dict[int, float], under: dict[int, float]) -> dict[str, Any]:
    """Return the ratio of the medians, and the quartiles of the ratios in the rounds that both have."""
    paired = [over[turn] / under[turn] for turn in over if turn in under]
    return {"ratio": _median(over) / _median(under), "quartiles": quartiles(paired)}


def quartiles(values: Iterable[float]) -> list[float]:
    """Return the first and the third quartile."""
    values = list(values)
    if len(values) < 2:
        return [*values, *values]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return [low, high]


def _median(taken: dict[int, float]) -> float:
    return statistics.median(taken.values())
