"""
Operations of torch's `GradScaler`: unscale the gradients of an optimizer, step if they are finite, and update the scale.

Spec: TORCH-unscale, TORCH-sparse, TORCH-float16, TORCH-devices, TORCH-step, TORCH-fused, TORCH-dtensor-step.
"""

import inspect
from collections.abc import Callable
from functools import reduce
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from ... import functional
from ...backends.torch import cuda_launches, kernels
from ...backends.torch.dtensor import check_not_partial, has_dtensors, local_part
from ...backends.torch.layout import check_target
from ...core.machine import LossScaleState
from ...core.rule import LossScaleRule
from ...core.trees import zip_leaves
from .validation import check_optimizer

_DTYPES = frozenset([torch.bfloat16, torch.float32, torch.float64])  # dtypes of gradients that one pass can unscale
_grad = attrgetter("grad")  # `map` with it is faster than a comprehension, and every step reads all gradients


class Gradients(NamedTuple):
    """Gradients of an optimizer, each of which can be divided in place."""

    arrays: list[Tensor]
    shards: list[Tensor]  # local shards of the arrays if some are DTensors; else empty
    at_once: bool  # True if the kernel supports the arrays, or their shards, in one pass


def checked_gradients(optimizer: Optimizer, scale: Tensor) -> Gradients:
    """Return the gradients of *optimizer*; raise a TypeError or ValueError if one cannot be divided in place."""
    check_optimizer(optimizer)
    gradients = [grad for group in optimizer.param_groups for grad in map(_grad, group["params"]) if grad is not None]
    if kernels.supports_in_one_pass(gradients, scale, _DTYPES):
        return Gradients(gradients, [], True)
    shards = []
    if has_dtensors(gradients):
        for gradient in gradients:
            check_not_partial(gradient, "a gradient")
        shards = list(map(local_part, gradients))
    for gradient in shards or gradients:
        _check_gradient(gradient)
    return Gradients(gradients, shards, bool(shards) and kernels.supports_in_one_pass(shards, scale, _DTYPES))


def parameters_of(optimizer: Optimizer) -> list[Any]:
    """Return the parameters of all groups of *optimizer*."""
    return [param for group in optimizer.param_groups for param in group["params"]]


def plain_gradients(optimizer: Optimizer, gradients: Gradients) -> list[Tensor]:
    """Return *gradients* as plain, dense tensors: local shards of DTensors, and values of sparse tensors after coalescing."""
    if gradients.shards:
        return gradients.shards
    return gradients.arrays if gradients.at_once else _coalesced(optimizer)


def unscale_gradients(
    optimizer: Optimizer, gradients: Gradients, scale: Tensor, lower_bound: Callable[[], float]
) -> Tensor | None:
    """
    Divide *gradients* by *scale* in place, and return torch's `found_inf`; None without gradients.

    `found_inf` is 1.0 if a value was non-finite before or after the division, else 0.0: float32, shape (), on the device of
    *scale*. *lower_bound* returns a lower bound of *scale* if *scale* is known to be a power of two, else 0.0. The caller must
    have disabled autograd.
    """
    if not gradients.arrays:
        return None
    if gradients.at_once:
        found_inf: Tensor | None = kernels.unscale_in_one_pass_(gradients.shards or gradients.arrays, scale)
        if found_inf is not None:  # the kernel rejects negated views
            return found_inf
    groups = kernels.grouped(plain_gradients(optimizer, gradients), attrgetter("device"))
    least = lower_bound()
    flags = [_unscale_group(values, to_device(scale, values[0].device), least) for values in groups]
    return reduce(torch.maximum, [to_device(flag, scale.device) for flag in flags])


def _unscale_group(gradients: list[Tensor], scale: Tensor, least: float) -> Tensor:
    """Unscale gradients on one device in place, and return `found_inf`; *least* is the lower bound of `unscale_gradients`."""
    if kernels.supports(gradients) and kernels.are_disjoint(gradients):
        # If the scale is a power of two of at least 1, torch's own kernel needs only one pass over the gradients.
        launched = None if least >= 1 else cuda_launches.unscaled(gradients, scale, gradients)
        found_inf: Tensor = kernels.unscale_(gradients, scale, least=least) if launched is None else found_inf_of(launched.finite)
        return found_inf
    return found_inf_of(functional.unscale_and_check(gradients, scale, out=gradients)[1])


def found_inf_of(finite: Tensor) -> Tensor:
    """Return the inverse of *finite* as torch's `found_inf`: float32, shape (), 1.0 for an overflow."""
    return finite.logical_not().to(torch.float32)


