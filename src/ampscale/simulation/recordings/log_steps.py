"""
From the events of a log to what it says of each step.

Between two numbers of steps there is a window. Its steps are known where it has no overflow, or nothing else.
"""

import math
from collections.abc import Iterator
from itertools import pairwise
from statistics import mode
from typing import NamedTuple

import numpy as np

from ...parsing import MOST_STEPS
from ..traces import Observed
from .log_formats import Event, count


class UnplacedError(Exception):
    """A log does not say at which steps its overflows were."""


class Mark(NamedTuple):
    """A number of steps, and the overflows that were reported since the mark before it."""

    event: Event
    number: int
    overflows: list[Event]


class Window(NamedTuple):
    """The steps between a mark and the mark before it, or the beginning."""

    mark: Mark
    unseen: int  # steps at its beginning of which nothing is said
    covered: int  # the steps after these
    overflows: int  # how many of the covered ones overflowed


def observe(events: list[Event], notes: list[str]) -> Observed:
    """
    What the events say of each step, from the first to the last number of steps.

    Args:
        events: In the order of the log, of one process, without copies and places.
        notes: Sentences on what was decided are added.

    Raises:
        UnplacedError: The events do not say at which steps the overflows were.
        ValueError: There are more than `MOST_STEPS` steps.
    """
    if wrong := next((event for event in events if (event.number or 0) > MOST_STEPS), None):
        raise ValueError(f"the log must have at most {MOST_STEPS} steps, got step {wrong.number} in line {wrong.line}")
    marks, rest = _marks(events)
    begin = _begin(marks)
    windows = list(_windows(marks, begin))
    finite, scales, steps = [np.empty(0, np.int8)], dict[int, float](), 0
    for window in windows:
        flags = _flags(window)
        finite += [np.full(window.unseen, -1, np.int8), flags]
        steps += window.unseen
        scales |= {steps + place: scale for place, scale in _scales(window, flags) if not math.isnan(scale)}
        steps += window.covered
    seen, flags = np.full(steps + 1, math.nan), np.concatenate(finite)
    _note(notes, begin, windows, int(np.count_nonzero(flags == -1)), rest)
    seen[list(scales)] = list(scales.values())
    return Observed(seen, flags)


def _marks(events: list[Event]) -> tuple[list[Mark], list[Event]]:
    """The marks, and the overflows after the last one. An overflow that names its place has a mark before and after it."""
    marks, pending = list[Mark](), list[Event]()
    for event in events:
        if event.number is None:
            pending.append(event)
            continue
        marks.append(Mark(event, event.number, pending))
        pending = []
        if event.meaning == "overflow":
            marks.append(Mark(event, event.number + 1, [event]))
    if not marks:
        raise UnplacedError(
            "the log does not number its steps, so nothing says how many finite steps lie between its overflows: give "
            "step_pattern, a regular expression for the lines that end a step"
        )
    for before, mark in pairwise(marks):
        if mark.number < before.number:
            raise UnplacedError(
                f"the steps go back from {before.number} in line {before.event.line} to {mark.number} in line {mark.event.line}: "
                "give the part of the log that is one run, or a step_pattern that matches the lines of one process alone"
            )
    return marks, pending


def _begin(marks: list[Mark]) -> int:
    """The steps before those of which the log speaks; -1 where an overflow stands before step 0, which then is the first."""
    first, apart = marks[0], _apart(marks)
    if first.event.meaning != "steps":
        return first.number if first.event.meaning == "start" else 0
    if first.event.has("updates"):  # the numbers need not be equally far apart
        return 0 if first.number <= max(apart) else first.number
    if first.number == 0:
        return -1 if first.overflows else 0
    if _opens_run(first, mode(apart)):
        return first.number - 1
    return max(0, first.number - mode(apart)) if len(first.overflows) <= mode(apart) else 0


def _apart(marks: list[Mark]) -> list[int]:
    """How far the numbers of steps are apart, without the first distance, which may be an odd one."""
    numbers = sorted({mark.number for mark in marks if mark.event.meaning == "steps"})
    apart = [after - before for before, after in pairwise(numbers)]
    return apart[1:] or apart or [max(1, marks[0].number)]


def _opens_run(first: Mark, apart: int) -> bool:
    """
    Whether the first line of a log is the one that Megatron prints after the first step of a run, whatever its interval.

    It does since core 0.16, and the count of overflows then runs on. Since then, too, its times have fractions of a second.
    """
    return first.event.has("fraction") and (first.number == 1 or first.number % apart != 0)


def _windows(marks: list[Mark], begin: int) -> Iterator[Window]:
    apart, before, total, carried = mode(_apart(marks)), begin, 0 if begin <= 0 else None, 0
    opens = _opens_run(marks[0], apart)
    for mark in marks:
        event, steps, unseen, overflows = mark.event, mark.number - before, 0, len(mark.overflows)
        if (now := event.groups.get("total")) is not None:
            overflows, total = overflows if total is None else count(now) - total, count(now)
        elif total is not None:
            total += overflows
        if (now := event.groups.get("skipped")) is not None:
            unseen, overflows = max(0, steps - apart), count(now) - carried
            carried = count(now) if opens and steps == 1 and event.has("fraction") else 0
        opens = event.meaning == "start"
        if opens or (mark is marks[0] and mark.number == begin and event.has("updates")):
            unseen, overflows = steps, 0
        covered = steps - unseen + (overflows if event.has("updates") else 0)
        if not 0 <= overflows <= covered:
            raise UnplacedError(
                f"line {event.line} ends {covered} steps with {overflows} overflows: are the lines of several processes mixed, "
                "or does step_pattern not match a line of each step?"
            )
        yield Window(mark, unseen, covered, overflows)
        before = mark.number


def _flags(window: Window) -> np.ndarray:
    """Return the flags of the covered steps, as in `Observed`."""
    _, _, covered, overflows = window
    if overflows in (0, covered):
        return np.full(covered, not overflows, np.int8)
    flags = np.full(covered, -1, np.int8)
    if window.mark.event.has("inner"):
        flags[:-1] = 0 if covered == overflows + 1 else -1
        flags[-1] = 1
    return flags


def _scales(window: Window, flags: np.ndarray) -> Iterator[tuple[int, float]]:
    """The scales that were seen, with the covered steps before them."""
    if not window.overflows or not window.mark.event.has("about") or window.mark.event.has("inner"):
        yield window.covered, window.mark.event.scale_after()  # else of the last finite step, whichever that was
    if len(window.mark.overflows) == window.overflows and not flags[: window.overflows].any():
        for place, event in enumerate(window.mark.overflows):
            _, before, after = event.overflow()
            yield place, before
            yield place + 1, after


def _note(notes: list[str], begin: int, windows: list[Window], unknown: int, rest: list[Event]) -> None:
    if begin:
        notes.append(f"the log begins after step {begin}" if begin > 0 else "the log counts its steps from 0")
    if unknown:
        steps = sum(window.unseen + window.covered for window in windows)
        notes.append(f"of {unknown} of {steps} steps it is not known which were finite")
    if odd := [window for window in windows if len(window.mark.overflows) not in (0, window.overflows)]:
        first = odd[0].mark.event.line
        notes.append(f"{len(odd)} lines count other overflows than the messages before them, the first is line {first}")
    if rest:
        notes.append(f"{len(rest)} overflows after the last number of steps were left out, the first in line {rest[0].line}")
