"""The machine of spec/30-machine.md, step by step, in whole numbers and exact products; and why each step went as it did."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ..model.floats import rounded
from .reasons import Reasons
from .scale_changes import Move, backed_off, multiplied


@dataclass(frozen=True)
class Constants:
    """A rule in the oracle's own words: the fields and the defaults of MACHINE-defaults. Nothing is checked."""

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


@dataclass(frozen=True)
class Point:
    """
    Where a scaler stands after a step.

    Args:
        scale: What the next loss is multiplied by.
        stopped: Whether the published scaler raises in this step instead of taking it; the scale is then what it was.
        clauses: The clauses that decided the step, the first of them first.
    """

    scale: float
    stopped: bool
    clauses: tuple[str, ...]


def trajectory(rule: Any, flags: Sequence[bool]) -> list[Point]:
    """
    Every point of a run, the initial one first, and none after one that is stopped.

    Args:
        rule: Anything with the fields of `Constants`, as an `ampscale.LossScaleRule`; taken to be a valid one.
        flags: Whether each step was finite.
    """
    machine = Machine(rule)
    points = [machine.point]
    for finite in flags:
        points.append(machine.step(finite))
        if points[-1].stopped:
            break
    return points


class Machine:
    """A scaler that goes step by step, and takes no step in which the published one stops; *rule* as for `trajectory`."""

    def __init__(self, rule: Any) -> None:
        self.rule = rule
        self.floor = _held(rule.min_scale, rule.dtype)
        self.cap = _held(rule.max_scale, rule.dtype)
        self.scale = rounded(rule.init_scale, rule.dtype)  # the next step's, which is not yet in force where the rule lags
        self.good_steps: int = rule.initial_good_steps
        self.bad_steps = 0
        self.steps = 0
        self.reasons = Reasons(rule)
        self.point = Point(self.scale, False, ("MACHINE-state",))
        self._decided = self.point.clauses  # what decided `scale`

    def step(self, finite: bool) -> Point:
        """The point after a step; `point` is it too, unless it is stopped."""
        grows, due = finite and self._window_is_full(), not finite and self._backoff_is_due()
        # A gate forbids a move; without one the bounds clamp what a move leads to.
        open_above = not (self.rule.block_at_bounds and self.cap is not None and self.scale >= self.cap)
        open_below = not (self.rule.block_at_bounds and self.floor is not None and self.scale <= self.floor)
        move = Move(self.scale, ())
        if grows and open_above:
            move = self._grown()
        if due and open_below:
            move = self._backed_off()
        if not finite and self._stops(due, move.scale):
            return Point(self.point.scale, True, ("MACHINE-would-raise",))
        clauses = self._after_finite(grows, open_above, move) if finite else self._after_overflow(due, open_below, move)
        self.point = self._in_force(move.scale, clauses)
        return self.point

    def _window_is_full(self) -> bool:
        return bool(self.good_steps + 1 >= self.rule.growth_interval)

    def _backoff_is_due(self) -> bool:
        if self.rule.overflow_tolerance is None:
            return bool(self.bad_steps + 1 >= self.rule.hysteresis)
        share = Fraction(self.bad_steps + 1, self.steps + 1)
        return rounded(share, self.rule.dtype) >= rounded(self.rule.overflow_tolerance, self.rule.dtype)

    def _grown(self) -> Move:
        rule, first = self.rule, self.rule.warmup_growth_factor is not None and self.bad_steps == 0
        move = multiplied(self.scale, rule.warmup_growth_factor if first else rule.growth_factor, rule.dtype, rule.float64_factor)
        clauses = ("MACHINE-warmup-growth-factor", *move.clauses) if first else move.clauses
        scale = move.scale
        if rule.skip_infinite_growth and scale == math.inf:
            scale, clauses = self.scale, ("MACHINE-skip-infinite-growth",)
        if self.cap is not None and not rule.block_at_bounds and scale > self.cap:
            scale, clauses = self.cap, ("MACHINE-max-scale",)
        return Move(scale, clauses)

    def _backed_off(self) -> Move:
        move = backed_off(self.scale, self.rule)
        if self.floor is not None and not self.rule.block_at_bounds and move.scale < self.floor:
            return Move(self.floor, ("MACHINE-min-scale",))
        return move

    def _stops(self, due: bool, scale: float) -> bool:
        rule = self.rule
        at_floor = rule.raise_at_min_scale and due and self.floor is not None and self.scale <= self.floor
        return at_floor or (rule.raise_at_or_below is not None and scale <= rounded(rule.raise_at_or_below, rule.dtype))

    def _after_finite(self, full: bool, is_open: bool, move: Move) -> tuple[str, ...]:
        refill, grows = self.rule.reset_bad_steps_on, full and is_open
        clauses = self.reasons.finite(self.good_steps, full, is_open, move)
        self.good_steps = 0 if grows else self.good_steps + 1
        if "finite" in refill or (grows and "growth" in refill):
            self.bad_steps = 0
        self.steps = 0 if grows else self.steps + 1
        return clauses

    def _after_overflow(self, due: bool, is_open: bool, move: Move) -> tuple[str, ...]:
        clauses = self.reasons.overflow(due, is_open, move)
        if not due or is_open:  # a backoff that is forbidden leaves the finite steps counted
            self.good_steps = self.rule.initial_good_steps
        if not due:
            self.bad_steps += 1
        else:
            self.bad_steps = 0 if "backoff" in self.rule.reset_bad_steps_on else self.rule.hysteresis
        self.steps = 0 if due else self.steps + 1
        return clauses

    def _in_force(self, scale: float, clauses: tuple[str, ...]) -> Point:
        before, decided = self.scale, self._decided
        self.scale, self._decided = scale, clauses
        return (
            Point(before, False, (*decided, "MACHINE-delayed-update"))
            if self.rule.delayed_update
            else Point(scale, False, clauses)
        )


def _held(bound: float | None, dtype: str) -> float | None:
    return None if bound is None else rounded(bound, dtype)
