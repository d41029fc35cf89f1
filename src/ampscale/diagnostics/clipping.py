"""Limits to which a training loop has clipped the scaled gradients, as far as the records of several steps show them."""

import math
from collections.abc import Sequence

from .float16 import NORM_RTOL
from .history import REPEATS
from .records import OTHER_NORMS, StepRecord

LARGEST_CLIP = 0.25  # a larger factor does not come from clipping: scaled gradients are far above every usual limit
LARGEST_LIMIT = 1000  # a larger limit for clipping was multiplied by the scale, as it has to be before unscaling
LEAST_CLIPPED = 3  # if fewer gradients have the same largest exponent, this can be chance
LARGEST_COUNT = 256  # a divisor up to this number can be the number of ranks or of micro-batches


def constant_limit(steps: list[StepRecord]) -> tuple[str, float] | None:
    """Return the norm, or else the magnitude, to which gradients were clipped in several steps; None if they were not."""
    statistics = [step.tensors for step in steps]  # constant gradients have a constant norm even without clipping
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
    clipped = [math.frexp(peak)[1] - 1] * LEAST_CLIPPED
    return ("magnitude", peak) if all(largest[-LEAST_CLIPPED:] == clipped for largest in exponents) else None


def limit_of_changes(record: StepRecord, steps: list[StepRecord]) -> tuple[str, float] | None:
    """
    Return the limit to which the loop clipped the scaled gradients of all *steps*, with its kind; None if there is none.

    *steps* are the latest steps whose gradients the loop changed; *record* is the last one.
    """
    changes = [step.change or 0 for step in steps]
    if len(steps) < 3 or max(changes) > LARGEST_CLIP or record.scale <= 1:
        return None
    norm, peak = _common_norm(steps), _common([step.peak for step in steps])
    # Limits have few digits. If every value is clipped to one magnitude, the norm is constant too, but is not the limit.
    has_norm = norm is not None and (_digits(norm) == 1 or _digits(peak) > 1)
    kind, limit = ("norm", norm) if has_norm else ("magnitude", peak)
    is_constant = are_close(changes)
    if limit is not None and not _is_allowed(limit, record.scale, is_constant):
        return (kind, limit) if limit <= LARGEST_LIMIT else None
    if is_constant or record.scale <= LARGEST_COUNT:  # the largest magnitude can be that of a bias, which can be constant
        return None
    return _other_norm(steps)


def _is_allowed(limit: float, scale: float, is_constant: bool) -> bool:
    """Return True if the changes may be a mean over ranks, which has a constant factor, or clipping to a limit times *scale*."""
    if _digits(limit) == 1:  # as usual for the limit of a loop that clips
        return False
    is_scaled = _digits(limit / scale) < _digits(limit)
    return is_constant or is_scaled


def _other_norm(steps: list[StepRecord]) -> tuple[str, float] | None:
    """Return the first of `OTHER_NORMS` that is the same number of one digit in all *steps*, with its name; None without one."""
    for index, name in enumerate(OTHER_NORMS):
        norm = _common([step.norms[index] if step.norms else None for step in steps])
        if norm is not None and _digits(norm) == 1:
            return name, norm
    return None


def are_close(values: Sequence[float]) -> bool:
    """Return True if all *values* are equal up to rounding."""
    return all(is_close(value, values[0]) for value in values)


def is_close(value: float, other: float) -> bool:
    """Return True if both numbers are equal up to rounding."""
    return math.isclose(value, other, rel_tol=NORM_RTOL)


def _common_norm(steps: list[StepRecord]) -> float | None:
    """Return the norm of the scaled gradients if it is the same in all *steps*, otherwise None."""
    return _common([None if step.norm is None else step.norm * step.scale for step in steps])


def _common(values: Sequence[float | None]) -> float | None:
    """Return the last of *values* if all are equal up to rounding; None if they differ, or if one is unknown."""
    known = [value for value in values if value is not None]
    return known[-1] if known and len(known) == len(values) and are_close(known) else None


def _digits(value: float | None) -> int:
    """Return the number of decimal digits of a limit for clipping, up to rounding: 1 or 2, or 3 for any other number."""
    if value is None or value > LARGEST_LIMIT:
        return 3
    if is_close(value, float(f"{value:.0e}")):
        return 1
    return 2 if is_close(value, float(f"{value:.1e}")) else 3
