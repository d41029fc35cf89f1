"""
Fused pass with NumPy's own operations, block by block, so that a block stays in the cache from one operation to the next.

For large 16-bit arrays, results are looked up in a table of the results for all 65,536 values, computed by the core's definition.

Spec: BACKENDS-bit-identical, OVERFLOW-both-sides, NORMS-accumulation-dtype.
"""

import math
import operator
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ...core import scaling
from ...core.dtypes import name_of, part_dtype
from ...core.namespaces import quiet
from ...core.statistics import COLUMNS, Reductions, bit_codes, check_sizes, rows_of
from ...core.typing import Array
from ..cpu.fused import FusedOp, PassResult, added, joined, rounded
from ..cpu.threads import in_threads, thread_count_host

BLOCK = 1 << 17  # maximum number of values in a block
SMALL = 1 << 12  # values; a larger array does not share a block with other arrays
TABLE = 1 << 15  # number of 16-bit values from which a table of results is faster
THREADED = 1 << 24  # bytes of large arrays from which threads pay off; for small and 16-bit arrays, NumPy holds the GIL too long

_size, _dtype = attrgetter("size"), attrgetter("dtype")


class Block(NamedTuple):
    """Part of one real array, or several small arrays of one dtype."""

    indices: list[int]  # indices of the arrays in the sequence of all arrays
    sources: list[Array]
    targets: list[Array]


def run_blocks_host(op: FusedOp, sources: Sequence[Array], targets: Sequence[Array]) -> PassResult:
    """Run a fused pass over arrays of any layout."""
    if op.measures:
        check_sizes(sources)
    blocks = blocks_of(sources, targets)
    large_bytes = sum(block.sources[0].nbytes for block in blocks if len(block.indices) == 1 and block.sources[0].itemsize > 2)

    def run(block: Block) -> tuple[bool, list[float], Array]:
        with np.errstate(all="ignore"):  # errstate is local to a thread
            return _run_block_host(op, block)

    results = in_threads(run, blocks, thread_count_host() if large_bytes >= THREADED else 1)
    owners = [index for block in blocks for index in block.indices]
    sums = np.empty(0)
    if op.square_dtype is not None:
        parts = chain.from_iterable(block_sums for _, block_sums, _ in results)
        sums = rounded(added(parts, owners, len(sources)), op.square_dtype)
    statistics = np.empty((0, len(COLUMNS)), np.int32)
    if op.measures:
        rows = np.concatenate([statistics, *(block_rows for _, _, block_rows in results)])
        statistics = joined(rows, owners, len(sources))
    return PassResult(all(is_finite for is_finite, _, _ in results), sums, statistics)


def blocks_of(sources: Sequence[Array], targets: Sequence[Array]) -> list[Block]:
    """Cut large arrays into blocks, and gather small ones. Blocks depend only on the layout, so that sums are reproducible."""
    blocks: list[Block] = []
    shared = Block([], [], [])  # the last block of small arrays
    shared_dtype: Any = None
    remaining = 0  # number of values for which it has room
    rows = zip(sources, targets, map(_size, sources), map(_dtype, sources), strict=True)
    for index, (source, target, size, dtype) in enumerate(rows):
        if size > SMALL or dtype.kind == "c" or dtype != target.dtype:
            blocks += (Block([index], [part], [out]) for part, out in _parts(source, target))
        elif size:  # no block contains an empty array
            if dtype is not shared_dtype or size > remaining:
                shared, shared_dtype, remaining = Block([], [], []), dtype, BLOCK
                blocks.append(shared)
            shared.indices.append(index)
            shared.sources.append(source)
            shared.targets.append(target)
            remaining -= size
    return blocks


def _parts(source: Array, target: Array) -> Iterator[tuple[Array, Array]]:
    """Cut two arrays of one shape into matching views of up to `BLOCK` real numbers; a complex number counts as two."""
    if source.flags.f_contiguous and target.flags.f_contiguous:
        source, target = source.T, target.T
    if source.flags.c_contiguous and target.flags.c_contiguous:
        source, target = (array.reshape(-1).view(part_dtype(name_of(array.dtype))) for array in (source, target))
        starts = range(0, source.size, BLOCK)
        yield from ((source[start : start + BLOCK], target[start : start + BLOCK]) for start in starts)
    elif source.dtype.kind == "c":
        yield from _parts(source.real, target.real)
        yield from _parts(source.imag, target.imag)
    elif source.size <= BLOCK:
        yield source, target
    else:
        axis = source.shape.index(max(source.shape))
        middle = source.shape[axis] // 2
        for half in (slice(middle), slice(middle, None)):
            index = (*[slice(None)] * axis, half)
            yield from _parts(source[index], target[index])


