"""
Communicator of torch.distributed's process groups and device meshes.

Spec: spec/60-replicas.md.
"""

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.distributed_c10d import _get_default_group

from ..backends.torch.dtensor import copies_in_mesh, has_dtensors, local_part, reduced
from ..backends.torch.groups import group_of
from ..backends.torch.timed_group import TimedGroup
from ..core.typing import Array
from .communicator import RankCommunicator

# Number of communicators that this rank has created, by the group that the caller passed.
_counts: "WeakKeyDictionary[dist.ProcessGroup, int]" = WeakKeyDictionary()


class TorchDistributed(RankCommunicator):
    """
    Ranks of a torch process group, for torch tensors; start them with ``torchrun --nproc-per-node 4 train.py``.

    Args:
        group: Process group or device mesh of all ranks that share the scale, including all stages of a pipeline; by default
            all ranks. Each rank of the group must create the communicator.
        gradients: "replicated" if all ranks have the same arrays, "sharded" if each has a part of every array, "distinct" if
            each has its own arrays, such as the stages of a pipeline.
        mean: True to average replicated gradients; False if they have been averaged already, as by DDP. Default: True if
            *gradients* is "replicated".
        copies: Number of ranks that have the same values, for the norm of sharded and distinct gradients: one number, or one
            for each array. Ranks of a DTensor's mesh are counted automatically: for a DTensor, this is the number of meshes.
        timeout: Seconds to wait for the other ranks.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
        RuntimeError: torch.distributed is not initialized, or this rank is not in *group*.
        RankError: Another rank did not create its communicator in time.

    Spec: REPLICAS-mean, REPLICAS-one-flag, REPLICAS-time-limit.

    >>> torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    >>> TorchDistributed().mean([torch.tensor([1.0, 3.0])])
    [tensor([1., 3.])]
    >>> torch.distributed.destroy_process_group()
    """

    def __init__(
        self,
        group: dist.ProcessGroup | DeviceMesh | None = None,
        *,
        gradients: str = "replicated",
        mean: bool | None = None,
        copies: int | Sequence[int] = 1,
        timeout: float = 60.0,
    ) -> None:
        super().__init__(gradients, mean, copies, timeout)
        if not (dist.is_available() and dist.is_initialized()):
            raise RuntimeError("torch.distributed must be initialized first, with torch.distributed.init_process_group()")
        outside: Any = dist.GroupMember.NON_GROUP_MEMBER  # the result of `dist.new_group` on ranks that are not in the group
        if group is outside:
            raise RuntimeError(f"rank {dist.get_rank()} is not in the group: create the communicator only on its ranks")
        if not isinstance(group, dist.ProcessGroup | DeviceMesh | None):
            raise TypeError(f"group must be a process group, a device mesh or None, got {type(group).__name__}")
        if isinstance(group, DeviceMesh):
            group = group_of(group.mesh.flatten().tolist(), timeout)
        group = group or _get_default_group()
        self.rank, self.ranks = dist.get_rank(), dist.get_process_group_ranks(group)
        number = _counts.get(group, 0)
        _counts[group] = number + 1
        self._settings["communicator"] = number
        # Such as "cpu:gloo,cuda:nccl"; the result of `dist.get_backend` depends on how the program has spelled it.
        backends = {pair.partition(":")[2] for pair in dist.get_backend_config(group).split(",")}
        self._is_nccl = backends == {"nccl"}
        self._timed_group = TimedGroup(f"{group.group_name}/{number}", self.ranks, timeout, group)
        if backends == {"gloo"}:
            self._timed_group.connect()

    def _check(self, arrays: list[Array]) -> None:
        for array in arrays:
            if not isinstance(array, torch.Tensor):
                raise TypeError(f"TorchDistributed requires torch tensors, got {type(array).__module__}.{type(array).__name__}")
            if array.layout != torch.strided:
                raise TypeError(
                    f"gradients to be averaged must be dense, got {array.layout} of shape {tuple(array.shape)}: "
                    "average them before the step, and create TorchDistributed with mean=False"
                )
        if has_dtensors(arrays):
            raise TypeError("gradients that are DTensors must not be averaged: create TorchDistributed with mean=False")

    def _shards(self, arrays: list[Array]) -> tuple[list[Array], list[int]]:
        whole = list(map(reduced, arrays))
        return [local_part(array).detach() for array in whole], list(map(copies_in_mesh, whole))

    def _zeros(self, length: int) -> Array:
        return torch.zeros(length, dtype=torch.float64, device="cpu")

    def _sum(self, vector: Array) -> Array:
        total = vector.to(self._device(vector.device), copy=True)
        self._timed_group.all_reduce(total)
        return total.to(vector.device)

    def _gather(self, array: np.ndarray) -> np.ndarray:
        value = torch.from_numpy(array).to(self._device(torch.device("cpu")))
        return torch.stack(self._timed_group.all_gather(value)).cpu().numpy()

    def _words(self, number: Array | float) -> Array:
        value = torch.as_tensor(number, dtype=torch.float64, device=getattr(number, "device", "cpu"))
        return value.detach().reshape(1).view(torch.int16).double()

    def _device(self, device: torch.device) -> torch.device:
        """Return a device that the group's engine supports: the current CUDA device for NCCL, else *device* itself."""
        return torch.device("cuda", torch.cuda.current_device()) if self._is_nccl else device
