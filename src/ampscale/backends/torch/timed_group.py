"""
Collectives with a time limit: an error names the ranks that do not take part.

Spec: REPLICAS-time-limit, REPLICAS-error-names-ranks.
"""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from traceback import clear_frames
from typing import Any
from weakref import WeakKeyDictionary
from zlib import crc32

import torch
import torch.distributed as dist

from ...core.replicas import RankError, rank_difference, rank_names
from ...core.typing import Array, Scale
from .groups import LIMIT, Ranks, group_of, within
from .records import GRACE, Records

FIRST = 1020  # number of values that `TimedGroup.sum_checked_host` adds up in its first collective
PATIENCE = 1.0  # seconds after which a rank that still waits handles signals, and records in torch's store that it waits

_timed_groups: "WeakKeyDictionary[dist.ProcessGroup, dict[Ranks, TimedGroup]]" = WeakKeyDictionary()


class TimedGroup:
    """
    Ranks that run collectives in the same order. After an error or interrupt, every collective raises an error.

    Args:
        name: Name of the group in torch's store; no other group of any rank has it.
        ranks: Ranks of the program, in their order in the group.
        timeout: Seconds to wait for the other ranks.
        group: Group that runs the collectives, unless all ranks call `connect` first.
    """

    def __init__(self, name: str, ranks: list[int], timeout: float, group: "dist.ProcessGroup | None" = None) -> None:
        self._rank, self._ranks = dist.get_rank(), ranks
        self._timeout = timeout
        self._store = torch._C._distributed_c10d.PrefixStore(f"ampscale/{name}", dist.distributed_c10d._get_default_store())
        self._records = Records(self._store, self._rank, ranks)
        self._failure: str | None = None  # message of the first collective that failed
        self._ended = -math.inf  # time at which the last collective ended
        self._group: Any = group
        self._gloo: Any = None  # the engine of the connections, if this object has created them

    def connect(self) -> None:
        """
        Connect the ranks with gloo.

        gloo matches the messages of a group by their order: if one rank misses a step and continues with another collective in
        the same group, the rank receives wrong values, or gloo aborts the process. `dist.new_group` is not an alternative: called
        by only some ranks of the program, it fails if these ranks have created different numbers of groups.
        """
        self._await(self._connect)

    def all_reduce(self, tensor: Array) -> None:
        """Overwrite *tensor* with the sum over all ranks."""
        self._await(lambda: self._wait(self._group.allreduce([tensor])))

    def sum_checked_host(self, values: Array, operation: str, scale: Scale | None) -> None:
        """
        Overwrite *values*, int32 or float64 of shape (n,), with their sums over all ranks; check *operation* and *scale*.

        gloo aborts a process that receives more values than it expects, or returns wrong sums. Therefore all first messages have
        the same length, and contain two 16-bit words of a hash of *operation* and *scale*, and the squares of the words. If
        ranks * sum(word**2) differs from sum(word)**2, the words differ, by the Cauchy-Schwarz inequality.
        """
        if scale is not None:
            operation += f" (scale: {float(scale)})"
        words = divmod(crc32(operation.encode()), 2**16)
        start = values.new_tensor([*words, *(word**2 for word in words)], dtype=torch.float64)
        first = torch.cat([start, values[:FIRST], values.new_zeros(max(0, FIRST - len(values)))])
        self.all_reduce(first)
        high, low, *squares = map(int, first[:4].tolist())
        if [len(self._ranks) * square for square in squares] != [high**2, low**2]:
            texts = self.all_gather(values.new_tensor([*operation.encode().ljust(100)], dtype=torch.uint8))
            raise RankError(rank_difference("operation", [bytes(text.tolist()).decode().strip() for text in texts], self._ranks))
        values[:FIRST] = first[4:][: len(values)]
        if len(values) > FIRST:
            self.all_reduce(values[FIRST:])

    def all_gather(self, tensor: Array) -> list[Array]:
        """Return the tensors of all ranks, which have the same shape and dtype."""
        tensors = [torch.empty_like(tensor) for _ in self._ranks]
        self._await(lambda: self._wait(self._group.allgather([tensors], [tensor])))
        return tensors

    def _connect(self) -> None:
        def new_group() -> "dist.ProcessGroup":
            index, size = self._ranks.index(self._rank), len(self._ranks)
            group = dist.ProcessGroup(self._store, index, size)
            gloo = dist.ProcessGroupGloo(self._store, index, size, timedelta(seconds=self._timeout))
            for device in ("cpu", "cuda"):
                group._register_backend(torch.device(device), dist.ProcessGroup.BackendType.GLOO, gloo)
            return group

        self._records.add_waiting()
        # gloo does not limit the time in which it connects to the store.
        self._group = within(self._timeout + 0.1, new_group)
        self._gloo = self._group._get_backend(torch.device("cpu"))

    def _await(self, collective: Callable[[], None]) -> None:
        """
        Run a collective.

        If it fails or exceeds the time limit, raise a RankError that names the absent ranks. If other ranks stopped waiting
        before this rank made the call, the error names them instead.
        """
        if self._failure:
            raise RankError(self._failure)
        self._failure = f"a collective of rank {self._rank} was interrupted"  # until it has ended
        self._records.call += 1
        self._raise_if_late()
        limit = time.monotonic() + self._timeout
        if self._gloo is not None:  # let the collective end soon after the wait for it, since a process cannot exit before
            self._gloo._set_default_timeout(timedelta(seconds=self._timeout + GRACE + 1))
        try:
            collective()
        except (RuntimeError, TimeoutError) as error:
            self._failure = self._reason(error, limit)
            raise RankError(self._failure) from error
        self._raise_if_late()  # again, since a rank can send its values and then stop waiting
        self._ended = time.monotonic()
        self._failure = None

    def _wait(self, work: "dist.Work") -> None:
        """
        Wait for a collective. With gloo, wait in parts of at most `PATIENCE` seconds, between which Python handles signals.

        After the first part, record that this rank waits, so that it is not taken for absent.
        """
        parts = 1 if self._gloo is None else max(2, math.ceil(self._timeout / PATIENCE))
        seconds = timedelta(seconds=max(self._timeout / parts, 0.001))  # for torch, 0 ms is no limit
        for index in range(parts - 1):
            with suppress(RuntimeError):  # the last wait raises an error of the collective again
                work.wait(seconds)
            if work.is_completed():
                break
            if index == 0:
                self._records.add_waiting()
        work.wait(seconds)

    def _reason(self, error: Exception, limit: float) -> str:
        """Return the reason of *error*, which names the absent ranks. Before the time *limit*, a rank has ended."""
        if time.monotonic() < limit and self._gloo is not None:
            # Close all connections, so that ranks that wait for this rank also learn now that a rank has ended.
            clear_frames(error.__traceback__)  # they refer to the collective, which keeps the connections open
            self._group = self._gloo = None
        absent = sorted(self._records.absent_ranks(limit))
        names = rank_names(absent) if absent else "a rank"
        if time.monotonic() < limit:
            return f"{names} ended or closed the connection"
        return f"{names} did not respond within {self._timeout:g} s"

    def _raise_if_late(self) -> None:
        """Raise a RankError if other ranks have stopped waiting; they may have waited since the end of the last collective."""
        if time.monotonic() - self._ended >= self._timeout and (others := self._records.stopped_ranks()):
            waited = f"{rank_names(sorted(others))} waited only {self._timeout:g} s"
            self._failure = f"{waited}, and rank {self._rank} came later"
            raise RankError(self._failure)


