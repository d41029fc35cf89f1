"""Rows of CuPy on a GPU: the fused pass, called and replayed from a graph, and the number of operations of a call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

import cupy
import numpy as np
from gpu_rows import FINITE, GLOBAL, LARGEST, NORM, UNSCALE, Bench, Row, Run, block, lengths
from shapes import Shape

import ampscale
from ampscale.backends.cupy import launches

OURS = "ampscale"


def device() -> str | None:
    """Return the name of the GPU; None if there is none."""
    return cupy.cuda.runtime.getDeviceProperties(0)["name"].decode() if cupy.cuda.is_available() else None


def memory() -> int:
    """Return the number of free bytes on the device."""
    return int(cupy.cuda.runtime.memGetInfo()[0])


def rows(bench: Bench) -> Iterator[Row]:
    """Yield all rows."""
    bench.wait = cupy.cuda.Device().synchronize
    yield from bench.each(Measured(bench, cupy, ampscale, launches, graph).rows)


class Measured:
    """
    Measurement of the rows of each shape and dtype.

    Args:
        bench: Measures times.
        library: CuPy.
        functions: Module or backend with the measured functions.
        kernels: The backend's module of kernels, whose launches are counted.
        graph: Captures a call and returns a function that replays it.
    """

    def __init__(self, bench: Bench, library: Any, functions: Any, kernels: ModuleType, graph: Callable[[Run], Run]) -> None:
        self._bench, self._graph = bench, graph
        self._library, self._functions, self._kernels = library, functions, kernels

    def rows(self, shape: Shape, dtype: str) -> Iterator[Row]:
        """Yield the rows of a copy and of functions. Most work in place with a scale of 1, which leaves the values unchanged."""
        tree = self._arrays(shape, dtype)
        size = sum(array.nbytes for array in tree)
        copy = self._copy(size)
        yield self._bench.row(shape, dtype, "copy", "device to device", copy, copy["ms"], bytes=size)
        one = self._library.asarray(np.ones((), np.float32))
        for operation, run in self._runs(shape, dtype, tree, one).items():
            operations = self._operations(run)
            called = self._bench.ms(run)
            replayed = self._bench.replayed(self._graph, run)
            yield self._bench.row(shape, dtype, operation, OURS, called, copy["ms"], **replayed, **operations)

    def _runs(self, shape: Shape, dtype: str, tree: list[Any], one: Any) -> dict[str, Run]:
        functions = self._functions
        runs: dict[str, Run] = {
            UNSCALE: lambda: functions.unscale_and_check(tree, one, out=tree),
            NORM: lambda: functions.unscale_check_and_norm(tree, one, out=tree),
        }
        if shape.name != LARGEST:
            return runs
        elsewhere = self._arrays(shape, dtype)
        three = self._library.asarray(np.full((), 3, np.float32))
        return runs | {
            FINITE: lambda: functions.all_finite(tree),
            GLOBAL: lambda: functions.global_norm(tree),
            f"{UNSCALE}, by 3, elsewhere": lambda: functions.unscale_and_check(tree, three, out=elsewhere),
        }

    def _arrays(self, shape: Shape, dtype: str) -> list[Any]:
        """Return arrays that each own their memory, filled with repetitions of one block of values."""
        values = self._library.asarray(block(dtype))
        arrays = []
        for length in lengths(shape):
            array = self._library.empty((length,), dtype=values.dtype)
            for first in range(0, length, values.size):
                array[first : first + values.size] = values[: length - first]
            arrays.append(array)
        return arrays

    def _copy(self, size: int) -> dict[str, Any]:
        """Return the time in which the device copies *size* bytes."""
        source, target = (self._library.empty((size,), dtype=np.uint8) for _ in range(2))
        return self._bench.ms(lambda: target.data.copy_from_device_async(source.data, size))

    def _operations(self, run: Run) -> dict[str, Any]:
        """Count kernels, host-to-device copies and fills, for a first call and for the next one."""
        self._kernels._cached_table.cache_clear()
        with self._counted() as first:
            run()
        with self._counted() as later:
            run()
        return {"first_call": first, "operations": later}

    @contextmanager
    def _counted(self) -> Iterator[dict[str, int]]:
        """Return a context manager that counts the kernels, copies and fills of the calls in it."""
        kernels = self._kernels
        counts = {"kernels": 0, "copies": 0, "fills": 0}
        launch, fill = kernels._launch, kernels._true
        copies_before = kernels._cached_table.cache_info().misses

        def launched(kernel: str, blocks: int, *arguments: Any) -> None:
            if blocks:  # otherwise, no kernel is launched
                counts["kernels"] += 1
            launch(kernel, blocks, *arguments)

        def filled() -> Any:
            counts["fills"] += 1
            return fill()

        with mock.patch.multiple(kernels, _launch=launched, _true=filled):
            yield counts
        counts["copies"] = kernels._cached_table.cache_info().misses - copies_before


def graph(run: Run) -> Run:
    """Capture a call, and return a function that replays it. The function keeps a reference to the memory that the call uses."""
    stream = cupy.cuda.Stream(non_blocking=True)
    pool = cupy.cuda.MemoryPool()
    cupy.cuda.Device().synchronize()
    with cupy.cuda.using_allocator(pool.malloc), stream:
        run()
        stream.begin_capture()
        run()
        captured = stream.end_capture()
        stream.synchronize()
    return lambda: (captured.launch(), pool)
