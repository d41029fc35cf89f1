"""What the documented classes check in common. Here arrays may be read on the host."""

from collections.abc import Mapping
from typing import Any

import array_api_compat

from ..core.checks import check_number, check_scale_host
from ..core.dtypes import FLOATS, name_of, wide
from ..core.trees import leaves_with_paths, rows
from ..core.typing import Array, Flag, Tree


def number_of(value: Any, name: str) -> float:
    """
    The scale that *value* holds: a number, or the only element of an array or list.

    Raises:
        TypeError: It holds no number.
        ValueError: It holds more than one, or one that cannot be a scale.
    """
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    check_scale_host(value, name)
    return float(value.reshape(())) if hasattr(value, "reshape") else float(value)


def check_keys(state_dict: Any, keys: tuple[str, ...]) -> None:
    """
    *state_dict* has these keys and no others.

    Raises:
        TypeError: It is no mapping.
        ValueError: A key is missing or unknown.
    """
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"state_dict must be a mapping, got {type(state_dict).__name__}")
    missing, unknown = [key for key in keys if key not in state_dict], [key for key in state_dict if key not in keys]
    if missing or unknown:
        raise ValueError(f"state_dict must have the keys {list(keys)}: missing {missing}, unknown {unknown}")


def check_scale_value(value: Any, name: str, dtype: str = "float32") -> None:
    """
    *value* is a scale as MindSpore takes it: a Python number of at least 1.

    Raises:
        TypeError, ValueError: It is not.
    """
    check_number(value, name, f"a finite int or float of at least 1 that {dtype} can hold", 1, FLOATS[dtype].largest)


def negated(flag: Flag) -> Flag:
    """The other polarity of a bool, or of a bool array, without looking at it."""
    return not flag if isinstance(flag, bool) else ~flag


def as_array(flag: Flag, like: Array) -> Array:
    """A bool, or an array of bools, as an array of the library of *like*."""
    return array_api_compat.array_namespace(like).asarray(flag)


def check_wide_like(tree: Any, params: Tree, name: str) -> None:
    """
    *tree* can stand beside *params*: an array of the same shape for each, in the dtype of its arithmetic, or None.

    Raises:
        TypeError: Something in it is no array, or of another dtype.
        ValueError: It has another structure, or an array of another shape.
    """
    leaves_with_paths(tree, name)
    for param, value in rows(params, tree):
        if value is None:
            continue
        if tuple(value.shape) != tuple(param.shape):
            raise ValueError(f"{name} must hold an array of shape {tuple(param.shape)}, got {tuple(value.shape)}")
        if name_of(value.dtype) != wide(name_of(param.dtype)):
            raise TypeError(f"{name} must be {wide(name_of(param.dtype))} for this parameter, got {name_of(value.dtype)}")


def snapshot(array: Array) -> Array:
    """A copy, so that what a caller keeps does not move, and what a caller writes moves nothing."""
    return array_api_compat.array_namespace(array).asarray(array, copy=True)
