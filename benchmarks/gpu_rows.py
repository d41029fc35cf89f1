"""
Benchmark one library on a GPU: `python gpu_rows.py cupy rows`, or `device` for the name of the device.

Each row is printed as one line of JSON as soon as it is measured, so that a process that is stopped loses no row. The time of a
call is the mean of many calls with a single wait at the end; if the host is slower than the device, this is the host's time.
Replaying the same call from a graph takes only the device's time. `over_copy` is the ratio to a device-to-device copy of the same
bytes in the same process.
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
from gradients import numpy_dtype
from shapes import SHAPES, Shape

UNSCALE, NORM, FINITE, GLOBAL = "unscale_and_check", "unscale_check_and_norm", "all_finite", "global_norm"
DTYPES = ("float16", "bfloat16", "float32")
SAMPLES = 11
SAMPLE, MOST_CALLS = 5e-3, 200  # minimum seconds of a sample, and maximum calls in it
LARGEST = "largest"  # name of a shape
LARGEST_ARRAYS, LARGEST_VALUES = 300, 10**9  # its number of arrays, and their number of values

Row = dict[str, Any]
Run = Callable[[], object]


def largest(memory: int) -> Shape:
    """Return the shape `LARGEST`, with a hundredfold range of sizes; fewer values if *memory* cannot hold five float32 copies."""
    values = min(LARGEST_VALUES, memory // (5 * 4))  # bytes of five float32 copies
    weights = [100 ** (index / (LARGEST_ARRAYS - 1)) for index in range(LARGEST_ARRAYS)]
    unit = values / sum(weights)
    return Shape(LARGEST, f"{LARGEST_ARRAYS} with {values:,}", tuple((int(weight * unit),) for weight in weights))


def all_shapes(memory: int) -> list[tuple[Shape, str]]:
    """Return all pairs of shape and dtype, the most important first."""
    return [(shape, dtype) for shape in (largest(memory), *SHAPES) for dtype in DTYPES]


@dataclass
class Bench:
    """Settings and functions for the measurement of a library's rows."""

    library: str
    shapes: list[tuple[Shape, str]]
    device: str = "cuda"
    deadline: float = float("inf")  # time of `time.monotonic`, after which no row is started
    wait: Run = lambda: None  # waits until the device has finished

    def ms(self, run: Run) -> dict[str, Any]:
        """Return the median time of a call in milliseconds, and its quartiles."""
        run()
        once = self._sample(run, 1)
        calls = max(1, min(MOST_CALLS, round(SAMPLE / once)))
        times = [1e3 * self._sample(run, calls) for _ in range(SAMPLES)]
        low, _, high = statistics.quantiles(times, n=4, method="inclusive")
        return {"ms": statistics.median(times), "quartiles": [low, high]}

    def replayed(self, graph: Callable[[Run], Run], run: Run) -> dict[str, Any]:
        """Return the median time of the call captured by *graph* and replayed, or the reason why it cannot be captured."""
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

    def row(
        self, shape: Shape, dtype: str, operation: str, implementation: str, timing: dict[str, Any], copy: float, **more: Any
    ) -> Row:
        """Return one row of the table. *timing* is a result of `ms`, and *copy* the milliseconds of a copy."""
        labels = {"library": self.library, "implementation": implementation, "function": operation, "dtype": dtype}
        shape_labels = {"shape": shape.name, "arrays": shape.description, "values": shape.values}
        return {**labels, **shape_labels, **timing, "over_copy": timing["ms"] / copy, **more}

    def each(self, measured: Callable[[Shape, str], Iterable[Row]]) -> Iterator[Row]:
        """Yield the rows of all shapes, and a failure for each shape that could not be measured."""
        for shape, dtype in self.shapes:
            label = f"{self.library}, {shape.description}, {dtype}"
            if time.monotonic() > self.deadline:
                yield {"failure": f"{label}: no time remained"}
                continue
            try:
                yield from measured(shape, dtype)
            except (RuntimeError, MemoryError, TypeError, ValueError, AttributeError) as error:
                yield {"failure": f"{label}: {type(error).__name__}: {str(error)[:500]}"}


def block(dtype: str, size: int = 2**20) -> np.ndarray:
    """Return random values instead of zeros, for which some hardware is faster."""
    return np.random.default_rng(0).standard_normal(size, np.float32).astype(numpy_dtype(dtype))


def lengths(shape: Shape) -> list[int]:
    """Return the number of values of each array."""
    return [prod(dimensions) for dimensions in shape.arrays]


def main(library: str, command: str, seconds: str = "inf") -> None:
    """Print the name of the device, or null without one; for the command "rows", print the rows."""
    try:
        module = importlib.import_module(f"gpu_{library}")
        device = module.device()
    except ModuleNotFoundError as missing:
        if missing.name != library:
            raise
        device = None
    if command == "device":
        print(json.dumps(device))
        return
    for row in module.rows(Bench(library, all_shapes(module.memory()), deadline=time.monotonic() + float(seconds))):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
