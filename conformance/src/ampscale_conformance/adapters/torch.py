"""torch: `torch.amp.GradScaler` on the CPU, and the loop that is written around it."""

from collections.abc import Callable, Sequence
from typing import Any

from ..model.adapter import ImplementationInfo, Unsupported
from . import version_of


class Torch:
    """
    The scaler that torch has for every device, here for the CPU.

    Its first `scale` makes its tensors, which every loop calls before anything else; so does `create`. Gradients are
    unscaled through an optimizer alone: trees are given to one that is thrown away. It refuses float16 gradients.
    """

    info = ImplementationInfo(
        name="torch GradScaler",
        version=version_of("torch"),
        url="https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling",
        level=4,
        capabilities=("resume", "process", "rounding", "bfloat16", "none", "groups", "loss", "norm", "clip", "momentum"),
        preset="torch",
        arrays="torch",
    )

    def create(self, rule: Any) -> Any:
        """Unsupported where a factor is 1, which torch refuses."""
        if rule.growth_factor <= 1 or rule.backoff_factor >= 1:
            raise Unsupported("torch takes no factor of 1")
        return scaler_with(rule.init_scale, rule.growth_factor, rule.backoff_factor, rule.growth_interval)

    def update(self, scaler: Any, finite: bool) -> None:
        """One step of an optimizer whose only gradient is finite, or not."""
        import torch

        scaler.step(sgd([parameter_with(torch.tensor(0.0 if finite else torch.inf))]))
        scaler.update()

    def read_scale(self, scaler: Any) -> float:
        """Its own word for it."""
        return scaler.get_scale()  # type: ignore[no-any-return]

    def save(self, scaler: Any) -> Any:
        """Its state dict, in Python's numbers."""
        return scaler.state_dict()

    def load(self, rule: Any, saved: Any) -> Any:
        """A new scaler that loads it."""
        scaler = self.create(rule)
        scaler.load_state_dict(saved)
        return scaler

    def scale(self, scaler: Any, tree: Any) -> Any:
        """Each tensor as a loss is scaled."""
        return each(scaler.scale, tree)

    def unscale(self, scaler: Any, tree: Any) -> Any:
        """As the gradients of an optimizer, by another scaler with this scale: `unscale_` would be remembered."""
        refuse_float16(tree)
        parameters = each(parameter_with, tree)
        scaler_with(scaler.get_scale()).unscale_(sgd(leaves(parameters)))
        return each(lambda parameter: parameter.grad, parameters)

    def all_finite(self, tree: Any) -> bool:
        """Whether an optimizer with these gradients steps."""
        refuse_float16(tree)
        optimizer, steps = sgd([parameter_with(leaf) for leaf in leaves(tree)]), list[bool]()
        optimizer.register_step_post_hook(lambda *_: steps.append(True))
        scaler_with(1.0).step(optimizer)
        return bool(steps)

    def add_optimizer(self, scaler: Any, parameters: Sequence[Any]) -> Any:
        """Plain SGD."""
        import torch

        return sgd([torch.nn.Parameter(parameter.clone()) for parameter in parameters])

    def set_gradients(self, scaler: Any, optimizer: Any, gradients: Sequence[Any]) -> None:
        """As a backward pass leaves them."""
        refuse_float16(gradients)
        for parameter, gradient in zip(of(optimizer), gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()

    def get_gradients(self, scaler: Any, optimizer: Any) -> list[Any]:
        """In the parameters' order."""
        return [None if parameter.grad is None else parameter.grad.clone() for parameter in of(optimizer)]

    def get_parameters(self, scaler: Any, optimizer: Any) -> list[Any]:
        """Detached."""
        return [parameter.detach().clone() for parameter in of(optimizer)]

    def unscale_(self, scaler: Any, optimizer: Any) -> None:
        """Its own."""
        scaler.unscale_(optimizer)

    def step(self, scaler: Any, optimizer: Any) -> None:
        """Its own; what it returns is the optimizer's answer, and says nothing of a skip."""
        scaler.step(optimizer)

    def update_scale(self, scaler: Any) -> None:
        """Its own."""
        scaler.update()

    def create_cell(
        self, rule: Any, parameters: Sequence[Any], learning_rate: float, max_norm: float | None = None, momentum: float = 0.0
    ) -> Any:
        """What a loop holds."""
        import torch

        refuse_float16(parameters)
        held = [torch.nn.Parameter(parameter.clone()) for parameter in parameters]
        optimizer, steps = torch.optim.SGD(held, lr=learning_rate, momentum=momentum), list[bool]()
        optimizer.register_step_post_hook(lambda *_: steps.append(True))
        return {"scaler": self.create(rule), "parameters": held, "optimizer": optimizer, "steps": steps, "max_norm": max_norm}

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        """The loop of the page "Automatic Mixed Precision examples", with clipping."""
        import torch

        scaler, optimizer, parameters = cell["scaler"], cell["optimizer"], cell["parameters"]
        cell["steps"].clear()
        scale = scaler.get_scale()
        optimizer.zero_grad()
        loss = sum((parameter * values).sum() for parameter, values in zip(parameters, data, strict=True))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        limit = torch.inf if cell["max_norm"] is None else cell["max_norm"]
        norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
        scaler.step(optimizer)
        scaler.update()
        return {
            "parameters": [parameter.detach().clone() for parameter in parameters],
            "finite": bool(cell["steps"]),
            "scale": scale,
            "next_scale": scaler.get_scale(),
            "loss": loss.item(),
            "global_norm": float(norm),
        }


def scaler_with(scale: float, growth: float = 2.0, backoff: float = 0.5, interval: int = 2000) -> Any:
    """A scaler for the CPU, with its tensors made."""
    import torch

    scaler = torch.amp.GradScaler("cpu", scale, growth, backoff, interval)
    scaler.scale(torch.zeros(()))
    return scaler


def parameter_with(gradient: Any) -> Any:
    """A parameter of zeros with this gradient."""
    import torch

    parameter = torch.nn.Parameter(torch.zeros_like(gradient))
    parameter.grad = gradient.clone()
    return parameter


def sgd(parameters: Sequence[Any]) -> Any:
    """Plain SGD, learning rate 1."""
    import torch

    return torch.optim.SGD(parameters, lr=1.0)


def of(optimizer: Any) -> list[Any]:
    """Its parameters."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def each(function: Callable[[Any], Any], tree: Any) -> Any:
    """A tree of the same lists, tuples and dicts, with *function* of each tensor."""
    if isinstance(tree, dict):
        return {key: each(function, child) for key, child in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(each(function, child) for child in tree)
    return None if tree is None else function(tree)


def leaves(tree: Any) -> list[Any]:
    """Its tensors."""
    found: list[Any] = []
    each(found.append, tree)
    return found


def refuse_float16(tree: Any) -> None:
    """Unsupported where torch raises by design: "Attempting to unscale FP16 gradients"."""
    import torch

    if any(leaf.dtype == torch.float16 for leaf in leaves(tree)):
        raise Unsupported("torch unscales no float16 gradients")


ADAPTER = Torch()
