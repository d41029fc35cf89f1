"""Simulation of one rule along an overflow trace, in Python numbers. Steps are counted from 0."""

from dataclasses import dataclass

import numpy as np

from ..core.machine_floats import HostState, rounded_constants, step_of
from ..core.rule import LossScaleRule
from ..core.validation import check_type
from .traces import Trace


@dataclass(frozen=True, eq=False)
class Trajectory:
    """
    States of a rule along an overflow trace.

    The trajectory ends if the published scaler raises an error. In the shapes below, *done* is the index of the step that
    raises, or the number of steps of the trace if none does.

    Args:
        scales: float64 array of shape (done + 1,): the scale at each step, and after the last step.
        good_steps: int32 array of shape (done + 1,): the count of good steps before each step, and after the last step.
        bad_steps: int32 array of shape (done + 1,): the count of overflows before each step, and after the last step.
        finite: bool array of shape (done,): True if the step was finite.
        raised_at: Step at which the published scaler raises an error, counted from 0; None if it raises none.

    >>> from ampscale import presets
    >>> from ampscale.simulation import from_string
    >>> trajectory = simulate(presets.deepspeed(2.0, hysteresis=1), from_string("x.x.."))
    >>> trajectory.scales.tolist(), trajectory.raised_at, trajectory.steps
    ([2.0, 1.0, 1.0], 2, 3)
    >>> trajectory.overflows, trajectory.growths, trajectory.backoffs
    (2, 0, 1)
    """

    scales: np.ndarray
    good_steps: np.ndarray
    bad_steps: np.ndarray
    finite: np.ndarray
    raised_at: int | None = None

    @property
    def steps(self) -> int:
        """Return the number of steps, including a step that raises an error."""
        return self.finite.size + (self.raised_at is not None)

    @property
    def overflows(self) -> int:
        """Return the number of overflows, including an overflow that raises an error."""
        return int(np.count_nonzero(~self.finite)) + (self.raised_at is not None)

    @property
    def growths(self) -> int:
        """Return the number of steps that increase the scale."""
        return int(np.count_nonzero(self.scales[1:] > self.scales[:-1]))

    @property
    def backoffs(self) -> int:
        """Return the number of steps that decrease the scale."""
        return int(np.count_nonzero(self.scales[1:] < self.scales[:-1]))


def simulate(rule: LossScaleRule, trace: Trace) -> Trajectory:
    """
    Simulate *rule* along *trace*.

    Args:
        rule: Constants of the scaler.
        trace: Overflow trace.

    Returns:
        The state before each step and after the last step. The scales equal those of `LossScaleRule.update` bit for bit.

    Raises:
        TypeError: *rule* is not a `LossScaleRule`, or *trace* is not a `Trace`.

    >>> from ampscale import presets
    >>> from ampscale.simulation import from_string
    >>> simulate(presets.torch(8.0, growth_interval=2), from_string("..x.")).scales.tolist()
    [8.0, 8.0, 16.0, 8.0, 8.0]
    """
    check_type(rule, "rule", LossScaleRule, "presets.torch()")
    check_type(trace, "trace", Trace, "from_string('..x')")
    step = step_of(rule)
    scale = rounded_constants(rule).init
    state: HostState = (scale, rule.initial_good_steps, 0, 0, scale)
    scales, good_steps, bad_steps = [scale], [rule.initial_good_steps], [0]
    for limit in trace.limits.tolist():
        new_state = step(state, state[0] <= limit)
        if new_state is None:  # the published scaler raises an error
            break
        state = new_state
        scales.append(state[0])
        good_steps.append(state[1])
        bad_steps.append(state[2])
    done = len(scales) - 1
    scale_array = np.asarray(scales, np.float64)
    return Trajectory(
        scales=scale_array,
        good_steps=np.asarray(good_steps, np.int32),
        bad_steps=np.asarray(bad_steps, np.int32),
        finite=scale_array[:-1] <= trace.limits[:done],
        raised_at=done if done < len(trace) else None,
    )