def all_reduce(values: Array, ranks: Ranks, operation: str, scale: Scale | None) -> None:
    """
    Overwrite *values*, int32 or float64 of shape (n,), with their sums over *ranks*, which include this rank.

    On gloo, the time limit is the one that the program passed to `dist.init_process_group`, by default `LIMIT`. Other engines
    have only torch's own limit, since a wait for them would block the host. So has compiled code, which cannot contain a wait.

    Raises:
        RankError: On gloo: a rank does not take part within the time limit, or has another *operation* or *scale*.
    """
    default = dist.distributed_c10d._get_default_group()
    backends = dict(pair.split(":") for pair in dist.get_backend_config(default).split(","))
    if torch.compiler.is_compiling() or not values.is_cpu or backends.get("cpu") != "gloo":
        dist.all_reduce(values, group=group_of(ranks))
        return
    timed_groups = _timed_groups.setdefault(default, {})
    if ranks not in timed_groups:
        timeout = default._get_backend(values.device).options._timeout
        seconds = LIMIT if timeout == dist.distributed_c10d.default_pg_timeout else timeout.total_seconds()
        timed_groups[ranks] = TimedGroup(f"{default.group_name}/{sorted(ranks)}", sorted(ranks), seconds)
        timed_groups[ranks].connect()
    timed_groups[ranks].sum_checked_host(values, operation, scale)
