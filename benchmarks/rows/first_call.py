"""Rows of the first call in a process, which loads the compiled kernels or, without numba's cache, compiles them."""

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from measure import Cell, quartiles
from specs import Spec

from ampscale.backends.cpu.fused import kernel_choice_host

SAMPLES = {"cold": 3, "warm": 7}
CODE = """
import time
import numpy as np
import ampscale

tree, scale = [np.ones(1000, np.float32)], np.asarray(65536, np.float32)
start = time.perf_counter()
ampscale.unscale_check_and_norm(tree, scale, out=tree)
print(time.perf_counter() - start)
"""


def specs() -> Iterator[Spec]:
    """Yield the rows with a cold and with a warm cache of numba."""
    for cache in SAMPLES:
        label = f"first call in a process, {cache} cache"
        yield Spec(f"first-call/{cache}", "first-call", label, partial(cells, cache), "float32", "1 x 1,000")


def cells(cache: str, quick: bool) -> Iterator[Cell]:
    """Yield one cell with the seconds of the first `unscale_check_and_norm` in processes that have imported ampscale."""
    choice = kernel_choice_host()
    if choice.module is None:
        yield {"name": "ampscale", "absent": choice.reason}
        return
    with TemporaryDirectory() as folder:
        samples = 1 if quick else SAMPLES[cache]
        if cache == "warm":
            first_call(Path(folder))  # compiles the kernels
            seconds = [first_call(Path(folder)) for _ in range(samples)]
        else:
            seconds = [first_call(Path(folder, str(index))) for index in range(samples)]
    cell: Cell = {"name": "ampscale", "kind": "ours", "median": statistics.median(seconds)}
    yield cell | {"quartiles": quartiles(seconds), "samples": len(seconds), "over": {}}


def first_call(cache: Path) -> float:
    """Return the seconds of the first call in a new process, which imports numba during the call."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    process = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    return float(process.stdout)
