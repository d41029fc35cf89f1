"""What a rule does along a trace: the machine on Python numbers, step after step. Steps are counted from 0."""

from dataclasses import dataclass

import numpy as np

from ..core.machine_floats import rounded_constants, step_of
from ..core.rule import LossScaleRule
from ..parsing import excerpt
from .traces import Trace


@dataclass(frozen=True, eq=False)
class Trajectory:
    """
    What a rule did along a trace.

    Where the published scaler raises, the trajectory ends: *done* below is then that step's number, instead of the number of
    steps in the trace, and the last entries are the state in which it gave up.

    Args:
        scales: float64, shape (done + 1,): the scale in force at each step, and the one after the last.
        good_steps: int32, shape (done + 1,): the count of finite steps before each step, and after the last.
        bad_steps: int32, shape (done + 1,): the count of overflows before each step, and after the last.
        finite: bool, shape (done,): whether the step was finite.
        raised_at: The step, counted from 0, at which the published scaler raises; None where it does not.
    """

    scales: np.ndarray
    good_steps: np.ndarray
    bad_steps: np.ndarray
    finite: np.ndarray
    raised_at: int | None = None

    @property
    def steps(self) -> int:
        """The steps that there were; the one at which the scaler stopped is one of them."""
        return self.finite.size + (self.raised_at is not None)

    @property
    def overflows(self) -> int:
        """The steps that overflowed; the one at which the scaler stopped is one of them."""
        return int(np.count_nonzero(~self.finite)) + (self.raised_at is not None)

    @property
    def growths(self) -> int:
        """The steps after which a larger scale is in force."""
        return int(np.count_nonzero(self.scales[1:] > self.scales[:-1]))

    @property
    def backoffs(self) -> int:
        """The steps after which a smaller scale is in force."""
        return int(np.count_nonzero(self.scales[1:] < self.scales[:-1]))


def simulate(rule: LossScaleRule, trace: Trace) -> Trajectory:
    """
    What *rule* does along *trace*: the machine as a plain loop on Python numbers.

    Args:
        rule: The scaler.
        trace: The largest scale at which each step stays finite.

    Returns:
        The scales, the counts and the overflows, and where the published scaler stops.

    Raises:
        TypeError: *rule* or *trace* is something else.
    """
    check(rule, "rule", LossScaleRule)
    check(trace, "trace", Trace)
    scales, good_steps, bad_steps, raised_at = _run(rule, trace.limits.tolist())
    in_force = np.asarray(scales, np.float64)
    return Trajectory(
        scales=in_force,
        good_steps=np.asarray(good_steps, np.int32),
        bad_steps=np.asarray(bad_steps, np.int32),
        finite=in_force[:-1] <= trace.limits[: in_force.size - 1],
        raised_at=raised_at,
    )


def _run(rule: LossScaleRule, limits: list[float]) -> tuple[list[float], list[int], list[int], int | None]:
    """Scales, counts of finite steps, counts of overflows, and the step that stopped."""
    step, scale = step_of(rule), rounded_constants(rule).init
    place = (scale, rule.initial_good_steps, 0, 0, scale)
    scales, good_steps, bad_steps = [scale], [rule.initial_good_steps], [0]
    for done, limit in enumerate(limits):
        after = step(place, place[0] <= limit)
        if after is None:
            return scales, good_steps, bad_steps, done
        place = after
        scales.append(place[0])
        good_steps.append(place[1])
        bad_steps.append(place[2])
    return scales, good_steps, bad_steps, None


def check(value: object, name: str, wanted: type) -> None:
    """
    *value* is what is wanted.

    Raises:
        TypeError: It is not.
    """
    if not isinstance(value, wanted):
        raise TypeError(f"{name} must be a {wanted.__name__}, got {excerpt(value)} of type {type(value).__name__}")
