"""
Rows of memory: what a call needs at its peak beyond what it was given, its result included.

NumPy tells tracemalloc of all that it allocates. torch and JAX do not: there it is the peak of the resident set, over what was
resident before, after the C library has given back what it had kept; a page or some are lost in that. A first call, with all that
is kept for later ones, is not counted.
"""

import ctypes
import gc
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from gradients import SCALE
from measure import Absent, Cell
from ours import NORM, UNSCALE
from shapes import LARGE
from specs import Spec

from rows import functional

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
TRACED = ("ampscale", "naive", "careful")


def specs() -> Iterator[Spec]:
    """Each library in a process of its own."""
    for library, dtypes in {"numpy": ("float32", "float16"), "torch": ("float32",), "jax": ("float32",)}.items():
        for verb in (UNSCALE, NORM):
            for dtype in dtypes:
                build = partial(cells, library, verb, dtype)
                name, what = f"memory/{library}/{verb}/{dtype}", f"extra memory, {library}, {verb}"
                yield Spec(name, f"memory-{library}", what, build, dtype, LARGE.words, "B")


def cells(library: str, verb: str, dtype: str, quick: bool) -> Iterator[Cell]:
    """The peak of each contender."""
    for each in functional.contenders(library, verb, dtype, LARGE, SCALE, quick):
        if isinstance(each, Absent):
            yield {"name": each.name, "absent": each.why}
        elif each.kind != "floor":
            measured, by = (traced, "tracemalloc") if library == "numpy" and each.name in TRACED else (resident, "resident set")
            put_back: Iterable[Callable[[], object]] = [each.reset] if each.reset else []
            for step in (*put_back, each.run, *put_back):
                step()
            value = measured(each.run)
            yield (
                {"name": each.name, "absent": by}
                if value is None
                else {"name": each.name, "kind": each.kind, "value": value, "by": by}
            )


def traced(run: Callable[[], object]) -> int:
    """By tracemalloc, which looks at each allocation."""
    gc.collect()
    tracemalloc.start()
    try:
        kept = run()
        _, peak = tracemalloc.get_traced_memory()  # of what has been allocated since the start
        del kept
        return peak
    finally:
        tracemalloc.stop()


def resident(run: Callable[[], object]) -> int | None:
    """By the resident set, whose peak Linux begins anew on request; None on another system."""
    if not CLEAR.exists():
        return None
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    CLEAR.write_text("5")
    before = status("VmRSS")
    kept = run()
    peak = status("VmHWM")
    del kept
    return peak - before


def status(name: str) -> int:
    """A line of Linux's, in bytes."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024
