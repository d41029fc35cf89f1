"""
Fused NumPy pass: scales, checks and squares the values block by block while they are in cache.

Each value is read from memory once, because memory bandwidth is the limit: an operation on a block in cache takes a quarter of
the time that reading the block takes. Large arrays are therefore cut into blocks, and small ones are gathered. The cuts depend
only on the shapes, so sums are reproducible.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ...core import scaling
from ...core.dtypes import name_of
from ...core.typing import Array
from . import blocks as kernels
from . import half_tables as halves
from .blocks import Blocks, total
from .threads import in_threads, thread_count_host

SEGMENT = 1 << 22  # values of one array in a work item
COPIED = 1 << 17  # values copied at once if an array is not contiguous or changes its dtype
SMALL = 1 << 12  # values; a larger array is not gathered with others
GATHERED = 1 << 17  # values of the small arrays in one work item
# Bytes of large arrays; for less, threads cost more than they save. Small arrays and 16-bit ones do not count: with an operation
# every few microseconds they keep the GIL busy, and gain nothing from threads.
THREADED = 1 << 24
TABLE = 1 << 16  # 16-bit values; for fewer, computing them is faster than computing a table of all results

SIZE_OF, DTYPE_OF = attrgetter("size"), attrgetter("dtype")
REAL_DTYPES = {np.dtype(np.complex64): kernels.FLOAT32, np.dtype(np.complex128): kernels.FLOAT64}


class WorkItem(NamedTuple):
    """Work item: part of one array, or several small arrays of one dtype. No array is empty."""

    indices: list[int]  # positions of the arrays in the sequence of all arrays
    sources: list[Array]
    targets: list[Array]  # the sources themselves in place, or if nothing is written
    is_flat: bool = False  # True for part of one array, contiguous, real and of shape (n,)


class PreparedItem(NamedTuple):
    """Work item with its blocks, if it has any."""

    item: WorkItem
    blocks: Blocks | None


class ItemResult(NamedTuple):
    """Result of a work item or of a whole fused pass."""

    finite: bool  # True if the check was not requested
    sums: Any  # sum of the squares of each array; empty if not requested


class FusedOp(NamedTuple):
    """Operation of a fused pass on every value, and the statistics that it collects of the results."""

    factor: float | None = None  # None to leave the values unchanged
    divides: bool = True  # divide by the factor; False to multiply
    checks: bool = False  # find out if all results are finite
    square_dtype: Any = None  # dtype in which squares are taken; None for no sums
    uses_table: bool = False  # look up 16-bit results in a table

    def prepared(self, item: WorkItem) -> Blocks | None:
        """Return the blocks of *item*; None if it is processed in another way."""
        source, target = item.sources[0], item.targets[0]
        large = item.is_flat and source.size > kernels.BLOCK and source.itemsize > 2
        if not large or self.factor is None or (source is not target and source.dtype != target.dtype):
            return None
        if self.square_dtype is not None:
            return kernels.blocks_to_sum(source, target) if kernels.sums_by_row_host(source.dtype, self.square_dtype) else None
        return kernels.blocks_to_check(source, target) if self.checks else None

    def run_items_host(self, prepared: Iterator[tuple[int, PreparedItem]]) -> list[tuple[int, Any]]:
        """Process numbered items, and return an `ItemResult` for each; for an item with blocks, only their row products."""
        with np.errstate(all="ignore"):  # errstate is local to a thread
            return [(index, self._run_item_host(*item)) for index, item in prepared]

    def finished_host(self, prepared: PreparedItem, output: Any) -> ItemResult:
        """Return the result of an item from the *output* of `run_items_host`."""
        if prepared.blocks is None:
            result: ItemResult = output
            return result
        (target,) = prepared.item.targets
        if self.square_dtype is None:
            return ItemResult(kernels.are_finite_host(output, target), ())
        finite, square = kernels.square_sum_host(output, prepared.blocks.remainder, target)
        return ItemResult(finite, [square])

    def _run_item_host(self, item: WorkItem, blocks: Blocks | None) -> Any:
        if blocks is not None:
            return kernels.run_host(blocks, kernels.factor_host(self.factor, item.sources[0].dtype, divides=self.divides))
        if len(item.indices) > 1:
            return self._run_gathered_host(item)
        return self._run_flat_host(item.sources[0], item.targets[0]) if item.is_flat else self._run_single_host(item)

    def _run_single_host(self, item: WorkItem) -> ItemResult:
        """Process part of one array that is not flat, or a whole small array."""
        (source,), (target,) = item.sources, item.targets
        if source.size <= SMALL and source.flags.c_contiguous and target.flags.c_contiguous:
            return self._run_flat_host(_as_real(source.reshape(-1)), _as_real(target.reshape(-1)))
        values = _as_real(np.array(source, order="C").reshape(-1))
        results = values if source.dtype == target.dtype else np.empty(values.shape, target.dtype)
        result = self._run_flat_host(values, results)
        if self.factor is not None:
            target[...] = results.view(target.dtype).reshape(target.shape)
        return result

    def _run_flat_host(self, source: Array, target: Array) -> ItemResult:
        """Process contiguous real values of shape (n,)."""
        if source.dtype != target.dtype:
            return _combined(self._run_widening_host(*chunks) for chunks in _chunks(source, target, COPIED))
        if source.itemsize == 2:
            if self.square_dtype is None:
                return self._run_half_host(source, target)
            return _combined(self._run_half_host(*chunks) for chunks in _chunks(source, target, COPIED))
        factor = None if self.factor is None else kernels.factor_host(self.factor, source.dtype, divides=self.divides)
        if self.square_dtype is not None and not kernels.sums_by_row_host(source.dtype, self.square_dtype):
            finite, square = kernels.sum_as_defined_host(source, target, factor, self.square_dtype)
            return ItemResult(finite, [square])
        if factor is not None:
            factor.operation(source, factor.number, target)
        if self.square_dtype is not None:
            finite, square = kernels.sum_host(target, self.square_dtype)
            return ItemResult(finite, [square])
        return ItemResult(not self.checks or kernels.check_host(target), ())

    def _run_widening_host(self, source: Array, target: Array) -> ItemResult:
        target[...] = scaling.unscale(source, self.factor, name_of(target.dtype))
        return self._replace(factor=None)._run_flat_host(target, target)

    def _run_half_host(self, source: Array, target: Array) -> ItemResult:
        dtype, bits, results, finite = source.dtype, source.view(np.uint16), target.view(np.uint16), True
        if self.factor is not None:
            op = halves.HalfOp(dtype, self.divides, float(np.float32(self.factor)))
            finite = op.apply_host(bits, results, uses_table=self.uses_table)
        elif self.checks:
            finite = halves.are_finite_host(results, dtype)
        if self.square_dtype is None:
            return ItemResult(finite, ())
        magnitudes = (halves.magnitudes_host(chunk, dtype) for chunk, _ in _chunks(results, results, halves.STEP))
        return ItemResult(finite, [total([kernels.sum_host(values, self.square_dtype)[1] for values in magnitudes])])

    def _run_gathered_host(self, item: WorkItem) -> ItemResult:
        """Process several small arrays."""
        if item.sources[0].itemsize == 2:
            values = np.concatenate(item.sources, axis=None)
            result = self._replace(square_dtype=None)._run_half_host(values, values)
            if self.factor is not None:
                _scatter(values, item.targets)
            return result if self.square_dtype is None else self._sum_each_host(item, values.astype(np.float32))
        if self.factor is not None:
            factor = kernels.factor_host(self.factor, item.sources[0].dtype, divides=self.divides)
            deque(map(factor.operation, item.sources, repeat(factor.number), item.targets), maxlen=0)
        if self.square_dtype is not None:
            return self._sum_each_host(item, _gathered(item.targets))
        return ItemResult(not self.checks or kernels.check_host(_gathered(item.targets)), ())

    def _sum_each_host(self, item: WorkItem, values: Array) -> ItemResult:
        return ItemResult(*kernels.sum_each_host(values, list(map(SIZE_OF, item.targets)), self.square_dtype))


def run_host(op: FusedOp, sources: Sequence[Array], targets: Sequence[Array]) -> ItemResult:
    """
    Apply *op* to *sources*, and write the results into *targets*.

    Args:
        op: Operation on every value, and the statistics to collect.
        sources: Arrays as `layout.plain` returns them.
        targets: *sources* itself if nothing is written; else arrays of the same shapes that pass `layout.can_write`.

    Returns:
        Result of all arrays together: the sums have the dtype in which squares were taken, one for each array.
    """
    items = work_items(sources, targets)
    op = op._replace(uses_table=_count_half_values(items) >= TABLE)
    large = sum(item.sources[0].nbytes for item in items if len(item.indices) == 1 and item.sources[0].itemsize > 2)
    threads = min(thread_count_host(), len(items)) if large >= THREADED else 1
    prepared = [PreparedItem(item, op.prepared(item)) for item in items]
    outputs = in_threads(op.run_items_host, prepared, threads)
    with np.errstate(all="ignore"):
        results = list(map(op.finished_host, prepared, outputs))
    finite = all(result.finite for result in results)
    return ItemResult(finite, () if op.square_dtype is None else _totals(items, results, len(sources), op.square_dtype))


def work_items(sources: Sequence[Array], targets: Sequence[Array]) -> list[WorkItem]:
    """Cut large arrays, and gather small ones, into work items."""
    items: list[WorkItem] = []
    indices, item_sources, item_targets, _ = WorkItem([], [], [])
    current, remaining = None, 0  # dtype of the item that gathers small arrays, and how many more values it takes
    rows = zip(sources, targets, map(SIZE_OF, sources), map(DTYPE_OF, sources), strict=True)
    for index, (source, target, size, dtype) in enumerate(rows):
        if dtype is not current or not 0 < size <= remaining:
            if not size:
                continue
            if size > SMALL or dtype in REAL_DTYPES or dtype != target.dtype:
                items.extend(_items_of_one(index, source, target))
                continue
            items.append(WorkItem([], [], []))
            indices, item_sources, item_targets, _ = items[-1]
            current, remaining = dtype, GATHERED
        indices.append(index)
        item_sources.append(source)
        item_targets.append(target)
        remaining -= size
    return items


def _count_half_values(items: Sequence[WorkItem]) -> int:
    return sum(sum(map(SIZE_OF, item.sources)) for item in items if item.sources[0].itemsize == 2)


def _items_of_one(index: int, source: Array, target: Array) -> Iterator[WorkItem]:
    """Yield the work items of an array that is not gathered with others."""
    if source is target:
        flat_source = flat_target = _flat(source, source.flags.c_contiguous)
    else:
        in_rows = source.flags.c_contiguous and target.flags.c_contiguous
        flat_source, flat_target = _flat(source, in_rows), _flat(target, in_rows)
    if flat_source is None or flat_target is None:
        yield from (WorkItem([index], [chunk], [out]) for chunk, out in _cut(source, target))
    elif flat_source.size <= SEGMENT:
        yield WorkItem([index], [flat_source], [flat_target], is_flat=True)
    else:
        chunks = _chunks(flat_source, flat_target, SEGMENT)
        yield from (WorkItem([index], [chunk], [out], is_flat=True) for chunk, out in chunks)


def _flat(array: Array, in_rows: bool) -> Array | None:
    """Return a real view of shape (n,), in the order of rows or else of columns; None if that would take a copy."""
    if in_rows:
        return _as_real(array if array.ndim == 1 else array.reshape(-1))
    return _as_real(array.T.reshape(-1)) if array.flags.f_contiguous else None


def _chunks(source: Array, target: Array, size: int) -> Iterator[tuple[Array, Array]]:
    """Yield chunks of up to *size* values of two arrays of shape (n,), in order."""
    yield from ((source[start : start + size], target[start : start + size]) for start in range(0, source.size, size))


def _cut(source: Array, target: Array) -> Iterator[tuple[Array, Array]]:
    """Yield parts, small enough to be copied, of two arrays that are not contiguous."""
    if source.size <= COPIED:
        yield source, target
    else:
        axis = source.shape.index(max(source.shape))
        middle = source.shape[axis] // 2
        for half in (slice(middle), slice(middle, None)):
            index = (*[slice(None)] * axis, half)
            yield from _cut(source[index], target[index])


def _as_real(flat: Array) -> Array:
    """Return a view of a contiguous array of shape (n,) with each complex number as a pair of real ones."""
    return flat.view(REAL_DTYPES[flat.dtype]) if flat.dtype in REAL_DTYPES else flat


def _gathered(arrays: Sequence[Array]) -> Array:
    """Return the values of *arrays* in one array, which may be read-only."""
    try:
        return np.frombuffer(b"".join(arrays), arrays[0].dtype)  # faster than np.concatenate; contiguous arrays only
    except TypeError:
        return np.concatenate(arrays, axis=None)


def _scatter(values: Array, arrays: Sequence[Array]) -> None:
    """Write *values* into *arrays*, one array after the other."""
    start = 0
    for array in arrays:
        array[...] = values[start : start + array.size].reshape(array.shape)
        start += array.size


def _combined(chunk_results: Iterator[ItemResult]) -> ItemResult:
    """Return the result of an array from those of its chunks."""
    results = list(chunk_results)
    sums = [square for result in results for square in result.sums]
    return ItemResult(all(result.finite for result in results), [total(sums)] if sums else ())


def _totals(items: Sequence[WorkItem], results: Sequence[ItemResult], count: int, dtype: Any) -> Array:
    """Return the sums of squares of *count* arrays, each rounded once to *dtype*."""
    totals = np.zeros(count)
    sums_of_parts: dict[int, list[float]] = {}
    for item, result in zip(items, results, strict=True):
        if len(item.indices) > 1:
            totals[item.indices] = result.sums
        else:
            sums_of_parts.setdefault(item.indices[0], []).extend(result.sums)
    for index, sums in sums_of_parts.items():
        totals[index] = total(sums)
    with np.errstate(over="ignore"):
        return totals.astype(dtype)
