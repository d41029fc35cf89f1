"""
Threads for passes over much memory: NumPy releases the lock of the interpreter while it computes.

The number is that of the environment variable AMPSCALE_THREADS, else of the cores that this process may use. No thread is
started before there is work for it, and a process that was forked off starts its own.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import TypeVar

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
    if not (wanted.isascii() and wanted.isdigit() and int(wanted)):
        raise ValueError(f"{VARIABLE} must be a positive int, got {wanted!r}")
    return int(wanted)


def in_threads(
    work: Callable[[Iterator[tuple[int, Task]]], list[tuple[int, Result]]], tasks: list[Task], count: int
) -> list[Result]:
    """
    The results of *tasks*, in their order.

    Args:
        work: Takes numbered tasks from an iterator until there are none, and returns the results with their numbers.
        tasks: What is to be done. Whoever is free takes the next one.
        count: How many threads call *work*; the first is this one.
    """
    numbered = enumerate(tasks)
    futures = [_pool(count - 1).submit(work, numbered) for _ in range(count - 1)]
    try:
        results = work(numbered)
    finally:  # whatever happens, nobody writes to the arrays any more when this returns
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
