"""
Records in torch's store of the ranks that wait for a collective or have stopped waiting, which name the absent ranks.

If the rank that serves the store hangs, every call to the store blocks. Therefore only other threads make these calls.

Spec: REPLICAS-time-limit, REPLICAS-error-names-ranks.
"""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING

from .groups import servers, within

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

GRACE = 2.0  # seconds in which ranks that waited without success record this for each other


class Records:
    """
    Access of one rank, *rank* of *ranks*, to the records of all ranks. `call` is the number of the current collective.

    A record contains this number, and replaces the rank's previous record, so that the store does not grow.
    """

    def __init__(self, store: "Store", rank: int, ranks: list[int]) -> None:
        self._store, self._rank, self._ranks = store, rank, set(ranks)
        self.call = 0
        self._servers = servers(ranks) - {rank}  # if the store does not answer, they have ended or hang

    def add_waiting(self) -> None:
        """Record that this rank waits for the current collective, without waiting for the store."""
        Thread(target=self._add, args=("waits",), daemon=True).start()

    def stopped_ranks(self) -> set[int]:
        """Return the ranks that have recorded that they waited until the limit; none if the store does not answer."""
        with suppress(RuntimeError, TimeoutError):
            return within(0.25, partial(self._ranks_that, "stopped"))
        return set()

    def absent_ranks(self, limit: float) -> set[int]:
        """
        Return the ranks that do not record this collective within `GRACE` seconds.

        After the time *limit*, record that this rank has stopped waiting. Before the limit, it stops because another one has
        ended. If several are absent, some of them may only be late, so they have until the limit.
        """
        seconds = max(GRACE, limit - time.monotonic())
        return _last(self._observations(limit), seconds + 0.1, self._servers)

    def _observations(self, limit: float) -> Iterator[set[int]]:
        """
        Make the records of `absent_ranks`, and yield the absent ranks, repeatedly, until none is absent or the time has passed.

        The thread of the caller must not do this: calls to the store can block.
        """
        began = time.monotonic()
        if began >= limit:
            self._add("stopped")
        grace = began + GRACE
        absent, deadline = self._ranks, grace
        while absent and time.monotonic() < deadline:
            self._add("waits")  # again and again, since the thread of an earlier collective may still write its record
            absent = self._ranks - self._ranks_that("waits")
            yield absent
            deadline = grace if len(absent) == 1 else max(grace, limit)
            time.sleep(0.02)

    def _add(self, status: str) -> None:
        with suppress(RuntimeError):  # the rank that serves the store has ended
            self._store.set(f"{self._rank}/{status}", str(self.call))

    def _ranks_that(self, status: str) -> set[int]:
        """Return the ranks that have recorded *status*, "waits" or "stopped", for this collective or a later one."""
        keys = {rank: f"{rank}/{status}" for rank in self._ranks}
        recorded = {rank for rank, key in keys.items() if self._store.check([key])}
        return {rank for rank in recorded if json.loads(self._store.get(keys[rank])) >= self.call}


def _last(answers: Iterator[set[int]], seconds: float, servers: set[int]) -> set[int]:
    """
    Return the last of the *answers*, sets of absent ranks, that arrive within *seconds*; *servers* if there is none.

    If torch's store ends, return only the *servers* in the last answer, if any: its other ranks may have had no time to answer.
    """
    received = [servers]

    def receive() -> None:
        try:
            received.extend(answers)
        except RuntimeError:  # the rank that serves the store has ended
            if absent_servers := received[-1] & servers:
                received.append(absent_servers)

    receiver = Thread(target=receive, daemon=True)
    receiver.start()
    receiver.join(seconds)
    return received[-1]
