"""
Traces: at which scales each step of a training is finite; and what somebody saw of a scaler at work.

A step overflows where the scale is too large for its gradients. So all that a scaler can learn of a step is its limit, the
largest scale at which the step stays finite: with the scale S, a step is finite where S <= limit. A recorded step was
finite or was not, at the scale that it happened to have: its limit is taken as inf or -inf. A model gives finite limits.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core.validation import check_count, check_number
from ..parsing import excerpt


@dataclass(frozen=True, eq=False)
class Trace:
    """
    The steps of a training, as far as a scaler can tell them apart.

    Args:
        limits: float64, of shape (steps,): the largest scale at which each step stays finite; inf where a step is finite
            at any scale, -inf where it is at none.

    Raises:
        TypeError: *limits* is no float64 array.
        ValueError: It has another shape, or holds a NaN.
    """

    limits: np.ndarray

    def __post_init__(self) -> None:
        _check_array(self.limits, "limits", "float64")
        if np.isnan(self.limits).any():
            raise ValueError(f"limits must hold no NaN, got one at step {int(np.isnan(self.limits).argmax())}")

    def __len__(self) -> int:
        """The number of steps."""
        return len(self.limits)


@dataclass(frozen=True, eq=False)
class Observed:
    """
    What somebody saw of a scaler.

    Args:
        scales: float64, of shape (steps + 1,): the scale in force before each step and after the last; NaN where it was
            not seen.
        finite: int8, of shape (steps,): 1 for a finite step, 0 for an overflow, -1 where it is not known.

    Raises:
        TypeError: An array is missing, or has another dtype.
        ValueError: It has another shape, or holds other values.
    """

    scales: np.ndarray
    finite: np.ndarray

    def __post_init__(self) -> None:
        _check_array(self.scales, "scales", "float64")
        _check_array(self.finite, "finite", "int8")
        if len(self.scales) != len(self.finite) + 1:
            raise ValueError(f"scales must have one element more than finite, got {len(self.scales)} and {len(self.finite)}")
        if (self.scales < 0).any():
            raise ValueError(f"scales must not be negative, got {self.scales.min()}")
        if ((self.finite < -1) | (self.finite > 1)).any():
            raise ValueError(f"finite must hold -1, 0 and 1 alone, got {excerpt(np.unique(self.finite).tolist())}")

    def trace(self) -> Trace:
        """
        The recorded trace: a finite step is finite at any scale, an overflow at none.

        Raises:
            ValueError: It is not known of every step whether it was finite.
        """
        unknown = np.flatnonzero(self.finite == -1)
        if len(unknown):
            raise ValueError(
                f"of {len(unknown)} of {len(self.finite)} steps it is not known whether they were finite, the first is step "
                f"{unknown[0]}: a trace needs a record that tells it of every step, as a log with a line for each step does"
            )
        return from_flags(self.finite == 1)


class Overflow(NamedTuple):
    """An overflow that a log reports; NaN for a scale that its message does not give."""

    line: int  # in the log, from 1
    before: float  # the scale at which the step overflowed
    after: float  # the scale for the next step


def from_flags(flags: Iterable[bool]) -> Trace:
    """
    The trace of recorded steps.

    Args:
        flags: Bools, in order: True where a step was finite.

    Raises:
        TypeError: One is no bool.
        ValueError: An array of them has more than one axis.
    """
    if not isinstance(flags, np.ndarray):
        listed = list(flags)
        wrong = next((index for index, flag in enumerate(listed) if not isinstance(flag, bool | np.bool_)), None)
        if wrong is not None:
            raise TypeError(f"flags must be bools, got {excerpt(listed[wrong])} at step {wrong}")
        flags = np.asarray(listed, dtype=np.bool_)
    _check_array(flags, "flags", "bool")
    return Trace(np.where(flags, np.inf, -np.inf))


def from_string(text: str) -> Trace:
    """
    The trace that a text draws: `.` is a finite step, `x` or `X` an overflow; whitespace and newlines mean nothing.

    Raises:
        TypeError: *text* is no string.
        ValueError: It has another character.
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be a string of '.' and 'x', got {excerpt(text)} of type {type(text).__name__}")
    wrong = first_other_character(text)
    if wrong is not None:
        raise ValueError(f"a trace is written with '.' and 'x', got {position_in(text, wrong)}")
    steps = "".join(text.split()).encode("ascii")
    return from_flags(np.frombuffer(steps, dtype=np.uint8) == ord("."))


def from_model(steps: int, above: float, noise: float = 0.0, seed: int = 0, drift: float = 0.0) -> Trace:
    """
    A trace from a model: limits about `above`, log-normal, each step for itself.

    A step overflows where the scaled maximum of its gradients passes the largest number of their format: its limit is that
    number over the maximum. The maximum of a training's gradients scatters from step to step about as a log-normal
    variable, and so does the limit: limits[k] = above * 2**(noise * z + drift * k / 1000), z standard normal.

    Args:
        steps: The number of steps.
        above: The median limit at the first step: about half of the steps overflow at a scale above this.
        noise: The standard deviation of the limits, in powers of two, at most 1000. With 0 there is none.
        seed: For NumPy's default_rng; the same seed gives the same trace.
        drift: How the median moves, in powers of two per 1000 steps, from -1000 to 1000; below zero where gradients grow.

    Raises:
        TypeError: An argument is no number, or one that counts no int.
        ValueError: It is out of range.
    """
    check_count(steps, "steps")
    check_number(above, "above", "a positive, finite number", 0, above=True)
    check_number(noise, "noise", "a number from 0 to 1000", 0, 1000)
    check_number(drift, "drift", "a number from -1000 to 1000", -1000, 1000)
    check_count(seed, "seed", low=0)
    powers = noise * np.random.default_rng(seed).standard_normal(steps) if noise else np.zeros(steps)
    if drift:
        powers += drift / 1000 * np.arange(steps)
    with np.errstate(over="ignore", under="ignore"):  # beyond float64, a step is finite at any scale or at none
        return Trace(above * np.exp2(powers))


def _check_array(value: Any, name: str, dtype: str) -> None:
    if not isinstance(value, np.ndarray) or value.dtype != dtype:
        got = f"dtype {value.dtype}" if isinstance(value, np.ndarray) else f"{excerpt(value)} of type {type(value).__name__}"
        raise TypeError(f"{name} must be a NumPy array of {dtype}, got {got}")
    if value.ndim != 1:
        raise ValueError(f"{name} must have one axis, got shape {value.shape}")


def first_other_character(text: str) -> int | None:
    """The place of the first character that is no step."""
    found = re.search(r"[^.xX\s]", text)
    return None if found is None else found.start()


def position_in(text: str, place: int) -> str:
    """Return the character at index *place* with its line and column."""
    line, column = text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)
    return f"{text[place]!r} in line {line}, column {column}"
