"""Adapter of ampscale's scaler for torch's hand-written loops."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import ampscale
from ampscale.frameworks.torch import GradScaler

from ..ranks import GRACE
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
            *("ranks", "sharded", "mixed-placements", "mixed-meshes", "distinct", "rank-errors"),
        ),
        arrays="torch",
    )

    def scaler_class(self) -> Any:
        return GradScaler

    def scale(self, scaler: Any, tree: Any) -> Any:
        """Call `scale`, which accepts trees."""
        return scaler.scale(tree)

    def clipped(self, parameters: Sequence[Any], max_norm: float | None) -> Any:
        """Return ampscale's norm; nothing is clipped."""
        return ampscale.global_norm([parameter.grad for parameter in parameters])

    def rank_function(self) -> Any:
        return train_on_rank


def train_on_rank(
    rank: int,
    _size: int,
    constants: Sequence[Any],
    placements: Sequence[str],
    steps: Sequence[Any],
    optimizers: int,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> list[Any]:
    """Train on one rank, with a communicator unless there are DTensors, whose meshes the scaler uses."""
    initialize()
    communicator, seconds = None, options.get("time_limit", 60.0)
    own = [*constants[:3], options["growth_interval"][rank]] if "growth_interval" in options else constants
    if set(placements) <= {"replicated", "reduced", "distinct"}:
        layout = "distinct" if "distinct" in placements else "replicated"
        communicator = ampscale.distributed.TorchDistributed(gradients=layout, mean=False, timeout=seconds)

    def make() -> GradScaler:
        return GradScaler("cpu", *own, communicator=communicator)

    delay = seconds + GRACE if options.get("late") == rank else 0.0
    return train(make, rank, placements, steps, optimizers, delay=delay)


ADAPTER = TorchGradScaler()
