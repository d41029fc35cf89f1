"""Clauses that determine a step of the state machine: without any one of them, the step would differ."""

from typing import Any

from .scale_changes import ScaleChange

WINDOW, OFFSET, BLOCK = "MACHINE-growth-window", "MACHINE-initial-good-steps", "MACHINE-block-at-bounds"


class Reasons:
    """Reasons for the steps of one scaler, determined with counts that the state machine itself does not need."""

    def __init__(self, rule: Any) -> None:
        self.rule = rule
        self.static = rule.growth_factor == rule.backoff_factor == 1
        self.after_growth = False  # True if a growth was the last reset of `good_steps`, not the start or an overflow
        self.finite_since_growth = 0  # finite steps since the start or the last growth
        self.overflows_since_backoff = 0
        self.consecutive_overflows = 0  # since the last finite step or backoff

    def finite(self, good_steps: int, full: bool, can_grow: bool, change: ScaleChange) -> tuple[str, ...]:
        """Count a finite step, and return its clauses, given `good_steps` before it. *full*: the step completes the window."""
        self.consecutive_overflows = 0
        self.finite_since_growth += 1
        without_offset = good_steps + 1 - (0 if self.after_growth else self.rule.initial_good_steps)
        if full and can_grow:
            self.after_growth, self.finite_since_growth = True, 0
        if self.static:
            return ("MACHINE-static",)
        if not full:
            return (self._no_growth(without_offset),)
        if not can_grow:
            return (BLOCK,)
        window = OFFSET if without_offset < self.rule.growth_interval else WINDOW
        unchanged = ("MACHINE-growth-factor",) if self.rule.growth_factor == 1 and not change.clauses else ()
        return (window, *unchanged, *change.clauses)

    def overflow(self, due: bool, can_back_off: bool, change: ScaleChange) -> tuple[str, ...]:
        """Count an overflow, and return its clauses. *due*: a backoff is due; *can_back_off*: no bound prevents it."""
        self.consecutive_overflows += 1
        self.overflows_since_backoff += 1
        counting = self._counting(due)
        if due:
            self.consecutive_overflows = self.overflows_since_backoff = 0
        if not due or can_back_off:
            self.after_growth = False
        if self.static:
            return ("MACHINE-static",)
        if due and not can_back_off:
            return (BLOCK,)
        return ("MACHINE-backoff", *counting, *change.clauses) if due else counting

    def _no_growth(self, without_offset: int) -> str:
        """Return the clause that explains why the scale does not grow in a finite step."""
        if self.after_growth:
            return "MACHINE-growth-resets"
        if without_offset >= self.rule.growth_interval:
            return OFFSET
        if self.finite_since_growth >= self.rule.growth_interval:
            return "MACHINE-overflow-resets"
        return WINDOW

    def _counting(self, due: bool) -> tuple[str, ...]:
        """Return the clauses that explain why a backoff is due at this overflow and not earlier, or is not due yet."""
        if self.rule.overflow_tolerance is not None:
            return ("MACHINE-overflow-tolerance",)
        hysteresis = self.rule.hysteresis
        was_reset = self.consecutive_overflows < hysteresis if due else self.overflows_since_backoff >= hysteresis
        if hysteresis == 1:
            return ()
        return ("MACHINE-hysteresis", "MACHINE-reset-bad-steps") if was_reset else ("MACHINE-hysteresis",)
