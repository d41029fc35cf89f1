"""
Converters of checkpoint entries.

A converter is called with a value from a framework or a file, and with the key of this value. It returns a Python value, or
raises a TypeError or a ValueError that states what was expected and what was passed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ...core.dtypes import FLOATS
from ...core.validation import check_bool, check_count, check_number

Converter: TypeAlias = Callable[[Any, str], Any]


def element(value: Any, key: str) -> Any:
    """Return the only element of an array of shape () or (1,) or a one-element list; other values without a shape unchanged."""
    if isinstance(value, list) and len(value) == 1:  # JSON stores an array of shape (1,) as a list
        return value[0]
    try:
        if not hasattr(value, "shape"):
            return value
        shape = tuple(value.shape)
        if shape in ((), (1,)):
            return value.item() if hasattr(value, "item") else value
    except RuntimeError as problem:  # raised by torch for nested tensors and for tensors without data
        raise ValueError(f"{key} must have a value: {problem}") from problem
    raise ValueError(f"{key} must have shape () or (1,), got {shape}")


@dataclass(frozen=True)
class Number:
    """Converter to a float in [low, high], or in (low, high] if *above* is set. Error messages contain *expected*."""

    expected: str
    low: float
    high: float = math.inf
    above: bool = False

    def __call__(self, value: Any, key: str) -> float:
        """Return *value* as a float."""
        number = element(value, key)
        check_number(number, key, self.expected, self.low, self.high, above=self.above)
        return float(number)


@dataclass(frozen=True)
class Scale:
    """Converter to a positive, finite scale that *dtype*, "float32" or "float64", represents exactly."""

    dtype: str = "float32"

    def __call__(self, value: Any, key: str) -> float:
        """Return *value* as a float."""
        number = element(value, key)
        if isinstance(number, float) and not 0 < number < math.inf:
            raise ValueError(f"{key} must be positive and finite, got {number!r}: no run can recover from such a scale")
        if self.dtype == "float64":
            return POSITIVE_FLOAT64(number, key)
        number = POSITIVE_FLOAT32(number, key)
        if float(np.float32(number)) != number:
            raise ValueError(f"{key} must be a float32 number, got {number!r}; the nearest is {float(np.float32(number))!r}")
        return number


@dataclass(frozen=True)
class Count:
    """Converter to an int from *low* to 2**31 - 1."""

    low: int = 0

    def __call__(self, value: Any, key: str) -> int:
        """Return *value* as an int."""
        number = element(value, key)
        check_count(number, key, low=self.low)
        return int(number)


def flag(value: Any, key: str) -> bool:
    """Return *value* as a bool."""
    item = element(value, key)
    check_bool(item, key)
    return bool(item)


def dynamic(value: Any, key: str) -> bool:
    """Return True if *value*, the flag of a dynamic scale, is True; otherwise raise an error."""
    if not flag(value, key):
        raise ValueError(f"{key} must be True, got False: a constant scale has no state that could be converted")
    return True


def or_none(convert: Converter) -> Converter:
    """Return a converter that also accepts None."""
    return lambda value, key: None if value is None else convert(value, key)


_FLOAT32, _FLOAT64 = FLOATS["float32"], FLOATS["float64"]
POSITIVE_FLOAT32 = Number("a positive, finite number that float32 can hold", _FLOAT32.smallest_subnormal, _FLOAT32.largest)
POSITIVE_FLOAT64 = Number("a positive, finite number", _FLOAT64.smallest_subnormal)
FACTOR = Number("a finite number of at least 1", 1, _FLOAT32.largest)
GROWTH = Number("a finite number above 1", 1, _FLOAT32.largest, above=True)
SHARE = Number("a number above 0 and at most 1", _FLOAT32.smallest_normal, 1)
BACKOFF = Number("a number above 0 and below 1", _FLOAT32.smallest_normal, math.nextafter(1, 0))
