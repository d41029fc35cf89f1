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
from .history import REPEATS, History, Limits, has_headroom
from .records import OTHER_NORMS, StepRecord
from .window import HEADROOM, LARGEST_EXPONENT, NORM_RTOL, lost_shares

LARGEST_CLIP = 0.25  # a larger factor does not come from clipping: scaled gradients are far above every usual limit
LARGEST_LIMIT = 1000  # a larger limit for clipping was multiplied by the scale, as it has to be before unscaling
LEAST_CLIPPED = 3  # fewer gradients can have the same largest exponent by chance
LARGEST_COUNT = 256  # a divisor up to this number can be the number of ranks or of micro-batches
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
        FORGOTTEN_ZERO_GRAD: Gradients of a skipped step were not set to zero, so their infinities remain.
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
        results = (check(record, history) for check in (_CHECKS_OF_FINITE if record.finite else _CHECKS_OF_SKIPPED))
        return Diagnosis(record.step, *next(filter(None, results)), stall=history.stall(record))  # the last check has a result


def _forward(record: StepRecord, _history: History) -> _Result:
    if record.loss is None or math.isfinite(record.loss):
        return None
    on_rank = "" if record.rank is None else f" on rank {record.rank}"
    message = f"the loss{on_rank} was {record.loss} before scaling: look for the cause in the inputs or in the forward pass"
    return Verdict.FORWARD, message, {"loss": record.loss}


def _forgotten_zero_grad(record: StepRecord, history: History) -> _Result:
    if not record.stale or history.is_stale_refuted or len(history.skipped) < REPEATS or _have_fewer_offenders(history.skipped):
        return None
    message = (
        "the gradients of the preceding skipped step were not set to zero: call zero_grad() in every iteration, even after a skip"
    )
    return Verdict.FORGOTTEN_ZERO_GRAD, message, {"skips in a row": history.in_a_row}


def _mean_only(record: StepRecord, _history: History) -> _Result:
    ranks = record.finite_ranks
    if ranks is None or len(ranks) < 2 or not all(ranks):
        return None
    message = f"the gradients of all {len(ranks)} ranks were finite, and only their mean was not: add them up in float32"
    return Verdict.MEAN_ONLY, message, {"ranks": len(ranks)}


def _no_scale_helps(record: StepRecord, history: History) -> _Result:
    where = _where(record, history)
    evidence = {"scale": record.scale, **_counts(record)}
    is_below_one = history.good is not None and history.good.scale < 1  # large losses were finite only at such scales
    if record.scale <= 1 and not is_below_one:
        has_finite_values = any(tensor.nonfinite and not tensor.is_empty for tensor in record.tensors or ())
        is_near_limit = has_finite_values and not has_headroom(record)
        remedy = ": their finite values are near the limit of float16, too, so reduce the loss" if is_near_limit else ""
        return Verdict.NO_SCALE_HELPS, f"the gradients{where} are not finite at a scale of {record.scale:.10g}{remedy}", evidence
    if record.finite_at_one is False and not is_below_one:
        return Verdict.NO_SCALE_HELPS, f"the gradients{where} are not finite, even at a scale of 1", evidence
    if record.finite_at_one:
        return None
    is_original = record.is_original and not record.modified  # clipping turns an infinity into a NaN
    has_infinities = any(_counts(step).get("infinities") for step in history.skipped)
    are_independent = _is_below_good_scale(record, history) or len(history.with_nans) >= REPEATS - 1
    if is_original and evidence.get("nans") and not has_infinities and are_independent:
        message = f"the gradients have NaNs and no infinity{where}: a smaller scale does not remove NaNs"
        return Verdict.NO_SCALE_HELPS, message, evidence
    return None


def _independent_of_scale(record: StepRecord, history: History) -> _Result:
    first = history.skipped[0]
    may_be_one_tensor = history.only_offender is not None
    if may_be_one_tensor or len(history.skipped) < REPEATS or not (_same_offenders(history) and has_headroom(record)):
        return None
    message = f"the same values are not finite at scales from {first.scale:.10g} to {record.scale:.10g}{_where(record, history)}"
    return Verdict.NO_SCALE_HELPS, message, {"first scale": first.scale, "scale": record.scale, **_counts(record)}


