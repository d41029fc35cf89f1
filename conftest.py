"""Settings of both test suites: the array libraries to test on, and how many workers fit into memory."""

import ctypes
import gc
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
LIBRARIES = os.environ.get("AMPSCALE_TEST_LIBRARIES", "numpy torch jax").split()
MEMORY = 2 << 30  # bytes of physical memory for each worker, which stays below half of it
LARGE = 500 << 20  # bytes of a process from which it drops compiled programs after a module


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Return one worker for each core, and not more than fit into memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(cores, memory // MEMORY))


def pytest_ignore_collect(collection_path):
    """Ignore files and folders named for a library that is not to be tested."""
    without = {"torch", "jax"} - set(LIBRARIES)
    if not without or not collection_path.is_relative_to(ROOT):
        return None
    path = collection_path.relative_to(ROOT).as_posix()
    return True if any(name in path for name in without) else None


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """Drop the programs that JAX and torch keep compiled, after a module that has made the process large."""
    if (nextitem is not None and nextitem.path == item.path) or _resident() < LARGE:
        return
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc keeps what is freed
        trim(0)


def _resident():
    """Return the bytes of physical memory that this process has; 0 where the system does not tell."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0
