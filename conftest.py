"""Settings of both test suites: the array libraries to test on, and how many workers fit into memory."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
LIBRARIES = os.environ.get("AMPSCALE_TEST_LIBRARIES", "numpy torch jax").split()
MEMORY = 2 << 30  # bytes of physical memory for each worker, which stays below half of it


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Return one worker for each core, and not more than fit into memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(cores, memory // MEMORY))


def pytest_ignore_collect(collection_path):
    """Ignore what is named for a library that is not to be tested; README.md uses all of them."""
    without = {"torch", "jax"} - set(LIBRARIES)
    if not without or not collection_path.is_relative_to(ROOT):
        return None
    path = collection_path.relative_to(ROOT).as_posix()
    return True if path == "README.md" or any(name in path for name in without) else None
