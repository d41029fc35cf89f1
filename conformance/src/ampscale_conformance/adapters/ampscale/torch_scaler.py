"""ampscale's documented scaler of torch's hand-written loops."""

from collections.abc import Sequence
from typing import Any

import torch

import ampscale
from ampscale.frameworks.torch import GradScaler

from ...model.adapter import ImplementationInfo, Unsupported
from ...model.bits import map_tree
from .scalers import HOST, flat, within_the_edge


class TorchGradScaler:
    """`ampscale.frameworks.torch.GradScaler`, with torch's own optimizers."""

    info = ImplementationInfo(
        name="ampscale torch GradScaler",
        version=ampscale.__version__,
        level=4,
        capabilities=(*HOST, "process", "bfloat16", "none", "groups", "applied", "loss", "norm", "momentum"),
        preset="torch",
        arrays="torch",
    )

    def create(self, rule: Any) -> Any:
        """Its factors are not 1, and its scale stays within the normal numbers."""
        if rule.growth_factor <= 1 or rule.backoff_factor >= 1:
            raise Unsupported("it takes no factor of 1")
        within_the_edge(rule)
        return scaler_with(rule.init_scale, rule.growth_factor, rule.backoff_factor, rule.growth_interval)

    def update(self, scaler: Any, finite: bool) -> None:
        """One step of an optimizer whose only gradient is finite, or not."""
        scaler.step(optimizer_with([torch.tensor(0.0 if finite else torch.inf)]))
        scaler.update()

    def read_scale(self, scaler: Any) -> float:
        """Its own."""
        return float(scaler.get_scale())

    def save(self, scaler: Any) -> Any:
        """Its state dict."""
        return scaler.state_dict()

    def load(self, rule: Any, saved: Any) -> Any:
        """Into a new one."""
        scaler = self.create(rule)
        scaler.load_state_dict(saved)
        return scaler

    def scale(self, scaler: Any, tree: Any) -> Any:
        """Its own, which takes trees."""
        return scaler.scale(tree)

    def unscale(self, scaler: Any, tree: Any) -> Any:
        """As the gradients of an optimizer, by a copy of the scaler: `unscale_` would be remembered."""
        optimizer = optimizer_with(flat(tree))
        scaler_with(scaler.get_scale()).unscale_(optimizer)
        unscaled = iter(self.get_gradients(scaler, optimizer))
        return map_tree(lambda _: next(unscaled), tree)

    def all_finite(self, tree: Any) -> bool:
        """Whether an optimizer with these gradients steps."""
        return bool(scaler_with(1.0).step(optimizer_with(flat(tree))))

    def add_optimizer(self, scaler: Any, parameters: Sequence[Any]) -> Any:
        """Plain SGD, of torch."""
        return torch.optim.SGD([torch.nn.Parameter(parameter.clone()) for parameter in parameters], lr=1.0)

    def set_gradients(self, scaler: Any, optimizer: Any, gradients: Sequence[Any]) -> None:
        """As a backward pass leaves them."""
        refuse_float16(gradients)
        for parameter, gradient in zip(optimizer.param_groups[0]["params"], gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()

    def get_gradients(self, scaler: Any, optimizer: Any) -> list[Any]:
        """In the parameters' order."""
        held = optimizer.param_groups[0]["params"]
        return [None if parameter.grad is None else parameter.grad.clone() for parameter in held]

    def get_parameters(self, scaler: Any, optimizer: Any) -> list[Any]:
        """Detached."""
        return [parameter.detach().clone() for parameter in optimizer.param_groups[0]["params"]]

    def unscale_(self, scaler: Any, optimizer: Any) -> None:
        """Its own."""
        scaler.unscale_(optimizer)

    def step(self, scaler: Any, optimizer: Any) -> bool:
        """Its own; whether the optimizer stepped."""
        return bool(scaler.step(optimizer))

    def update_scale(self, scaler: Any) -> None:
        """Its own."""
        scaler.update()

    def create_cell(self, rule: Any, parameters: Sequence[Any], learning_rate: Any, momentum: float = 0.0) -> Any:
        """What a loop holds."""
        refuse_float16(parameters)
        held = [torch.nn.Parameter(parameter.clone()) for parameter in parameters]
        return self.create(rule), held, torch.optim.SGD(held, lr=learning_rate, momentum=momentum)

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        """The loop of torch's examples."""
        scaler, held, optimizer = cell
        scale = scaler.get_scale()
        optimizer.zero_grad()
        loss = sum((parameter * leaf).sum() for parameter, leaf in zip(held, data, strict=True))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = ampscale.global_norm([parameter.grad for parameter in held])
        finite = bool(scaler.step(optimizer))
        scaler.update()
        return {
            "parameters": self.get_parameters(scaler, optimizer),
            "finite": finite,
            "scale": scale,
            "next_scale": scaler.get_scale(),
            "loss": loss.item(),
            "global_norm": float(norm),
        }


def scaler_with(scale: float, *constants: Any) -> GradScaler:
    """For the CPU, after its first scaled tensor, as in every loop."""
    scaler = GradScaler("cpu", scale, *constants)
    scaler.scale(torch.zeros(()))
    return scaler


def optimizer_with(gradients: Sequence[Any]) -> Any:
    """SGD over zeros with these gradients."""
    refuse_float16(gradients)
    held = [torch.nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
    for parameter, gradient in zip(held, gradients, strict=True):
        parameter.grad = gradient.clone()
    return torch.optim.SGD(held, lr=1.0)


def refuse_float16(tree: Any) -> None:
    """Unsupported, as it refuses them with a ValueError: spec/profiles/torch.md."""
    if any(leaf.dtype == torch.float16 for leaf in flat(tree)):
        raise Unsupported("it unscales no float16 gradients")


ADAPTER = TorchGradScaler()
