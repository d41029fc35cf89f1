"""Trajectories of a published object and of a rule over all patterns of finite steps and overflows."""

from typing import Any, NamedTuple

import numpy as np
from subject import RAISED, Subject

from ampscale import LossScaleRule, LossScaleState

COUNTERS = ("good_steps", "bad_steps")


class Trajectories(NamedTuple):
    """States after each step of each pattern: arrays of shape (patterns, steps)."""

    scale: np.ndarray  # float64, which is exact for float32 and float64 scales
    good_steps: np.ndarray | None  # int64; None if the object has no such count
    bad_steps: np.ndarray | None
    raised: np.ndarray  # bool: True from the step on at which the object raises an error


def patterns(steps: int) -> np.ndarray:
    """Return all patterns as a bool array of shape (2**steps, steps), True for finite steps; the first pattern is all finite."""
    numbers = np.arange(2**steps)[:, None]
    return (numbers >> np.arange(steps)[::-1]) & 1 == 0


def of_object(subject: Subject, values: dict[str, Any], steps: int) -> Trajectories:
    """
    Return the trajectories of a published object over all patterns of a length.

    Each common prefix is run once: at each level, every object has two successors.
    """
    objects = [subject.fresh(**values)]
    columns = []
    for level in range(1, steps + 1):
        objects = [_after(subject, scaler, finite) for scaler in objects for finite in (True, False)]
        columns.append([np.repeat(np.asarray(row), 2 ** (steps - level)) for row in _values(subject, objects)])
    return _trajectories(columns)


def of_object_along(subject: Subject, values: dict[str, Any], pattern: np.ndarray) -> Trajectories:
    """Return the trajectory of a published object over one pattern, a bool array of shape (steps,)."""
    scaler = subject.fresh(**values)
    columns = []
    for finite in pattern.tolist():
        scaler = _after(subject, scaler, finite)
        columns.append(_values(subject, [scaler]))
    return _trajectories(columns)


def of_rule(rule: LossScaleRule, finite: np.ndarray) -> Trajectories:
    """Return the trajectories of a rule over patterns, a bool array of shape (patterns, steps), as one batch."""
    state = rule.init(like=np.zeros(()))
    state = LossScaleState(*(None if array is None else np.repeat(array, len(finite)) for array in state))
    raised = np.zeros(len(finite), bool)
    columns = []
    for column in finite.T:
        raised = raised | rule.would_raise(state, column)
        state = rule.update(state, column)
        columns.append((np.asarray(state.scale, np.float64), state.good_steps, state.bad_steps, raised))
    return Trajectories(*(np.stack(column, axis=1) for column in zip(*columns, strict=True)))


def differing(published: Trajectories, ours: Trajectories) -> np.ndarray:
    """Return a bool array of shape (patterns, steps): True if the states differ. States after an error of both are equal."""
    differs = published.scale.view(np.int64) != ours.scale.view(np.int64)
    for name in COUNTERS:
        counted = getattr(published, name)
        if counted is not None:
            differs |= counted != getattr(ours, name)
    return (published.raised != ours.raised) | (differs & ~published.raised)


def _after(subject: Subject, before: Any, finite: bool) -> Any:
    if before is RAISED:
        return RAISED
    try:
        return subject.step(before, finite)
    except subject.raises as error:
        if type(error) not in subject.raises:  # an instance of a subclass is another failure
            raise
        return RAISED


def _values(subject: Subject, objects: list[Any]) -> tuple[list[Any], ...]:
    """Return the scales, good steps, bad steps and error flags of *objects*; NaN for a value that an object does not have."""
    states = [{"scale": np.nan} if scaler is RAISED else subject.read(scaler) for scaler in objects]
    scale, good, bad = ([float(state.get(name, np.nan)) for state in states] for name in ("scale", *COUNTERS))
    return scale, good, bad, [scaler is RAISED for scaler in objects]


def _trajectories(columns: list[Any]) -> Trajectories:
    scale, good, bad, raised = (np.stack(column, axis=1) for column in zip(*columns, strict=True))
    counts = [None if np.isnan(count[~raised]).all() else count for count in (good, bad)]
    return Trajectories(scale, *counts, raised)
