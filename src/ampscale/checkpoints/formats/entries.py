"""
Converters of checkpoint entries.

A converter is called with a value from a framework or a file, and with the key of this value. It returns a Python value, or
raises a TypeError or a ValueError that states what was expected and what was passed.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ...core.dtypes import FLOATS
from ...core.validation import check_bool, check_count, check_number

Converter: TypeAlias = Callable[[Any, str], Any]


def element(value: Any, key: str) -> Any:
    """Return the only element of an array of shape () or (1,), or of a list; return other values without a shape unchanged."""
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


def number(expected: str, low: float, high: float = math.inf, *, above: bool = False) -> Converter:
    """Return a converter to a float in [low, high], or in (low, high] if *above* is True. Error messages contain *expected*."""
    return _converter(partial(check_number, expected=expected, low=low, high=high, above=above), float)


def scale(dtype: str = "float32") -> Converter:
    """Return a converter to a positive, finite scale that *dtype*, "float32" or "float64", represents exactly."""
    to_float = POSITIVE_FLOAT64 if dtype == "float64" else POSITIVE_FLOAT32

    def convert(value: Any, key: str) -> float:
        only_element = element(value, key)
        if isinstance(only_element, float) and not 0 < only_element < math.inf:
            raise ValueError(f"{key} must be positive and finite, got {only_element!r}: no run can recover from such a scale")
        number: float = to_float(only_element, key)
        if dtype == "float32" and float(np.float32(number)) != number:
            raise ValueError(f"{key} must be a float32 number, got {number!r}; the nearest is {float(np.float32(number))!r}")
        return number

    return convert


def count(low: int = 0) -> Converter:
    """Return a converter to an int from *low* to 2**31 - 1."""
    return _converter(partial(check_count, low=low), int)


def _converter(check: Callable[[Any, str], None], kind: type) -> Converter:
    """Return a converter to *kind* that calls *check* with the element and its key."""

    def convert(value: Any, key: str) -> Any:
        only_element = element(value, key)
        check(only_element, key)
        return kind(only_element)

    return convert


flag = _converter(check_bool, bool)


def dynamic(value: Any, key: str) -> bool:
    """Return True if *value*, the flag of a dynamic scale, is True; otherwise raise an error."""
    if not flag(value, key):
        raise ValueError(f"{key} must be True, got False: a constant scale has no state that could be converted")
    return True


_FLOAT32, _FLOAT64 = FLOATS["float32"], FLOATS["float64"]
POSITIVE_FLOAT32 = number("a positive, finite number that float32 can hold", _FLOAT32.smallest_subnormal, _FLOAT32.largest)
POSITIVE_FLOAT64 = number("a positive, finite number", _FLOAT64.smallest_subnormal)
FACTOR = number("a number of at least 1 that float32 can hold", 1, _FLOAT32.largest)
GROWTH = number("a number above 1 that float32 can hold", 1, _FLOAT32.largest, above=True)
SHARE = number("a number of at most 1 and at least the smallest normal float32", _FLOAT32.smallest_normal, 1)
BACKOFF = number("a number below 1 and at least the smallest normal float32", _FLOAT32.smallest_normal, math.nextafter(1, 0))