def _run_block_host(op: FusedOp, block: Block) -> tuple[bool, list[float], Array]:
    """Run *op* on *block*. Return True if the results are finite or unchecked, the sums of squares, and the statistics."""
    has_one_array = len(block.indices) == 1
    values = block.sources[0] if has_one_array else _gathered(block.sources)
    rows = _statistics(values, block) if op.measures else np.empty((0, len(COLUMNS)), np.int32)
    results = values
    if op.factor is not None:
        results = block.targets[0] if has_one_array else np.empty_like(values)
        _write(op.factor, op.divides, values, results)
        if not has_one_array:
            _scatter(results, block.targets)
    sums = [] if op.square_dtype is None else _square_sums_host(results, block, op.square_dtype)
    squares_are_finite = bool(sums) and math.isfinite(sum(sums))  # only if the values are finite too
    is_finite = not op.checks or squares_are_finite or _are_finite_host(results)
    return is_finite, sums, rows


def _gathered(arrays: list[Array]) -> Array:
    """Return the values of *arrays* in one array, which may be read-only."""
    try:
        return np.frombuffer(b"".join(arrays), arrays[0].dtype)  # faster than np.concatenate; contiguous arrays only
    except TypeError:
        return np.concatenate(arrays, axis=None)


def _scatter(values: Array, arrays: list[Array]) -> None:
    """Write *values* into *arrays*, one array after the other."""
    start = 0
    for array in arrays:
        array[...] = values[start : start + array.size].reshape(array.shape)
        start += array.size


def _square_sums_host(values: Array, block: Block, dtype: str) -> list[float]:
    """Return the sum of the squares of each array of *block*; *values* contains the results of all its arrays."""
    converted = values.astype(dtype, copy=False)
    squares = np.multiply(converted, converted)
    if len(block.indices) == 1:
        return [float(np.add.reduce(squares, axis=None, dtype=np.float64))]
    sizes = np.fromiter(map(_size, block.sources), np.intp)
    squares_in_float64 = squares.astype(np.float64, copy=False)
    return np.add.reduceat(squares_in_float64, np.add.accumulate(sizes) - sizes).tolist()  # type: ignore[no-any-return]


def _statistics(values: Array, block: Block) -> Array:
    """Return the statistics of each array of *block*, int32 of shape (n, 8); *values* contains the values of all its arrays."""
    sizes = np.fromiter(map(_size, block.sources), np.int32)
    starts = np.add.accumulate(sizes) - sizes
    count = partial(np.add.reduceat, indices=starts, dtype=np.int32)
    smallest, largest = (partial(ufunc.reduceat, indices=starts) for ufunc in (np.minimum, np.maximum))
    codes = bit_codes(name_of(values.dtype))
    return rows_of(_magnitudes(values).reshape(-1), codes, Reductions(sizes, count, smallest, largest))


def _magnitudes(values: Array) -> Array:
    """Return the bit patterns of real *values* without the sign, as signed integers."""
    bits = values.view(f"int{8 * values.itemsize}")
    return bits & np.iinfo(bits.dtype).max


def _write(factor: float, divides: bool, source: Array, target: Array) -> None:
    """Divide or multiply *source* by *factor*, round once as in the core's definition, and write the results to *target*."""
    if source.dtype != target.dtype:  # only divisions have targets of a wider dtype
        target[...] = scaling.unscale(source, factor, name_of(target.dtype))
    elif source.itemsize > 2:
        operation = np.divide if divides else np.multiply
        operation(source, np.array(factor, source.dtype), out=target)
    elif source.size < TABLE:
        target[...] = _by_definition(source, divides, factor)
    else:
        index = source.view(np.uint16).astype(np.intp)
        # mode="raise" would buffer the output
        np.take(_table(source.dtype, divides, factor), index, out=target.view(np.uint16), mode="wrap")


@lru_cache(maxsize=4)
def _table(dtype: Any, divides: bool, factor: float) -> Array:
    """Return the results for all 65,536 bit patterns, in order: uint16."""
    return _by_definition(np.arange(1 << 16, dtype=np.uint16).view(dtype), divides, factor).view(np.uint16)


def _by_definition(values: Array, divides: bool, factor: float) -> Array:
    """Return the quotients or products of the core's definition for 16-bit *values*."""
    with quiet(np):
        return scaling.apply_factor(operator.truediv if divides else operator.mul, values, factor, values.dtype)


def _are_finite_host(values: Array) -> bool:
    if values.itemsize > 2:
        return bool(np.isfinite(values).all())
    return bool(_magnitudes(values).max() < bit_codes(name_of(values.dtype)).infinity)  # NumPy's own check converts 16-bit values
