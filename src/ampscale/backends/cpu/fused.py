"""
Fused passes over contiguous values in main memory, with compiled kernels.

The first pass imports numba; if numba is not installed, NumPy's operations are used instead. The environment variable
AMPSCALE_KERNELS overrides this: with "numba", an error is raised if the kernels cannot be used; "numpy" disables them.

Large arrays are cut into segments, which several threads process. The segments depend only on the sizes of the arrays, so sums
are reproducible.
"""

import os
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from itertools import pairwise
from math import frexp, fsum, ldexp
from typing import Any, NamedTuple

import numpy as np

from ...core.dtypes import FLOATS, compute_dtype
from ...core.statistics import COLUMNS, EMPTY, bit_codes, check_size
from ...core.typing import Array
from ...parsing import excerpt
from .threads import in_threads, thread_count_host

VARIABLE = "AMPSCALE_KERNELS"
CHOICES = ("auto", "numpy", "numba")
SEGMENT = 1 << 22  # maximum number of values in a segment
THREADED = 1 << 22  # bytes; below this size, threads cost more time than they save
BLOCKS = {"float32": 256, "float64": 128}  # squares that are added in any order: few enough for an error of at most two ulp
ITEMSIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}  # bytes
MEASURED = 1024  # bytes that `measure_spans` measures at a time, and reads from the cache when it writes the results

Memory = tuple[Array, Array, Array]  # sources, targets and sizes of `Spans`
Kernel = Callable[[Array, Array, Array, Array], bool]  # the last argument receives sums or statistics, a row for each array


class FusedOp(NamedTuple):
    """Operation that a fused pass applies to every value, and the results that the pass collects."""

    factor: float | None = None  # None to leave the values unchanged
    divides: bool = True  # divide by the factor; False to multiply
    checks: bool = False  # find out if all results are finite
    square_dtype: str | None = None  # float32 or float64, in which squares are taken; None for no sums
    measures: bool = False  # collect the statistics of the values before the operation; not combined with sums


class PassResult(NamedTuple):
    """Results of a fused pass."""

    finite: bool  # True if the check was not requested
    sums: Array  # sum of the squares of each array: `square_dtype`, shape (number of arrays,); empty if not requested
    statistics: Array  # as `core.statistics.statistics` returns them; empty if not requested


class Spans(NamedTuple):
    """Memory of contiguous sources of one dtype, and of their targets of one dtype. In place, *targets* equals *sources*."""

    sources: Array  # address of each array: int64, shape (n,)
    targets: Array  # addresses for the results: int64, shape (n,)
    sizes: Array  # count of real numbers in each array; a complex number counts as two: int64, shape (n,)
    largest: int  # largest of the sizes
    total: int  # sum of the sizes
    source_dtype: str  # float16, bfloat16, float32 or float64
    target_dtype: str


class KernelChoice(NamedTuple):
    """Module of the compiled kernels, or None if they are not used, and the reason for this choice."""

    module: Any
    reason: str


@cache
def kernel_choice_host() -> KernelChoice:
    """
    Decide whether to use the compiled kernels. The first call reads the environment and imports numba.

    Raises:
        ValueError: AMPSCALE_KERNELS is neither auto, numpy nor numba.
        ImportError: AMPSCALE_KERNELS is numba, and numba cannot be used.
    """
    choice = os.environ.get(VARIABLE, "auto")
    if choice not in CHOICES:
        raise ValueError(f"{VARIABLE} must be one of {', '.join(CHOICES)}, got {excerpt(choice)}")
    if choice == "numpy":
        return KernelChoice(None, f"{VARIABLE} is numpy")
    try:
        from . import kernels
    except Exception as error:
        if choice == "numba":
            raise ImportError(f"{VARIABLE} is numba, but numba cannot be used: {error}") from error
        return KernelChoice(None, f"numba cannot be used: {error}")
    return KernelChoice(kernels, "numba is installed")


def supports(name: str) -> bool:
    """Return True if the kernels, which must be available, support the dtype *name* on this processor."""
    kernels = kernel_choice_host().module
    return name in kernels.OF_DTYPE and (name != "float16" or kernels.CONVERTS_FLOAT16)


