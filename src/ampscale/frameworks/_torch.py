"""
What torch's `GradScaler` does with one optimizer: unscale its gradients, and step where they were finite.

Spec: TORCH-unscale, TORCH-sparse, TORCH-float16, TORCH-devices, TORCH-step, TORCH-fused.
"""

import inspect
from functools import reduce
from typing import Any

import torch

from .. import verbs


def unscale_gradients(optimizer: torch.optim.Optimizer, scale: torch.Tensor) -> torch.Tensor | None:
    """
    Divides the gradients of *optimizer* by *scale*, in place.

    Args:
        optimizer: Its gradients may lie on several devices; sparse ones are coalesced first.
        scale: float32, shape ().

    Returns:
        Whether they were finite before and after: bool, shape (), on the device of *scale*; None where there are none.

    Raises:
        TypeError: *optimizer* has no `param_groups`.
        ValueError: A gradient is float16. Nothing has changed then.
    """
    flags = []
    with torch.no_grad():
        for device, gradients in _gradients_of(optimizer).items():
            _, finite = verbs.unscale_and_check(gradients, moved(scale, device), out=gradients)
            flags.append(moved(finite, scale.device))
    return reduce(torch.logical_and, flags) if flags else None


def step_if_finite(
    optimizer: torch.optim.Optimizer, finite: torch.Tensor | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool | torch.Tensor:
    """
    Steps where *finite* is True.

    Args:
        optimizer: With unscaled gradients.
        finite: Bool, shape (); None where there are no gradients.
        args: Handed to ``optimizer.step``.
        kwargs: Handed to ``optimizer.step``.

    Returns:
        Whether it stepped: *finite* itself, unread, for an optimizer that skips by itself; else a bool. For fused SGD with
        momentum the flag is read until its first step.
    """
    if finite is None:
        return False
    if not _skips_by_itself(optimizer):
        applied = bool(finite)
        if applied:
            optimizer.step(*args, **kwargs)
        return applied
    if _lacks_momentum(optimizer) and not bool(finite):
        vars(optimizer).pop("grad_scale", None)  # meant for this step
        return False
    _step_on_device(optimizer, finite, args, kwargs)
    return finite


def moved(value: torch.Tensor, device: torch.device) -> torch.Tensor:
    """*value* on *device*: without waiting, except on its way to the host, where nothing tells when it has arrived."""
    return value.to(device, non_blocking=device.type != "cpu")


def _gradients_of(optimizer: Any) -> dict[torch.device, list[torch.Tensor]]:
    """The gradients by device; the values of a sparse one, which its parameter now holds coalesced."""
    if not hasattr(optimizer, "param_groups"):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
    parameters = [one for group in optimizer.param_groups for one in group["params"] if one.grad is not None]
    for parameter in parameters:
        _check_gradient(parameter.grad)
    by_device: dict[torch.device, list[torch.Tensor]] = {}
    for parameter in parameters:
        if parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()
        values = parameter.grad.values() if parameter.grad.is_sparse else parameter.grad
        by_device.setdefault(values.device, []).append(values)
    return by_device


def _check_gradient(gradient: torch.Tensor) -> None:
    if gradient.dtype == torch.float16:
        raise ValueError(
            "gradients must be float32, of float32 parameters under torch.autocast: "
            f"unscaled in float16, they would lose what the scale has saved; got float16 of shape {tuple(gradient.shape)}"
        )


def _skips_by_itself(optimizer: Any) -> bool:
    """Whether it looks at `found_inf`. What asks for the scaler instead, by an older contract, steps without it too."""
    supports = getattr(optimizer, "_step_supports_amp_scaling", False)
    return supports and "grad_scaler" not in inspect.signature(optimizer.step).parameters


def _lacks_momentum(optimizer: Any) -> bool:
    """Whether it is SGD before its first step. Fused, and told to skip that, it would keep momentum that nobody has written."""
    return isinstance(optimizer, torch.optim.SGD) and any(
        group["momentum"] and optimizer.state.get(param, {}).get("momentum_buffer") is None
        for group in optimizer.param_groups
        for param in group["params"]
        if param.grad is not None
    )


def _step_on_device(optimizer: Any, finite: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Steps with torch's two attributes. The gradients are unscaled, so only a scale of the user's own is left to divide by."""
    own = getattr(optimizer, "grad_scale", None)
    optimizer.grad_scale = None if own is None else torch.as_tensor(own, dtype=torch.float32, device=finite.device)
    optimizer.found_inf = (~finite).to(torch.float32)
    try:
        optimizer.step(*args, **kwargs)
    finally:
        del optimizer.grad_scale, optimizer.found_inf
