"""torch: `torch.amp.GradScaler` on the CPU, with a hand-written loop."""

import math
from collections.abc import Sequence
from typing import Any

from ..model.adapter import ImplementationInfo
from ..model.bits import arrays
from . import version_of
from .base import LoopScaler, linear_loss, outputs, reject_factors_of_1, torch
from .ranks import on_ranks
from .torch_ranks import initialize, train


class Torch(LoopScaler):
    """torch's scaler for the CPU. `create` calls `scale`, with which every loop begins, since `scale` creates the tensors."""

    info = ImplementationInfo(
        name="torch GradScaler",
        version=version_of("torch"),
        url="https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling",
        level=5,
        capabilities=(
            # Not float16: torch raises "Attempting to unscale FP16 gradients" by design.
            *("resume", "process", "rounding", "bfloat16", "none", "groups", "loss", "norm", "clip", "momentum"),
            *("ranks", "sharded", "mixed-placements", "mixed-meshes", "distinct"),
        ),
        preset="torch",
        arrays="torch",
    )
    name = "torch"

    def create(self, rule: Any) -> Any:
        return self.scaler_with(*self.constants_of(rule))

    def constants_of(self, rule: Any) -> list[Any]:
        reject_factors_of_1(rule, self.name)
        return [rule.init_scale, rule.growth_factor, rule.backoff_factor, rule.growth_interval]

    def scaler_with(self, *constants: Any) -> Any:
        scaler = self.scaler_class()("cpu", *constants)
        scaler.scale(torch.zeros(()))
        return scaler

    def scaler_class(self) -> Any:
        return torch.amp.GradScaler

    def read_scale(self, scaler: Any) -> float:
        return float(scaler.get_scale())

    def all_finite(self, tree: Any) -> bool:
        optimizer, steps = self.optimizer_with(arrays(tree)), list[bool]()
        optimizer.register_step_post_hook(lambda *_: steps.append(True))
        self.scaler_with(1.0).step(optimizer)
        return bool(steps)

    def tensor(self, number: float) -> Any:
        return torch.tensor(number)

    def parameter_from(self, value: Any) -> Any:
        return torch.nn.Parameter(value.clone())

    def sgd(self, parameters: Sequence[Any], learning_rate: float = 1.0, momentum: float = 0.0) -> Any:
        return torch.optim.SGD(parameters, lr=learning_rate, momentum=momentum)

    def parameters_of(self, optimizer: Any) -> list[Any]:
        return [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def create_cell(
        self, rule: Any, parameters: Sequence[Any], learning_rate: float, max_norm: float = math.inf, momentum: float = 0.0
    ) -> Any:
        optimizer = self.sgd([*map(self.parameter_from, parameters)], learning_rate, momentum)
        steps = list[bool]()
        optimizer.register_step_post_hook(lambda *_: steps.append(True))
        return {"scaler": self.create(rule), "optimizer": optimizer, "steps": steps, "max_norm": max_norm}

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        """Run the loop of the page "Automatic Mixed Precision examples", with clipping."""
        scaler, optimizer = cell["scaler"], cell["optimizer"]
        parameters = self.parameters_of(optimizer)
        cell["steps"].clear()
        scale = scaler.get_scale()
        optimizer.zero_grad()
        loss = linear_loss(parameters, data)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = self.clip(parameters, cell["max_norm"])
        scaler.step(optimizer)
        scaler.update()
        new_parameters = self.get_parameters(scaler, optimizer)
        return outputs(new_parameters, bool(cell["steps"]), scale, scaler.get_scale(), loss.item(), global_norm=float(norm))

    def clip(self, parameters: Sequence[Any], max_norm: float) -> Any:
        """Clip the gradients, and return their norm before clipping."""
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm)

    def train_on_ranks(self, rule: Any, placements: Sequence[str], steps: Sequence[Any], optimizers: int, **options: Any) -> Any:
        return on_ranks(self.rank_function(), len(steps[0]), self.constants_of(rule), options, placements, steps, optimizers)

    def rank_function(self) -> Any:
        """Return the function that trains on one rank: with DDP, with FSDP2, with DTensors, or without communication."""
        return train_on_rank


def train_on_rank(rank: int, _size: int, constants: Sequence[Any], _options: Any, *run: Any) -> list[Any]:
    initialize()
    return train(lambda: torch.amp.GradScaler("cpu", *constants), rank, *run)