def _one_tensor(record: StepRecord, history: History) -> _Result:
    offender = history.only_offender
    if offender is None or record.tensors is None or len(offender.scales) < REPEATS - 1:
        return None
    _, name = offender.gradient
    first, skips = offender.first_step, offender.skips
    ranks = sorted(offender.ranks)
    rank = ranks[0] if len(ranks) == 1 else None
    message = f"only {name} is not finite{_on(ranks)}, in all {skips} skipped steps since step {first}, while the scale decreased"
    return Verdict.ONE_TENSOR, message, {"tensor": name, "rank": rank, "since step": first, "skips": skips}


def _stalled(record: StepRecord, history: History) -> _Result:
    if (stall := history.stall(record)) is None:
        return None
    return Verdict.STALLED, f"{stall}{_where(record, history)}", {"skips in a row": history.in_a_row, "scale": record.scale}


def _searching(record: StepRecord, history: History) -> _Result:
    if history.applied and history.in_a_row < 2:
        return None
    next_scale = "the same" if record.next_scale == record.scale else f"{record.next_scale:.10g}"
    message = f"the scale {record.scale:.10g} is too large{_where(record, history)}; the next one is {next_scale}"
    return Verdict.SEARCHING, message, {"scale": record.scale, "skips in a row": history.in_a_row}


def _occasional(record: StepRecord, history: History) -> _Result:
    applied = "1 applied step" if history.applied == 1 else f"{history.applied} applied steps"
    message = f"a single overflow at scale {record.scale:.10g}{_where(record, history)}, after {applied}"
    return Verdict.OCCASIONAL, message, {"scale": record.scale, "applied steps": history.applied}


def _unscaled_twice(record: StepRecord, history: History) -> _Result:
    steps = history.changed
    if record.change is None or history.is_change_constant or record.scale <= LARGEST_COUNT or len(steps) < 2:
        return None
    is_sum = abs(record.loss or 0) * 2**HEADROOM > record.scale  # a loss that the loop divides by a count, perhaps the scale
    if is_sum or not all(_is_close(step.change or 0, 1 / step.scale) for step in steps):
        return None
    message = f"the gradients were divided by the scale {record.scale:.10g} twice: divide once, with unscale_()"
    return Verdict.UNSCALED_TWICE, message, {"change of the norm": record.change, "scale": record.scale}


def _clipped_before(record: StepRecord, history: History) -> _Result:
    found = _constant_limit(history.with_norm) if record.change is None else _limit_of_changes(record, history.changed)
    if found is None or found[1] > LARGEST_LIMIT:
        return None
    kind, limit = found
    message = (
        f"the gradients were clipped to a {kind} of {limit:.4g} while they were scaled by {record.scale:.10g}: "
        "call unscale_() before clipping"
    )
    return Verdict.CLIPPED_BEFORE_UNSCALING, message, {f"{kind} before unscaling": limit, "scale": record.scale}


def _constant_limit(steps: list[StepRecord]) -> tuple[str, float] | None:
    """Return the norm, or else the magnitude, to which gradients were clipped in several steps; None if they were not."""
    statistics = [step.tensors for step in steps]  # of constant gradients, the norm is constant even without clipping
    varies = None not in statistics and any(tensors != statistics[0] for tensors in statistics)
    if len(steps) < REPEATS or steps[-1].scale <= LARGEST_COUNT or not varies:
        return None
    norm = _common_norm(steps)
    if norm is not None and _digits(norm) == 1:
        return "norm", norm
    peak = _common([step.peak for step in steps])
    if peak is None or _digits(peak) > 1:
        return None
    # A constant gradient is no evidence, but only clipping gives several gradients the same largest magnitude in each step.
    exponents = [sorted(tensor.largest for tensor in tensors or () if not tensor.is_empty) for tensors in statistics]
    limit = [math.frexp(peak)[1] - 1] * LEAST_CLIPPED
    return ("magnitude", peak) if all(largest[-LEAST_CLIPPED:] == limit for largest in exponents) else None


