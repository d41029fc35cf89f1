"""Adapter of ampscale's scaler for torch's hand-written loops."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import ampscale
from ampscale.distributed import RankError
from ampscale.frameworks.torch import GradScaler

from ..ranks import GRACE
from ..torch import Torch
from ..torch_ranks import data_parallel, initialize, train
from .backends import info_of
from .scalers import SCALERS, AmpscaleGradScaler

LOOPS = (*SCALERS, "process", "bfloat16", "none", "groups", "applied", "loss", "norm", "momentum")  # capabilities in loops
RANKS = ("ranks", "sharded", "mixed-placements", "mixed-meshes", "distinct", "rank-errors")  # capabilities on ranks


class TorchGradScaler(AmpscaleGradScaler, Torch):
    """`ampscale.frameworks.torch.GradScaler`, with torch's own optimizers; spec/profiles/torch.md lists its deviations."""

    info = info_of("torch GradScaler", "torch", 5, (*LOOPS, *RANKS), arrays="torch")

    def scaler_class(self) -> Any:
        return GradScaler

    def scale(self, scaler: Any, tree: Any) -> Any:
        """Call `scale`, which accepts trees."""
        return scaler.scale(tree)

    def clip(self, parameters: Sequence[Any], max_norm: float) -> Any:
        """Return the norm that ampscale computes. *max_norm* is infinite, since the adapter does not claim "clip"."""
        return ampscale.global_norm([parameter.grad for parameter in parameters])

    def rank_function(self) -> Any:
        return train_on_rank


def train_on_rank(
    rank: int, _size: int, constants: Any, options: Any, placements: Sequence[str], steps: Sequence[Any], optimizers: int
) -> list[Any]:
    """Train on one rank, with a communicator unless there are DTensors, whose meshes the scaler uses instead."""
    initialize()
    seconds, sizes, scales = options.get("time_limit", 60.0), options.get("elements"), options.get("scale")
    if "growth_interval" in options:
        constants = [*constants[:3], options["growth_interval"][rank]]
    communicator = None
    if set(placements) <= {"replicated", "reduced", "distinct"}:
        layout = "distinct" if "distinct" in placements else "replicated"
        communicator = ampscale.distributed.TorchDistributed(gradients=layout, mean=bool(sizes), timeout=seconds)
    make_scaler = partial(GradScaler, "cpu", *constants, communicator=communicator)

    def make_array(*_: Any) -> Any:
        return data_parallel("distinct", rank, options["elements"][rank])  # without DDP: the communicator averages

    def before_last(scaler: GradScaler) -> None:
        if options.get("late") == rank:
            time.sleep(seconds + GRACE)
        if scales:
            scaler.load_state_dict(scaler.state_dict() | {"scale": scales[rank]})

    ignored = RankError if options.get("returns") else ()
    return train(make_scaler, rank, placements, steps, optimizers, make_array if sizes else None, before_last, ignored)
