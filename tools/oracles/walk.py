"""Trajectories of a published object and of a rule over all patterns of finite steps and overflows."""

from typing import Any, NamedTuple

import numpy as np
from subject import STOPPED, Subject

from ampscale import LossScaleRule, LossScaleState

COUNTERS = ("good_steps", "bad_steps")


class Trajectories(NamedTuple):
    """States after each step of each pattern: arrays of shape (patterns, steps)."""

    scale: np.ndarray  # float64, which is exact for float32 and float64 scales
    good_steps: np.ndarray | None  # int64; None if the object does not have it
    bad_steps: np.ndarray | None
    stopped: np.ndarray  # bool: True from the step on in which the object raises an error


def patterns(steps: int) -> np.ndarray:
    """Return all patterns as a bool array of shape (2**steps, steps), True for finite steps; the first pattern is all finite."""
    numbers = np.arange(2**steps)[:, None]
    return (numbers >> np.arange(steps)[::-1]) & 1 == 0


def of_object(subject: Subject, values: dict[str, Any], steps: int) -> Trajectories:
    """
    Return the trajectories of a published object over all patterns of a length.

    Each common prefix is run once: at each level, every object has two successors.
    """
    objects, columns = [subject.fresh(**values)], []
    for level in range(1, steps + 1):
        objects = [_after(subject, each, finite) for each in objects for finite in (True, False)]
        columns.append([np.repeat(np.asarray(row), 2 ** (steps - level)) for row in _rows(subject, objects)])
    return _trajectories(columns)


def of_object_along(subject: Subject, values: dict[str, Any], pattern: np.ndarray) -> Trajectories:
    """Return the trajectory of a published object over one pattern, a bool array of shape (steps,)."""
    scaler, columns = subject.fresh(**values), []
    for finite in pattern.tolist():
        scaler = _after(subject, scaler, finite)
        columns.append(_rows(subject, [scaler]))
    return _trajectories(columns)


def of_rule(rule: LossScaleRule, finite: np.ndarray) -> Trajectories:
    """Return the trajectories of a rule over patterns, a bool array of shape (patterns, steps), as one batch."""
    state = _batch(rule.init(like=np.zeros(())), len(finite))
    stopped, columns = np.zeros(len(finite), bool), []
    for column in finite.T:
        stopped = stopped | rule.would_raise(state, column)
        state = rule.update(state, column)
        columns.append((np.asarray(state.scale, np.float64), state.good_steps, state.bad_steps, stopped))
    return Trajectories(*(np.stack(column, axis=1) for column in zip(*columns, strict=True)))


def differing(published: Trajectories, ours: Trajectories) -> np.ndarray:
    """Return a bool array of shape (patterns, steps): True if the states differ. States after both have raised are equal."""
    either = published.scale.view(np.int64) != ours.scale.view(np.int64)
    for name in COUNTERS:
        counted = getattr(published, name)
        if counted is not None:
            either |= counted != getattr(ours, name)
    return (published.stopped != ours.stopped) | (either & ~published.stopped)


def _after(subject: Subject, before: Any, finite: bool) -> Any:
    if before is STOPPED:
        return STOPPED
    try:
        return subject.step(before, finite)
    except subject.stops as error:
        if type(error) not in subject.stops:  # an instance of a subclass is another failure
            raise
        return STOPPED


def _rows(subject: Subject, objects: list[Any]) -> tuple[list[Any], ...]:
    states = [{"scale": np.nan} if each is STOPPED else subject.read(each) for each in objects]
    scale, good, bad = ([float(state.get(name, np.nan)) for state in states] for name in ("scale", *COUNTERS))
    return scale, good, bad, [each is STOPPED for each in objects]


def _trajectories(columns: list[Any]) -> Trajectories:
    scale, good, bad, stopped = (np.stack(column, axis=1) for column in zip(*columns, strict=True))
    counts = [None if np.isnan(count[~stopped]).all() else count for count in (good, bad)]
    return Trajectories(scale, *counts, stopped)


def _batch(state: LossScaleState, size: int) -> LossScaleState:
    return LossScaleState(*(None if array is None else np.repeat(array, size) for array in state))
