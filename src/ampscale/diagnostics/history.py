"""Numbers of the steps of a run that the verdicts rest on, and the limits from which they conclude."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from ..core.validation import check_count, check_number
from .records import StepRecord
from .window import HEADROOM, LARGEST_EXPONENT, SMALLEST_NORMAL

REPEATS = 4  # steps after which a pattern counts as one
LONG_ROW = 3  # skipped steps in a row that do not belong to a regular search after a growth


@dataclass(frozen=True)
class Limits:
    """
    Limits from which the checks conclude.

    Args:
        stall_after: Number of skipped steps in a row after which a run counts as stalled. While the scale backs off, only
            the steps at which it does are counted.
        stall_window: Number of last steps over which the share of skipped ones is taken.
        stall_share: Share of skipped steps in a full window above which a run counts as stalled.
        min_scale: Lower bound of the scale, at which a skipped step counts as stalled; None for no bound.
        subnormal_share: Share of the non-zero values that may be below 2**-14, where float16 keeps fewer digits or none;
            above it, the verdict is UNDERFLOW.

    Raises:
        TypeError: A limit has the wrong type.
        ValueError: A limit is out of range.

    >>> Limits(stall_after=50).stall_window
    200
    """

    stall_after: int = 20
    stall_window: int = 200
    stall_share: float = 0.6
    min_scale: float | None = None
    subnormal_share: float = 0.1

    def __post_init__(self) -> None:
        check_count(self.stall_after, "stall_after")
        check_count(self.stall_window, "stall_window")
        check_number(self.stall_share, "stall_share", "a number from 0 to 1", 0, 1)
        check_number(self.subnormal_share, "subnormal_share", "a number from 0 to 1", 0, 1)
        if self.min_scale is not None:
            check_number(self.min_scale, "min_scale", "a positive, finite number", 0, above=True)


@dataclass
class History:
    """Numbers of the steps up to the present one."""

    limits: Limits
    last: deque[StepRecord]  # steps of the window, without statistics
    names: Sequence[str] | None = None
    skipped: list[StepRecord] = field(default_factory=list)  # latest skipped steps in a row, at most `REPEATS`
    in_a_row: int = 0  # skipped steps in a row
    backoffs: int = 0  # those of them at which the scale decreased
    unmoved: int = 0  # skipped steps in a row since the scale last decreased
    applied: int = 0  # applied steps
    good_scale: float | None = None  # scale of the last finite step
    filled_scale: float | None = None  # smallest scale at which measured gradients had a normal float16 value
    is_stale_refuted: bool = False  # True if gradients that were reported as stale were finite in the next step
    normed: list[StepRecord] = field(default_factory=list)  # latest finite steps with a norm, at most `REPEATS`
    changed: list[StepRecord] = field(default_factory=list)  # latest steps whose gradients were changed, at most `REPEATS`
    only: int | None = None  # index of the only gradient that was not finite, in the steps of `only_in`
    only_in: list[StepRecord] = field(default_factory=list)  # skipped steps, each at a smaller scale than the one before

    def add(self, record: StepRecord) -> None:
        """Add the next step."""
        if record.finite:
            self._add_finite(record)
        else:
            self._add_skipped(record)
        self.last.append(record.without_tensors())
        if record.change is not None:
            self.changed = [*self.changed, record][-REPEATS:]

    def name(self, index: int) -> str:
        """Return the name of a gradient."""
        return self.names[index] if self.names is not None and index < len(self.names) else f"gradient {index}"

    def stall(self, record: StepRecord) -> str | None:
        """Return the reason in words why the run counts as stalled, or None."""
        limits = self.limits
        if record.finite:
            return None
        if max(self.backoffs, self.unmoved) >= limits.stall_after:
            return f"{self.in_a_row} step{'s were' if self.in_a_row > 1 else ' was'} skipped in a row"
        if limits.min_scale is not None and record.scale <= limits.min_scale:
            return f"a step was skipped at the lowest scale, {limits.min_scale:g}"
        flags = [step.finite for step in self.last]
        share = flags.count(False) / len(flags)
        if len(flags) < limits.stall_window or share <= limits.stall_share:
            return None
        longest = max(len(list(row)) for finite, row in groupby(flags) if not finite)
        return f"{share:.0%} of the last {limits.stall_window} steps were skipped" if longest >= LONG_ROW else None

    def lowest_overflow(self) -> float:
        """Return the smallest scale of a skipped step in the window; inf without one."""
        return min((step.scale for step in self.last if not step.finite), default=math.inf)

    def _add_finite(self, record: StepRecord) -> None:
        self.is_stale_refuted |= bool(self.skipped and self.skipped[-1].stale)
        self.skipped, self.in_a_row, self.backoffs, self.unmoved = [], 0, 0, 0
        self.good_scale = record.scale
        self.applied += record.applied
        if record.norm is not None and math.isfinite(record.norm) and record.norm > 0:
            self.normed = [*self.normed, record][-REPEATS:]
        if any(tensor.largest >= SMALLEST_NORMAL for tensor in record.tensors or ()):
            self.filled_scale = min(self.filled_scale or math.inf, record.measured_scale or 1.0)

    def _add_skipped(self, record: StepRecord) -> None:
        self.skipped, self.in_a_row = [*self.skipped, record][-REPEATS:], self.in_a_row + 1
        decreases = record.next_scale < record.scale
        self.backoffs, self.unmoved = self.backoffs + decreases, 0 if decreases else self.unmoved + 1
        if record.tensors is None:
            return
        offenders = record.nonfinite_tensors()
        is_only = len(offenders) == 1 and len(record.tensors) > 1 and has_headroom(record)
        continues = is_only and self.only == offenders[0] and record.scale < self.only_in[-1].scale
        self.only, self.only_in = (offenders[0], [*(self.only_in if continues else []), record]) if is_only else (None, [])


def has_headroom(record: StepRecord) -> bool:
    """
    Return True if the finite values of the gradients that are not finite are far below the largest float16 number.

    If these gradients have no finite values, those of all others count.
    """
    shift = math.log2(record.scale / (record.measured_scale or 1))
    filled = [tensor for tensor in record.tensors or () if not tensor.is_empty]
    exponents = [tensor.largest + shift for tensor in [tensor for tensor in filled if tensor.nonfinite] or filled]
    return bool(exponents) and max(exponents) <= LARGEST_EXPONENT - HEADROOM
