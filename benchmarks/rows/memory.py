"""
Rows of memory: the peak of the memory that a call allocates, including its result.

NumPy reports its allocations to tracemalloc. torch and JAX do not; for them, the result is the peak of the resident
set during the call minus its size before the call, after the C library has released its free memory. This is accurate to a few
pages. The first call, which can fill caches, is not measured.
"""

import ctypes
import gc
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from gradients import SCALE
from measure import Absent, Cell, Contender
from ours import NORM, UNSCALE
from shapes import LARGE
from specs import Spec

from rows import functional

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
TRACED = ("ampscale", "naive", "careful")


def specs() -> Iterator[Spec]:
    """Yield the specifications of all rows. The rows of one library share a process, in which no other rows run."""
    for library, dtypes in {"numpy": ("float32", "float16"), "torch": ("float32",), "jax": ("float32",)}.items():
        for operation in (UNSCALE, NORM):
            for dtype in dtypes:
                build = partial(cells, library, operation, dtype)
                name = f"memory/{library}/{operation}/{dtype}"
                label = f"extra memory, {library}, {operation}"
                yield Spec(name, f"memory-{library}", label, build, dtype, LARGE.description, "B")


def cells(library: str, operation: str, dtype: str, quick: bool) -> Iterator[Cell]:
    """Yield the peak of each contender."""
    for contender in functional.contenders(library, operation, dtype, LARGE, SCALE, quick):
        if isinstance(contender, Absent):
            yield {"name": contender.name, "absent": contender.why}
        elif contender.kind != "baseline":
            yield cell(contender, is_traced=library == "numpy" and contender.name in TRACED)


def cell(contender: Contender, *, is_traced: bool) -> Cell:
    """Return the peak of a contender, measured in its second call."""
    reset = contender.reset or (lambda: None)
    reset()
    contender.run()
    reset()
    peak = traced(contender.run) if is_traced else resident(contender.run)
    if peak is None:
        return {"name": contender.name, "absent": "resident set unknown"}
    method = "tracemalloc" if is_traced else "resident set"
    return {"name": contender.name, "kind": contender.kind, "value": peak, "by": method}


def traced(run: Callable[[], object]) -> int:
    """Call *run*, and return the peak of the memory that tracemalloc records, in bytes."""
    gc.collect()
    tracemalloc.start()
    try:
        result = run()
        _, peak = tracemalloc.get_traced_memory()  # of allocations since the start
        del result
        return peak
    finally:
        tracemalloc.stop()


def resident(run: Callable[[], object]) -> int | None:
    """
    Call *run*, and return the peak of the resident set minus its size before the call, in bytes.

    Return None on systems that cannot reset the peak.
    """
    if not CLEAR.exists():
        return None
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    CLEAR.write_text("5")
    before = status("VmRSS")
    result = run()
    peak = status("VmHWM")
    del result
    return peak - before


def status(name: str) -> int:
    """Return a value of Linux's process status in bytes."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024
