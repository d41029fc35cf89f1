"""
Records of training steps, as numbers on the host. Diagnoses and run files are made from them.

Statistics describe the gradients at `measured_scale`: the loss scale if they were measured before unscaling, otherwise 1.0.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from ..parsing import excerpt

OTHER_NORMS = ("L1 norm", "L3 norm", "maximum norm")  # norms to which loops clip, in addition to the Euclidean one


class TensorStatistics(NamedTuple):
    """
    Statistics of one gradient, in the order of `core.statistics.COLUMNS`. A complex number counts as two values.

    Args:
        size: Number of values.
        zeros: Number of zeros.
        subnormals: Number of non-zero values below 2**-14, the smallest normal float16 number.
        underflows: Number of non-zero values that float16 rounds to zero: at most 2**-25.
        infinities: Number of infinities.
        nans: Number of NaNs.
        smallest: Exponent of the smallest non-zero finite magnitude m: floor(log2(m)); 32767 if there is none.
        largest: Exponent of the largest non-zero finite magnitude; -32768 if there is none.

    >>> TensorStatistics(4, 1, 0, 0, 1, 0, -3, 5).nonfinite
    1
    """

    size: int
    zeros: int
    subnormals: int
    underflows: int
    infinities: int
    nans: int
    smallest: int
    largest: int

    @property
    def nonfinite(self) -> int:
        """Return the number of infinities and NaNs."""
        return self.infinities + self.nans

    @property
    def is_empty(self) -> bool:
        """Return True if no value is finite and non-zero; the exponents then have no meaning."""
        return self.smallest > self.largest


class Histogram(NamedTuple):
    """Counts of the finite, non-zero values of one gradient by exponent: `counts[k]` values have the exponent `lowest + k`."""

    lowest: int
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepRecord:
    """
    Numbers of one step.

    Args:
        step: Number of the step, counted from 0.
        scale: Loss scale of the step.
        next_scale: Loss scale of the next step.
        finite: True if all gradients, of all ranks, were finite.
        applied: True if the parameters were updated.
        loss: Unscaled loss; may be infinite or NaN. None if unknown.
        norm: Global norm of the unscaled gradients; None if unknown.
        measured_scale: Factor by which the measured gradients were scaled; None without statistics.
        tensors: Statistics of each gradient of this rank; None if they were not measured.
        histograms: Histogram of each gradient; None if they were not measured.
        rank: Number of this rank; None in a run with one process.
        finite_ranks: For each rank, True if its own gradients were finite before the mean; None if unknown.
        finite_at_one: True if the gradients of this step were finite when they were computed again at a scale of 1; None if this
            was not tried.
        is_original: True if the measured gradients are those of the backward pass, scaled or unscaled; False if something else
            may have changed them, such as clipping, which turns infinities into NaNs.
        stale: True if gradients were added to those of the previous step, which were not set to zero.
        modified: True if gradients were changed between the backward pass and unscaling.
        change: Factor by which a change of the gradients, before or after unscaling, multiplied their norm; None if unknown.
        peak: Largest magnitude in the first gradient before unscaling; None if unknown.
        norms: `OTHER_NORMS` of the scaled gradients before unscaling, if `change` was measured then; None if unknown.

    >>> overflow = StepRecord(3, 1024.0, 512.0, finite=False, applied=False, measured_scale=1024.0, tensors=(
    ...     TensorStatistics(4, 1, 0, 0, 1, 0, -3, 5), TensorStatistics(2, 0, 0, 0, 0, 0, 1, 1)))
    >>> overflow.nonfinite_tensors(), overflow.largest_exponent()
    ([0], -4.0)
    """

    step: int
    scale: float
    next_scale: float
    finite: bool
    applied: bool
    loss: float | None = None
    norm: float | None = None
    measured_scale: float | None = None
    tensors: tuple[TensorStatistics, ...] | None = None
    histograms: tuple[Histogram, ...] | None = None
    rank: int | None = None
    finite_ranks: tuple[bool, ...] | None = None
    finite_at_one: bool | None = None
    is_original: bool = True
    stale: bool = False
    modified: bool = False
    change: float | None = None
    peak: float | None = None
    norms: tuple[float, ...] | None = None

    def without_tensors(self) -> "StepRecord":
        """Return the record without statistics and histograms."""
        return self if self.tensors is None else replace(self, tensors=None, histograms=None)

    def nonfinite_tensors(self) -> list[int]:
        """Return the indices of the gradients with infinities or NaNs."""
        return [index for index, tensor in enumerate(self.tensors or ()) if tensor.nonfinite]

    def ranks_at_fault(self) -> list[int]:
        """Return the ranks whose own gradients were not finite; none if they are unknown."""
        return [rank for rank, finite in enumerate(self.finite_ranks or ()) if not finite]

    def largest_exponent(self) -> float | None:
        """Return log2 of an upper bound of the unscaled finite gradients; None if unknown or if all are zero."""
        exponents = [tensor.largest for tensor in self.tensors or () if not tensor.is_empty]
        return None if not exponents else max(exponents) + 1 - math.log2(self.measured_scale or 1.0)


def statistics_of(rows: Sequence[Sequence[int]]) -> tuple[TensorStatistics, ...]:
    """Convert the rows of a result of `ampscale.measure`, which are lists of integers, to named tuples."""
    return tuple(TensorStatistics(*map(int, row)) for row in rows)


def has_only_nans(tensors: Sequence[TensorStatistics]) -> bool:
    """Return True if the gradients contain NaNs and no infinities."""
    return any(tensor.nans for tensor in tensors) and not any(tensor.infinities for tensor in tensors)


def histograms_of(rows: Sequence[Sequence[int]], lowest: int) -> tuple[Histogram, ...]:
    """Convert rows of `ampscale.exponent_histogram`, whose first bin is *lowest*, and omit the empty bins at both ends."""
    histograms = []
    for row in rows:
        used = [index for index, count in enumerate(row) if count]
        if used:
            histograms.append(Histogram(lowest + used[0], tuple(map(int, row[used[0] : used[-1] + 1]))))
        else:
            histograms.append(Histogram(0, ()))
    return tuple(histograms)


def to_json(record: StepRecord) -> dict[str, Any]:
    """
    Return the members of *record* for a JSON object, in the order of the fields and without fields that have their default value.

    An infinity or a NaN is the string "inf", "-inf" or "nan", since JSON has no such numbers.
    """
    members = ((field.name, getattr(record, field.name), field.default) for field in fields(record))
    return {name: encoded(value) for name, value, default in members if value is not default}


def from_json(members: dict[str, Any]) -> StepRecord:
    """
    Return the record whose `to_json` is *members*.

    Raises:
        ValueError: A member is missing or unknown, or has the wrong type.
    """
    known = {field.name for field in fields(StepRecord)}
    if unknown := sorted(set(members) - known):
        raise ValueError(f"unknown members of a step {excerpt(unknown)}; known members are {', '.join(sorted(known))}")
    try:
        values = {name: _DECODERS[name](value) for name, value in members.items()}
        return StepRecord(**values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"a step of a run file must have the members of StepRecord, got {excerpt(members)}: {error}") from None


def encoded(value: Any) -> Any:
    """Return *value*, or a string for an infinity or a NaN, which JSON lacks."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: Any) -> float:
    """Return a number from JSON as a float. Infinities and NaNs are strings there."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not (is_number or value in ("inf", "-inf", "nan")):
        raise TypeError(f'expected a finite number, "inf", "-inf" or "nan", got {excerpt(value)}')
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"expected an int, got {excerpt(value)}")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"expected true or false, got {excerpt(value)}")
    return value


_DECODERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("step", "rank"), _count),
    **dict.fromkeys(("scale", "next_scale", "loss", "norm", "measured_scale", "change", "peak"), _number),
    **dict.fromkeys(("finite", "applied", "finite_at_one", "is_original", "stale", "modified"), _flag),
    "tensors": lambda rows: tuple(TensorStatistics._make(map(_count, row)) for row in rows),
    "histograms": lambda rows: tuple(Histogram(_count(lowest), tuple(map(_count, counts))) for lowest, counts in rows),
    "norms": lambda numbers: tuple(map(_number, numbers)),
    "finite_ranks": lambda flags: tuple(map(_flag, flags)),
}