def are_disjoint_host(addresses: Array, lengths: Array) -> bool:
    """Return True if no two of the contiguous arrays at *addresses* share memory; *lengths* are in bytes."""
    order = addresses.argsort()
    starts = addresses[order]
    return bool((starts[:-1] + lengths[order[:-1]] <= starts[1:]).all())


def run_spans_host(op: FusedOp, spans: Spans, thread_count: int | None = None) -> PassResult:
    """Run a fused pass, in threads if there are many values. The kernels must support the dtypes of *spans*."""
    if op.measures:
        check_size(spans.largest)
    may_grow = op.factor is not None and (op.factor < 1 if op.divides else op.factor >= 1)
    if op.measures and (may_grow or spans.source_dtype != spans.target_dtype):  # `measure_spans` supports neither
        sources = spans._replace(targets=spans.sources, target_dtype=spans.source_dtype)
        statistics = run_spans_host(FusedOp(measures=True), sources, thread_count).statistics
        return run_spans_host(op._replace(measures=False), spans, thread_count)._replace(statistics=statistics)
    return _run_kernel_host(op, spans, thread_count)


def _run_kernel_host(op: FusedOp, spans: Spans, thread_count: int | None) -> PassResult:
    """Run one kernel on all arrays, in threads if there are many values, and combine the results for each array."""
    run = _kernel(op, spans.source_dtype, spans.target_dtype)
    count = 1 if spans.total * ITEMSIZES[spans.source_dtype] < THREADED else (thread_count or thread_count_host())
    cuts = spans.largest > SEGMENT and (count > 1 or op.square_dtype is not None)  # sums must not depend on the number of threads
    memory, owners = _cut(spans) if cuts else (spans[:3], None)
    sums = np.zeros(0 if op.square_dtype is None else len(memory[0]))
    statistics = np.zeros((len(memory[0]) if op.measures else 0, len(COLUMNS)), np.int32)
    collected = statistics if op.measures else sums
    if count == 1 or len(memory[0]) == 1:
        finite = run(*memory, collected)
    else:
        finite = _run_in_threads_host(run, (*memory, collected), count)
    if owners is not None and op.square_dtype is not None:
        sums = added(sums.tolist(), owners.tolist(), len(spans.sizes))
    if owners is not None and op.measures:
        statistics = joined(statistics, owners, len(spans.sizes))
    return PassResult(finite or not op.checks, rounded(sums, op.square_dtype), statistics)


@lru_cache
def _kernel(op: FusedOp, source_dtype: str, target_dtype: str) -> Kernel:
    """Return the compiled loop for *op* with its constants: ``run(sources, targets, sizes, collected) -> finite``."""
    kernels = kernel_choice_host().module
    run_spans = kernels.run_spans
    kind = kernels.OF_DTYPE[source_dtype]
    like = kernels.OF_DTYPE[target_dtype]
    factor, divisor = _operands_host(op, np.dtype(compute_dtype(source_dtype)))
    if op.measures:
        from .measuring import measure_spans

        codes = bit_codes(source_dtype)
        dtype_of_bits = np.dtype(f"uint{8 * ITEMSIZES[source_dtype]}").type
        kernel_codes = tuple(map(dtype_of_bits, (codes.subnormal, codes.underflow, codes.infinity, 1)))
        fraction_bits = FLOATS[source_dtype].fraction_bits
        block = MEASURED // ITEMSIZES[source_dtype]
        return lambda sources, targets, sizes, rows: measure_spans(
            sources, targets, sizes, kind, like, factor, divisor, kernel_codes, fraction_bits, codes.lowest, block, rows
        )
    square = None if op.square_dtype is None else np.dtype(op.square_dtype).type(0)
    block = BLOCKS[op.square_dtype or "float32"]
    return lambda sources, targets, sizes, sums: run_spans(
        sources, targets, sizes, kind, like, factor, divisor, square, block, sums
    )


