"""Argument validation of torch's `GradScaler`."""

from math import frexp
from typing import Any

import torch

from ...core.dtypes import is_scalable
from ...core.rule import LossScaleRule
from ...core.trees import leaves_with_paths
from ...parsing import excerpt
from .._validation import check_normal_scale, scale_as_float


def checked_outputs(outputs: Any) -> list[torch.Tensor]:
    """Return the tensors in *outputs*, which must all be floating-point or complex."""
    if outputs is None:
        raise TypeError("outputs must be a tensor, or a tuple, list or dict of tensors, got None")
    pairs = leaves_with_paths(outputs, "outputs")
    for path, value in pairs:
        check_output(value, path)
    return [value for _, value in pairs]


def check_output(value: Any, path: str) -> None:
    """Raise a TypeError unless *value* is a floating-point or complex tensor."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{path} must be a tensor, got {type(value).__name__}")
    if not (value.is_complex() or is_scalable(value.dtype)):
        raise TypeError(f"{path} must be float16, bfloat16, float32, float64 or complex to be scaled, got {value.dtype}")


def check_no_closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise a RuntimeError if the arguments of a step contain a closure."""
    if "closure" in kwargs or any(callable(argument) for argument in args):
        raise RuntimeError("step() must be called without a closure: its gradients would be neither unscaled nor checked")


def check_optimizer(optimizer: Any) -> None:
    """Raise a TypeError unless *optimizer* has `param_groups`."""
    if not hasattr(optimizer, "param_groups"):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")


def check_device(device: Any) -> None:
    """Raise a TypeError or ValueError unless *device* is a `torch.device` or a valid name of one."""
    expected = "a torch.device, or a str that names one, such as 'cuda' or 'cpu'"
    if not isinstance(device, str | torch.device):
        raise TypeError(f"device must be {expected}, got {excerpt(device)} of type {type(device).__name__}")
    try:
        torch.device(device)
    except RuntimeError:
        raise ValueError(f"device must be {expected}, got {excerpt(device)}") from None


def normal_scale_as_float(value: Any, name: str) -> float:
    """Return a scale, which may be in a tensor of one element, as a float. Raise an error unless it is a normal float32."""
    if isinstance(value, torch.Tensor) and value.requires_grad:
        raise ValueError(f"{name} must not require gradients, got {excerpt(value)}")
    scale = scale_as_float(value, name)
    check_normal_scale(scale, name)
    return scale


def power_of_two_or_zero(rule: LossScaleRule, scale: float) -> float:
    """Return *scale* if it is a power of two and remains a power of two after growths and backoffs; otherwise 0.0."""
    numbers = (scale, rule.growth_factor, rule.backoff_factor)
    return scale if all(frexp(number)[0] == 0.5 for number in numbers) else 0.0
