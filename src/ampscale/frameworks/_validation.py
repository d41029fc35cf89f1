"""Argument validation shared by the documented classes. Functions in this module may read array values on the host."""

import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import nextafter
from typing import Any

from ..backends import network_of
from ..core.dtypes import FLOATS, compute_dtype, name_of
from ..core.rule import LossScaleRule
from ..core.scaling import number_host
from ..core.trees import leaves_with_paths, zip_leaves
from ..core.typing import Tree
from ..core.validation import check_count, check_number, check_scale_host, check_scale_number
from ..parsing import excerpt

MIN_SCALE = FLOATS["float32"].smallest_normal  # lower bound of the scale of each `GradScaler`
LARGEST = FLOATS["float32"].largest

check_normal_scale = partial(
    check_number, expected="a positive, finite number that is a normal float32", low=MIN_SCALE, high=LARGEST
)
_CHECKS: dict[str, Callable[..., None]] = {  # checks of the arguments of a `GradScaler`, by field of the rule
    "init_scale": check_normal_scale,
    "growth_factor": partial(check_number, expected="a number above 1 that float32 can hold", low=1, high=LARGEST, above=True),
    "backoff_factor": partial(
        check_number, expected="a number below 1 and at least the smallest normal float32", low=MIN_SCALE, high=nextafter(1, 0)
    ),
    "growth_interval": check_count,
    "hysteresis": check_count,
}


def rule_with(rule: LossScaleRule, fields: Mapping[str, str], **arguments: Any) -> LossScaleRule:
    """
    Return *rule* with new values of a `GradScaler`'s constants. Raise a TypeError or ValueError for an invalid value.

    *fields* maps the names of *arguments*, which error messages contain, to fields of the rule.
    """
    for name, value in arguments.items():
        _CHECKS[fields[name]](value, name)
    return replace(rule, **{fields[name]: value for name, value in arguments.items()})


def scale_as_float(value: Any, name: str) -> float:
    """Return a scale, which may be in an array, list or tuple of one element, as a float. Raise an error for an invalid scale."""
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    check_scale_host(value, name)
    if getattr(value, "is_meta", False):
        raise ValueError(f"{name} must have a value, got a tensor on the device meta")
    number = number_host(value)
    check_scale_number(number, name)
    return number


def is_empty(state_dict: Any) -> bool:
    """Return True for a mapping without keys, such as the state dict of a disabled scaler."""
    return isinstance(state_dict, Mapping) and not state_dict


def is_loadable(state_dict: Any, keys: tuple[str, ...], *, enabled: bool) -> bool:
    """Validate *state_dict*; return True if the scaler is enabled. A disabled one loads none, and warns of an unused dict."""
    if enabled and is_empty(state_dict):
        raise RuntimeError("state_dict must not be empty: a disabled GradScaler returned it, but this one is enabled")
    if enabled:
        check_keys(state_dict, keys)
    elif not is_empty(state_dict):
        warnings.warn("this GradScaler is disabled: the state dict is not used", stacklevel=3)
    return enabled


def check_keys(state_dict: Any, keys: tuple[str, ...]) -> None:
    """Raise a TypeError or ValueError unless *state_dict* is a mapping with exactly the keys *keys*."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"state_dict must be a mapping, got {type(state_dict).__name__}")
    missing = [key for key in keys if key not in state_dict]
    unknown = [key for key in state_dict if key not in keys]
    if not missing and not unknown:
        return
    remedy = ""
    if "scaler" in state_dict:
        remedy = "; pass state_dict['scaler']"
    elif missing and "scale" in keys and any("scale" in str(key) for key in state_dict):
        # The command writes the state dicts of the GradScalers, which have the key "scale", but not those of MindSpore's classes.
        remedy = "; `ampscale convert` converts the state dict of another class"
    raise ValueError(f"state_dict must have the keys {list(keys)}: missing {missing}, unknown {excerpt(unknown)}{remedy}")


def check_scale_value(value: Any, name: str, dtype: str = "float32") -> None:
    """Raise an error unless *value* is a scale for MindSpore's scalers and managers: from 1 to the largest number of *dtype*."""
    check_number(value, name, f"a finite int or float of at least 1 that {dtype} can hold", 1, FLOATS[dtype].largest)


def check_scale_factor(value: Any) -> None:
    """Raise an error unless *value*, a growth factor, is at least 1, and its reciprocal is a normal float32."""
    check_number(value, "scale_factor", "a number from 1 to 2**126", 1, 1 / MIN_SCALE)


def check_matches_params(tree: Any, params: Tree, name: str) -> None:
    """Raise an error unless *tree* has, for each parameter, None or an array of the parameter's shape and compute dtype."""
    leaves_with_paths(tree, name)  # raises an error if *tree* contains anything but arrays and None
    for (path, param), (_, value) in zip(leaves_with_paths(params, name), zip_leaves(params, tree), strict=True):
        if value is None:
            continue
        if tuple(value.shape) != tuple(param.shape):
            raise ValueError(f"{path} must have shape {tuple(param.shape)}, got {tuple(value.shape)}")
        expected, actual = compute_dtype(name_of(param.dtype)), name_of(value.dtype)
        if actual != expected:
            raise TypeError(f"{path} must be {expected} for a parameter of {name_of(param.dtype)}, got {actual}")


def is_torch_optimizer(value: Any) -> bool:
    """Return True if *value* is a `torch.optim.Optimizer`; always False before torch is imported."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.optim.Optimizer)


def callable_network(network: Any) -> Any:
    """Return *network* as a callable object with `params` and `vjp`; a `torch.nn.Module` is wrapped."""
    result = network_of(network)
    if not callable(result):
        raise TypeError(f"network must be callable, got {excerpt(network, 200)} of type {type(network).__name__}")
    return result
