"""Argument validation that the documented classes share. Functions in this module may read array values on the host."""

import sys
from collections.abc import Mapping
from typing import Any

from ..backends import network_of as known_network
from ..core.dtypes import FLOATS, compute_dtype, name_of
from ..core.trees import leaves_with_paths, zip_leaves
from ..core.typing import Tree
from ..core.validation import check_number, check_scale_host
from ..parsing import excerpt


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


def is_empty(state_dict: Any) -> bool:
    """Return True for a mapping without keys, as a scaler that is off has it."""
    return isinstance(state_dict, Mapping) and not state_dict


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
        raise ValueError(f"state_dict must have the keys {list(keys)}: missing {missing}, unknown {excerpt(unknown)}")


def check_scale_value(value: Any, name: str, dtype: str = "float32") -> None:
    """
    *value* is a scale as MindSpore takes it: a Python number of at least 1.

    Raises:
        TypeError, ValueError: It is not.
    """
    check_number(value, name, f"a finite int or float of at least 1 that {dtype} can hold", 1, FLOATS[dtype].largest)


def check_wide_like(tree: Any, params: Tree, name: str) -> None:
    """
    *tree* can stand beside *params*: an array of the same shape for each, in the dtype of its arithmetic, or None.

    Raises:
        TypeError: Something in it is no array, or of another dtype.
        ValueError: It has another structure, or an array of another shape.
    """
    leaves_with_paths(tree, name)
    for param, value in zip_leaves(params, tree):
        if value is None:
            continue
        if tuple(value.shape) != tuple(param.shape):
            raise ValueError(f"{name} must hold an array of shape {tuple(param.shape)}, got {tuple(value.shape)}")
        if name_of(value.dtype) != compute_dtype(name_of(param.dtype)):
            raise TypeError(
                f"{name} must be {compute_dtype(name_of(param.dtype))} for this parameter, got {name_of(value.dtype)}"
            )


def is_torch_optimizer(value: Any) -> bool:
    """Whether *value* is a `torch.optim.Optimizer`; torch is not imported for that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.optim.Optimizer)


def network_of(network: Any) -> Any:
    """
    *network*, which can be called, and has `params` and `vjp`; a `torch.nn.Module` as such.

    Raises:
        TypeError: It lacks one of them.
    """
    found = known_network(network)
    if not callable(found):
        raise TypeError(f"network must be callable, got {excerpt(network, 200)} of type {type(network).__name__}")
    return found
