"""Adapter of ampscale's scaler for torch's hand-written loops."""

from collections.abc import Sequence
from typing import Any

import ampscale
from ampscale.frameworks.torch import GradScaler

from ..torch import Torch
from ..torch_ranks import initialize, train
from .backends import info_of
from .scalers import HOST, OurGradScaler


class TorchGradScaler(OurGradScaler, Torch):
    """`ampscale.frameworks.torch.GradScaler`, with torch's own optimizers; spec/profiles/torch.md lists its deviations."""

    info = info_of(
        "torch GradScaler",
        "torch",
        5,
        (
            *(*HOST, "process", "bfloat16", "none", "groups", "applied", "loss", "norm", "momentum"),
            *("ranks", "sharded", "mixed-placements", "mixed-meshes", "distinct"),
        ),
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

    def rank_function(self) -> Any:
        """Return the function that trains on one rank."""
        return train_on_rank


def train_on_rank(rank: int, _size: int, constants: Sequence[Any], placements: Sequence[str], *run: Any) -> list[Any]:
    """Train on one rank, with a communicator unless there are DTensors, whose meshes the scaler knows."""
    initialize()
    communicator = None
    if set(placements) <= {"replicated", "reduced", "distinct"}:
        layout = "distinct" if "distinct" in placements else "replicated"
        communicator = ampscale.distributed.TorchDistributed(gradients=layout, mean=False)
    return train(GradScaler("cpu", *constants, communicator=communicator), rank, placements, *run)


ADAPTER = TorchGradScaler()
