"""Argument validation shared by the documented classes. Functions in this module may read array values on the host."""

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
    Return a scale as a float: *value* itself, or the only element of an array, list or tuple.

    Raises:
        TypeError: *value* is not a number, a float32 or float64 array, or a list or tuple with one of these.
        ValueError: *value* is an array of another shape than () or (1,), or is not positive and finite in float32.
    """
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    check_scale_host(value, name)
    return float(value.reshape(())) if hasattr(value, "reshape") else float(value)


def is_empty(state_dict: Any) -> bool:
    """Return True for a mapping without keys, such as the state dict of a disabled scaler."""
    return isinstance(state_dict, Mapping) and not state_dict


def check_keys(state_dict: Any, keys: tuple[str, ...]) -> None:
    """
    Check that *state_dict* is a mapping with exactly the keys *keys*.

    Raises:
        TypeError: *state_dict* is not a mapping.
        ValueError: A key is missing or unknown.
    """
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"state_dict must be a mapping, got {type(state_dict).__name__}")
    missing, unknown = [key for key in keys if key not in state_dict], [key for key in state_dict if key not in keys]
    if missing or unknown:
        raise ValueError(f"state_dict must have the keys {list(keys)}: missing {missing}, unknown {excerpt(unknown)}")


def check_scale_value(value: Any, name: str, dtype: str = "float32") -> None:
    """
    Check that *value* is a scale that MindSpore's scalers and managers accept: a Python number of at least 1.

    Raises:
        TypeError: *value* is not an int or float.
        ValueError: *value* is below 1, NaN or infinite in *dtype*.
    """
    check_number(value, name, f"a finite int or float of at least 1 that {dtype} can hold", 1, FLOATS[dtype].largest)


def check_matches_params(tree: Any, params: Tree, name: str) -> None:
    """
    Check that *tree* has the structure of *params*: for each parameter, None or an array of its shape in its compute dtype.

    Raises:
        TypeError: A leaf is not an array, or has another dtype.
        ValueError: The structure differs, or an array has another shape.
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
    """Return True if *value* is a `torch.optim.Optimizer`; always False before torch is imported."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.optim.Optimizer)


def network_of(network: Any) -> Any:
    """
    Return *network* as a callable object with `params` and `vjp`; a `torch.nn.Module` is wrapped.

    Raises:
        TypeError: *network* is not callable, or lacks `params` or `vjp`.
    """
    result = known_network(network)
    if not callable(result):
        raise TypeError(f"network must be callable, got {excerpt(network, 200)} of type {type(network).__name__}")
    return result
