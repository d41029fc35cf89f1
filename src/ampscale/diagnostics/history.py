"""History of a run, on which the verdicts are based, and the thresholds of the checks."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..core.validation import check_count, check_number, check_positive
from .float16 import HEADROOM, LARGEST_EXPONENT, NORM_RTOL, SMALLEST_NORMAL
from .records import StepRecord, has_only_nans

REPEATS = 4  # number of steps in which a pattern must occur to be reported
LARGEST_COUNTED = 2.0**24  # inverse of the smallest float16 number; backoffs from larger scales are a search, and no stall


@dataclass(frozen=True)
class Limits:
    """
    Thresholds of the checks.

    Args:
        stall_after: Number of skipped steps in a row after which a run counts as stalled. While the scale backs off, only the
            steps that lower it from 2**24 or less are counted.
        stall_window: Number of latest steps in which skipped steps are counted.
        stall_share: Share of skipped steps in a full window above which a run counts as stalled. A scale that grows after every
            finite step skips every other step, which is below the default.
        min_scale: Lower bound of the scale. A run counts as stalled if a step is skipped at this scale. None for no bound.
        subnormal_share: Share of the non-zero values that may be below 2**-14, where float16 keeps fewer digits or none;
            above this share, the verdict is UNDERFLOW.

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
            check_positive(self.min_scale, "min_scale")


@dataclass
class OnlyOffender:
    """Gradient that was the only one with infinities or NaNs, in consecutive skipped steps while the scale decreased."""

    gradient: tuple[int, str]  # index and name
    first_step: int
    skips: int = 0
    next_scale: float = 0.0  # scale after the last of these steps
    scales: set[float] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)  # ranks that are known to be at fault

    def includes(self, gradient: tuple[int, str], scale: float) -> bool:
        """Return True for the same gradient at a scale that is lower than those of these steps or, with hysteresis, the same."""
        return gradient == self.gradient and (scale < min(self.scales) or scale == self.next_scale)

    def add(self, record: StepRecord) -> None:
        """Add the next of these steps."""
        self.skips += 1
        self.next_scale = record.next_scale
        self.scales.add(record.scale)
        self.ranks.update(record.ranks_at_fault())


