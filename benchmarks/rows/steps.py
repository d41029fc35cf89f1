"""Rows of the scale's update, and of a whole step beside `torch.amp.GradScaler` on the same model."""

from collections.abc import Callable, Iterable, Iterator
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
    """All of them."""
    yield Spec("update/numpy", "step", "update of the scale, on the host", lambda _: host_updates())
    yield Spec("update/torch", "step", "update of the scale, torch", lambda _: torch_updates())
    yield Spec("update/jax", "jax", "update of the scale, JAX", lambda _: jax_updates())
    for shape in (SMALL, MLP):
        yield Spec(f"step-overhead/{shape.name}", "step", "scaler's part of a step", overhead(shape), "float32", shape.words)
    for shape, loss in ((SMALL, sums), (MLP, mlp)):
        yield Spec(f"step/{shape.name}", "step", "whole eager step, SGD", whole(shape, loss), "float32", shape.words)


def host_updates() -> Contenders:
    """A finite step of torch's constants: arrays of shape (), or Python numbers, and torch's own tensors."""
    rule = presets.torch()
    arrays, numbers = rule.init(), LossScaleState(rule.init_scale, 0, 0)
    finite = np.asarray(True)
    yield Contender("ampscale", lambda: rule.update(arrays, finite), kind="ours")
    yield Contender("ampscale, Python numbers", lambda: rule.update(numbers, True), kind="ours")
    yield from torch_rival()


def torch_rival() -> Contenders:
    """Torch's own update, on its tensors."""
    try:
        import torch
        from rivals import torch as rivals_torch
    except ModuleNotFoundError:
        return [Absent("torch.amp", "not installed")]
    return [Contender("torch.amp", rivals_torch.update(torch.amp.GradScaler))]


def torch_updates() -> Contenders:
    """The same on torch's tensors: the rule, and our scaler in torch's manner."""
    import torch
    from rivals import torch as rivals_torch

    from ampscale.frameworks.torch import GradScaler

    rule = presets.torch()
    state, finite = rule.init(like=torch.ones(())), torch.tensor(True)
    yield Contender("ampscale", rivals_torch.update(GradScaler), kind="ours")
    yield Contender("ampscale, the rule", lambda: rule.update(state, finite), kind="ours")
    yield from torch_rival()


def jax_updates() -> Contenders:
    """The same jitted, beside jmp's."""
    import jax
    import jax.numpy as jnp
    from rivals import jax as rivals_jax

    rule = LossScaleRule()
    state, finite = rule.init(like=jnp.ones(())), jnp.asarray(True)
    update = jax.jit(rule.update)
    yield Contender("ampscale", rivals_jax.ready(lambda: update(state, finite)), kind="ours")
    if rivals_jax.jmp is None:
        yield Absent("jmp", rivals_jax.NOT_INSTALLED)
        return
    adjust = jax.jit(lambda scale, finite: scale.adjust(finite))
    scale = rivals_jax.jmp.DynamicLossScale(jnp.asarray(SCALE, jnp.float32))
    yield Contender("jmp", rivals_jax.ready(lambda: adjust(scale, finite)))


def overhead(shape: Shape) -> Callable[[bool], Contenders]:
    """Scale a loss, unscale and check the gradients, ask for the step of an optimizer that does nothing, and update."""

    def build(quick: bool) -> Contenders:
        gradients = Gradients(shape.quick() if quick else shape, "float32")
        for name, kind, make in scalers():
            yield Contender(name, scaler_step(make, gradients.as_torch()), gradients.refill, kind)

    return build


def scaler_step(make: Callable[..., Any], gradients: list[Any]) -> Callable[[], None]:
    """A step without a forward and a backward pass: what the scaler does in it."""
    import torch
    from rivals import torch as rivals_torch

    scaler, optimizer = rivals_torch.scaler_of(make, SCALE), rivals_torch.holding(gradients)
    loss = torch.ones((), requires_grad=True)

    def run() -> None:
        scaler.scale(loss)
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()

    return run


def whole(shape: Shape, loss_of: Callable[[list[Any]], Any]) -> Callable[[bool], Contenders]:
    """A step with all that belongs to it, each contender on a model of its own; and as the floor, one without a scaler."""

    def build(quick: bool) -> Contenders:
        import torch

        torch.manual_seed(0)
        drawn = [torch.randn(one) / 30 for one in (SMALL.quick().arrays if quick and shape is SMALL else shape.arrays)]
        for name, kind, make in scalers():
            yield Contender(name, training(drawn, loss_of, make("cpu", init_scale=SCALE)), kind=kind)
        yield Contender("no scaler", training(drawn, loss_of, None), kind="floor")

    return build


def training(drawn: list[Any], loss_of: Callable[[list[Any]], Any], scaler: Any) -> Callable[[], None]:
    """One step of plain SGD."""
    import torch

    params = [torch.nn.Parameter(one.clone()) for one in drawn]
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
    """Ours and torch's."""
    import torch

    from ampscale.frameworks.torch import GradScaler

    yield "ampscale", "ours", GradScaler
    yield "torch.amp", "rival", torch.amp.GradScaler


def sums(params: list[Any]) -> Any:
    """A loss that costs little."""
    import torch

    return torch.stack([param.sum() for param in params]).sum()


def mlp(params: list[Any]) -> Any:
    """The loss of a perceptron with two hidden layers on one batch."""
    import torch

    values = torch.linspace(-1, 1, BATCH * params[0].shape[1]).reshape(BATCH, -1)
    for weight, bias in zip(params[0:4:2], params[1:5:2], strict=True):
        values = torch.relu(torch.nn.functional.linear(values, weight, bias))
    output = torch.nn.functional.linear(values, params[4], params[5])
    return torch.nn.functional.cross_entropy(output, torch.arange(BATCH) % output.shape[1])
