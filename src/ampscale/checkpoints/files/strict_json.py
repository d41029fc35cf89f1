"""JSON that says each thing once, and no number that is none."""

import json
import math
from typing import Any

from ...core.constants import once


def parsed(text: bytes) -> Any:
    """
    The value of a JSON text.

    Raises:
        ValueError: It is none, it names something twice in one object, it has a number beyond float64, or it is nested too deep.
    """
    try:
        return json.loads(text.decode(), object_pairs_hook=once, parse_constant=_refused, parse_float=_finite)
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None


def written(value: Any) -> str:
    """A JSON text; arrays of one element become numbers where their shape is (), and lists where it is (1,)."""
    return json.dumps(value, indent=2, allow_nan=False, default=lambda array: array.tolist())


def _refused(constant: str) -> Any:
    raise ValueError(f"each number must be finite, got {constant}")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"each number must be one that float64 can hold, got {text}")
    return value
