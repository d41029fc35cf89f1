"""
Threads for fused passes over large arrays. They run in parallel, because NumPy and the compiled kernels release the GIL.

The environment variable AMPSCALE_THREADS sets the number of threads; by default, it is the number of cores this process may use.
Threads start when there is work for them, and a forked process starts its own. During interpreter shutdown, in `atexit` or in a
thread that outlives the main one, no thread can start, and the caller does all the work.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import TypeVar

from ...parsing import excerpt

VARIABLE = "AMPSCALE_THREADS"

Item = TypeVar("Item")
Result = TypeVar("Result")


def thread_count_host() -> int:
    """
    Return the number of threads that a fused pass may use.

    Raises:
        ValueError: AMPSCALE_THREADS is set to something other than a positive int.
    """
    value = os.environ.get(VARIABLE)
    if value is None:
        return _usable_cores()
    if not (value.isascii() and value.isdigit() and len(value) < 10 and int(value)):
        raise ValueError(f"{VARIABLE} must be a positive int, got {excerpt(value)}")
    return int(value)


def in_threads(
    work: Callable[[Iterator[tuple[int, Item]]], list[tuple[int, Result]]], items: list[Item], count: int
) -> list[Result]:
    """
    Process *items* in *count* threads, and return the results in the order of the items.

    Args:
        work: Takes numbered items from an iterator that all threads share until it is exhausted. Returns the results with
            their numbers, in the order of the items.
        items: Items to process. Each thread takes the next one as soon as it is free.
        count: Number of threads that call *work*, including the calling one.
    """
    numbered = enumerate(items)
    if count == 1:
        return [result for _, result in work(numbered)]
    futures: list[Future[list[tuple[int, Result]]]] = []
    try:
        with suppress(RuntimeError):  # if no thread can start, fewer threads do the same work
            futures.extend(_pool(count - 1).submit(work, numbered) for _ in range(count - 1))
        results = work(numbered)
    finally:
        # Wait for all threads even after an error, so that none writes to the arrays after this function returns. Exhaust the
        # items first: if the pool has accepted a call but starts it only later, that call must not find any items.
        deque(numbered, maxlen=0)
        wait(futures)
    others = [future.result() for future in futures]
    return [result for _, result in sorted(chain(results, *others), key=itemgetter(0))]


@cache
def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="ampscale")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a fork does not copy threads
