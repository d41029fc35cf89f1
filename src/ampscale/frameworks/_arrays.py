"""Array helpers of the documented classes."""

from typing import Any

import array_api_compat
import numpy as np

from ..core.typing import Array, Flag

HOST = np.zeros(())  # where the state of a scaler lies that is looked at in every step


def negated(flag: Flag) -> Flag:
    """The other polarity of a bool, or of a bool array, without looking at it."""
    return not flag if isinstance(flag, bool) else ~flag


def either(left: Flag, right: Flag) -> Flag:
    """Whether one of two flags is True, without looking at an array."""
    if isinstance(left, bool) and not isinstance(right, bool):
        left = as_array(left, right)
    return left | right


def as_array(value: Any, like: Array) -> Array:
    """A bool, or an array, as an array of the library and on the device of *like*."""
    return array_api_compat.array_namespace(like).asarray(value, device=array_api_compat.device(like))


def copied(value: Any, like: Array) -> Array:
    """Return a snapshot of an array, or a number as an array of the library and on the device of *like*."""
    return snapshot(value) if array_api_compat.is_array_api_obj(value) else as_array(value, like)


def snapshot(array: Array) -> Array:
    """A copy, so that what a caller keeps does not move, and what a caller writes moves nothing."""
    array = array.detach() if hasattr(array, "detach") else array  # nor remembers how it was computed, as torch's would
    return array_api_compat.array_namespace(array).asarray(array, copy=True)
