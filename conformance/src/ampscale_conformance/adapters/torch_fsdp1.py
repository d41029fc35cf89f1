"""torch: FSDP1 and its `ShardedGradScaler`, whose ranks agree on overflows, on the CPU."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..model.adapter import ImplementationInfo
from .base import torch
from .torch import Torch
from .torch_ranks import data_parallel, fsdp, fully_sharded, initialize, train


class ShardedTorch(Torch):
    """Scaler of FSDP1, in a process group of one process; on ranks, parameters are replicated or sharded by FSDP1."""

    info: ImplementationInfo = replace(
        Torch.info,
        name="torch ShardedGradScaler",
        url="https://docs.pytorch.org/docs/stable/fsdp.html",
        capabilities=frozenset(Torch.info.capabilities) - {"mixed-placements", "mixed-meshes"} | {"float16"},
    )

    def scaler_class(self) -> Any:
        """Return the constructor of the scaler under test, with the arguments of `GradScaler`; join a process group."""
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo", f"file://{tempfile.mkdtemp()}/meeting", rank=0, world_size=1)
        return sharded

    def rank_function(self) -> Any:
        return train_sharded


def train_sharded(rank: int, _size: int, constants: Sequence[Any], _options: Any, *run: Any) -> list[Any]:
    initialize()
    return train(lambda: sharded("cpu", *constants), rank, *run, make_array=wrapped)  # type: ignore[misc]  # *run has no make_array


def sharded(device: str, scale: float, growth_factor: float = 2.0, backoff_factor: float = 0.5, interval: int = 2000) -> Any:
    """Return a `ShardedGradScaler`, whose constructor takes the two factors in the opposite order."""
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    return ShardedGradScaler(device, scale, backoff_factor, growth_factor, interval)


def wrapped(placement: str, first: Sequence[Any], rank: int, _with_shards: bool) -> tuple[Any, Callable[..., None]]:
    """Return a parameter, which FSDP1 replicates or shards unless the arrays are distinct, and its backward pass."""

    def fsdp1(module: Any) -> Any:
        strategy = "FULL_SHARD" if placement == "sharded" else "NO_SHARD"
        return fsdp.FullyShardedDataParallel(
            module, sharding_strategy=fsdp.ShardingStrategy[strategy], use_orig_params=True, device_id=torch.device("cpu")
        )

    if placement == "sharded":
        return fully_sharded(len(first) - first.count(None), fsdp1)
    return data_parallel(placement, rank, wrap=fsdp1)
