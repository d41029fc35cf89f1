"""Settings of both test suites: the array libraries to test, the number of workers, and their memory."""

import ctypes
import gc
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
LIBRARIES = os.environ.get("AMPSCALE_TEST_LIBRARIES", "numpy torch jax").split()
MEMORY = 2 << 30  # bytes of physical memory for each worker, which uses about half of it
LARGE = 800 << 20  # bytes; a larger process drops compiled programs
GROWTH = 40 << 20  # bytes that a process must have grown by since it last dropped them

# Workers, runs and the processes that tests start share the programs that JAX compiles, in a format of each Python version.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".pytest_cache" / f"jax-3.{sys.version_info.minor}"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ.setdefault("MALLOC_ARENA_MAX", "2")  # in workers, let threads share the memory that others have freed
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # each core has a worker

_size_after_drop = 0


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Return the number of cores, but at most the number of workers that fit into memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(cores, memory // MEMORY))


def pytest_ignore_collect(collection_path):
    """Ignore files and folders that are named after a library that is not tested."""
    untested = {"torch", "jax"} - set(LIBRARIES)
    if not untested or not collection_path.is_relative_to(ROOT):
        return None
    path = collection_path.relative_to(ROOT).as_posix()
    return True if any(name in path for name in untested) else None


def pytest_collection_finish():
    """Keep the objects of all imported modules out of later searches for garbage."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown():
    """Drop the compiled programs of JAX and torch if the process is large, and has grown since they were last dropped."""
    global _size_after_drop
    if _resident() < max(LARGE, _size_after_drop + GROWTH):
        return
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc keeps freed memory otherwise
        trim(0)
    _size_after_drop = _resident()


def _resident():
    """Return the physical memory of this process in bytes; 0 if the system does not report it."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0