def _limit_of_changes(record: StepRecord, steps: list[StepRecord]) -> tuple[str, float] | None:
    """Return the norm or the magnitude to which the loop clipped the scaled gradients in several steps; None without one."""
    changes = [step.change or 0 for step in steps]
    if len(steps) < 3 or max(changes) > LARGEST_CLIP or record.scale <= 1:
        return None
    norm, peak = _common_norm(steps), _common([step.peak for step in steps])
    has_norm = norm is not None and (_digits(norm) == 1 or _digits(peak) > 1)  # if all values are clipped, both are the same
    kind, limit = ("norm", norm) if has_norm else ("magnitude", peak)
    # Valid changes are a mean over ranks, by the same factor in each step, and clipping to a limit times the scale.
    is_constant = _are_close(changes)
    if limit is not None and (_digits(limit) == 1 or not (is_constant or _digits(limit / record.scale) < _digits(limit))):
        return kind, limit
    if is_constant or record.scale <= LARGEST_COUNT:  # the largest magnitude can be that of a bias, which can be constant
        return None
    norms = zip(*(step.norms or (None,) * len(OTHER_NORMS) for step in steps), strict=True)
    limits = ((kind, _common(values)) for kind, values in zip(OTHER_NORMS, norms, strict=True))
    return next(((kind, limit) for kind, limit in limits if limit is not None and _digits(limit) == 1), None)


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
    shares = [(lost_shares([tensor])[1], index) for index, tensor in enumerate(record.tensors)]
    _, worst_index = max((share, index) for share, index in shares if not math.isnan(share))
    worst = history.name(worst_index)
    zeros = f", and {lost:.0%} become zero" if lost > 0.005 else ""  # after a backward pass in float16, they are zeros already
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
    if not has_values or not can_be_lost or had_normal or history.lowest_overflow() / 2 <= record.scale:
        return None
    message = f"all gradients are zero at scale {record.scale:.10g}, although the loss is not: try a larger scale"
    return Verdict.UNDERFLOW, message, {"scale": record.scale}


def _may_be_clipped(record: StepRecord, history: History) -> bool:
    """Return True if the loop changed the scaled gradients, unless by the same factor in several steps, as for a mean."""
    changes = [step.change or 0 for step in history.changed]
    return record.modified and (record.change is None or len(changes) < 2 or not _are_close(changes))


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
_CHECKS_OF_FINITE: tuple[_Check, ...] = (_forward, _unscaled_twice, _clipped_before, _underflow, _healthy)


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


def _same_offenders(history: History) -> bool:
    """Return True if each gradient has the same number of non-finite values in the last skipped steps, at decreasing scales."""
    records = history.skipped
    counts = {tuple(tensor.nonfinite for tensor in record.tensors or ()) for record in records}
    has_same_gradients = all(names == history.names for names in history.skipped_names)
    return has_same_gradients and len(counts) == 1 and any(next(iter(counts))) and records[-1].scale < records[0].scale


def _have_fewer_offenders(steps: list[StepRecord]) -> bool:
    """Return True if a gradient has fewer non-finite values in the last step than in the first: it was set to zero."""
    pairs = zip(steps[0].tensors or (), steps[-1].tensors or (), strict=False)
    return any(new.nonfinite < old.nonfinite for old, new in pairs)


def _is_below_good_scale(record: StepRecord, history: History) -> bool:
    """Return True if gradients were finite at this scale or a larger one, so a smaller scale would not help."""
    good = history.good
    if good is None or history.loss_has_grown():
        return False
    return record.scale < good.scale or (record.scale == good.scale and has_headroom(record))


def _common_norm(steps: list[StepRecord]) -> float | None:
    """Return the norm of the scaled gradients if it is the same in all *steps*, otherwise None."""
    return _common([None if step.norm is None else step.norm * step.scale for step in steps])


def _common(values: Sequence[float | None]) -> float | None:
    """Return the last of *values* if all are equal up to rounding; None if they differ, or if one is unknown."""
    known = [value for value in values if value is not None]
    return known[-1] if known and len(known) == len(values) and _are_close(known) else None


def _are_close(values: Sequence[float]) -> bool:
    return all(_is_close(value, values[0]) for value in values)


def _is_close(value: float, other: float) -> bool:
    return math.isclose(value, other, rel_tol=NORM_RTOL)


def _digits(value: float | None) -> int:
    """Return the decimal digits that a limit for clipping has within `NORM_RTOL`: 1, 2, or 3 for any larger number."""
    number = math.nan if value is None or value > LARGEST_LIMIT else value
    return next((count for count in (1, 2) if _is_close(number, float(f"{number:.{count - 1}e}"))), 3)
