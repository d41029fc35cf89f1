"""torch: FSDP1 and its `ShardedGradScaler`, whose ranks agree on overflows, on the CPU."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..model.adapter import ImplementationInfo
from .base import Library
from .torch import Torch
from .torch_ranks import column, initialize, train

torch: Any = Library("torch")
fsdp: Any = Library("torch.distributed.fsdp")


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


def train_sharded(rank: int, _size: int, constants: Sequence[Any], *run: Any) -> list[Any]:
    initialize()
    return train(lambda: sharded("cpu", *constants), rank, *run, make_array=wrapped)  # type: ignore[misc]  # *run has no make_array


def sharded(device: str, scale: float, growth_factor: float = 2.0, backoff_factor: float = 0.5, interval: int = 2000) -> Any:
    """Return a `ShardedGradScaler`, whose constructor takes the two factors in the opposite order."""
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    return ShardedGradScaler(device, scale, backoff_factor, growth_factor, interval)


def wrapped(placement: str, first: Sequence[Any], rank: int, _with_shards: bool) -> tuple[Any, Callable[..., None]]:
    """
    Return a parameter and its backward pass. The parameter has one element; a sharded one has one for each rank with a value.

    *first* contains the value of each rank in the first step; None for a rank without an element.
    """
    is_sharded = placement == "sharded"
    size = len(first) - first.count(None) if is_sharded else 1
    model = column(size)
    if placement != "distinct":
        strategy = fsdp.ShardingStrategy.FULL_SHARD if is_sharded else fsdp.ShardingStrategy.NO_SHARD
        model = fsdp.FullyShardedDataParallel(
            model, sharding_strategy=strategy, use_orig_params=True, device_id=torch.device("cpu")
        )
    (parameter,) = model.parameters()

    def backward(scaler: Any, values: Sequence[Any]) -> None:
        data = values[:size] if is_sharded else [1.0 if placement == "reduced" else values[rank]]
        if None not in data:
            scaler.scale((model(torch.ones(1)) * torch.tensor(data)).sum()).backward()
        if placement == "reduced":
            parameter.grad.mul_(values[rank])  # a fault after FSDP has averaged the gradients

    return parameter, backward


ADAPTER = ShardedTorch()
