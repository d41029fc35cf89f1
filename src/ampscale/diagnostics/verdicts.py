"""
Verdicts on steps: a closed set of causes, and the checks that choose one of them from the records of a run.

The most certain checks run first: facts about the loop, such as a non-finite loss or gradients that were not set to zero, precede
conclusions from statistics. docs/diagnosis.md explains each verdict and its remedy.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ..core.validation import check_type
from .clipping import LARGEST_COUNT, are_close, constant_limit, is_close, limit_of_changes
from .float16 import HEADROOM, LARGEST_EXPONENT, lost_shares
from .history import REPEATS, History, Limits, has_headroom
from .records import StepRecord

LARGEST_LOST_LOSS = 2.0**10  # float16 does not round all gradients of a larger scaled loss to zero: they are zero without scaling


class Verdict(StrEnum):
    """
    Cause of a skipped step, or fault of an applied one.

    Args:
        HEALTHY: There was no overflow, and nothing is wrong.
        OCCASIONAL: A single overflow. A dynamic scale causes one whenever it grows too far.
        SEARCHING: The scale is still too large and backs off at each step, as at the start of a run.
        FORWARD: The loss itself was infinite or NaN, so the fault is in the forward pass.
        NO_SCALE_HELPS: Gradients have NaNs and no infinity, are not finite at a scale of 1, or have the same non-finite values at
            several scales.
        ONE_TENSOR: In repeated skipped steps, the same gradient was the only one that was not finite.
        MEAN_ONLY: Every rank's own gradients were finite; only their mean was not.
        FORGOTTEN_ZERO_GRAD: Gradients were added to those of the step before, which were not set to zero.
        UNSCALED_TWICE: The gradients had already been divided by the scale when they were unscaled.
        CLIPPED_BEFORE_UNSCALING: The gradients were clipped while they were scaled.
        UNDERFLOW: The scale is so small that float16 rounds a share of the gradients to few digits, or to zero.
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
        message: Description of the cause or fault, and the remedy if there is one.
        evidence: Numbers on which the verdict rests, by name.
        stall: Reason why the run counts as stalled, as text; None if it does not. A stalled run can have any verdict.

    >>> diagnosis = Diagnoser().diagnose(StepRecord(0, 65536.0, 32768.0, finite=False, applied=False, loss=math.nan))
    >>> diagnosis.verdict, diagnosis.evidence
    (<Verdict.FORWARD: 'forward pass not finite'>, {'loss': nan})
    """

    step: int
    verdict: Verdict
    message: str
    evidence: dict[str, Any] = field(default_factory=dict)
    stall: str | None = None


def message_with_stall(diagnosis: Diagnosis) -> str:
    """Return the message, followed by the reason for a stall unless the message is this reason."""
    has_other_message = diagnosis.stall is not None and diagnosis.verdict is not Verdict.STALLED
    return f"{diagnosis.message} ({diagnosis.stall})" if has_other_message else diagnosis.message


_Result = tuple[Verdict, str, dict[str, Any]] | None
_Check = Callable[[StepRecord, History], _Result]


class Diagnoser:
    """
    Diagnoser of the steps of one run, which it must receive in their order.

    Args:
        limits: Thresholds of the checks.

    >>> diagnoser = Diagnoser()
    >>> for step, finite in enumerate([False, True, False]):
    ...     print(diagnoser.diagnose(StepRecord(step, 8.0, 4.0, finite=finite, applied=finite)).verdict)
    searching
    healthy
    occasional
    """

    def __init__(self, limits: Limits | None = None) -> None:
        limits = Limits() if limits is None else limits
        check_type(limits, "limits", Limits)
        self._history = History(limits, deque(maxlen=limits.stall_window))

    def diagnose(self, record: StepRecord, names: Sequence[str] | None = None, others: Sequence["Diagnoser"] = ()) -> Diagnosis:
        """
        Return the verdict on the next step of the run.

        Args:
            record: Numbers of the step.
            names: Names of the gradients in `record.tensors`, for messages; by default they are numbered.
            others: Diagnosers of other optimizers that share the scale: it is not too small if their gradients overflow.
        """
        check_type(record, "record", StepRecord)
        history = self._history
        history.names, history.others = names, [other._history for other in others]
        history.add(record)
        checks = _CHECKS_OF_FINITE if record.finite else _CHECKS_OF_SKIPPED
        results = (check(record, history) for check in checks)
        verdict, message, evidence = next(filter(None, results))  # the last check always has a result
        stall = history.stall(record)
        history.is_stalled = stall is not None
        return Diagnosis(record.step, verdict, message, evidence, stall)


def _forward(record: StepRecord, _history: History) -> _Result:
    if record.loss is None or math.isfinite(record.loss):
        return None
    on_rank = "" if record.rank is None else f" on rank {record.rank}"
    message = f"the loss{on_rank} was {record.loss} before scaling: look for the cause in the inputs or in the forward pass"
    return Verdict.FORWARD, message, {"loss": record.loss}


def _forgotten_zero_grad(record: StepRecord, history: History) -> _Result:
    if not record.stale or history.stale_steps < REPEATS - 1:
        return None
    message = "the gradients of the preceding step were not set to zero: call zero_grad() in every iteration, even after a skip"
    return Verdict.FORGOTTEN_ZERO_GRAD, message, {"steps": history.stale_steps, "skips in a row": history.skips_in_a_row}


def _mean_only(record: StepRecord, _history: History) -> _Result:
    ranks = record.finite_ranks
    if ranks is None or len(ranks) < 2 or not all(ranks):
        return None
    message = f"the gradients of all {len(ranks)} ranks were finite, and only their mean was not: add them up in float32"
    return Verdict.MEAN_ONLY, message, {"ranks": len(ranks)}


def _no_scale_helps(record: StepRecord, history: History) -> _Result:
    where = _where(record, history)
    evidence = {"scale": record.scale, **_counts(record)}
    # With a very large loss, gradients can be finite only at a scale below 1.
    was_finite_below_one = history.last_finite is not None and history.last_finite.scale < 1
    if record.scale <= 1 and not was_finite_below_one:
        message = f"the gradients{where} are not finite at a scale of {record.scale:.10g}"
        has_finite_values = any(tensor.nonfinite and not tensor.is_empty for tensor in record.tensors or ())
        if has_finite_values and not has_headroom(record):
            message += ": their finite values are near the limit of float16, too, so reduce the loss"
        return Verdict.NO_SCALE_HELPS, message, evidence
    if record.finite_at_one is False and not was_finite_below_one:
        return Verdict.NO_SCALE_HELPS, f"the gradients{where} are not finite, even at a scale of 1", evidence
    if record.finite_at_one or not _has_lasting_nans(record, history):
        return None
    message = f"the gradients have NaNs and no infinity{where}: a smaller scale does not remove NaNs"
    return Verdict.NO_SCALE_HELPS, message, evidence


def _has_lasting_nans(record: StepRecord, history: History) -> bool:
    """Return True if the gradients have NaNs that are not due to the scale: they would have them at a smaller one, too."""
    is_original = record.is_original and not record.modified  # clipping turns an infinity into a NaN
    has_nans = any(tensor.nans for tensor in record.tensors or ())
    has_infinities = any(_counts(step).get("infinities") for step in history.skipped)
    are_independent = _is_below_finite_scale(record, history) or len(history.with_nans) >= REPEATS - 1
    return is_original and has_nans and not has_infinities and are_independent


def _independent_of_scale(record: StepRecord, history: History) -> _Result:
    first = history.skipped[0]
    may_be_one_tensor = history.only_offender is not None
    if may_be_one_tensor or len(history.skipped) < REPEATS or not (_has_same_offenders(history) and has_headroom(record)):
        return None
    message = f"the same values are not finite at scales from {first.scale:.10g} to {record.scale:.10g}{_where(record, history)}"
    return Verdict.NO_SCALE_HELPS, message, {"first scale": first.scale, "scale": record.scale, **_counts(record)}


def _one_tensor(record: StepRecord, history: History) -> _Result:
    offender = history.only_offender
    if offender is None or record.tensors is None or len(offender.scales) < REPEATS - 1:
        return None
    _, name = offender.gradient
    ranks = sorted(offender.ranks)
    rank = ranks[0] if len(ranks) == 1 else None
    period = f"in all {offender.skips} skipped steps since step {offender.first_step}"
    message = f"only {name} is not finite{_on(ranks)}, {period}, while the scale decreased"
    return Verdict.ONE_TENSOR, message, {"tensor": name, "rank": rank, "since step": offender.first_step, "skips": offender.skips}


def _stalled(record: StepRecord, history: History) -> _Result:
    if (stall := history.stall(record)) is None:
        return None
    message = f"{stall}{_where(record, history)}"
    if history.skips_since_backoff >= REPEATS:
        message += f": the scale stays at {record.scale:.10g}, so reduce it or its lower bound"
    return Verdict.STALLED, message, {"skips in a row": history.skips_in_a_row, "scale": record.scale}


def _searching(record: StepRecord, history: History) -> _Result:
    if history.applied_steps and history.skips_in_a_row < 2:
        return None
    next_scale = "the same" if record.next_scale == record.scale else f"{record.next_scale:.10g}"
    message = f"the scale {record.scale:.10g} is too large{_where(record, history)}; the next one is {next_scale}"
    return Verdict.SEARCHING, message, {"scale": record.scale, "skips in a row": history.skips_in_a_row}


def _occasional(record: StepRecord, history: History) -> _Result:
    after = f"after {history.applied_steps} applied step{'' if history.applied_steps == 1 else 's'}"
    message = f"a single overflow at scale {record.scale:.10g}{_where(record, history)}, {after}"
    return Verdict.OCCASIONAL, message, {"scale": record.scale, "applied steps": history.applied_steps}


def _unscaled_twice(record: StepRecord, history: History) -> _Result:
    steps = history.changed
    if record.change is None or history.is_change_constant or record.scale <= LARGEST_COUNT or len(steps) < 2:
        return None
    # A loss this large can be a sum, so that the loop divides the gradients by a count, which can be equal to the scale.
    is_sum = abs(record.loss or 0) * 2**HEADROOM > record.scale
    if is_sum or not all(is_close(step.change or 0, 1 / step.scale) for step in steps):
        return None
    message = f"the gradients were divided by the scale {record.scale:.10g} twice: divide once, with unscale_()"
    return Verdict.UNSCALED_TWICE, message, {"change of the norm": record.change, "scale": record.scale}


def _clipped_before(record: StepRecord, history: History) -> _Result:
    clipping = constant_limit(history.with_norm) if record.change is None else limit_of_changes(record, history.changed)
    if clipping is None:
        return None
    kind, limit = clipping
    message = (
        f"the gradients were clipped to a {kind} of {limit:.4g} while they were scaled by {record.scale:.10g}: "
        "call unscale_() before clipping"
    )
    return Verdict.CLIPPED_BEFORE_UNSCALING, message, {f"{kind} before unscaling": limit, "scale": record.scale}


def _underflow(record: StepRecord, history: History) -> _Result:
    if not record.tensors or record.measured_scale != record.scale or not record.is_original or _may_be_clipped(record, history):
        return None
    lost, subnormal = lost_shares(record.tensors)
    if math.isnan(subnormal):
        return _all_zero(record, history)
    if subnormal <= history.limits.subnormal_share:
        return None
    largest = max(tensor.largest for tensor in record.tensors)
    larger = min(record.scale * 2.0 ** (LARGEST_EXPONENT - 1 - largest), history.lowest_overflow() / 2)
    if larger <= record.scale:
        return None
    _, worst_index = max((lost_shares([tensor])[1], index) for index, tensor in enumerate(record.tensors) if not tensor.is_empty)
    worst = history.name(worst_index)
    zeros = f", and {lost:.0%} become zero" if lost > 0.005 else ""  # a smaller share would be rounded to 0 %
    message = (
        f"{subnormal:.0%} of the gradients are subnormal in float16 at scale {record.scale:.10g}{zeros}, most in {worst}: "
        f"try scales up to {larger:.10g}"
    )
    evidence = {"subnormal share": subnormal, "lost share": lost, "scale": record.scale}
    return Verdict.UNDERFLOW, message, {**evidence, "worst tensor": worst, "larger scale": larger}


def _all_zero(record: StepRecord, history: History) -> _Result:
    has_values = any(tensor.size for tensor in record.tensors or ())
    can_be_lost = record.loss is None or 0 < abs(record.loss) * record.scale <= LARGEST_LOST_LOSS
    had_normal = history.normal_scale is not None and history.normal_scale <= record.scale
    larger_overflows = history.lowest_overflow() / 2 <= record.scale
    if not has_values or not can_be_lost or had_normal or larger_overflows:
        return None
    contrast = "" if record.loss is None else ", although the loss is not"
    message = f"all gradients are zero at scale {record.scale:.10g}{contrast}: try a larger scale"
    return Verdict.UNDERFLOW, message, {"scale": record.scale}


def _may_be_clipped(record: StepRecord, history: History) -> bool:
    """Return True if the loop changed the scaled gradients, unless by the same factor in several steps, as for a mean."""
    changes = [step.change or 0 for step in history.changed]
    return record.modified and (record.change is None or len(changes) < 2 or not are_close(changes))


def _healthy(record: StepRecord, _history: History) -> _Result:
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
_CHECKS_OF_FINITE: tuple[_Check, ...] = (_forward, _forgotten_zero_grad, _unscaled_twice, _clipped_before, _underflow, _healthy)


def _where(record: StepRecord, history: History) -> str:
    """Return " in layers.0.weight and 3 others on rank 1", without the parts that are unknown."""
    offenders = record.nonfinite_tensors()
    names = [history.name(index) for index in offenders[:2]]
    if len(offenders) > 2:
        names[1] = f"{len(offenders) - 1} others"
    return (f" in {' and '.join(names)}" if names else "") + _on(record.ranks_at_fault())


def _on(ranks: list[int]) -> str:
    noun = "rank" if len(ranks) == 1 else "ranks"
    return f" on {noun} {', '.join(map(str, ranks))}" if ranks else ""


def _counts(record: StepRecord) -> dict[str, int]:
    tensors = record.tensors or ()
    if not tensors:
        return {}
    return {"infinities": sum(tensor.infinities for tensor in tensors), "nans": sum(tensor.nans for tensor in tensors)}


def _has_same_offenders(history: History) -> bool:
    """Return True if the last skipped steps have non-finite values, the same number in each gradient, at decreasing scales."""
    records = history.skipped
    counts = [[tensor.nonfinite for tensor in record.tensors or ()] for record in records]
    has_same_gradients = all(names == history.names for names in history.skipped_names)
    has_same_counts = any(counts[0]) and counts.count(counts[0]) == len(counts)
    return has_same_gradients and has_same_counts and records[-1].scale < records[0].scale


def _is_below_finite_scale(record: StepRecord, history: History) -> bool:
    """Return True if gradients were finite at a larger scale, or at this one with headroom: a smaller one would not help."""
    last_finite = history.last_finite
    if last_finite is None or history.loss_has_grown():
        return False
    return record.scale < last_finite.scale or (record.scale == last_finite.scale and has_headroom(record))
