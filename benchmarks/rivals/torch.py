"""torch's own ways: the scaler that everybody uses, the kernel below it, and its foreach functions."""

from collections.abc import Callable
from typing import Any

import torch
from measure import Absent, Contender
from ours import CLIP, FINITE, GLOBAL, NORM, UNSCALE

Tensors = list[torch.Tensor]
Contenders = list[Contender | Absent]
REFUSED = "it refuses float16 gradients"


class NoStep(torch.optim.Optimizer):
    """An optimizer that does nothing in its step, so that a scaler's own work is left."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {})

    def step(self, closure: Any = None) -> None:
        """Nothing."""


def holding(gradients: Tensors) -> NoStep:
    """An optimizer whose parameters have these gradients; their values lie in the same memory, where they take no room."""
    params = [torch.nn.Parameter(gradient, requires_grad=True) for gradient in gradients]
    for param, gradient in zip(params, gradients, strict=True):
        param.grad = gradient.detach()
    return NoStep(params)


def scaler_of(make: Callable[..., Any], scale: float) -> Any:
    """A scaler that has scaled a loss, and does not grow."""
    scaler = make("cpu", init_scale=scale, growth_interval=2**31 - 1)
    scaler.scale(torch.ones(()))
    return scaler


def contenders(verb: str, gradients: Tensors, scale: float, max_norm: float, refill: Callable[[], object]) -> Contenders:
    """All ways of torch's to do what the verb does, in place."""
    if verb in (FINITE, GLOBAL):
        return [Contender(name, run) for name, run in reading(verb, gradients).items()]
    ways = {"kernel": kernel(verb, gradients, scale, max_norm), "foreach": foreach(verb, gradients, scale, max_norm)}
    found = [Contender(f"torch {name}", run, refill) for name, run in ways.items()]
    return [amp(verb, gradients, scale, max_norm, refill), *found]


def amp(verb: str, gradients: Tensors, scale: float, max_norm: float, refill: Callable[[], object]) -> Contender | Absent:
    """`torch.amp.GradScaler.unscale_`; and then the norm that `clip_grad_norm_` takes, or all of that."""
    if gradients[0].dtype == torch.float16:
        return Absent("torch.amp", REFUSED)
    scaler, optimizer = scaler_of(torch.amp.GradScaler, scale), holding(gradients)
    params = optimizer.param_groups[0]["params"]
    after: Callable[[], object] = {
        UNSCALE: lambda: None,
        NORM: lambda: torch.nn.utils.get_total_norm([param.grad for param in params]),
        CLIP: lambda: torch.nn.utils.clip_grad_norm_(params, max_norm),
    }[verb]

    def run() -> None:
        scaler.unscale_(optimizer)
        after()

    def reset() -> None:
        refill()
        scaler._per_optimizer_states.clear()  # as update() would

    return Contender("torch.amp", run, reset)


def kernel(verb: str, gradients: Tensors, scale: float, max_norm: float) -> Callable[[], object]:
    """The one kernel below `unscale_`, and the foreach norms."""
    flag, inverse = torch.zeros(()), torch.tensor(1 / scale, dtype=torch.float32)

    def run() -> object:
        flag.zero_()
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, flag, inverse)
        return after(verb, gradients, max_norm)

    return run


def foreach(verb: str, gradients: Tensors, scale: float, max_norm: float) -> Callable[[], object]:
    """By hand, with the foreach functions that are public or nearly so."""

    def run() -> object:
        torch._foreach_mul_(gradients, 1 / scale)
        return finite(gradients), after(verb, gradients, max_norm)

    return run


def after(verb: str, gradients: Tensors, max_norm: float) -> object:
    """The norm, and clipping by it, where the verb has them."""
    if verb == UNSCALE:
        return None
    length = norm(gradients)
    if verb == CLIP:
        torch._foreach_mul_(gradients, torch.clamp(max_norm / (length + 1e-6), max=1.0))
    return length


def reading(verb: str, gradients: Tensors) -> dict[str, Callable[[], object]]:
    """The ways that change nothing."""
    if verb == FINITE:
        return {
            "torch isfinite": lambda: finite(gradients),
            "torch foreach": lambda: torch.isfinite(torch.stack(torch._foreach_norm(gradients, float("inf")))).all(),
        }
    return {
        "torch get_total_norm": lambda: torch.nn.utils.get_total_norm(gradients),
        "torch foreach": lambda: norm(gradients),
    }


def finite(gradients: Tensors) -> torch.Tensor:
    """As it is written by hand."""
    return torch.stack([gradient.isfinite().all() for gradient in gradients]).all()


def norm(gradients: Tensors) -> torch.Tensor:
    """Of all values, in the dtype of the gradients, as torch has it."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))


def update(make: Callable[..., Any]) -> Callable[[], object]:
    """`update()` after one finite step: what the step has left for it is put back by an assignment, on either side."""
    scaler, optimizer = scaler_of(make, 2.0**16), holding([torch.ones(10)])
    scaler.unscale_(optimizer)
    before = dict(vars(scaler))
    scaler.update()
    left = {name: value for name, value in before.items() if vars(scaler)[name] is not value}

    def run() -> None:
        vars(scaler).update(left)
        scaler.update()

    return run
