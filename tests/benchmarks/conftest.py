"""Search path for the modules of benchmarks/, whose programs import them without a package, and quick garbage collections."""

import gc
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
if str(BENCHMARKS) not in sys.path:
    sys.path.append(str(BENCHMARKS))  # last, so that no module here shadows another one


@pytest.fixture(autouse=True, scope="module")
def _frozen():
    """Exclude the objects of libraries from the garbage collection before each measurement, as bench.py does."""
    gc.collect()
    gc.freeze()