@dataclass
class History:
    """Facts that the checks use, about all steps of a run up to the current one."""

    limits: Limits
    window: deque[StepRecord]  # latest steps, at most `limits.stall_window`, without statistics
    names: Sequence[str] | None = None
    others: Sequence["History"] = ()  # histories of other optimizers, whose gradients have the same scale
    skipped: list[StepRecord] = field(default_factory=list)  # latest skipped steps in a row, at most `REPEATS`
    skipped_names: list[Sequence[str] | None] = field(default_factory=list)  # `names` at each of these steps
    skips_in_a_row: int = 0  # number of skipped steps since the last finite step
    backoffs: int = 0  # number of backoffs since the last finite step, from `LARGEST_COUNTED` or less
    skips_since_backoff: int = 0  # number of skipped steps since the last finite step or backoff
    is_stalled: bool = False  # True if the run counted as stalled at the step before
    applied_steps: int = 0  # number of applied steps
    last_finite: StepRecord | None = None  # last finite step, without statistics
    normal_scale: float | None = None  # smallest scale at which measured gradients had a normal value, until all were subnormal
    stale_steps: int = 0  # number of steps whose gradients were added to those of the step before
    with_norm: list[StepRecord] = field(default_factory=list)  # latest finite steps with a norm, at most `REPEATS`
    changed: list[StepRecord] = field(default_factory=list)  # latest steps whose gradients were changed, at most `REPEATS`
    is_change_constant: bool = False  # True if gradients were changed by the same factor at two scales
    only_offender: OnlyOffender | None = None  # the only gradient not finite in the last skipped steps
    with_nans: list[StepRecord] = field(default_factory=list)  # latest skipped steps, at decreasing scales, with NaNs only

    def add(self, record: StepRecord) -> None:
        """Add the next step."""
        self.stale_steps += record.stale
        if record.finite:
            self._add_finite(record)
        else:
            self._add_skipped(record)
        if record.change is not None:
            self._add_changed(record, record.change)
        self.window.append(record.without_tensors())

    def name(self, index: int) -> str:
        """Return the name of a gradient."""
        return self.names[index] if self.names is not None and index < len(self.names) else f"gradient {index}"

    def stall(self, record: StepRecord) -> str | None:
        """Return the reason why the run counts as stalled, as text; None if it does not."""
        limits = self.limits
        if record.finite and not self.is_stalled:  # a stall starts at a skipped step
            return None
        if max(self.backoffs, self.skips_since_backoff) >= limits.stall_after:
            steps = "steps were" if self.skips_in_a_row > 1 else "step was"
            return f"{self.skips_in_a_row} {steps} skipped in a row"
        if not record.finite and limits.min_scale is not None and record.scale <= limits.min_scale:
            return f"a step was skipped at the lowest scale, {limits.min_scale:.10g}"
        flags = [step.finite for step in self.window]
        share = flags.count(False) / len(flags)
        if len(flags) < limits.stall_window or share <= limits.stall_share:
            return None
        return f"{share:.0%} of the last {limits.stall_window} steps were skipped"

    def lowest_overflow(self) -> float:
        """Return the smallest scale at which a step in the window was skipped, also of other optimizers; inf if none was."""
        windows = (history.window for history in (self, *self.others))
        return min((step.scale for window in windows for step in window if not step.finite), default=math.inf)

    def loss_has_grown(self) -> bool:
        """Return True if a loss of the latest skipped steps is far above that of the last finite step, so gradients are, too."""
        if self.last_finite is None:
            return False
        losses = [abs(step.loss) for step in self.skipped if step.loss is not None and math.isfinite(step.loss)]
        return max(losses, default=0.0) > 2.0**HEADROOM * abs(self.last_finite.loss or math.inf)

    def _add_finite(self, record: StepRecord) -> None:
        self.skipped, self.skipped_names = [], []
        self.skips_in_a_row = self.backoffs = self.skips_since_backoff = 0
        self.last_finite = record.without_tensors()
        self.applied_steps += record.applied
        if record.norm is not None and math.isfinite(record.norm) and record.norm > 0:
            self.with_norm = [*self.with_norm, record][-REPEATS:]
        if largest := [tensor.largest for tensor in record.tensors or () if not tensor.is_empty]:
            is_normal = max(largest) >= SMALLEST_NORMAL
            self.normal_scale = min(self.normal_scale or math.inf, record.measured_scale or 1.0) if is_normal else None

    def _add_skipped(self, record: StepRecord) -> None:
        self.skips_in_a_row += 1
        self.skipped = [*self.skipped, record][-REPEATS:]
        self.skipped_names = [*self.skipped_names, self.names][-REPEATS:]
        decreases = record.next_scale < record.scale
        self.backoffs += decreases and record.scale <= LARGEST_COUNTED
        self.skips_since_backoff = 0 if decreases else self.skips_since_backoff + 1
        if record.tensors is not None:
            self._add_nans(record)
            self._add_offender(record)

    def _add_offender(self, record: StepRecord) -> None:
        """Add a skipped step to `only_offender` if exactly one of several gradients was non-finite, otherwise reset it."""
        offenders = record.nonfinite_tensors()
        if len(offenders) != 1 or len(record.tensors or ()) == 1 or not has_headroom(record):
            self.only_offender = None
            return
        # An index alone can be a different gradient in each step, if others are None; and several gradients can be unnamed.
        gradient = offenders[0], self.name(offenders[0])
        if self.only_offender is None or not self.only_offender.includes(gradient, record.scale):
            self.only_offender = OnlyOffender(gradient, record.step)
        self.only_offender.add(record)

    def _add_changed(self, record: StepRecord, change: float) -> None:
        """Add a step whose gradients were changed, and find out if the factor of the change is the same at another scale."""
        if self.changed and record.finite and record.scale != self.changed[-1].scale:
            self.is_change_constant |= math.isclose(change, self.changed[-1].change or 0, rel_tol=NORM_RTOL)
        self.changed = [*self.changed, record][-REPEATS:]

    def _add_nans(self, record: StepRecord) -> None:
        """
        Add a skipped step to `with_nans` if it has no infinities, and gradients were finite at its scale or a larger one.

        Otherwise, empty the list. If the scale has grown since the last step in the list, start a new one.
        """
        last_finite = self.last_finite
        was_finite = last_finite is not None and record.scale <= last_finite.scale and not self.loss_has_grown()
        if not (has_only_nans(record.tensors or ()) and was_finite and record.is_original and not record.modified):
            self.with_nans = []
            return
        last = self.with_nans[-1] if self.with_nans else record
        has_not_grown = record.scale < last.scale or record.scale == last.next_scale  # with hysteresis, it can still be the same
        earlier = [step for step in self.with_nans if has_not_grown and step.scale > record.scale]
        self.with_nans = [*earlier, record.without_tensors()][-REPEATS:]


def has_headroom(record: StepRecord) -> bool:
    """
    Return True if the finite values in the non-finite gradients are far below the largest float16 number.

    If the non-finite gradients have no finite values, the values of all other gradients are compared. But if
    there are infinities then, return False: the scale can be too large for one gradient alone, such as that of a bias with one
    element.
    """
    # Undo a change such as a division by the loop, which makes finite values small and keeps infinities.
    change = record.change if record.change and math.isfinite(record.change) else 1.0
    shift = math.log2(record.scale / (record.measured_scale or 1) / change)
    with_values = [tensor for tensor in record.tensors or () if not tensor.is_empty]
    offenders = [tensor for tensor in with_values if tensor.nonfinite]
    if not offenders and any(tensor.infinities for tensor in record.tensors or ()):
        return False
    exponents = [tensor.largest + shift for tensor in offenders or with_values]
    return bool(exponents) and max(exponents) <= LARGEST_EXPONENT - HEADROOM