def _operands_host(op: FusedOp, dtype: Any) -> tuple[Any, Any]:
    """Return the factor and the divisor that the kernel applies to each value. At least one of them is None."""
    if op.factor is None:
        return None, None
    with np.errstate(over="ignore", under="ignore"):
        number = dtype.type(op.factor)
    if not op.divides:
        return number, None
    mantissa, exponent = frexp(float(number))
    largest_exponent = int(np.finfo(dtype).maxexp) - 1
    if mantissa == 0.5 and -largest_exponent < exponent - 1 < largest_exponent:
        return dtype.type(ldexp(1.0, 1 - exponent)), None  # multiplying by the exact reciprocal of a power of two is faster
    return None, number


def _cut(spans: Spans) -> tuple[Memory, Array]:
    """Cut large arrays of *spans* into segments. Return the memory of the segments, and the index of each segment's array."""
    counts = np.maximum(1, -(-spans.sizes // SEGMENT))
    owners = np.repeat(np.arange(len(counts)), counts)
    first_segments = np.cumsum(counts) - counts
    starts = SEGMENT * (np.arange(len(owners)) - first_segments[owners])  # index of a segment's first value in its array
    sources = spans.sources[owners] + starts * ITEMSIZES[spans.source_dtype]
    targets = spans.targets[owners] + starts * ITEMSIZES[spans.target_dtype]
    return (sources, targets, np.minimum(SEGMENT, spans.sizes[owners] - starts)), owners


def _run_in_threads_host(run: Kernel, arguments: tuple[Array, ...], count: int) -> bool:
    """Run the kernel in *count* threads, on ranges with about equal numbers of values. Return True if all results are finite."""
    ends = np.cumsum(arguments[2])  # of the sizes
    range_count = min(len(ends), 4 * count)
    bounds = np.searchsorted(ends, ends[-1] * np.arange(range_count + 1) // range_count)
    bounds[-1] = len(ends)
    ranges = [slice(*pair) for pair in pairwise(bounds.tolist())]
    return all(in_threads(lambda part: run(*(argument[part] for argument in arguments)), ranges, count))


def merged(op: FusedOp, count: int, results: Iterable[tuple[Any, PassResult]]) -> PassResult:
    """Combine the results of passes over groups of *count* arrays: pairs of the indices of a group and the result of its pass."""
    finite = True
    sums = np.empty(0 if op.square_dtype is None else count, op.square_dtype)
    statistics = np.empty((count if op.measures else 0, len(COLUMNS)), np.int32)
    for indices, result in results:
        finite &= result.finite
        if op.square_dtype is not None:
            sums[indices] = result.sums
        if op.measures:
            statistics[indices] = result.statistics
    return PassResult(finite, sums, statistics)


def added(sums: Iterable[float], owners: Iterable[int], count: int) -> Array:
    """Return the total of each of *count* arrays, rounded once. *sums* and *owners* have the sum and array index of each part."""
    parts: list[list[float]] = [[] for _ in range(count)]
    for owner, part in zip(owners, sums, strict=True):
        parts[owner].append(part)
    return np.array(list(map(_total, parts)))


def joined(rows: Array, owners: Array, count: int) -> Array:
    """Combine the statistics of the parts of each of *count* arrays. *owners* contains the array index of each row."""
    statistics = np.tile(np.array(EMPTY, np.int32), (count, 1))
    np.add.at(statistics[:, :-2], owners, rows[:, :-2])
    np.minimum.at(statistics[:, -2], owners, rows[:, -2])
    np.maximum.at(statistics[:, -1], owners, rows[:, -1])
    return statistics


def rounded(sums: Array, dtype: str | None) -> Array:
    """Round float64 *sums* to *dtype*. If *dtype* is None, return *sums* unchanged."""
    if dtype in (None, "float64"):
        return sums
    with np.errstate(over="ignore"):
        return sums.astype(dtype)


def _total(squares: list[float]) -> float:
    """Return the sum of non-negative numbers, rounded once; infinity if it overflows, and NaN if a number is NaN."""
    try:
        return fsum(squares)
    except OverflowError:
        return sum(squares)
