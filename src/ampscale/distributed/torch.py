"""
Communicator of torch.distributed's process groups and device meshes.

Spec: spec/60-replicas.md.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from traceback import clear_frames
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.distributed_c10d import _get_default_group, _get_default_store

from ..backends.torch.dtensor import has_dtensors
from ..backends.torch.groups import group_of, within
from ..core.replicas import RankError, rank_names
from ..core.typing import Array
from .communicator import GRACE, RankCommunicator
from .torch_records import Records

PATIENCE = 1.0  # seconds after which a rank that still waits handles signals, and records in torch's store that it waits
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
            for each array.
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
        self._group: Any = group or _get_default_group()
        self.rank, self.ranks = dist.get_rank(), dist.get_process_group_ranks(self._group)
        if self.rank not in self.ranks:
            raise RuntimeError(f"rank {self.rank} is not in the group, which has {rank_names(self.ranks)}: use it only there")
        number = _counts.get(self._group, 0)
        _counts[self._group] = number + 1
        self._settings["communicator"] = number
        prefix = f"ampscale/{self._group.group_name}/{number}"
        self._store = torch._C._distributed_c10d.PrefixStore(prefix, _get_default_store())
        self._records = Records(self._store, self.rank, self.ranks)
        self._ended = -math.inf  # time at which the last collective ended
        # Such as "cpu:gloo,cuda:nccl"; the result of `dist.get_backend` depends on how the program has spelled it.
        backends = {pair.partition(":")[2] for pair in dist.get_backend_config(self._group).split(",")}
        self._is_nccl = backends == {"nccl"}
        self._engine: Any = None
        if backends == {"gloo"}:
            self._await(self._connect)
        self._ended = time.monotonic()

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

    def _zeros(self, length: int) -> Array:
        return torch.zeros(length, dtype=torch.float64, device="cpu")

    def _sum(self, vector: Array) -> Array:
        total = vector.to(self._device(vector.device), copy=True)
        self._await(lambda limit: self._wait(self._group.allreduce([total]), limit))
        return total.to(vector.device)

    def _gather(self, array: np.ndarray) -> np.ndarray:
        value = torch.from_numpy(array).to(self._device(torch.device("cpu")))
        rows = [torch.empty_like(value) for _ in self.ranks]
        self._await(lambda limit: self._wait(self._group.allgather([rows], [value]), limit))
        return torch.stack(rows).cpu().numpy()

    def _words(self, number: Array | float) -> Array:
        value = torch.as_tensor(number, dtype=torch.float64, device=getattr(number, "device", "cpu"))
        return value.detach().reshape(1).view(torch.int16).double()

    def _device(self, device: torch.device) -> torch.device:
        """Return a device that the group's engine supports: *device* itself, or the current accelerator."""
        return torch.device("cuda", torch.cuda.current_device()) if self._is_nccl else device

    def _connect(self, limit: float) -> None:
        """
        Replace the group by a separate one with the same ranks.

        gloo matches the messages of a group by their order: if one rank misses a step and continues with another collective in
        the same group, the rank receives wrong values, or gloo aborts the process. `dist.new_group` is not an alternative: called
        by only some ranks of the program, it fails if these ranks have created different numbers of groups.
        """

        def new_group() -> dist.ProcessGroup:
            index = self.ranks.index(self.rank)
            group = dist.ProcessGroup(self._store, index, len(self.ranks))
            engine = dist.ProcessGroupGloo(self._store, index, len(self.ranks), timedelta(seconds=limit))
            for device in ("cpu", "cuda"):
                group._register_backend(torch.device(device), dist.ProcessGroup.BackendType.GLOO, engine)
            return group

        self._records.add_waiting()
        # gloo does not limit the time in which it connects to the store.
        self._group = within(limit + 0.3, new_group)
        self._engine = self._group._get_backend(torch.device("cpu"))

    def _await(self, collective: Callable[[float], Any]) -> None:
        """
        Run a collective.

        If it fails or exceeds the time limit, raise a RankError that names the absent ranks. If other ranks stopped waiting
        before this rank made the call, the error names them instead.
        """
        self._records.call += 1
        self._raise_if_late()
        began = time.monotonic()
        if self._engine is not None:  # let the collective end soon after the wait for it, since a process cannot exit before
            self._engine._set_default_timeout(timedelta(seconds=self._timeout + GRACE + 1))
        try:
            collective(self._timeout)
        except (RuntimeError, TimeoutError) as error:
            if time.monotonic() - began < self._timeout and self._engine is not None:
                # Close all connections, so that ranks that wait for this rank also learn now that a rank has ended.
                clear_frames(error.__traceback__)  # they refer to the collective, which keeps the connections open
                self._group = self._engine = None
            absent = self._records.absent_ranks(began + self._timeout)
            names = rank_names(sorted(absent)) if absent else "a rank"
            is_in_time = time.monotonic() - began < self._timeout
            ended = "ended or closed the connection"
            late = f"did not respond within {self._timeout:g} s"
            self._failure = f"{names} {ended if is_in_time else late}"
            raise RankError(self._failure) from error
        self._raise_if_late()
        self._ended = time.monotonic()

    def _wait(self, work: dist.Work, limit: float) -> None:
        """
        Wait for a collective. With gloo, wait in parts of at most `PATIENCE` seconds, between which Python handles signals.

        After the first part, record that this rank waits, so that it is not taken for absent.
        """
        parts = 1 if self._engine is None else max(2, math.ceil(limit / PATIENCE))
        seconds = timedelta(seconds=max(limit / parts, 0.001))  # for torch, 0 ms is no limit
        for index in range(parts - 1):
            with suppress(RuntimeError):  # the last wait raises an error of the collective again
                work.wait(seconds)
            if work.is_completed():
                break
            if index == 0:
                self._records.add_waiting()
        work.wait(seconds)

    def _raise_if_late(self) -> None:
        """Raise a RankError if other ranks have stopped waiting; they may have waited since the end of the last collective."""
        if time.monotonic() - self._ended >= self._timeout and (others := self._records.stopped_ranks()):
            waited = f"{rank_names(sorted(others))} waited only {self._timeout:g} s"
            self._failure = f"{waited}, and rank {self.rank} came later"
            raise RankError(self._failure)
