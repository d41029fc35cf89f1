"""
What an entry of a checkpoint can be.

Each kind is called with a value as a framework or a file gives it, and with the key it came under. It returns a Python value,
or raises a TypeError or ValueError that says what was wanted and what came.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ...core.dtypes import FLOATS
from ...core.validation import check_bool, check_count, check_number

Kind: TypeAlias = Callable[[Any, str], Any]


def element(value: Any, key: str) -> Any:
    """The only element of an array of shape () or (1,), or of a list, as which JSON has it; anything else as it is."""
    if isinstance(value, list) and len(value) == 1:
        return value[0]
    try:
        if not hasattr(value, "shape"):
            return value
        shape = tuple(value.shape)
        if shape in ((), (1,)):
            return value.item() if hasattr(value, "item") else value
    except RuntimeError as problem:  # torch's for a tensor without data, or a nested one
        raise ValueError(f"{key} must have a value: {problem}") from problem
    raise ValueError(f"{key} must have shape () or (1,), got {shape}")


@dataclass(frozen=True)
class Number:
    """A Python float in [low, high], or in (low, high] with *above*."""

    wanted: str
    low: float
    high: float = math.inf
    above: bool = False

    def __call__(self, value: Any, key: str) -> float:
        """*value* as a float."""
        held = element(value, key)
        check_number(held, key, self.wanted, self.low, self.high, above=self.above)
        return float(held)


@dataclass(frozen=True)
class Scale:
    """A scale, which every further step multiplies; float32 unless it is *wide*."""

    wide: bool = False

    def __call__(self, value: Any, key: str) -> float:
        """*value* as a float, which float32 can hold as it is."""
        held = element(value, key)
        if isinstance(held, float) and not 0 < held < math.inf:
            raise ValueError(f"{key} must be positive and finite, got {held!r}: no run comes back from such a scale")
        held = (WIDE_BOUND if self.wide else BOUND)(held, key)
        if not self.wide and float(np.float32(held)) != held:
            raise ValueError(f"{key} must be a float32 number, got {held!r}; the nearest is {float(np.float32(held))!r}")
        return held


@dataclass(frozen=True)
class Count:
    """A Python int that int32 can hold, at least *low*."""

    low: int = 0

    def __call__(self, value: Any, key: str) -> int:
        """*value* as an int."""
        held = element(value, key)
        check_count(held, key, low=self.low)
        return int(held)


def flag(value: Any, key: str) -> bool:
    """A Python bool."""
    held = element(value, key)
    check_bool(held, key)
    return bool(held)


def dynamic(value: Any, key: str) -> bool:
    """The flag of a scale that moves, which is True."""
    if not flag(value, key):
        raise ValueError(f"{key} must be True, got False: a scale that does not move has no state beside its value")
    return True


def or_none(kind: Kind) -> Kind:
    """Also None."""
    return lambda value, key: None if value is None else kind(value, key)


_FLOAT32, _FLOAT64 = FLOATS["float32"], FLOATS["float64"]
BOUND = Number("a positive, finite number that float32 can hold", _FLOAT32.smallest_subnormal, _FLOAT32.largest)
WIDE_BOUND = Number("a positive, finite number", _FLOAT64.smallest_subnormal)
FACTOR = Number("a finite number of at least 1", 1, _FLOAT32.largest)
GROWTH = Number("a finite number above 1", 1, _FLOAT32.largest, above=True)
SHARE = Number("a number above 0 and at most 1", _FLOAT32.smallest_normal, 1)
BACKOFF = Number("a number above 0 and below 1", _FLOAT32.smallest_normal, math.nextafter(1, 0))
