"""
What the verbs cost on a GPU, a library at a time: `python gpu_rows.py cupy rows`, or `device` for the device's name.

A row is printed as one line of JSON as soon as it is measured, so a process that is stopped keeps what it has. The time of a
call is that of many, made without waiting for one another, and then waited for: where the host is slower, it is the host's. The
same call captured in a graph and replayed takes the device's time alone. What is over the copy is over the time in which the
device copies as many bytes from one place to another, measured in the same process.
"""

import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from shapes import SHAPES, Shape

UNSCALE, NORM, FINITE, GLOBAL = "unscale_and_check", "unscale_check_and_norm", "all_finite", "global_norm"
DTYPES = ("float16", "bfloat16", "float32")
SAMPLES, SAMPLE, MOST_CALLS = 11, 5e-3, 200  # of a timing; seconds that one takes at least, by repeating a short call so often
LARGEST, COUNT, VALUES = "largest", 300, 10**9  # the shape whose arrays' sizes lie a hundredfold apart

Row = dict[str, Any]
Run = Callable[[], object]


def largest(memory: int) -> Shape:
    """The arrays that the memory's speed is measured on: *VALUES* in all, or so many that they fit five times into *memory*."""
    values = min(VALUES, memory // 20)
    weights = [100 ** (index / (COUNT - 1)) for index in range(COUNT)]
    unit = values / sum(weights)
    return Shape(LARGEST, f"{COUNT} with {values:,}", tuple((int(weight * unit),) for weight in weights))


def all_shapes(memory: int) -> list[tuple[Shape, str]]:
    """Each shape in each dtype, the most important first."""
    return [(shape, dtype) for shape in (largest(memory), *SHAPES) for dtype in DTYPES]


@dataclass
class Bench:
    """How a library's rows are measured: where, on which shapes, and until when."""

    library: str
    shapes: list[tuple[Shape, str]]
    place: str = "cuda"
    deadline: float = float("inf")
    wait: Run = lambda: None

    def ms(self, run: Run) -> dict[str, Any]:
        """The median time of a call in milliseconds, and its quartiles."""
        run()
        once = self._sample(run, 1)
        calls = max(1, min(MOST_CALLS, round(SAMPLE / once)))
        taken = [1e3 * self._sample(run, calls) for _ in range(SAMPLES)]
        low, _, high = statistics.quantiles(taken, n=4, method="inclusive")
        return {"ms": statistics.median(taken), "quartiles": [low, high]}

    def replayed(self, graph: Callable[[Run], Run], run: Run) -> dict[str, Any]:
        """The median time of the same call, captured by *graph* and replayed; or why it cannot be captured."""
        try:
            return {"replayed_ms": self.ms(graph(run))["ms"]}
        except RuntimeError as error:
            return {"not_replayed": str(error)[:500]}

    def _sample(self, run: Run, calls: int) -> float:
        self.wait()
        start = time.perf_counter()
        for _ in range(calls):
            run()
        self.wait()
        return (time.perf_counter() - start) / calls

    def row(self, shape: Shape, dtype: str, verb: str, way: str, timing: dict[str, Any], copy: float, **more: Any) -> Row:
        """One line of the table."""
        what = {"library": self.library, "way": way, "verb": verb, "dtype": dtype, "shape": shape.name}
        return {**what, "arrays": shape.words, "values": shape.values, **timing, "over_copy": timing["ms"] / copy, **more}

    def each(self, measured: Callable[[Shape, str], Iterable[Row]]) -> Iterator[Row]:
        """The rows of all shapes, and in the place of those that could not be measured, what went wrong."""
        for shape, dtype in self.shapes:
            what = f"{self.library}, {shape.words}, {dtype}"
            if time.monotonic() > self.deadline:
                yield {"failure": f"{what}: no time was left"}
                continue
            try:
                yield from measured(shape, dtype)
            except (RuntimeError, MemoryError, TypeError, ValueError, AttributeError) as error:
                yield {"failure": f"{what}: {type(error).__name__}: {str(error)[:500]}"}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype of this name; bfloat16 is ml_dtypes'."""
    return np.dtype(getattr(importlib.import_module("ml_dtypes"), name) if name == "bfloat16" else name)


def block(dtype: str, size: int = 2**20) -> np.ndarray:
    """Numbers as gradients have them: not zeros, which some hardware computes faster."""
    return np.random.default_rng(0).standard_normal(size, np.float32).astype(numpy_dtype(dtype))


def lengths(shape: Shape) -> list[int]:
    """How many numbers each array has."""
    return [prod(dimensions) for dimensions in shape.arrays]


def main(library: str, question: str, seconds: str = "inf") -> None:
    """Prints the device's name or null, or the rows."""
    try:
        side = importlib.import_module(f"gpu_{library}")
        found = side.device()
    except ModuleNotFoundError as missing:
        if missing.name != library:
            raise
        found = None
    if question == "device":
        print(json.dumps(found))
        return
    for row in side.rows(Bench(library, all_shapes(side.memory()), deadline=time.monotonic() + float(seconds))):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
