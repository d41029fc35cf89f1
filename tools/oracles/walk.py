"""Every pattern of finite steps and overflows: what an object does along each, and what a rule does."""

from typing import Any, NamedTuple

import numpy as np
from subject import STOPPED, Subject

from ampscale import LossScaleRule, LossScaleState

COUNTERS = ("good_steps", "bad_steps")


class Trajectories(NamedTuple):
    """What is seen after each step of each pattern: arrays of shape (patterns, steps)."""

    scale: np.ndarray  # float64: exact for both kinds of scale
    good_steps: np.ndarray | None  # int64; None where the object does not show it
    bad_steps: np.ndarray | None
    stopped: np.ndarray  # bool: it gave up in this step or before


def patterns(steps: int) -> np.ndarray:
    """All patterns, bool of shape (2**steps, steps), True where a step is finite; the first pattern is all finite."""
    numbers = np.arange(2**steps)[:, None]
    return (numbers >> np.arange(steps)[::-1]) & 1 == 0


def of_object(subject: Subject, values: dict[str, Any], steps: int) -> Trajectories:
    """
    The real object along every pattern of some length.

    Each common beginning is run once: level by level, every object is followed by its two successors.
    """
    here, seen = [subject.fresh(**values)], []
    for level in range(1, steps + 1):
        here = [_after(subject, one, finite) for one in here for finite in (True, False)]
        seen.append([np.repeat(np.asarray(row), 2 ** (steps - level)) for row in _rows(subject, here)])
    return _trajectories(seen)


def of_object_along(subject: Subject, values: dict[str, Any], pattern: np.ndarray) -> Trajectories:
    """The real object along one pattern, bool of shape (steps,)."""
    here, seen = subject.fresh(**values), []
    for finite in pattern.tolist():
        here = _after(subject, here, finite)
        seen.append(_rows(subject, [here]))
    return _trajectories(seen)


def of_rule(rule: LossScaleRule, finite: np.ndarray) -> Trajectories:
    """The rule along some patterns, bool of shape (patterns, steps), all of them in one batch."""
    state = _batch(rule.init(like=np.zeros(())), len(finite))
    stopped, columns = np.zeros(len(finite), bool), []
    for column in finite.T:
        stopped = stopped | rule.would_raise(state, column)
        state = rule.update(state, column)
        columns.append((np.asarray(state.scale, np.float64), state.good_steps, state.bad_steps, stopped))
    return Trajectories(*(np.stack(column, axis=1) for column in zip(*columns, strict=True)))


def differing(published: Trajectories, ours: Trajectories) -> np.ndarray:
    """Where the two differ, bool of shape (patterns, steps). After both have given up there is nothing to compare."""
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
    except subject.stops as gone:
        if type(gone) not in subject.stops:  # an heir of theirs is some other failure
            raise
        return STOPPED


def _rows(subject: Subject, here: list[Any]) -> tuple[list[Any], ...]:
    shown = [{"scale": np.nan} if one is STOPPED else subject.read(one) for one in here]
    scale, good, bad = ([float(one.get(name, np.nan)) for one in shown] for name in ("scale", *COUNTERS))
    return scale, good, bad, [one is STOPPED for one in here]


def _trajectories(seen: list[Any]) -> Trajectories:
    scale, good, bad, stopped = (np.stack(column, axis=1) for column in zip(*seen, strict=True))
    known = [None if np.isnan(count[~stopped]).all() else count for count in (good, bad)]
    return Trajectories(scale, *known, stopped)


def _batch(state: LossScaleState, size: int) -> LossScaleState:
    return LossScaleState(*(None if array is None else np.repeat(array, size) for array in state))
