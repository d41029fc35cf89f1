"""
Threads for passes over much memory: NumPy releases the lock of the interpreter while it computes.

The number is that of the environment variable AMPSCALE_THREADS, else of the cores that this process may use. No thread is
started before there is work for it, and a process that was forked off starts its own. While the interpreter shuts down, in
`atexit` or in a thread that outlives the main one, no thread can be started, and the caller does all of the work.
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

Task = TypeVar("Task")
Result = TypeVar("Result")


def thread_count_host() -> int:
    """
    How many threads a pass may use.

    Raises:
        ValueError: AMPSCALE_THREADS is set, and is no positive int.
    """
    wanted = os.environ.get(VARIABLE)
    if wanted is None:
        return _usable_cores()
    if not (wanted.isascii() and wanted.isdigit() and len(wanted) < 10 and int(wanted)):
        raise ValueError(f"{VARIABLE} must be a positive int, got {excerpt(wanted)}")
    return int(wanted)


def in_threads(
    work: Callable[[Iterator[tuple[int, Task]]], list[tuple[int, Result]]], tasks: list[Task], count: int
) -> list[Result]:
    """
    The results of *tasks*, in their order.

    Args:
        work: Takes numbered tasks from an iterator until there are none, and returns the results with their numbers, in
            the order of the tasks.
        tasks: What is to be done. Whoever is free takes the next one.
        count: How many threads call *work*; the first is this one.
    """
    numbered = enumerate(tasks)
    if count == 1:
        return [result for _, result in work(numbered)]
    futures: list[Future[list[tuple[int, Result]]]] = []
    try:
        with suppress(RuntimeError):  # raised at exit, and where the system has no more threads: fewer do the same work
            futures.extend(_pool(count - 1).submit(work, numbered) for _ in range(count - 1))
        results = work(numbered)
    finally:
        # Wait for all threads even after an error, so that none writes to the arrays after this function returns. Take the
        # remaining tasks away first: a call that the pool has accepted without a thread for it would find them later.
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
    os.register_at_fork(after_in_child=_pool.cache_clear)  # its threads were not forked
