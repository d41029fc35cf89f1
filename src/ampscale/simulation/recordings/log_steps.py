"""
Flags and scales of each step, computed from the events of a log.

The steps between two lines that number steps form a window. The flags of a window are known if none or all of its steps
overflowed.
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


class UnknownStepsError(Exception):
    """Raised if a log does not determine the steps of its overflows."""


class Mark(NamedTuple):
    """Line that states the number of steps so far, and the overflows reported since the previous mark."""

    event: Event
    number: int
    overflows: list[Event]


class Window(NamedTuple):
    """Steps before a mark, from the previous mark or from the beginning of the log."""

    mark: Mark
    unknown: int  # number of steps at the beginning of the window with unknown flags, since its line does not cover them
    covered: int  # number of all further steps of the window, which its line covers
    overflows: int  # number of overflows among the covered steps


def observe(events: list[Event], notes: list[str]) -> Observed:
    """
    Return the scales and flags of the steps, up to the last line that numbers steps, and add assumptions to *notes*.

    *events* are the events of one process in the order of the log, without copies and without "overflow step" events. If they do
    not determine the steps of the overflows, an UnknownStepsError is raised.
    """
    if excess := next((event for event in events if (event.number or 0) > MOST_STEPS), None):
        raise ValueError(f"the log must have at most {MOST_STEPS} steps, got step {excess.number} in line {excess.line}")
    marks, remaining = _marks(events)
    begin = _begin(marks)
    windows = list(_windows(marks, begin))
    steps = sum(window.unknown + window.covered for window in windows)
    scales, finite = np.full(steps + 1, math.nan), np.full(steps, -1, np.int8)
    start = 0  # of the covered steps
    for window in windows:
        start += window.unknown
        flags = _flags(window)
        finite[start : start + window.covered] = flags
        for index, scale in _scales(window, flags):
            if not math.isnan(scale):
                scales[start + index] = scale
        start += window.covered
    _note(notes, begin, windows, finite, remaining)
    return Observed(scales, finite)


def _marks(events: list[Event]) -> tuple[list[Mark], list[Event]]:
    """Return the marks, and the overflows after the last mark. An overflow that names its step becomes two marks around it."""
    marks = list[Mark]()
    pending = list[Event]()
    for event in events:
        if event.number is None:
            pending.append(event)
            continue
        marks.append(Mark(event, event.number, pending))
        pending = []
        if event.meaning == "overflow":
            marks.append(Mark(event, event.number + 1, [event]))
    _check_marks(marks)
    return marks, pending


def _check_marks(marks: list[Mark]) -> None:
    """Raise an UnknownStepsError if there are no marks, or if their numbers decrease."""
    if not marks:
        raise UnknownStepsError(
            "the log does not number its steps, so the number of finite steps between its overflows is unknown; specify "
            "step_pattern, a regular expression for the lines that end a step"
        )
    for previous, mark in pairwise(marks):
        if mark.number < previous.number:
            raise UnknownStepsError(
                f"the step numbers decrease from {previous.number} in line {previous.event.line} to {mark.number} in line "
                f"{mark.event.line}; use the lines of one run only, or a step_pattern for the lines of one process"
            )


def _begin(marks: list[Mark]) -> int:
    """Return the number of steps before the log; -1 if an overflow precedes number 0, so that steps are counted from 0."""
    first = marks[0]
    if first.event.meaning != "steps":
        return first.number if first.event.meaning == "start" else 0
    distances = _distances(marks)
    if "updates" in first.event.groups:  # the distances between numbers of updates can vary
        return 0 if first.number <= max(distances) else first.number
    if first.number == 0:
        return -1 if first.overflows else 0
    distance = mode(distances)
    if _opens_run(None, first, distance):
        return first.number - 1
    if len(first.overflows) > distance:
        return 0
    return max(0, first.number - distance)


def _distances(marks: list[Mark]) -> list[int]:
    """Return the differences between successive numbers of steps. The first can be irregular, and is used only if it is alone."""
    numbers = sorted({mark.number for mark in marks if mark.event.meaning == "steps"})
    distances = [number - previous for previous, number in pairwise(numbers)]
    first_distance = numbers[0] - marks[0].number if numbers and marks[0].event.meaning == "start" else marks[0].number
    return distances[1:] or distances or [max(1, first_distance)]


def _opens_run(previous: Mark | None, mark: Mark, distance: int) -> bool:
    """
    Return True if *mark* is the line that Megatron prints after the first step of a run at any logging interval.

    Megatron prints this line since core 0.16, and does not reset its count of overflows there. Since then, the times in its log
    have fractions of a second. *previous* is the mark before, or None for the first line of a log.
    """
    if "fraction" not in mark.event.groups:
        return False
    if previous is None:
        return mark.number == 1 or mark.number % distance != 0
    return previous.event.meaning == "start" and mark.number - previous.number == 1


def _windows(marks: list[Mark], begin: int) -> Iterator[Window]:
    """Yield the window of each mark, given the number of steps before the log."""
    distance = mode(_distances(marks))
    previous = begin
    for mark, overflows in zip(marks, _overflow_counts(marks, begin, distance), strict=True):
        groups = mark.event.groups
        steps = mark.number - previous
        unknown = max(0, steps - distance) if "skipped" in groups else 0
        if mark.event.meaning == "start" or (mark is marks[0] and mark.number == begin and "updates" in groups):
            unknown, overflows = steps, 0
        covered = steps - unknown
        if "updates" in groups:  # a number of updates excludes overflows
            covered += overflows
        if not 0 <= overflows <= covered:
            covered_steps = "step" if covered == 1 else f"{covered} steps"
            raise UnknownStepsError(
                f"line {mark.event.line}: expected 0 to {covered} overflows in the {covered_steps} before this line, "
                f"got {overflows}; check that the lines are of one process, and that step_pattern matches a line of each step"
            )
        yield Window(mark, unknown, covered, overflows)
        previous = mark.number


def _overflow_counts(marks: list[Mark], begin: int, distance: int) -> Iterator[int]:
    """Yield the number of overflows before each mark, as its line reports it, or else the number of messages."""
    total = 0 if begin <= 0 else None  # number of overflows since the start of the run; None if unknown
    repeated = 0  # number of overflows that the next line counts although they precede its window
    for previous, mark in zip([None, *marks], marks, strict=False):
        groups = mark.event.groups
        overflows = len(mark.overflows)
        if "skipped" in groups:
            skipped = count(groups["skipped"])
            overflows = skipped - repeated
            repeated = skipped if _opens_run(previous, mark, distance) else 0
        if "total" in groups and total is not None:
            overflows = count(groups["total"]) - total
        yield overflows
        if "total" in groups:
            total = count(groups["total"])
        elif total is not None:
            total += overflows


def _flags(window: Window) -> np.ndarray:
    """Return the flags of the covered steps of *window*: 1 for finite, 0 for an overflow, -1 for unknown."""
    _, _, covered, overflows = window
    if overflows in (0, covered):
        return np.full(covered, overflows == 0, np.int8)
    flags = np.full(covered, -1, np.int8)
    if "inner" in window.mark.event.groups:  # the line follows a finite step
        flags[-1] = 1
        if covered == overflows + 1:
            flags[:-1] = 0
    return flags


def _scales(window: Window, flags: np.ndarray) -> Iterator[tuple[int, float]]:
    """Yield, for each scale in the messages of *window*, the number of covered steps before it, and the scale or NaN."""
    groups = window.mark.event.groups
    is_of_last_finite_step = "rounded" in groups and "inner" not in groups  # not the scale after the last covered step
    if not (window.overflows and is_of_last_finite_step):  # the index of this step is unknown
        yield window.covered, window.mark.event.scale_after()
    if len(window.mark.overflows) == window.overflows and not flags[: window.overflows].any():
        for index, event in enumerate(window.mark.overflows):
            _, old_scale, new_scale = event.overflow()
            yield index, old_scale
            yield index + 1, new_scale


def _note(notes: list[str], begin: int, windows: list[Window], finite: np.ndarray, remaining: list[Event]) -> None:
    """Add assumptions and omissions to *notes*: unknown flags in *finite*, and the *remaining* overflows after the last mark."""
    if begin > 0:
        notes.append(f"the log begins after step {begin}")
    elif begin < 0:
        notes.append("the log counts its steps from 0")
    if unknown := np.count_nonzero(finite == -1):
        notes.append(f"the flags of {unknown} of {finite.size} steps are unknown")
    if differing := [window for window in windows if len(window.mark.overflows) not in (0, window.overflows)]:
        label = "lines whose number of overflows differs from the number of messages before them"
        notes.append(f"{label}: {len(differing)}, the first is line {differing[0].mark.event.line}")
    if remaining:
        label = "ignored overflows after the last line that numbers steps"
        notes.append(f"{label}: {len(remaining)}, the first in line {remaining[0].line}")
