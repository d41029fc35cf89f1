"""Why a step of the machine went as it did: which clause, were it otherwise, would have made it another one."""

from typing import Any

from .scale_changes import Move

WINDOW, OFFSET, GATE = "MACHINE-growth-window", "MACHINE-initial-good-steps", "MACHINE-block-at-bounds"


class Reasons:
    """What the machine itself forgets: how far its counts would be, had nothing set them back."""

    def __init__(self, rule: Any) -> None:
        self.rule = rule
        self.still = rule.growth_factor == rule.backoff_factor == 1
        self.after_growth = False  # whether the count of finite steps began with a growth, and not with the start or an overflow
        self.ignoring_overflows = 0  # finite steps since the start or the last growth
        self.ignoring_refills = 0  # overflows since the last backoff
        self.in_a_row = 0  # overflows since the last finite step or backoff

    def finite(self, good_steps: int, full: bool, is_open: bool, move: Move) -> tuple[str, ...]:
        """The clauses of a finite step: *good_steps* were counted before it, with it the window is *full*; the gate *is_open*."""
        self.in_a_row = 0
        self.ignoring_overflows += 1
        without_offset = good_steps + 1 - (0 if self.after_growth else self.rule.initial_good_steps)
        if full and is_open:
            self.after_growth, self.ignoring_overflows = True, 0
        if self.still:
            return ("MACHINE-static",)
        if not full:
            return (self._withheld(without_offset),)
        if not is_open:
            return (GATE,)
        why = OFFSET if without_offset < self.rule.growth_interval else WINDOW
        kept = ("MACHINE-growth-factor",) if self.rule.growth_factor == 1 and not move.clauses else ()
        return (why, *kept, *move.clauses)

    def overflow(self, due: bool, is_open: bool, move: Move) -> tuple[str, ...]:
        """The clauses of an overflow: a backoff is *due*, and the gate *is_open*."""
        self.in_a_row += 1
        self.ignoring_refills += 1
        waited = self._waited(due)
        if due:
            self.in_a_row = self.ignoring_refills = 0
        if not due or is_open:
            self.after_growth = False
        if self.still:
            return ("MACHINE-static",)
        if due and not is_open:
            return (GATE,)
        return ("MACHINE-backoff", *waited, *move.clauses) if due else waited

    def _withheld(self, without_offset: int) -> str:
        """Why a finite step does not grow."""
        if self.after_growth:
            return "MACHINE-growth-resets"
        if without_offset >= self.rule.growth_interval:
            return OFFSET
        if self.ignoring_overflows >= self.rule.growth_interval:
            return "MACHINE-overflow-resets"
        return WINDOW

    def _waited(self, due: bool) -> tuple[str, ...]:
        """Why an overflow backs off not before this one, or not yet."""
        if self.rule.overflow_tolerance is not None:
            return ("MACHINE-overflow-tolerance",)
        refilled = self.in_a_row < self.rule.hysteresis if due else self.ignoring_refills >= self.rule.hysteresis
        if self.rule.hysteresis == 1:
            return ()
        return ("MACHINE-hysteresis", "MACHINE-reset-bad-steps") if refilled else ("MACHINE-hysteresis",)
