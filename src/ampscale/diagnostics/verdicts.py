"""
Verdicts on steps: a closed set of causes, and the checks that choose one from the records of a run.

The checks run in the order of their certainty: what the loop itself shows (a loss that is not finite, gradients that were not set
to zero) comes before what the numbers suggest. docs/diagnosis.md explains each verdict and what to do about it.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ..core.validation import check_count, check_number
from .records import StepRecord
from .window import DIGITS_LOST, LARGEST_EXPONENT, lost_share


class Verdict(StrEnum):
    """
    Cause of a skipped step, or fault of an applied one.

    Args:
        HEALTHY: There was no overflow, and nothing is wrong.
        OCCASIONAL: A single overflow, as a dynamic scale causes whenever it grows too far.
        SEARCHING: The scale is still too large and backs off at each step, as at the start of a run.
        FORWARD: The loss itself was infinite or NaN, so the fault is in the forward pass.
        NO_SCALE_HELPS: Gradients have NaNs and no infinity, or are not finite at a scale of 1, or do not react to the scale.
        ONE_TENSOR: In repeated skipped steps, the same gradient was the only one that was not finite.
        MEAN_ONLY: Every rank's own gradients were finite; only their mean was not.
        FORGOTTEN_ZERO_GRAD: Gradients of a skipped step were not set to zero, so that their infinities remain.
        UNSCALED_TWICE: The gradients had already been divided by the scale when they were unscaled.
        CLIPPED_BEFORE_UNSCALING: The gradients were clipped while they were scaled.
        UNDERFLOW: The scale is so small that float16 loses a share of the gradients.
        STALLED: Skipped steps do not end, and no other check explains them.

    >>> Verdict("searching").name
    'SEARCHING'
    """

    HEALTHY = "healthy"
    OCCASIONAL = "occasional"
    SEARCHING = "searching"
    FORWARD = "forward pass not finite"
    NO_SCALE_HELPS = "no scale helps"
    ONE_TENSOR = "one tensor"
    MEAN_ONLY = "only the mean overflowed"
    FORGOTTEN_ZERO_GRAD = "forgotten zero_grad"
    UNSCALED_TWICE = "unscaled twice"
    CLIPPED_BEFORE_UNSCALING = "clipped before unscaling"
    UNDERFLOW = "underflow"
    STALLED = "stalled"


@dataclass(frozen=True)
class Diagnosis:
    """
    Verdict on one step.

    Args:
        step: Number of the step.
        verdict: Cause or fault.
        message: The verdict in one or two sentences, with the remedy.
        evidence: Numbers on which the verdict rests, by name.
        stall: Reason in words why the run counts as stalled; None if it does not. Any verdict can have it.

    >>> diagnosis = Diagnoser().diagnose(StepRecord(0, 65536.0, 32768.0, finite=False, applied=False, loss=math.nan))
    >>> diagnosis.verdict, diagnosis.evidence
    (<Verdict.FORWARD: 'forward pass not finite'>, {'loss': nan})
    """

    step: int
    verdict: Verdict
    message: str
    evidence: dict[str, Any] = field(default_factory=dict)
    stall: str | None = None


@dataclass(frozen=True)
class Limits:
    """
    Limits from which the checks conclude.

    Args:
        stall_after: Number of skipped steps in a row after which a run counts as stalled.
        stall_window: Number of last steps over which the share of skipped ones is taken.
        stall_share: Share of skipped steps in a full window above which a run counts as stalled.
        min_scale: Lower bound of the scale, at which a skipped step counts as stalled; None for no bound.
        lost_share: Share of the non-zero values that may be lost in float16; above it, the verdict is UNDERFLOW.

    Raises:
        TypeError: A limit has the wrong type.
        ValueError: A limit is out of range.

    >>> overflow = StepRecord(0, 65536.0, 32768.0, finite=False, applied=False)
    >>> Diagnoser(Limits(stall_after=1)).diagnose(overflow).stall
    '1 step was skipped in a row'
    """

    stall_after: int = 20
    stall_window: int = 200
    stall_share: float = 0.5
    min_scale: float | None = None
    lost_share: float = 0.05

    def __post_init__(self) -> None:
        check_count(self.stall_after, "stall_after")
        check_count(self.stall_window, "stall_window")
        check_number(self.stall_share, "stall_share", "a number from 0 to 1", 0, 1)
        check_number(self.lost_share, "lost_share", "a number from 0 to 1", 0, 1)
        if self.min_scale is not None:
            check_number(self.min_scale, "min_scale", "a positive, finite number", 0, above=True)


@dataclass
class _History:
    """Numbers of the steps before and including the present one."""

    limits: Limits
    last: deque[bool]  # True for a skipped step, in the window
    names: Sequence[str] | None = None
    skipped: list[StepRecord] = field(default_factory=list)  # latest skipped steps in a row, at most `_REPEATS`
    in_a_row: int = 0  # skipped steps in a row
    applied: int = 0  # applied steps
    raw_norms: list[float] = field(default_factory=list)  # norms before unscaling, of the latest steps, at most `_REPEATS`
    only: int | None = None  # index of the only gradient that was not finite, in the steps of `only_in`
    only_in: list[StepRecord] = field(default_factory=list)  # skipped steps, each at a smaller scale than the one before

    def add(self, record: StepRecord) -> None:
        self.last.append(not record.finite)
        self.applied += record.applied
        self.in_a_row = 0 if record.finite else self.in_a_row + 1
        self.skipped = [] if record.finite else [*self.skipped, record][-_REPEATS:]
        if record.norm is not None and math.isfinite(record.norm) and record.norm > 0:
            self.raw_norms = [*self.raw_norms, record.norm * record.scale][-_REPEATS:]
        if not record.finite and record.tensors is not None:
            self._add_offenders(record)

    def _add_offenders(self, record: StepRecord) -> None:
        offenders = record.nonfinite_tensors()
        is_only = len(offenders) == 1 and len(record.tensors or ()) > 1 and _has_headroom(record)
        continues = is_only and self.only == offenders[0] and record.scale < self.only_in[-1].scale
        self.only, self.only_in = (offenders[0], [*(self.only_in if continues else []), record]) if is_only else (None, [])

    def name(self, index: int) -> str:
        return self.names[index] if self.names is not None and index < len(self.names) else f"gradient {index}"


_Check = Callable[[StepRecord, _History], tuple[Verdict, str, dict[str, Any]] | None]
_REPEATS = 4  # steps after which a pattern counts as one
_HEADROOM = 4  # powers of two between the largest finite gradient and the largest float16 number


class Diagnoser:
    """
    Checks the steps of a run one after the other.

    Args:
        limits: Limits from which the checks conclude.

    >>> diagnoser = Diagnoser()
    >>> for step, finite in enumerate([False, True, False]):
    ...     print(diagnoser.diagnose(StepRecord(step, 8.0, 4.0, finite=finite, applied=finite)).verdict)
    searching
    healthy
    occasional
    """

    def __init__(self, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self._history = _History(limits, deque(maxlen=limits.stall_window))

    def diagnose(self, record: StepRecord, names: Sequence[str] | None = None) -> Diagnosis:
        """
        Return the verdict on the next step of the run.

        Args:
            record: Numbers of the step.
            names: Names of the gradients in `record.tensors`, for messages; by default they are numbered.
        """
        history = self._history
        history.names = names
        history.add(record)
        stall = _stall(record, history)
        for check in _CHECKS_OF_APPLIED if record.finite else _CHECKS_OF_SKIPPED:
            result = check(record, history)
            if result is not None:
                return Diagnosis(record.step, *result, stall=stall)
        raise AssertionError("the last check always has a result")


def _forward(record: StepRecord, _history: _History) -> tuple[Verdict, str, dict[str, Any]] | None:
    if record.loss is None or math.isfinite(record.loss):
        return None
    message = f"the loss was {record.loss} before scaling: look for the cause in the inputs or in the forward pass"
    return Verdict.FORWARD, message, {"loss": record.loss}


def _forgotten_zero_grad(record: StepRecord, history: _History) -> tuple[Verdict, str, dict[str, Any]] | None:
    if not record.stale:
        return None
    message = (
        "the gradients of the skipped step before were not set to zero: call zero_grad() in every iteration, also after a skip"
    )
    return Verdict.FORGOTTEN_ZERO_GRAD, message, {"skips in a row": history.in_a_row}


def _mean_only(record: StepRecord, _history: _History) -> tuple[Verdict, str, dict[str, Any]] | None:
    ranks = record.finite_ranks
    if ranks is None or len(ranks) < 2 or not all(ranks):
        return None
    message = f"the gradients of all {len(ranks)} ranks were finite, and only their mean was not: add them up in float32"
    return Verdict.MEAN_ONLY, message, {"ranks": len(ranks)}


def _no_scale_helps(record: StepRecord, history: _History) -> tuple[Verdict, str, dict[str, Any]] | None:
    where = _where(record, history)
    evidence = {"scale": record.scale, **_counts(record)}
    if record.scale <= 1:
        return Verdict.NO_SCALE_HELPS, f"the gradients are not finite at a scale of {record.scale:g}{where}", evidence
    if record.finite_at_one is False:
        return Verdict.NO_SCALE_HELPS, f"the gradients are not finite at a scale of 1 either{where}", evidence
    if record.finite_at_one:
        return None
    if record.is_original and not record.modified and evidence.get("nans") and not evidence["infinities"]:
        message = f"the gradients have NaNs and no infinity{where}: a smaller scale does not remove NaNs"
        return Verdict.NO_SCALE_HELPS, message, evidence
    return None


def _independent_of_scale(record: StepRecord, history: _History) -> tuple[Verdict, str, dict[str, Any]] | None:
    first = history.skipped[0]
    if len(history.skipped) < _REPEATS or not (_same_offenders(history.skipped) and _has_headroom(record)):
        return None
    message = f"the same values are not finite at scales from {first.scale:g} to {record.scale:g}{_where(record, history)}"
    return Verdict.NO_SCALE_HELPS, message, {"first scale": first.scale, "scale": record.scale, **_counts(record)}


def _one_tensor(record: StepRecord, history: _History) -> tuple[Verdict, str, dict[str, Any]] | None:
    if history.only is None or record.tensors is None or len(history.only_in) < _REPEATS - 1:
        return None
    name, first, count = history.name(history.only), history.only_in[0].step, len(history.only_in)
    on_rank = "" if record.rank is None else f" on rank {record.rank}"
    message = f"only {name} is not finite{on_rank}, in all {count} skipped steps since step {first}, at ever smaller scales"
    return Verdict.ONE_TENSOR, message, {"tensor": name, "rank": record.rank, "since step": first, "skips": count}


def _stalled(record: StepRecord, history: _History) -> tuple[Verdict, str, dict[str, Any]] | None:
    stall = _stall(record, history)
    if stall is None:
        return None
    return Verdict.STALLED, f"{stall}{_where(record, history)}", {"skips in a row": history.in_a_row, "scale": record.scale}


def _searching(record: StepRecord, history: _History) -> tuple[Verdict, str, dict[str, Any]] | None:
    if history.applied and history.in_a_row < 2:
        return None
    message = f"the scale {record.scale:g} is too large{_where(record, history)}; the next one is {record.next_scale:g}"
    return Verdict.SEARCHING, message, {"scale": record.scale, "skips in a row": history.in_a_row}


def _occasional(record: StepRecord, history: _History) -> tuple[Verdict, str, dict[str, Any]] | None:
    message = f"a single overflow at scale {record.scale:g}{_where(record, history)}, after {history.applied} applied steps"
    return Verdict.OCCASIONAL, message, {"scale": record.scale, "applied steps": history.applied}


def _unscaled_twice(record: StepRecord, history: _History) -> tuple[Verdict, str, dict[str, Any]] | None:
    if not record.modified or record.norm is None or len(history.raw_norms) < 2:
        return None
    if record.norm * record.scale >= math.sqrt(record.scale):
        return None
    message = (
        f"the gradients were changed before they were unscaled, and their norm was then {record.norm * record.scale:g}: "
        "divide them by the scale only once, with unscale_()"
    )
    return Verdict.UNSCALED_TWICE, message, {"norm before unscaling": record.norm * record.scale, "scale": record.scale}


def _clipped_before(record: StepRecord, history: _History) -> tuple[Verdict, str, dict[str, Any]] | None:
    norms = history.raw_norms
    if len(norms) < (2 if record.modified else _REPEATS) or max(norms) - min(norms) > 1e-3 * max(norms):
        return None
    if not record.modified and not (_is_round(norms[-1]) and record.scale >= 256):
        return None
    message = (
        f"the norm of the scaled gradients is {norms[-1]:.4g} in every step, so they were clipped while they were scaled: "
        "call unscale_() before clipping"
    )
    return Verdict.CLIPPED_BEFORE_UNSCALING, message, {"norm before unscaling": norms[-1], "scale": record.scale}


def _underflow(record: StepRecord, history: _History) -> tuple[Verdict, str, dict[str, Any]] | None:
    if not record.tensors or record.measured_scale is None:
        return None
    factor = record.scale / record.measured_scale
    if factor != 1 or (share := lost_share(record.tensors)) <= history.limits.lost_share:
        return None
    largest = max((tensor.largest for tensor in record.tensors if not tensor.is_empty), default=None)
    headroom = LARGEST_EXPONENT - 1 - largest if largest is not None else None
    if headroom is not None and headroom < 1:
        return None
    worst = max(range(len(record.tensors)), key=lambda index: lost_share(record.tensors[index : index + 1]))  # type: ignore[index]
    evidence: dict[str, Any] = {"lost share": share, "scale": record.scale, "worst tensor": history.name(worst)}
    if headroom is None:
        return Verdict.UNDERFLOW, f"all gradients are zero at scale {record.scale:g}: use a larger scale", evidence
    better = record.scale * 2.0**headroom
    message = f"float16 loses {share:.0%} of the gradients at scale {record.scale:g}, most in {history.name(worst)}"
    return Verdict.UNDERFLOW, f"{message}: a scale up to {better:g} does not overflow", {**evidence, "larger scale": better}


def _healthy(record: StepRecord, _history: _History) -> tuple[Verdict, str, dict[str, Any]] | None:
    return Verdict.HEALTHY, "the step was applied" if record.applied else "there was no overflow, and nothing to apply", {}


_CHECKS_OF_SKIPPED: tuple[_Check, ...] = (
    _forward,
    _forgotten_zero_grad,
    _mean_only,
    _no_scale_helps,
    _one_tensor,
    _independent_of_scale,
    _stalled,
    _searching,
    _occasional,
)
_CHECKS_OF_APPLIED: tuple[_Check, ...] = (_clipped_before, _unscaled_twice, _underflow, _healthy)


def _stall(record: StepRecord, history: _History) -> str | None:
    """Return the reason in words why the run counts as stalled, or None."""
    limits = history.limits
    if record.finite:
        return None
    if history.in_a_row >= limits.stall_after:
        return f"{history.in_a_row} step{'s were' if history.in_a_row > 1 else ' was'} skipped in a row"
    if limits.min_scale is not None and record.scale <= limits.min_scale:
        return f"a step was skipped at the lowest scale, {limits.min_scale:g}"
    share = sum(history.last) / len(history.last)
    if len(history.last) == limits.stall_window and share > limits.stall_share:
        return f"{share:.0%} of the last {limits.stall_window} steps were skipped"
    return None


def _where(record: StepRecord, history: _History) -> str:
    """Return " in layers.0.weight and 3 others on rank 1", as far as it is known."""
    offenders = record.nonfinite_tensors()
    others = f" and {len(offenders) - 1} others" if len(offenders) > 2 else ""
    names = [history.name(index) for index in offenders[: 2 if len(offenders) == 2 else 1]]
    ranks = [rank for rank, finite in enumerate(record.finite_ranks or ()) if not finite]
    on_ranks = f" on rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}" if ranks else ""
    return (f" in {' and '.join(names)}{others}" if names else "") + on_ranks


def _counts(record: StepRecord) -> dict[str, int]:
    tensors = record.tensors or ()
    return {"infinities": sum(t.infinities for t in tensors), "nans": sum(t.nans for t in tensors)} if tensors else {}


def _same_offenders(records: list[StepRecord]) -> bool:
    """Return True if the same gradients have the same number of non-finite values in all *records*, whose scale has decreased."""
    counts = {tuple(tensor.nonfinite for tensor in record.tensors or ()) for record in records}
    return len(counts) == 1 and any(next(iter(counts))) and records[-1].scale < records[0].scale


def _has_headroom(record: StepRecord) -> bool:
    """Return True if the finite values of the gradients that are not finite are far below the largest float16 number."""
    shift = math.log2(record.scale / (record.measured_scale or 1))
    exponents = [tensor.largest + shift for tensor in record.tensors or () if tensor.nonfinite and not tensor.is_empty]
    return bool(exponents) and max(exponents) <= LARGEST_EXPONENT - _HEADROOM


def _is_round(norm: float) -> bool:
    """Return True if *norm* has one significant decimal digit, as the limits that people choose, up to `DIGITS_LOST`."""
    return norm <= 1000 and math.isclose(norm, float(f"{norm:.0e}"), rel_tol=DIGITS_LOST)
