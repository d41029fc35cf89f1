"""Torch implementations: `torch.amp.GradScaler`, the kernel that it calls, and the foreach functions."""

from collections.abc import Callable
from typing import Any

import torch
from measure import Absent, Contender
from ours import CLIP, FINITE, GLOBAL, NORM, ONLY_CLIP, UNSCALE

Tensors = list[torch.Tensor]
Contenders = list[Contender | Absent]
REJECTED = "rejects float16 gradients"


class NoStep(torch.optim.Optimizer):
    """Optimizer whose step does nothing, so that only a scaler's work is measured."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {})

    def step(self, closure: Any = None) -> None:
        """Do nothing."""


def optimizer_with(gradients: Tensors) -> NoStep:
    """Return an optimizer whose parameters have these gradients. The parameters' values share the memory of the gradients."""
    params = [torch.nn.Parameter(gradient, requires_grad=True) for gradient in gradients]
    for param, gradient in zip(params, gradients, strict=True):
        param.grad = gradient.detach()
    return NoStep(params)


def scaler_of(make: Callable[..., Any], scale: float) -> Any:
    """Return a scaler that has scaled a loss, and whose scale does not grow."""
    scaler = make("cpu", init_scale=scale, growth_interval=2**31 - 1)
    scaler.scale(torch.ones(()))
    return scaler


def contenders(operation: str, gradients: Tensors, scale: float, max_norm: float, refill: Callable[[], object]) -> Contenders:
    """Return torch's implementations of the operation, in place."""
    if operation in (FINITE, GLOBAL):
        return [Contender(name, run) for name, run in reading(operation, gradients).items()]
    if operation == ONLY_CLIP:
        params = optimizer_with(gradients).param_groups[0]["params"]
        return [Contender("torch clip_grad_norm_", lambda: torch.nn.utils.clip_grad_norm_(params, max_norm), refill)]
    return [
        amp(operation, gradients, scale, max_norm, refill),
        Contender("torch kernel", kernel(operation, gradients, scale, max_norm), refill),
        Contender("torch foreach", foreach(operation, gradients, scale, max_norm), refill),
    ]


def amp(operation: str, gradients: Tensors, scale: float, max_norm: float, refill: Callable[[], object]) -> Contender | Absent:
    """Return a contender that calls `GradScaler.unscale_` and, if *operation* needs it, `get_total_norm` or `clip_grad_norm_`."""
    if gradients[0].dtype == torch.float16:
        return Absent("torch.amp", REJECTED)
    scaler, optimizer = scaler_of(torch.amp.GradScaler, scale), optimizer_with(gradients)
    params = optimizer.param_groups[0]["params"]
    norm_or_clip: Callable[[], object] = {
        UNSCALE: lambda: None,
        NORM: lambda: torch.nn.utils.get_total_norm([param.grad for param in params]),
        CLIP: lambda: torch.nn.utils.clip_grad_norm_(params, max_norm),
    }[operation]

    def run() -> None:
        scaler.unscale_(optimizer)
        norm_or_clip()

    def reset() -> None:
        refill()
        scaler._per_optimizer_states.clear()  # as update() would

    return Contender("torch.amp", run, reset)


def kernel(operation: str, gradients: Tensors, scale: float, max_norm: float) -> Callable[[], object]:
    """Return a function that calls the kernel of `unscale_`, and then foreach functions for the norm and the clipping, if any."""
    flag, inverse = torch.zeros(()), torch.tensor(1 / scale, dtype=torch.float32)

    def run() -> object:
        flag.zero_()
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, flag, inverse)
        return norm_and_clip(operation, gradients, max_norm)

    return run


def foreach(operation: str, gradients: Tensors, scale: float, max_norm: float) -> Callable[[], object]:
    """Return a function that uses foreach functions instead of the kernel of `unscale_`."""

    def run() -> object:
        torch._foreach_mul_(gradients, 1 / scale)
        return finite(gradients), norm_and_clip(operation, gradients, max_norm)

    return run


def norm_and_clip(operation: str, gradients: Tensors, max_norm: float) -> torch.Tensor | None:
    """Compute the norm, clip by it if *operation* is `CLIP`, and return the norm; do nothing if it is `UNSCALE`."""
    if operation == UNSCALE:
        return None
    total_norm = norm(gradients)
    if operation == CLIP:
        torch._foreach_mul_(gradients, torch.clamp(max_norm / (total_norm + 1e-6), max=1.0))
    return total_norm


def reading(operation: str, gradients: Tensors) -> dict[str, Callable[[], object]]:
    """Return the implementations of an operation that only reads, by name."""
    if operation == FINITE:
        return {
            "torch isfinite": lambda: finite(gradients),
            "torch foreach": lambda: torch.isfinite(torch.stack(torch._foreach_norm(gradients, float("inf")))).all(),
        }
    return {
        "torch get_total_norm": lambda: torch.nn.utils.get_total_norm(gradients),
        "torch foreach": lambda: norm(gradients),
    }


def finite(gradients: Tensors) -> torch.Tensor:
    """Return True if all values are finite, computed as in users' code."""
    return torch.stack([gradient.isfinite().all() for gradient in gradients]).all()


def norm(gradients: Tensors) -> torch.Tensor:
    """Return the norm of all values in the dtype of the gradients, as torch does."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))


def update(make: Callable[..., Any]) -> Callable[[], object]:
    """Return a function that restores the state in which a finite step leaves the scaler, and calls `update()`."""
    scaler, optimizer = scaler_of(make, 2.0**16), optimizer_with([torch.ones(10)])
    scaler.unscale_(optimizer)
    before = dict(vars(scaler))
    scaler.update()
    changed = {name: value for name, value in before.items() if vars(scaler)[name] is not value}

    def run() -> None:
        vars(scaler).update(changed)
        scaler.update()

    return run
