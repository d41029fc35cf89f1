"""Walking a scaler and the oracle side by side, under a rule that makes the walk say what its case is named for."""

import copy
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

from ampscale import LossScaleRule

from ..model.adapter import Unsupported
from ..model.case import Case, named
from ..model.floats import rounded
from ..model.subject import Subject
from ..model.verdicts import Trajectory
from ..oracle.machine import Machine, trajectory

LARGEST = 2.0**127 * (2 - 2.0**-23)  # float32

# What a case takes that does not say otherwise, where the claim lets it be set: exact factors, and bounds out of reach.
USUAL = {
    "growth_factor": 2.0,
    "backoff_factor": 0.5,
    "growth_interval": 3,
    "hysteresis": 1,
    "min_scale": 2.0**-20,
    "max_scale": LARGEST,
}
INEXACT = {"MACHINE-arithmetic", "MACHINE-float64-factor", "MACHINE-divide-on-backoff"}
WAY_HOME = 24  # steps after which a scale that does not come back is left where it is

Only = tuple[Callable[[LossScaleRule], bool], str]  # the rules that a case is about, and what is said of another

A_WINDOW: Only = (lambda rule: rule.growth_interval > 1, "it grows in every finite step")


def claimed(subject: Subject, finite: str, about: str | None = None, **settings: Any) -> LossScaleRule:
    """
    The claimed rule with these settings, and the usual ones where it has them.

    Args:
        subject: The implementation.
        finite: The steps that are to be taken, one "+" or "-" each.
        about: The clause that has to decide one of them; None where every outcome is of interest.
        settings: What the case is about.

    Raises:
        Unsupported: The rule cannot be set so, its steps are not about that clause, or their scales are no exact products and
            "rounding" is not claimed.
    """
    usual = {name: value for name, value in USUAL.items() if name in subject.family.parameters}
    rule = subject.rule(**{**usual, **settings})
    decided = {clause for point in trajectory(rule, [sign == "+" for sign in finite]) for clause in point.clauses}
    if about is not None and about not in decided:
        raise Unsupported(f"with {subject.family.name} none of these steps is decided by {about}")
    if decided & INEXACT and "rounding" not in subject.info.capabilities:
        raise Unsupported(f"with {subject.family.name} these scales are no exact products, and rounding is not claimed")
    return rule


class Walk:
    """A new scaler and the oracle, step by step under one rule."""

    def __init__(self, subject: Subject, rule: LossScaleRule) -> None:
        self.subject, self.rule = subject, rule
        self.handle = subject.create(rule)
        self.oracle = Machine(rule)
        self.finite, self.stopped, self.gave_up = "", False, False
        self.wanted, self.got = [self.oracle.point.scale], list[float]()

    def follow(self, finite: str) -> "Walk":
        """Takes steps, and compares after each."""
        for sign in finite:
            self.advance(sign).compare()
        return self

    def advance(self, finite: str) -> "Walk":
        """Takes steps, and compares nothing; none after one in which the published scaler gives up."""
        for sign in finite if not self.stopped else "":
            point = self.oracle.step(sign == "+")
            if point.stopped:
                self.stopped, self.gave_up = True, self.subject.refuses("update", self.handle, sign == "+")
                break
            self.handle = self.subject.update(self.handle, sign == "+")
            self.finite += sign
            self.wanted.append(point.scale)
        return self

    def compare(self) -> "Walk":
        """Compares the scale in force, rounded to the rule's dtype since it may be held in a wider one; or whether it gave up."""
        after = f"after step {len(self.finite)}" if self.finite else "at the start"
        if self.stopped:
            self.subject.expect(self.gave_up, f"{after}, in the next: wanted it to give up, and it went on")
            return self
        point, scale = self.oracle.point, self.subject.read_scale(self.handle)
        self._tell(scale)
        because = f", by {' and '.join(point.clauses)}" if point.clauses else ""
        right = rounded(scale, self.rule.dtype) == point.scale
        self.subject.expect(right, f"{after}: wanted {point.scale!r}{because}, got {scale!r}")
        return self

    def saved(self) -> Any:
        """What the scaler saves; Unsupported where it has given up."""
        if self.stopped:
            raise Unsupported(f"under {self.subject.family.name} it gives up before there is anything to save")
        return self.subject.call("save", self.handle)

    def loaded(self, saved: Any) -> "Walk":
        """Another scaler, loaded from what was saved, which is to be where this one is."""
        return self.from_here(self.subject.call("load", self.rule, saved))

    def from_here(self, handle: Any) -> "Walk":
        """Another scaler, which is to be where this one is."""
        other = copy.copy(self)
        other.handle, other.oracle, other.wanted = handle, copy.deepcopy(self.oracle), [*self.wanted]
        return other

    def _tell(self, scale: float) -> None:
        """Shows the walk as it goes, where the scale was read after every step."""
        before = self.got[: len(self.finite)]
        if len(before) == len(self.finite):
            self.got = [*before, scale]
            self.subject.trajectory = Trajectory(self.finite, self.wanted, self.got)


def every_pattern(rule: LossScaleRule, length: int) -> str:
    """Every pattern of so many steps, and after each what brings the scale back to where it started, as far as it comes back."""
    machine, finite = Machine(rule), ""
    start = machine.point.scale
    for pattern in product("+-", repeat=length):
        for sign in pattern:
            machine.step(sign == "+")
        home = ""
        while machine.point.scale != start and len(home) < WAY_HOME:
            home += "+" if machine.point.scale < start else "-"
            machine.step(home[-1] == "+")
        finite += "".join(pattern) + home
    return finite


def trace(
    name: str,
    finite: str,
    catches: str,
    *needs: str,
    about: str | None = "",
    only: Only | None = None,
    saved_after: int | None = None,
    **settings: Any,
) -> Case:
    """
    A case that walks a scaler along *finite*, one "+" (finite) or "-" (overflow) a step, under the claimed rule's *settings*.

    Args:
        name: Its clause, which has to decide one of the steps, else the case is unsupported; a stroke; and its id.
        finite: The steps.
        catches: The fault.
        needs: Capabilities.
        about: Another clause that has to do so instead; None where every outcome is of interest.
        only: The rules that it is about.
        saved_after: After how many steps the scaler is saved, and another loaded, which goes on.
        settings: The constants, beside the usual ones.
    """
    about = name.partition("/")[0] if about == "" else about
    run = partial(walk, finite=finite, about=about, only=only, saved_after=saved_after, settings=settings)
    return named(name, 0, catches, run, needs)


def walk(
    subject: Subject,
    finite: str,
    settings: dict[str, Any],
    about: str | None = None,
    only: Only | None = None,
    saved_after: int | None = None,
) -> None:
    """Asks what `trace` describes."""
    rule = claimed(subject, finite, about, **settings)
    if only is not None and not only[0](rule):
        raise Unsupported(f"{subject.family.name} is not asked: {only[1]}")
    taken = Walk(subject, rule).compare().follow(finite[:saved_after])
    if saved_after is not None:
        taken.loaded(taken.saved()).compare().follow(finite[saved_after:])
