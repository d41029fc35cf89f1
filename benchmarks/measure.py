"""
Times, taken in turn: what is compared runs in one process, one after the other, round by round.

A contender is measured as its users run it. What must be put back between two calls is put back outside the timed part. A ratio
is one of medians; its spread is the interquartile range of the ratios within one round, so that what slows a whole round is in
neither.
"""

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

LEAST, MOST = 7, 31  # samples of a contender
SLOW, LEAST_SLOW = 0.08, 3  # seconds from which a rival's call is a slow one, and its samples where no target needs more
SAMPLE = 0.5e-3  # seconds that one sample takes at least, by repeating a short call

Cell = dict[str, Any]


@dataclass(frozen=True)
class Contender:
    """One way to do a row's work: ours, a rival's, or the floor, which is the least that the memory allows."""

    name: str
    run: Callable[[], object]
    reset: Callable[[], object] | None = None  # before each call, outside of the timed part
    kind: str = "rival"  # or "ours" or "floor"


@dataclass(frozen=True)
class Absent:
    """A rival that cannot be measured here, and why."""

    name: str
    why: str


def pin() -> None:
    """One core for this process and all threads that it will start, so that no library has more than another."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def in_turn(contenders: list[Contender], seconds: float | None, thorough: bool = False) -> list[dict[int, float]]:
    """
    The time of one call of each contender, in seconds, by round.

    Args:
        contenders: In each round each has its turn, another one first; after one round that does not count.
        seconds: How long to measure, about; each contender has an equal share. None for one call of each.
        thorough: A slow rival too has at least as many samples as the others.
    """
    once = [_sample(contender, 1) for contender in contenders]
    if seconds is None:
        return [{0: taken} for taken in once]
    once = [taken if taken > SLOW else _sample(each, 1) for each, taken in zip(contenders, once, strict=True)]
    calls = [max(1, min(1000, round(SAMPLE / taken))) for taken in once]
    least = [
        LEAST_SLOW if taken > SLOW and each.kind == "rival" and not thorough else LEAST
        for each, taken in zip(contenders, once, strict=True)
    ]
    share = seconds / len(contenders)
    numbers = [max(few, min(MOST, int(share / max(taken, SAMPLE)))) for few, taken in zip(least, once, strict=True)]
    found: list[dict[int, float]] = [{} for _ in contenders]
    rounds = max(numbers, default=0)
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            for offset in range(len(contenders)):
                index = (turn + offset) % len(contenders)
                if (turn + 1) * numbers[index] // rounds > turn * numbers[index] // rounds:
                    found[index][turn] = _sample(contenders[index], calls[index])
    finally:
        gc.enable()
    return found


def _sample(contender: Contender, calls: int) -> float:
    """The mean time of some calls. Where something is put back, each is timed by itself."""
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


def cells(contenders: Iterable[Contender | Absent], seconds: float | None, thorough: bool = False) -> list[Cell]:
    """
    What a row holds of each contender: its median and quartiles in seconds, how many samples, and its ratio to the floor.

    The floor is the quickest of those that there are. Each of ours has its ratio to all others.
    """
    contenders = list(contenders)
    measured = [each for each in contenders if isinstance(each, Contender)]
    taken = {each.name: found for each, found in zip(measured, in_turn(measured, seconds, thorough), strict=True)}
    floor = min((taken[each.name] for each in measured if each.kind == "floor"), key=_median, default=None)
    return [
        {"name": each.name, "absent": each.why} if isinstance(each, Absent) else _cell(each, taken, floor) for each in contenders
    ]


def _cell(each: Contender, taken: dict[str, dict[int, float]], floor: dict[int, float] | None) -> Cell:
    mine = taken[each.name]
    found: Cell = {"name": each.name, "kind": each.kind, "median": _median(mine), "quartiles": quartiles(mine.values())}
    found["samples"] = len(mine)
    if floor is not None:
        found["over_floor"] = ratio(mine, floor)
    if each.kind == "ours":
        found["over"] = {name: ratio(mine, other) for name, other in taken.items() if name != each.name}
    return found


def ratio(over: dict[int, float], under: dict[int, float]) -> dict[str, Any]:
    """The ratio of medians, and the quartiles of the ratios in the rounds in which both took part."""
    paired = [over[turn] / under[turn] for turn in over if turn in under]
    return {"ratio": _median(over) / _median(under), "quartiles": quartiles(paired)}


def quartiles(values: Iterable[float]) -> list[float]:
    """The first and the third quartile."""
    values = list(values)
    if len(values) < 2:
        return [*values, *values]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return [low, high]


def _median(taken: dict[int, float]) -> float:
    return statistics.median(taken.values())
