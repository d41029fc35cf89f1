"""
Statistics and exponent histograms of torch tensors, from their bits.

Spec: STATISTICS-same-everywhere, STATISTICS-shards, STATISTICS-no-host-sync.
"""

import torch

from ...core.dtypes import name_of, part_dtype
from ...core.statistics import BINS, COLUMNS, bins_of_bits, bit_codes, check_sizes, row_of
from ...core.typing import Array
from ..cpu.fused import FusedOp
from . import compiled, cuda_launches, kernels
from .dtensor import local_part

_HISTOGRAM_BLOCK = 1 << 22  # values whose bins are in memory at a time


def measured(arrays: list[Array]) -> Array:
    """
    Return the statistics of strided tensors, or of the local shards of DTensors: int32, shape (number of arrays, 8).

    Raises:
        ValueError: A tensor has 2**31 or more real numbers.
    """
    if kernels.supports(arrays):
        result = compiled.run_host(FusedOp(measures=True), arrays)
        if result is not None:
            return torch.from_numpy(result.statistics)
        launched = cuda_launches.checked(arrays, collects="statistics")
        if launched is not None:
            return launched.collected
    arrays = _local(arrays)
    rows = [row_of(_magnitudes(array), bit_codes(part_dtype(name_of(array.dtype)))) for array in arrays]
    return torch.stack(rows) if rows else torch.zeros((0, len(COLUMNS)), dtype=torch.int32)


def exponent_histogram(arrays: list[Array]) -> Array:
    """Return the exponent histograms of *arrays*, given as for `measured`: int32, shape (number of arrays, `BINS`)."""
    histograms = []
    for array in _local(arrays):
        dtype = getattr(torch, part_dtype(name_of(array.dtype)))
        histogram = torch.zeros(BINS + 1, dtype=torch.int32, device=array.device)
        for block in _magnitudes(array).reshape(-1).split(_HISTOGRAM_BLOCK):
            bins = bins_of_bits(block, dtype, _bits)
            histogram = histogram.index_add(0, bins, torch.ones_like(bins))  # vmap does not support `index_add_` here
        histograms.append(histogram[:-1])  # without the count of zeros, infinities and NaNs
    return torch.stack(histograms) if histograms else torch.zeros((0, BINS), dtype=torch.int32)


def _local(arrays: list[Array]) -> list[Array]:
    """Return *arrays* without autograd: local shards of DTensors, values of jagged tensors. Reject arrays that are too large."""
    arrays = [local_part(array.detach()) for array in arrays]
    arrays = [array.values() if array.layout == torch.jagged else array for array in arrays]
    check_sizes(arrays)
    return arrays


def _magnitudes(array: Array) -> Array:
    """Return the bit patterns of the real numbers of *array* without the sign, as signed integers."""
    numbers = torch.view_as_real(array.resolve_conj()) if array.is_complex() else array
    return _bits(numbers.resolve_neg()).bitwise_and(2 ** (8 * numbers.itemsize - 1) - 1)


def _bits(numbers: Array) -> Array:
    return numbers.view(getattr(torch, f"int{8 * numbers.itemsize}"))
