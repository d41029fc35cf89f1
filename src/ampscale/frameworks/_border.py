"""What the documented classes check in common. Here arrays may be read on the host."""

from collections.abc import Mapping
from typing import Any

import array_api_compat

from ..core.checks import check_flag, check_scale_host
from ..core.typing import Flag


def scalar_flag(value: Flag, name: str) -> Flag:
    """
    *value*, which is a bool or a bool array of shape ().

    Raises:
        TypeError: It is neither.
        ValueError: It has another shape.
    """
    check_flag(value, name)
    if array_api_compat.is_array_api_obj(value) and tuple(value.shape) != ():
        raise ValueError(f"{name} must have shape (), got {tuple(value.shape)}")
    return value


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
