"""
Overflow traces, and observations of a scaler.

A step overflows if the scale is too large for its gradients. An overflow trace therefore stores a limit for each step: with
scale S, the step is finite if S <= limit. For a recorded step, only the flag at the recorded scale is known, so the limit is
inf or -inf. A model has finite limits.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core.validation import check_count, check_number, check_positive
from ..parsing import excerpt


@dataclass(frozen=True, eq=False)
class Trace:
    """
    Overflow trace: the scales at which each step of a run is finite.

    Args:
        limits: float64 array of shape (steps,): the largest scale at which each step is finite; inf if the step is finite at any
            scale, -inf if it overflows at any scale.

    Raises:
        TypeError: *limits* is not a float64 array.
        ValueError: *limits* does not have one axis, or contains a NaN.

    >>> trace = Trace(np.array([1024.0, np.inf]))
    >>> len(trace)
    2
    """

    limits: np.ndarray

    def __post_init__(self) -> None:
        _check_array(self.limits, "limits", "float64")
        if np.isnan(self.limits).any():
            raise ValueError(f"limits must not contain NaN, got one at step {int(np.isnan(self.limits).argmax())}")

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.limits)


@dataclass(frozen=True, eq=False)
class Observed:
    """
    Observation of a scaler: scales and flags, each of which may be unknown.

    Args:
        scales: float64 array of shape (steps + 1,): the scale at each step and after the last step; NaN for an unknown scale.
        finite: int8 array of shape (steps,): 1 for a finite step, 0 for an overflow, -1 for an unknown flag.

    Raises:
        TypeError: *scales* is not a float64 array, or *finite* is not an int8 array.
        ValueError: An array has the wrong shape, or contains other values.

    >>> observed = Observed(np.array([8.0, np.nan, 4.0]), np.array([1, 0], np.int8))
    >>> observed.trace().limits.tolist()
    [inf, -inf]
    """

    scales: np.ndarray
    finite: np.ndarray

    def __post_init__(self) -> None:
        _check_array(self.scales, "scales", "float64")
        _check_array(self.finite, "finite", "int8")
        if len(self.scales) != len(self.finite) + 1:
            raise ValueError(f"scales must have one more element than finite, got {len(self.scales)} and {len(self.finite)}")
        if (self.scales < 0).any():
            raise ValueError(f"scales must not be negative, got {self.scales.min()}")
        if ((self.finite < -1) | (self.finite > 1)).any():
            raise ValueError(f"finite must contain -1, 0 and 1 only, got {excerpt(np.unique(self.finite).tolist())}")

    def trace(self) -> Trace:
        """
        Return the recorded overflow trace: a finite step has the limit inf, and an overflow has the limit -inf.

        Raises:
            ValueError: The flag of a step is unknown.
        """
        unknown = np.flatnonzero(self.finite == -1)
        if len(unknown):
            raise ValueError(
                f"an overflow trace requires the flag of every step, but {len(unknown)} of {len(self.finite)} flags are unknown, "
                f"the first at step {unknown[0]}; use a log with a line for each step"
            )
        return from_flags(self.finite == 1)


class Overflow(NamedTuple):
    """Overflow reported in a log. A scale that the message does not contain is NaN."""

    line: int  # line number in the log, counted from 1
    before: float  # scale at which the step overflowed
    after: float  # scale of the next step


def from_flags(flags: Iterable[bool]) -> Trace:
    """
    Create an overflow trace from the finite flags of a run.

    Args:
        flags: Iterable of bools, or bool array of shape (steps,): True for a finite step.

    Raises:
        TypeError: A flag is not a bool.
        ValueError: The array does not have one axis.

    >>> from_flags([True, False]).limits.tolist()
    [inf, -inf]
    """
    if not isinstance(flags, np.ndarray):
        values = list(flags)
        invalid = next((step for step, flag in enumerate(values) if not isinstance(flag, bool | np.bool_)), None)
        if invalid is not None:
            raise TypeError(f"flags must be bools, got {excerpt(values[invalid])} at step {invalid}")
        flags = np.asarray(values, dtype=np.bool_)
    _check_array(flags, "flags", "bool")
    return Trace(np.where(flags, np.inf, -np.inf))


def from_string(text: str) -> Trace:
    """
    Parse an overflow trace: `.` is a finite step, `x` or `X` is an overflow, and whitespace is ignored.

    Raises:
        TypeError: *text* is not a str.
        ValueError: *text* contains any other character.

    >>> from_string("..x .").limits.tolist()
    [inf, inf, -inf, inf]
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be a string of '.' and 'x', got {excerpt(text)} of type {type(text).__name__}")
    if other := other_character(text):
        raise ValueError(f"an overflow trace must consist of '.' and 'x', got {other}")
    steps = "".join(text.split()).encode("ascii")
    return from_flags(np.frombuffer(steps, dtype=np.uint8) == ord("."))


def from_model(steps: int, above: float, noise: float = 0.0, seed: int = 0, drift: float = 0.0) -> Trace:
    """
    Create an overflow trace from a model: independent, log-normal limits with median `above`.

    A step overflows if the scaled maximum of its gradients exceeds the largest number of their dtype; the limit of the step is
    this number divided by the maximum. The maximum, and therefore the limit, varies from step to step approximately like a
    log-normal variable: ``limits[k] = above * 2**(noise * z + drift * k / 1000)`` with a standard normal z.

    Args:
        steps: Number of steps.
        above: Median limit at the first step; positive and finite. At a larger scale, more than half of the steps overflow.
        noise: Standard deviation of the limits in powers of two, from 0 to 1000.
        seed: Seed of ``numpy.random.default_rng``, which determines the trace.
        drift: Change of the median in powers of two per 1000 steps, from -1000 to 1000; negative if gradients grow.

    Raises:
        TypeError: An argument is not a number, or *steps* or *seed* is not an int.
        ValueError: An argument is out of range.

    >>> from_model(3, above=8.0, drift=-1000.0).limits.tolist()
    [8.0, 4.0, 2.0]
    """
    check_count(steps, "steps")
    check_positive(above, "above")
    check_number(noise, "noise", "a number from 0 to 1000", 0, 1000)
    check_number(drift, "drift", "a number from -1000 to 1000", -1000, 1000)
    check_count(seed, "seed", low=0)
    powers = noise * np.random.default_rng(seed).standard_normal(steps) if noise else np.zeros(steps)
    if drift:
        powers += drift / 1000 * np.arange(steps)
    with np.errstate(over="ignore", under="ignore"):  # limits beyond the range of float64 become infinite or zero
        return Trace(above * np.exp2(powers))


def other_character(text: str) -> str | None:
    """Return the first character that is not ".", "x", "X" or whitespace, with its line and column; None if there is none."""
    if (match := re.search(r"[^.xX\s]", text)) is None:
        return None
    index = match.start()
    line, column = text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)
    return f"{text[index]!r} in line {line}, column {column}"


def _check_array(value: Any, name: str, dtype: str) -> None:
    if not isinstance(value, np.ndarray) or value.dtype != dtype:
        actual = f"dtype {value.dtype}" if isinstance(value, np.ndarray) else f"{excerpt(value)} of type {type(value).__name__}"
        raise TypeError(f"{name} must be a NumPy array of {dtype}, got {actual}")
    if value.ndim != 1:
        raise ValueError(f"{name} must have one axis, got shape {value.shape}")
