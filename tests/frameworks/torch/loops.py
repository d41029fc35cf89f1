"""Training loops as in torch's documentation, for any `GradScaler`."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ampscale.frameworks.torch import GradScaler

INF, NAN = float("inf"), float("nan")

# Steps with an overflow, and the factor of their loss. With 1e36, the loss is finite, and the scaled loss is not.
OVERFLOWS = {3: INF, 4: NAN, 17: 1e36, 31: INF, 32: NAN, 33: 1e36, 60: INF, 90: NAN, 151: 1e36, 199: INF}

OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.05),
    "momentum": lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adamw-foreach": lambda params: torch.optim.AdamW(params, lr=0.01, foreach=True),
    "adamw-fused": lambda params: torch.optim.AdamW(params, lr=0.01, fused=True),
    "momentum-fused": lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9, fused=True),
}
GROUPED = {"groups": lambda params: torch.optim.Adam([{"params": params[::2], "lr": 0.01}, {"params": params[1::2]}], lr=0.002)}
ours, theirs = partial(GradScaler, "cpu"), partial(torch.amp.GradScaler, "cpu")


def scaler_at(scale, **settings):
    """Return a scaler of ampscale that has scaled a tensor, and whose scale grows at every finite step."""
    scaler = GradScaler(**{"init_scale": scale, "growth_interval": 1, **settings})
    scaler.scale(torch.ones(()))
    return scaler


def two_groups(params):
    """Return SGD with rate 1 and two parameter groups, the first of one parameter."""
    return torch.optim.SGD([{"params": params[:1]}, {"params": params[1:]}], lr=1.0)


def optimizer_with(*gradients, make=two_groups):
    """Return an optimizer over a parameter of zeros for each gradient; None is a parameter without gradient."""
    likes = [torch.zeros(2) if gradient is None else gradient for gradient in gradients]
    parameters = [torch.zeros(like.shape, dtype=like.dtype, requires_grad=True) for like in likes]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    return make(parameters)


def parameters_of(optimizer):
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def run_step(scaler, *values):
    """Run a step with one gradient of these values, and the update. Return True if the step was applied."""
    applied = scaler.step(optimizer_with(torch.tensor(values)))
    scaler.update()
    return applied


@dataclass
class Run:
    """Two small networks, an optimizer for each, and a scaler."""

    scaler: Any
    networks: list[torch.nn.Module]
    optimizers: list[torch.optim.Optimizer]
    device: str

    def losses(self, batch, factors):
        """Return the loss of each network, times its factor."""
        values, targets = (part.to(self.device) for part in batch)
        return [
            torch.nn.functional.mse_loss(network(values), targets) * factor
            for network, factor in zip(self.networks, factors, strict=True)
        ]

    def state(self):
        """Return the bits of parameters and moments, and the scaler's state dict."""
        moments = [optimizer.state_dict()["state"] for optimizer in self.optimizers]
        parameters = [parameter for network in self.networks for parameter in network.parameters()]
        return bits([parameters, moments]), self.scaler.state_dict()


def new_run(scaler, make_optimizer, device="cpu"):
    """Return a run before its first step, with the same initial values in every call."""
    generator = torch.Generator().manual_seed(7)
    networks = [torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)) for _ in range(2)]
    with torch.no_grad():
        for network in networks:
            for parameter in network.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
            network.to(device)
    return Run(scaler, networks, [make_optimizer(list(network.parameters())) for network in networks], device)


def batch_of(step, part=0):
    """Return the inputs and targets of a step, or of its micro-batch *part*."""
    generator = torch.Generator().manual_seed(1000 * part + step)
    return torch.randn(4, 3, generator=generator), torch.randn(4, 2, generator=generator)


def bits(tree):
    """Return dtype, shape and bytes of each tensor, for comparisons bit for bit."""
    if isinstance(tree, torch.Tensor):
        return tree.dtype, tree.shape, tree.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
    if isinstance(tree, dict):
        return {key: bits(value) for key, value in tree.items()}
    return [bits(value) for value in tree] if isinstance(tree, list | tuple) else tree


# These functions run one iteration with the losses of the two networks times *factors*, and return the results of the steps.


def together(run, step, factors):
    """Run one update for two optimizers, each with its own loss."""
    for loss in run.losses(batch_of(step), factors):
        run.scaler.scale(loss).backward()
    return finish(run)


def clipping(run, step, factors):
    """Unscale and clip the gradients before the steps."""
    for loss in run.scaler.scale(run.losses(batch_of(step), factors)):
        loss.backward()
    for network, optimizer in zip(run.networks, run.optimizers, strict=True):
        run.scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(network.parameters(), 0.5)
    return finish(run)


def accumulating(run, step, factors):
    """Accumulate the gradients of two batches, of which only the first can overflow."""
    for part, part_factors in enumerate((factors, (1.0, 1.0))):
        for loss in run.losses(batch_of(step, part), part_factors):
            run.scaler.scale(loss / 2).backward()
    return finish(run)


def finish(run):
    """Run the steps and the update, and return the results of the steps."""
    applied = [run.scaler.step(optimizer) for optimizer in run.optimizers]
    run.scaler.update()
    for optimizer in run.optimizers:
        optimizer.zero_grad()
    return applied


LOOPS = {loop.__name__: loop for loop in (together, clipping, accumulating)}
PAIRS = [  # names of loops and optimizers
    *[("together", optimizer) for optimizer in ("momentum", "adamw-fused", "momentum-fused")],
    *[("clipping", optimizer) for optimizer in ("sgd", "adamw-fused")],
    *[("accumulating", optimizer) for optimizer in ("adamw-foreach", "momentum-fused")],
]


def train(run, loop, steps):
    """Yield the state after each iteration, and the results of its steps."""
    for step in steps:
        applied = loop(run, step, factors_at(step))
        yield run.state(), applied


def factors_at(step):
    """Return the factors of the losses: an overflow affects the first network, the second, or both."""
    factor = OVERFLOWS.get(step, 1.0)
    return [(factor, factor), (factor, 1.0), (1.0, factor)][step % 3]
