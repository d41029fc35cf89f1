"""Lockstep runs: a scaler and the oracle take the same steps, and their scales are compared after each."""

import copy
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from ampscale import LossScaleRule

from ..model.adapter import Unsupported
from ..model.floats import rounded
from ..model.subject import Subject
from ..model.verdicts import Trajectory
from ..oracle.machine import Machine, trajectory

LARGEST = 2.0**127 * (2 - 2.0**-23)  # float32

# Default settings of a case, if they can be set: exact factors, and bounds out of reach for a published scaler with bounds.
DEFAULTS = {
    "growth_factor": 2.0,
    "backoff_factor": 0.5,
    "growth_interval": 3,
    "hysteresis": 1,
    "min_scale": 2.0**-20,
    "max_scale": LARGEST,
}
INEXACT = {"MACHINE-arithmetic", "MACHINE-float64-factor", "MACHINE-divide-on-backoff"}
RETURN_STEPS = 24  # most steps after a pattern that return the scale to its start

Only = tuple[Callable[[LossScaleRule], bool], str]  # a condition on the rule, and the reason if it is not met


def supported_rule(subject: Subject, **settings: Any) -> LossScaleRule:
    """Return the supported rule with these settings, and `DEFAULTS` where they can be set; raise Unsupported if there is none."""
    rule, settable = subject.supported.default, subject.supported.parameters
    defaults = {name: value for name, value in DEFAULTS.items() if name in settable and getattr(rule, name) is not None}
    return subject.rule(**defaults | settings)


class LockstepRun:
    """
    Lockstep run of a new scaler and the oracle under one rule.

    A step whose new scale is an inexact product is unsupported without the capability "rounding".
    """

    def __init__(self, subject: Subject, rule: LossScaleRule) -> None:
        self.subject, self.rule, self.can_round = subject, rule, "rounding" in subject.info.capabilities
        self.handle = subject.create(rule)
        self.oracle = Machine(rule)
        self.finite = ""
        self.expected, self.scales = [self.oracle.point.scale], list[float]()

    def follow(self, finite: str) -> "LockstepRun":
        """Take steps, and compare the scales after each."""
        for sign in finite:
            self.advance(sign).compare()
        return self

    def advance(self, finite: str) -> "LockstepRun":
        """Take steps without comparing; if the published scaler raises an error, expect an error, which changes nothing."""
        for sign in finite:
            point = self.oracle.step(sign == "+")
            if not (self.can_round or INEXACT.isdisjoint(point.clauses)):
                name = self.subject.supported.name
                raise Unsupported(f"with {name}, these scales are inexact products, and rounding is not claimed")
            if point.stopped:
                raised = self.subject.raises("update", self.handle, sign == "+")
                self.subject.expect(raised, f"in step {len(self.finite)} (counted from 0): expected an error, got none")
            else:
                self.handle = self.subject.update(self.handle, sign == "+")
            self.finite += sign
            self.expected.append(point.scale)
        return self

    def compare(self) -> "LockstepRun":
        """Compare the scales. The actual scale, which may be stored in a wider dtype, is rounded to the rule's dtype first."""
        after = f"after step {len(self.finite) - 1} (counted from 0)" if self.finite else "at the start"
        point, scale = self.oracle.point, self.subject.read_scale(self.handle)
        self._record(scale)
        because = f" ({', '.join(point.clauses)})" if point.clauses else ""
        equal = rounded(scale, self.rule.dtype) == point.scale
        self.subject.expect(equal, f"{after}: expected scale {point.scale!r}{because}, got {scale!r}")
        return self

    def loaded(self, saved: Any) -> "LockstepRun":
        """Return a lockstep run that continues from here with a scaler loaded from *saved*."""
        return self.with_handle(self.subject.call("load", self.rule, saved))

    def with_handle(self, handle: Any) -> "LockstepRun":
        """Return a lockstep run that continues from here with the scaler of this handle."""
        other = copy.copy(self)
        other.handle, other.oracle, other.expected = handle, self.oracle.copy(), [*self.expected]
        return other

    def _record(self, scale: float) -> None:
        """Record the scale in the trajectory, if the scale was read after every step so far."""
        if len(self.scales) >= len(self.finite):
            self.scales = [*self.scales[: len(self.finite)], scale]
            self.subject.trajectory = Trajectory(self.finite, self.expected, self.scales)


def every_pattern(rule: LossScaleRule, length: int) -> str:
    """Return all patterns of this length, each followed by steps that return the scale to its start, as far as possible."""
    machine = Machine(rule)
    start = machine.point.scale
    finite = ""
    for pattern in product("+-", repeat=length):
        for sign in pattern:
            machine.step(sign == "+")
        return_steps = ""
        while machine.point.scale != start and len(return_steps) < RETURN_STEPS:
            return_steps += "+" if machine.point.scale < start else "-"
            machine.step(return_steps[-1] == "+")
        finite += "".join(pattern) + return_steps
    return finite


def run_lockstep(subject: Subject, finite: str, settings: dict[str, Any], about: str = "", only: Sequence[Only] = ()) -> None:
    """Follow an overflow trace; raise Unsupported if the clause *about* determines no step, or the rule does not match *only*."""
    rule = supported_rule(subject, **settings)
    points = trajectory(rule, [sign == "+" for sign in finite])
    if about and not any(about in point.clauses for point in points):
        raise Unsupported(f"{about} has no effect on these steps with {subject.supported.name}")
    for holds, reason in only:
        if not holds(rule):
            raise Unsupported(f"does not apply to {subject.supported.name}: {reason}")
    LockstepRun(subject, rule).compare().follow(finite)
