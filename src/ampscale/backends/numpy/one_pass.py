"""
Fused passes over NumPy arrays, with compiled kernels if they support the arrays, and block by block otherwise.

Spec: BACKENDS-bit-identical.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...core.dtypes import compute_dtype, part_dtype
from ...core.statistics import check_sizes
from ...core.typing import Array
from ..cpu import fused
from ..cpu.fused import FusedOp, PassResult, Spans
from .blocks import run_blocks_host

_HEADER = object.__basicsize__  # bytes of an array object before the fields of `PyArrayObject_fields`


class _DtypePair(NamedTuple):
    """Properties of a pair of dtypes: that of the sources and that of the targets."""

    types: Array  # addresses of `numpy.ndarray` and of the two dtypes: int64
    itemsize: int  # bytes per value of a target
    parts: int  # real numbers per value: 2 if complex, else 1
    names: tuple[str, str]  # dtype of a real number in the sources, and in the targets


def run_host(op: FusedOp, sources: Sequence[Array], targets: Sequence[Array]) -> PassResult:
    """Run a fused pass over plain arrays, and write its results to *targets*: the sources themselves, or disjoint arrays."""
    if fused.kernel_choice_host().module is None:
        return run_blocks_host(op, sources, targets)
    spans = spans_host(op, sources, targets)
    if spans is not None:
        return fused.run_spans_host(op, spans)
    if op.measures:  # before any array is written
        check_sizes(sources)
    groups: dict[Any, list[int]] = {}  # indices of arrays by dtypes; under None, arrays that the kernels do not support
    for index, (source, target) in enumerate(zip(sources, targets, strict=True)):
        is_supported = spans_host(op, [source], [target]) is not None
        groups.setdefault((source.dtype, target.dtype) if is_supported else None, []).append(index)
    if len(groups) == 1:  # the kernels support none of the arrays, or not all of them together
        return run_blocks_host(op, sources, targets)
    results = []
    for indices in groups.values():
        result = run_host(op, [sources[index] for index in indices], [targets[index] for index in indices])
        results.append((indices, result))
    return fused.merged(op, len(sources), results)


def run_in_place_host(op: FusedOp, arrays: list[Any], with_sums: bool) -> PassResult | None:
    """Run a fused pass in place after a few fast checks. If one of them fails, write nothing and return None."""
    spans = spans_host(op, arrays, arrays, disjoint=True)
    if spans is None:
        return None
    if with_sums:
        op = op._replace(square_dtype=compute_dtype(spans.source_dtype))
    return fused.run_spans_host(op, spans)


def spans_host(op: FusedOp, sources: Sequence[Any], targets: Sequence[Any], *, disjoint: bool = False) -> Spans | None:
    """
    Return the memory of *sources* and *targets*; None unless the compiled kernels support all arrays.

    All arrays must be of type `numpy.ndarray` and contiguous. All sources must have one dtype, and all targets one dtype.

    Args:
        op: Operation, which writes to *targets* if it has a factor.
        sources: Arrays, or any other values, for which the result is None.
        targets: The sources themselves, or one array of the same shape for each.
        disjoint: If True, None is also returned if two of the targets share memory.
    """
    kernels = fused.kernel_choice_host().module
    if not (kernels and sources and _reads_arrays_host(kernels)):
        return None
    pair = _dtype_pair(getattr(sources[0], "dtype", None), getattr(targets[0], "dtype", None))
    if pair is None:
        return None
    source_ids = target_ids = np.fromiter(map(id, sources), np.int64, len(sources))
    if targets is not sources:
        target_ids = np.fromiter(map(id, targets), np.int64, len(targets))
    memory = np.empty((3, len(source_ids)), np.int64)
    largest, total, are_in_order = kernels.read_arrays(
        source_ids, target_ids, _HEADER, pair.types, op.factor is not None, pair.itemsize, memory
    )
    if largest < 0 or (disjoint and not are_in_order and not fused.are_disjoint_host(memory[1], pair.itemsize * memory[2])):
        return None
    if pair.parts == 2:
        memory[2] *= 2
    source_addresses, target_addresses, sizes = memory
    return Spans(source_addresses, target_addresses, sizes, pair.parts * largest, pair.parts * total, *pair.names)


@lru_cache
def _reads_arrays_host(kernels: Any) -> bool:
    """Return True if, for some sample arrays, *kernels* read the same addresses and sizes as NumPy's attributes return."""
    rows = np.zeros((3, 4), np.float32)
    memory = np.empty((3, 1), np.int64)
    types = np.array([id(np.ndarray), id(rows.dtype), id(rows.dtype)])
    for array in (rows, rows.T, rows[:2, :3], rows[0, 0].reshape(()), np.broadcast_to(rows, (2, 3, 4))):
        ids = np.array([id(array)])
        largest, *_ = kernels.read_arrays(ids, ids, _HEADER, types, True, 4, memory)
        if array.flags.forc and array.flags.writeable:
            if (largest, *memory[:, 0].tolist()) != (array.size, array.ctypes.data, array.ctypes.data, array.size):
                return False
        elif largest != -1:
            return False
    return True


@lru_cache
def _dtype_pair(source_dtype: Any, target_dtype: Any) -> _DtypePair | None:
    """Return the properties of two dtypes; None if the kernels do not support one of the dtypes."""
    if not (isinstance(source_dtype, np.dtype) and isinstance(target_dtype, np.dtype)):
        return None
    source, target = (part_dtype(dtype.name) for dtype in (source_dtype, target_dtype))
    if not (fused.supports(source) and fused.supports(target) and source_dtype.isnative and target_dtype.isnative):
        return None
    types = np.array([id(np.ndarray), id(source_dtype), id(target_dtype)])
    return _DtypePair(types, target_dtype.itemsize, 2 if target_dtype.kind == "c" else 1, (source, target))
