"""Array functions shared by the documented classes."""

import array_api_compat
import numpy as np

from ..core.namespaces import as_array
from ..core.trees import is_array
from ..core.typing import Array, Flag, Scale

HOST = np.zeros(())  # argument *like* of `LossScaleRule.init`, for a state on the host


def logical_not(flag: Flag) -> Flag:
    """Return the negation of a bool or a bool array, without a host synchronization."""
    return not flag if isinstance(flag, bool) else ~flag


def logical_or(left: Flag, right: Flag) -> Flag:
    """Return True if at least one of two flags is True, without a host synchronization."""
    if isinstance(left, bool) and not isinstance(right, bool):
        left = as_array(left, right)
    return left | right


def snapshot(array: Array) -> Array:
    """Return a copy of *array*, detached from torch's autograd graph."""
    if hasattr(array, "detach"):
        array = array.detach()
    return array_api_compat.array_namespace(array).asarray(array, copy=True)


def scale_snapshot(scale: Scale, like: Array) -> Array:
    """Return a snapshot of *scale*. A number becomes an array in the library and on the device of *like*."""
    return snapshot(scale) if is_array(scale) else as_array(scale, like)
