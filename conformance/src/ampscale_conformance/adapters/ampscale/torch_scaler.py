"""Adapter of ampscale's scaler for torch's hand-written loops."""

from collections.abc import Sequence
from typing import Any

import ampscale
from ampscale.frameworks.torch import GradScaler

from ..torch import Torch
from .backends import info_of
from .scalers import HOST, OurGradScaler


class TorchGradScaler(OurGradScaler, Torch):
    """`ampscale.frameworks.torch.GradScaler`, with torch's own optimizers; spec/profiles/torch.md lists its deviations."""

    info = info_of(
        "torch GradScaler",
        "torch",
        4,
        (*HOST, "process", "bfloat16", "none", "groups", "applied", "loss", "norm", "momentum"),
        arrays="torch",
    )

    def scaler_class(self) -> Any:
        """Return the class under test."""
        return GradScaler

    def scale(self, scaler: Any, tree: Any) -> Any:
        """Call `scale`, which accepts trees."""
        return scaler.scale(tree)

    def clipped(self, parameters: Sequence[Any], max_norm: float | None) -> Any:
        """Return ampscale's norm; nothing is clipped."""
        return ampscale.global_norm([parameter.grad for parameter in parameters])


ADAPTER = TorchGradScaler()
