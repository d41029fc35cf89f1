"""
Threads for fused passes over large arrays. They run in parallel, because NumPy and the compiled kernels release the GIL.

The environment variable AMPSCALE_THREADS sets the number of threads for NumPy arrays; by default, it is the number of cores that
this process may use. For torch tensors, the number is that of torch. Threads start when there is work for them, and a forked
process starts its own threads. During interpreter shutdown, in `atexit` or in a thread that outlives the main thread, no thread
can start, and the caller does all the work.
"""

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

from ...parsing import excerpt

VARIABLE = "AMPSCALE_THREADS"

Item = TypeVar("Item")
Result = TypeVar("Result")


def thread_count_host() -> int:
    """
    Return the number of threads that a fused pass may use.

    Raises:
        ValueError: AMPSCALE_THREADS is not a positive int of at most nine digits.
    """
    value = os.environ.get(VARIABLE)
    if value is None:
        return _usable_cores()
    if not (value.isascii() and value.isdigit() and len(value) < 10 and int(value)):
        raise ValueError(f"{VARIABLE} must be a positive int of at most nine digits, got {excerpt(value)}")
    return int(value)


def in_threads(work: Callable[[Item], Result], items: Sequence[Item], count: int) -> list[Result]:
    """
    Return ``work(item)`` for each of *items*, in order, computed in *count* threads including the calling one.

    Each thread takes the next item as soon as it is free.
    """
    if count == 1:
        return list(map(work, items))
    numbered = enumerate(items)
    results: list[Any] = [None] * len(items)

    def run() -> None:
        for number, item in numbered:
            results[number] = work(item)

    futures: list[Future[None]] = []
    try:
        with suppress(RuntimeError):  # if no thread can start, fewer threads do the same work
            futures.extend(_pool(count - 1).submit(run) for _ in range(count - 1))
        run()
    finally:
        # Wait for all threads even after an error, so that none writes to the arrays after this function returns. Exhaust the
        # items first: if the pool has accepted a call but starts it only later, that call must not find any items.
        deque(numbered, maxlen=0)
        wait(futures)
    for future in futures:
        future.result()  # raises the error of this call of `run`
    return results


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
