"""ampscale's documented scaler of torch's hand-written loops."""

from collections.abc import Sequence
from typing import Any

import ampscale
from ampscale.frameworks.torch import GradScaler

from ...model.adapter import ImplementationInfo
from ...model.bits import arrays
from ..torch import Torch
from .scalers import HOST, within_the_edge


class TorchGradScaler(Torch):
    """`ampscale.frameworks.torch.GradScaler`, with torch's own optimizers. Its deviations: spec/profiles/torch.md."""

    info = ImplementationInfo(
        name="ampscale torch GradScaler",
        version=ampscale.__version__,
        level=4,
        capabilities=(*HOST, "process", "bfloat16", "none", "groups", "applied", "loss", "norm", "momentum"),
        preset="torch",
        arrays="torch",
    )
    who = "it"

    def create(self, rule: Any) -> Any:
        """Its scale stays within the normal numbers."""
        scaler = super().create(rule)
        within_the_edge(rule)
        return scaler

    def scaler_class(self) -> Any:
        """The class under test."""
        return GradScaler

    def scale(self, scaler: Any, tree: Any) -> Any:
        """Its own, which takes trees."""
        return scaler.scale(tree)

    def all_finite(self, tree: Any) -> bool:
        """Whether an optimizer with these gradients steps, by its own word."""
        return self.step(self.scaler_with(1.0), self.optimizer_with(arrays(tree)))

    def step(self, scaler: Any, optimizer: Any) -> bool:
        """Its own; whether the optimizer stepped."""
        return bool(scaler.step(optimizer))

    def clipped(self, parameters: Sequence[Any], max_norm: float | None) -> Any:
        """The norm, of ours; nothing is clipped."""
        return ampscale.global_norm([parameter.grad for parameter in parameters])


ADAPTER = TorchGradScaler()
