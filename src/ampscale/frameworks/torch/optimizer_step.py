"""
What torch's `GradScaler` does with one optimizer: unscale its gradients, and step where they were finite.

Spec: TORCH-unscale, TORCH-sparse, TORCH-float16, TORCH-devices, TORCH-step, TORCH-fused.
"""

import inspect
from functools import reduce
from typing import Any, NamedTuple

import torch

from ... import functional
from ...backends.torch import kernels
from ...backends.torch.layout import check_target
from ...core.machine import LossScaleState
from ...core.rule import LossScaleRule
from ...core.trees import zip_leaves

_UNSCALED = frozenset([torch.bfloat16, torch.float32, torch.float64])


class Gradients(NamedTuple):
    """The gradients of an optimizer, each of which can be divided in place."""

    arrays: list[torch.Tensor]
    at_once: bool  # whether the kernel takes them in one pass


def checked_gradients(optimizer: torch.optim.Optimizer, scale: torch.Tensor) -> Gradients:
    """
    Return the gradients of *optimizer*, and write nothing. Autograd must be off.

    Raises:
        TypeError: *optimizer* has no `param_groups`, or a gradient has a layout that cannot be written to.
        ValueError: A gradient is float16 or cannot be written to.
    """
    if not hasattr(optimizer, "param_groups"):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
    gradients = [grad for group in optimizer.param_groups for param in group["params"] if (grad := param.grad) is not None]
    at_once = kernels.takes_at_once(gradients, scale, _UNSCALED)
    if not at_once:
        for gradient in gradients:
            _check_gradient(gradient)
    return Gradients(gradients, at_once)


def unscale_gradients(
    optimizer: torch.optim.Optimizer, gradients: Gradients, scale: torch.Tensor, *, least: float = 0.0
) -> torch.Tensor | None:
    """
    Divide *gradients* by *scale*, in place. Autograd must be off.

    Args:
        optimizer: Its sparse gradients are coalesced first.
        gradients: Of *optimizer*, as `checked_gradients` returned them; they may lie on several devices.
        scale: float32, shape ().
        least: Where *scale* is known to be a power of two: what it is at least; else 0.0.

    Returns:
        Whether something was not finite, before or after: float32, shape (), 1.0 or 0.0, on the device of *scale*; None
        where there are no gradients.
    """
    if not gradients.arrays:
        return None
    found: torch.Tensor | None = kernels.unscale_at_once_(gradients.arrays, scale) if gradients.at_once else None
    if found is not None:
        return found
    groups = _by_device(optimizer).items()
    return reduce(
        torch.maximum, [moved(_unscaled(values, moved(scale, device), least), scale.device) for device, values in groups]
    )


def _unscaled(gradients: list[torch.Tensor], scale: torch.Tensor, least: float) -> torch.Tensor:
    if kernels.takes(gradients) and kernels.are_apart(gradients):
        found: torch.Tensor = kernels.unscale_(gradients, scale, least=least)
        return found
    return found_from(functional.unscale_and_check(gradients, scale, out=gradients)[1])


def found_from(finite: torch.Tensor) -> torch.Tensor:
    """*finite*, as torch says it: float32, shape (), 1.0 for an overflow."""
    return finite.logical_not().to(torch.float32)


def step_unless_found(
    optimizer: torch.optim.Optimizer, found: torch.Tensor | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool | torch.Tensor:
    """
    Steps where *found* is 0.0.

    Args:
        optimizer: With unscaled gradients.
        found: float32, shape (), 1.0 for an overflow; None where there are no gradients.
        args: Handed to ``optimizer.step``.
        kwargs: Handed to ``optimizer.step``.

    Returns:
        Whether it stepped: a bool tensor, unread, for an optimizer that skips by itself; else a bool. For fused SGD with
        momentum the flag is read until its first step.
    """
    if found is None:
        return False
    if not _skips_by_itself(optimizer):
        applied = not found
        if applied:
            optimizer.step(*args, **kwargs)
        return applied
    if _lacks_momentum(optimizer) and found:
        vars(optimizer).pop("grad_scale", None)  # meant for this step
        return False
    _step_on_device(optimizer, found, args, kwargs)
    return found.logical_not()


def move_scale(
    rule: LossScaleRule, state: LossScaleState, found: list[torch.Tensor], *, is_past: bool, may_undercut: bool
) -> None:
    """
    `LossScaleRule.update`, written where *state* is, so that a captured CUDA graph sees it.

    Args:
        rule: Of `presets.torch`, with a `min_scale`.
        state: The scale and its counts, shape (), on one device.
        found: Of each optimizer, as `unscale_gradients` has it; one at least.
        is_past: Whether the count may have passed the interval, which then was a longer one.
        may_undercut: Whether the scale may come below the `min_scale`.

    torch's own kernel multiplies in float64, rounds once, and keeps what would be infinite, as the rule does. It knows no
    lower bound, so that the definition is used near it, and grows where the count is equal to the interval.
    """
    overflow = found[0] if len(found) == 1 else torch.stack(found).amax()
    if may_undercut or not (overflow.is_cpu or overflow.is_cuda):
        for held, value in zip_leaves(state, rule.update(state, overflow == 0)):
            held.copy_(value)
        return
    if is_past:
        state.good_steps.clamp_(max=rule.growth_interval - 1)
    torch._amp_update_scale_(
        state.scale, state.good_steps, overflow, rule.growth_factor, rule.backoff_factor, rule.growth_interval
    )


def moved(value: torch.Tensor, device: torch.device) -> torch.Tensor:
    """*value* on *device*: without waiting, except on its way to the host, where nothing tells when it has arrived."""
    return value.to(device, non_blocking=device.type != "cpu")


def _by_device(optimizer: torch.optim.Optimizer) -> dict[torch.device, list[torch.Tensor]]:
    """The gradients by device; the values of a sparse one, which its parameter now holds coalesced."""
    parameters = [param for group in optimizer.param_groups for param in group["params"] if param.grad is not None]
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
    check_target(gradient, "a gradient")


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


def _step_on_device(optimizer: Any, found: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Steps with torch's two attributes. The gradients are unscaled, so only a scale of the user's own is left to divide by."""
    own = getattr(optimizer, "grad_scale", None)
    optimizer.grad_scale = None if own is None else torch.as_tensor(own, dtype=torch.float32, device=found.device)
    optimizer.found_inf = found
    try:
        optimizer.step(*args, **kwargs)
    finally:
        del optimizer.grad_scale, optimizer.found_inf
