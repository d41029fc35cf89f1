"""State machine of spec/30-machine.md in integers and exact products, with the clauses that determine each step."""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from ..model.floats import rounded
from .reasons import Reasons
from .scale_changes import ScaleChange, divided, multiplied


@dataclass(frozen=True)
class Constants:
    """Constants of a rule: the fields and defaults of MACHINE-defaults, independent of the library. They are not validated."""

    init_scale: float = 2.0**16
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    hysteresis: int = 1
    min_scale: float | None = None
    max_scale: float | None = None
    reset_bad_steps_on: tuple[str, ...] = ("finite", "backoff")
    divide_on_backoff: bool = False
    skip_infinite_growth: bool = True
    initial_good_steps: int = 0
    dtype: str = "float32"
    float64_factor: bool = False
    warmup_growth_factor: float | None = None
    block_at_bounds: bool = False
    overflow_tolerance: float | None = None
    raise_at_min_scale: bool = False
    raise_at_or_below: float | None = None
    delayed_update: bool = False


class Point(NamedTuple):
    """State of a scaler after a step."""

    scale: float  # factor for the next loss
    stopped: bool  # True if the published scaler raises an error in this step; the scale is then unchanged
    clauses: tuple[str, ...]  # clauses that determine the step, the main one first


def trajectory(rule: Any, flags: Sequence[bool]) -> list[Point]:
    """
    Return all points of a run, beginning with the initial one and ending with the first that is stopped.

    *rule* is valid: any object with the fields of `Constants`, such as a `LossScaleRule`. *flags* are True for finite steps.
    """
    machine = Machine(rule)
    points = [machine.point]
    for finite in flags:
        points.append(machine.step(finite))
        if points[-1].stopped:
            break
    return points


class Machine:
    """State machine of one scaler. A step in which the published scaler raises an error changes nothing."""

    def __init__(self, rule: Any) -> None:
        self.rule = rule
        bounds = rule.min_scale, rule.max_scale
        self.min_scale, self.max_scale = (None if bound is None else rounded(bound, rule.dtype) for bound in bounds)
        self.scale = rounded(rule.init_scale, rule.dtype)  # the pending scale if the rule has a delayed update
        self.good_steps: int = rule.initial_good_steps
        self.bad_steps = 0
        self.steps = 0
        self.reasons = Reasons(rule)
        self.point = Point(self.scale, False, ("MACHINE-state",))
        self._pending_clauses = self.point.clauses  # the clauses that determined `scale`

    def copy(self) -> "Machine":
        """Return a machine that continues from this point. The steps of one do not affect the other."""
        other = copy.copy(self)
        other.reasons = copy.copy(self.reasons)
        return other

    def step(self, finite: bool) -> Point:
        """Take a step and return the new `point`. An error of the published scaler gives a stopped point and changes nothing."""
        full = finite and self.good_steps + 1 >= self.rule.growth_interval  # True if this step completes the growth window
        due = not finite and self._backoff_is_due()
        # With block_at_bounds, a change at or beyond a bound is blocked; otherwise its result is clamped.
        can_grow = not (self.rule.block_at_bounds and self.max_scale is not None and self.scale >= self.max_scale)
        can_back_off = not (self.rule.block_at_bounds and self.min_scale is not None and self.scale <= self.min_scale)
        change = ScaleChange(self.scale, ())
        if full and can_grow:
            change = self._grown()
        if due and can_back_off:
            change = self._backed_off()
        if not finite and self._would_raise(due, change.scale):
            return Point(self.point.scale, True, ("MACHINE-would-raise",))
        clauses = self._after_finite(full, can_grow, change) if finite else self._after_overflow(due, can_back_off, change)
        self.point = self._next_point(change.scale, clauses)
        return self.point

    def _backoff_is_due(self) -> bool:
        if self.rule.overflow_tolerance is None:
            return bool(self.bad_steps + 1 >= self.rule.hysteresis)
        share = Fraction(self.bad_steps + 1, self.steps + 1)
        return rounded(share, self.rule.dtype) >= rounded(self.rule.overflow_tolerance, self.rule.dtype)

    def _grown(self) -> ScaleChange:
        rule = self.rule
        warmup = rule.warmup_growth_factor is not None and self.bad_steps == 0
        factor = rule.warmup_growth_factor if warmup else rule.growth_factor
        change = multiplied(self.scale, factor, rule.dtype, rule.float64_factor)
        clauses = ("MACHINE-warmup-growth-factor", *change.clauses) if warmup else change.clauses
        scale = change.scale
        if rule.skip_infinite_growth and scale == math.inf:
            scale, clauses = self.scale, ("MACHINE-skip-infinite-growth",)
        if self.max_scale is not None and not rule.block_at_bounds and scale > self.max_scale:
            scale, clauses = self.max_scale, ("MACHINE-max-scale",)
        return ScaleChange(scale, clauses)

    def _backed_off(self) -> ScaleChange:
        rule = self.rule
        changed = divided if rule.divide_on_backoff else multiplied
        change = changed(self.scale, rule.backoff_factor, rule.dtype, rule.float64_factor)
        if self.min_scale is not None and not rule.block_at_bounds and change.scale < self.min_scale:
            return ScaleChange(self.min_scale, ("MACHINE-min-scale",))
        return change

    def _would_raise(self, due: bool, scale: float) -> bool:
        rule = self.rule
        at_min_scale = rule.raise_at_min_scale and due and self.min_scale is not None and self.scale <= self.min_scale
        return at_min_scale or (rule.raise_at_or_below is not None and scale <= rounded(rule.raise_at_or_below, rule.dtype))

    def _after_finite(self, full: bool, can_grow: bool, change: ScaleChange) -> tuple[str, ...]:
        resets, grows = self.rule.reset_bad_steps_on, full and can_grow
        clauses = self.reasons.finite(self.good_steps, full, can_grow, change)
        self.good_steps = 0 if grows else self.good_steps + 1
        if "finite" in resets or (grows and "growth" in resets):
            self.bad_steps = 0
        self.steps = 0 if grows else self.steps + 1
        return clauses

    def _after_overflow(self, due: bool, can_back_off: bool, change: ScaleChange) -> tuple[str, ...]:
        clauses = self.reasons.overflow(due, can_back_off, change)
        if not due or can_back_off:  # a blocked backoff leaves good_steps unchanged
            self.good_steps = self.rule.initial_good_steps
        if not due:
            self.bad_steps += 1
        else:
            self.bad_steps = 0 if "backoff" in self.rule.reset_bad_steps_on else self.rule.hysteresis
        self.steps = 0 if due else self.steps + 1
        return clauses

    def _next_point(self, scale: float, clauses: tuple[str, ...]) -> Point:
        old_scale, old_clauses = self.scale, self._pending_clauses
        self.scale, self._pending_clauses = scale, clauses
        if self.rule.delayed_update:
            return Point(old_scale, False, (*old_clauses, "MACHINE-delayed-update"))
        return Point(scale, False, clauses)