def step_if_finite(
    optimizer: Optimizer, found_inf: Tensor | None, args: tuple[Any, ...], kwargs: dict[str, Any], finite: bool | None = None
) -> bool | Tensor:
    """
    Step if *found_inf* is 0.0, and return True if the optimizer stepped. If there is no gradient, *found_inf* is None.

    If *finite*, the inverse of *found_inf*, is known on the host, *found_inf* is not read. Otherwise, an optimizer that skips on
    the device needs no host synchronization, and the result is a bool tensor; only fused SGD with momentum requires one until
    its first step. All other optimizers require one in every step.
    """
    if found_inf is None:
        return False
    overflow = found_inf if finite is None else not finite
    if not _supports_found_inf(optimizer):
        applied = not overflow  # reads the device if *finite* is None
        if applied:
            optimizer.step(*args, **kwargs)
        return applied
    if _lacks_momentum(optimizer) and overflow:
        vars(optimizer).pop("grad_scale", None)  # the caller set it for this step only
        return False
    _step_on_device(optimizer, found_inf, args, kwargs)
    return found_inf.logical_not() if finite is None else finite


def update_scale(
    rule: LossScaleRule, state: LossScaleState, found_inf: list[Tensor], *, may_exceed: bool, may_undercut: bool
) -> None:
    """
    Write the result of `LossScaleRule.update` into the tensors of *state*, so that a captured CUDA graph reads it.

    torch's own kernel multiplies in float64, rounds once, and skips a growth to infinity, as the rule does. But the kernel has
    no lower bound, and the scale grows only if the count equals the interval. If the scale *may_undercut* the lower bound, or the
    kernel does not support the device, `rule.update` is used instead. If the count *may_exceed* the interval, which can have been
    longer before, the count is clamped first.
    """
    overflow = found_inf[0] if len(found_inf) == 1 else torch.stack(found_inf).amax()
    if may_undercut or not (overflow.is_cpu or overflow.is_cuda):
        for target, value in zip_leaves(state, rule.update(state, overflow == 0)):
            target.copy_(value)
        return
    if may_exceed:
        state.good_steps.clamp_(max=rule.growth_interval - 1)
    torch._amp_update_scale_(
        state.scale, state.good_steps, overflow, rule.growth_factor, rule.backoff_factor, rule.growth_interval
    )


def to_device(value: Tensor, device: torch.device) -> Tensor:
    """Return *value* on *device*. Copies to the host are synchronous, because a read on the host would not wait for the copy."""
    return value.to(device, non_blocking=device.type != "cpu")


def _coalesced(optimizer: Optimizer) -> list[Tensor]:
    """Replace each sparse gradient by its coalesced form. Return all gradients, the sparse ones as their values."""
    parameters = [param for param in parameters_of(optimizer) if param.grad is not None]
    for parameter in parameters:
        if parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()
    return [parameter.grad.values() if parameter.grad.is_sparse else parameter.grad for parameter in parameters]


def _check_gradient(gradient: Tensor) -> None:
    if gradient.dtype == torch.float16:
        raise ValueError(
            f"gradients must not be float16, got one of shape {tuple(gradient.shape)}: unscaled in float16, small values would "
            "become zero; use float32 parameters under torch.autocast"
        )
    check_target(gradient, "a gradient")


def _supports_found_inf(optimizer: Any) -> bool:
    """Return True if an optimizer reads the flag from its attribute `found_inf` and does not take the scaler as `grad_scaler`."""
    supports = getattr(optimizer, "_step_supports_amp_scaling", False)
    return supports and "grad_scaler" not in inspect.signature(optimizer.step).parameters


def _lacks_momentum(optimizer: Any) -> bool:
    """Return True for SGD with momentum before its first step. If fused SGD skips this step, the momentum is uninitialized."""
    return isinstance(optimizer, torch.optim.SGD) and any(
        group["momentum"] and optimizer.state.get(param, {}).get("momentum_buffer") is None
        for group in optimizer.param_groups
        for param in group["params"]
        if param.grad is not None
    )


def _step_on_device(optimizer: Any, found_inf: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Step *optimizer* with its attributes `found_inf` and `grad_scale` set; the latter is None unless the caller has set it."""
    grad_scale = getattr(optimizer, "grad_scale", None)
    if grad_scale is not None:
        grad_scale = torch.as_tensor(grad_scale, dtype=torch.float32, device=found_inf.device)
    optimizer.grad_scale, optimizer.found_inf = grad_scale, found_inf
    try:
        optimizer.step(*args, **kwargs)
    finally:
        del optimizer.grad_scale, optimizer.found_inf
