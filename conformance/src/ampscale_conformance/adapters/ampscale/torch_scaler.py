"""ampscale's documented scaler of torch's hand-written loops."""

from collections.abc import Sequence
from typing import Any

import ampscale
from ampscale.frameworks.torch import GradScaler

from ..torch import Torch
from .backends import info_of
from .scalers import HOST, OurGradScaler


class TorchGradScaler(OurGradScaler, Torch):
    """`ampscale.frameworks.torch.GradScaler`, with torch's own optimizers. Its deviations: spec/profiles/torch.md."""

    info = info_of(
        "torch GradScaler",
        "torch",
        4,
        (*HOST, "process", "bfloat16", "none", "groups", "applied", "loss", "norm", "momentum"),
        arrays="torch",
    )

    def scaler_class(self) -> Any:
        """The class under test."""
        return GradScaler

    def scale(self, scaler: Any, tree: Any) -> Any:
        """Its own, which takes trees."""
        return scaler.scale(tree)

    def clipped(self, parameters: Sequence[Any], max_norm: float | None) -> Any:
        """The norm, of ours; nothing is clipped."""
        return ampscale.global_norm([parameter.grad for parameter in parameters])


ADAPTER = TorchGradScaler()
