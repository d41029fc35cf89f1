"""
Process groups of the ranks of device meshes.

torch may wait for missing ranks indefinitely when it creates a group, so the ranks first check that all have arrived. If the
rank that serves torch's store hangs, every call to the store blocks, so this check runs on another thread.

Spec: REPLICAS-time-limit, REPLICAS-error-names-ranks.
"""

import json
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from functools import partial
from threading import Thread
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch.distributed as dist

from ...core.replicas import RankError, rank_names

Ranks = frozenset[int]
T = TypeVar("T")

LIMIT = 60.0  # default time limit, in seconds

_groups: "WeakKeyDictionary[dist.ProcessGroup, dict[Ranks, dist.ProcessGroup]]" = WeakKeyDictionary()


def group_of(ranks: Iterable[int], limit: float = LIMIT) -> "dist.ProcessGroup":
    """
    Return the process group of *ranks*: the first that the program created, or a new group, which all *ranks* must request.

    Raises:
        RuntimeError: This rank is not in *ranks*: torch would return None, which stands for the group of all ranks. Or the ranks
            have created different numbers of groups: torch would wait indefinitely.
        RankError: A rank does not request the group within *limit* seconds.
    """
    default, key = dist.distributed_c10d._get_default_group(), frozenset(ranks)
    listed = sorted(key)
    if dist.get_rank() not in key:
        raise RuntimeError(f"rank {dist.get_rank()} is not in the group, which has {rank_names(listed)}: use it only there")
    groups = _groups.setdefault(default, {})
    if key in groups:
        return groups[key]
    for group, members in dist.distributed_c10d._world.pg_group_ranks.items():
        if members.keys() == key:
            return group
    _check_group_counts(listed, limit)
    groups[key] = dist.new_group(listed, use_local_synchronization=True)
    return groups[key]


def servers(ranks: Iterable[int]) -> set[int]:
    """Return the rank that serves torch's store, if it is one of *ranks*: rank 0, or none with torchrun."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return set()
    return {0}.intersection(ranks)


def within(seconds: float, function: Callable[[], T]) -> T:
    """Return the result of *function*, called on another thread; raise a TimeoutError if there is none within *seconds*."""
    result = Future[T]()

    def call() -> None:
        try:
            result.set_result(function())
        except Exception as error:  # noqa: BLE001 - `result` raises it
            result.set_exception(error)

    Thread(target=call, daemon=True).start()
    return result.result(seconds)


def _check_group_counts(ranks: list[int], limit: float) -> None:
    """Raise an error unless all *ranks*, which must call this function, are in equal numbers of process groups."""
    try:
        absent, counts = within(limit + 0.3, partial(_group_counts, ranks, limit))
    except (RuntimeError, TimeoutError) as error:  # the store does not answer
        names = rank_names(sorted(servers(ranks))) if servers(ranks) else "a rank"
        raise RankError(f"{names} did not respond within {limit:g} s") from error
    if absent:
        raise RankError(f"{rank_names(absent)} did not respond within {limit:g} s")
    if len(set(counts)) > 1:
        raise RuntimeError(
            f"ranks {ranks} must be in equal numbers of process groups to create one more, got {', '.join(counts)}: "
            f"call torch.distributed.new_group({ranks}) on all ranks of the program first"
        )


def _group_counts(ranks: list[int], limit: float) -> tuple[list[int], list[str]]:
    """Return the absent ranks, and if there are none, the number of process groups of each rank."""
    store = dist.distributed_c10d._get_default_store()
    prefix = f"ampscale/groups/{ranks}"
    keys = {rank: f"{prefix}/{rank}" for rank in ranks}
    store.set(keys[dist.get_rank()], str(len(dist.distributed_c10d._world.pg_names)))
    with suppress(RuntimeError):  # the time limit
        store.wait([*keys.values()], timedelta(seconds=limit))
    absent = [rank for rank in ranks if not store.check([keys[rank]])]
    # What the first rank has observed counts for all, so that a late rank does not wait for ranks that have stopped waiting.
    absent = json.loads(store.compare_set(f"{prefix}/absent", "", json.dumps(absent)))
    return absent, [] if absent else [store.get(key).decode() for key in keys.values()]
