"""Checks that a fused pass supports the arrays and can write to its targets, and allocation of new targets."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from operator import attrgetter, is_
from typing import Any

import numpy as np

from ...core.dtypes import COMPLEX_PARTS, FLOATS, name_of, unscaled_dtype
from ...core.typing import Array


def plain(arrays: Sequence[Any]) -> list[Array] | None:
    """
    Return *arrays* as plain `numpy.ndarray` objects; scalars become arrays of shape ().

    Returns:
        None if *arrays* is empty, if a fused pass does not support the dtype or byte order of an array, or if an array is of a
        subclass other than `numpy.memmap`: a masked array, for example, defines its own division.
    """
    types = set(map(type, arrays))
    if types != {np.ndarray}:
        if not all(cls in (np.ndarray, np.memmap) or issubclass(cls, np.generic) for cls in types):
            return None
        arrays = [np.asarray(array) for array in arrays]
    are_supported = all(map(_is_supported, set(map(attrgetter("dtype"), arrays))))
    return list(arrays) if arrays and are_supported else None


def like(sources: Sequence[Array], dtype: str | None = None) -> list[Array]:
    """Return new, uninitialized arrays like *sources*. If *dtype* is not None, narrower real arrays get this dtype."""
    if dtype is None:
        return list(map(np.empty_like, sources))
    dtypes = set(map(attrgetter("dtype"), sources))
    narrower = {source for source in dtypes if unscaled_dtype(name_of(source), dtype) != name_of(source)}
    return [np.empty_like(source, dtype=dtype if source.dtype in narrower else None) for source in sources]


def can_write(targets: Sequence[Array], sources: Sequence[Array]) -> bool:
    """Return True if *targets* can be written in any order: each is its own source, or shares no memory with other arrays."""
    in_place = len(targets) == len(sources) and all(map(is_, targets, sources))
    if in_place and all(base is None for base in map(attrgetter("base"), targets)):  # each target owns its memory
        return len(set(map(id, targets))) == len(targets)
    # Each pair is a set, so that a source with exactly the memory of its own target counts once and does not overlap it.
    pairs = [{_memory(target), _memory(source)} for target, source in zip(targets, sources, strict=True) if target.size]
    spans = sorted(_span(*memory) for pair in pairs for memory in pair)
    return all(left[1] <= right[0] for left, right in pairwise(spans)) and not any(map(_overlaps_itself, targets))


@lru_cache
def _is_supported(dtype: Any) -> bool:
    try:
        name = name_of(dtype)
    except TypeError:  # the core's definition raises the error
        return False
    return (name in FLOATS or name in COMPLEX_PARTS) and dtype.isnative


def _memory(array: Array) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    """Return the address, item size, shape and strides of an array."""
    return array.__array_interface__["data"][0], array.itemsize, array.shape, array.strides


def _span(address: int, itemsize: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """Return the address of an array's first byte, and the address after its last byte."""
    offsets = [(length - 1) * stride for length, stride in zip(shape, strides, strict=True)]
    return address + sum(min(0, offset) for offset in offsets), address + sum(max(0, offset) for offset in offsets) + itemsize


def _overlaps_itself(array: Array) -> bool:
    """Return True if two values may share memory: a stride is less than the extent of the axes with smaller strides."""
    extent = array.itemsize
    for stride, length in sorted((abs(stride), length) for stride, length in zip(array.strides, array.shape, strict=True)):
        if length > 1 and stride < extent:
            return True
        extent += stride * max(length - 1, 0)
    return False
