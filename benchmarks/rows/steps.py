"""Rows of the update of the scale, and of complete training steps compared with `torch.amp.GradScaler`."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from gradients import SCALE, Gradients
from measure import Absent, Contender
from shapes import SMALL, Shape
from specs import Spec

from ampscale import LossScaleRule, LossScaleState, presets

Contenders = Iterable[Contender | Absent]
MLP = Shape("mlp", "MLP", ((512, 256), (512,), (512, 512), (512,), (10, 512), (10,)))
BATCH = 64


def specs() -> Iterator[Spec]:
    """Yield the specifications of all rows."""
    yield Spec("update/numpy", "step", "update of the scale, on the host", lambda _: host_updates())
    yield Spec("update/torch", "step", "update of the scale, torch", lambda _: torch_updates())
    yield Spec("update/jax", "jax", "update of the scale, JAX", lambda _: jax_updates())
    for shape in (SMALL, MLP):
        build = partial(overhead, shape)
        yield Spec(f"step-overhead/{shape.name}", "step", "scaler's part of a step", build, "float32", shape.description)
    for shape, loss in ((SMALL, sums), (MLP, mlp)):
        build = partial(whole_steps, shape, loss)
        yield Spec(f"step/{shape.name}", "step", "whole eager step, SGD", build, "float32", shape.description)


def host_updates() -> Contenders:
    """Yield updates after a finite step: by a rule on NumPy arrays and on Python numbers, and by `torch.amp.GradScaler`."""
    rule = presets.torch()
    arrays, numbers = rule.init(), LossScaleState(rule.init_scale, 0, 0)
    finite = np.asarray(True)
    yield Contender("ampscale", lambda: rule.update(arrays, finite), kind="ours")
    yield Contender("ampscale, Python numbers", lambda: rule.update(numbers, True), kind="ours")
    yield from torch_other()


def torch_other() -> Contenders:
    """Return a contender that updates `torch.amp.GradScaler`."""
    try:
        import torch
        from others import torch as others_torch
    except ModuleNotFoundError:
        return [Absent("torch.amp", "not installed")]
    return [Contender("torch.amp", others_torch.update(torch.amp.GradScaler))]


def torch_updates() -> Contenders:
    """Yield updates after a finite step: by ampscale's `GradScaler`, by a rule on tensors, and by `torch.amp.GradScaler`."""
    import torch
    from others import torch as others_torch

    from ampscale.frameworks.torch import GradScaler

    rule = presets.torch()
    state, finite = rule.init(like=torch.ones(())), torch.tensor(True)
    yield Contender("ampscale", others_torch.update(GradScaler), kind="ours")
    yield Contender("ampscale, LossScaleRule", lambda: rule.update(state, finite), kind="ours")
    yield from torch_other()


def jax_updates() -> Contenders:
    """Yield jitted updates after a finite step: by a `LossScaleRule` and by jmp."""
    import jax
    import jax.numpy as jnp
    from others import jax as others_jax

    rule = LossScaleRule()
    state, finite = rule.init(like=jnp.ones(())), jnp.asarray(True)
    update = jax.jit(rule.update)
    yield Contender("ampscale", others_jax.ready(lambda: update(state, finite)), kind="ours")
    if others_jax.jmp is None:
        yield Absent("jmp", others_jax.NOT_INSTALLED)
        return
    adjust = jax.jit(lambda scale, finite: scale.adjust(finite))
    scale = others_jax.jmp.DynamicLossScale(jnp.asarray(SCALE, jnp.float32))
    yield Contender("jmp", others_jax.ready(lambda: adjust(scale, finite)))


def overhead(shape: Shape, quick: bool) -> Contenders:
    """Yield each scaler's part of a step, with an optimizer that does nothing."""
    gradients = Gradients(shape.shortened(quick), "float32")
    for name, kind, make in scalers():
        yield Contender(name, scaler_step(make, gradients.as_torch()), gradients.refill, kind)


def scaler_step(make: Callable[..., Any], gradients: list[Any]) -> Callable[[], None]:
    """Return a step that scales a loss, unscales and checks gradients, and updates the scale."""
    import torch
    from others import torch as others_torch

    scaler, optimizer = others_torch.scaler_of(make, SCALE), others_torch.optimizer_with(gradients)
    loss = torch.ones((), requires_grad=True)

    def run() -> None:
        scaler.scale(loss)
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()

    return run


def whole_steps(shape: Shape, loss_of: Callable[[list[Any]], Any], quick: bool) -> Contenders:
    """Yield each scaler's complete training step on a model of its own; the baseline has no scaler."""
    import torch

    torch.manual_seed(0)
    shapes = shape.shortened(quick and shape is SMALL).arrays
    initial = [torch.randn(dimensions) / 30 for dimensions in shapes]
    for name, kind, make in scalers():
        yield Contender(name, training(initial, loss_of, make("cpu", init_scale=SCALE)), kind=kind)
    yield Contender("no scaler", training(initial, loss_of, None), kind="baseline")


def training(initial: list[Any], loss_of: Callable[[list[Any]], Any], scaler: Any) -> Callable[[], None]:
    """Return a training step with SGD, on copies of the *initial* parameters; without loss scaling if *scaler* is None."""
    import torch

    params = [torch.nn.Parameter(param.clone()) for param in initial]
    optimizer = torch.optim.SGD(params, lr=1e-6)

    def scaled() -> None:
        scaler.scale(loss_of(params)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    def plain() -> None:
        loss_of(params).backward()
        optimizer.step()
        optimizer.zero_grad()

    return plain if scaler is None else scaled


def scalers() -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """Yield the name, kind and class of ampscale's and of torch's scaler."""
    import torch

    from ampscale.frameworks.torch import GradScaler

    yield "ampscale", "ours", GradScaler
    yield "torch.amp", "other", torch.amp.GradScaler


def sums(params: list[Any]) -> Any:
    """Return the sum of all parameters, a loss that is cheap to compute."""
    import torch

    return torch.stack([param.sum() for param in params]).sum()


def mlp(params: list[Any]) -> Any:
    """Return the loss of a perceptron with two hidden layers on one batch."""
    import torch

    values = torch.linspace(-1, 1, BATCH * params[0].shape[1]).reshape(BATCH, -1)
    for weight, bias in zip(params[0:4:2], params[1:5:2], strict=True):
        values = torch.relu(torch.nn.functional.linear(values, weight, bias))
    output = torch.nn.functional.linear(values, params[4], params[5])
    return torch.nn.functional.cross_entropy(output, torch.arange(BATCH) % output.shape[1])
