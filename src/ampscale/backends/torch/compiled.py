"""
Compiled kernels of `backends.cpu` for torch tensors in main memory.

Spec: BACKENDS-bit-identical.
"""

from operator import attrgetter
from typing import Any

import numpy as np
import torch

from ...core.dtypes import name_of
from ...core.statistics import COLUMNS, check_size
from ...core.typing import Array
from ..cpu import fused
from ..cpu.fused import FusedOp, PassResult, Spans

_dtype = attrgetter("dtype")


def run_host(op: FusedOp, arrays: list[Array]) -> PassResult | None:
    """
    Run a fused pass over *arrays* in place, in the threads that torch may use.

    Args:
        op: Operation. If it has a factor, the arrays must be disjoint.
        arrays: At least one tensor that `kernels.supports` supports.

    Returns:
        The result of the pass. None, and nothing was written, if there are no compiled kernels for the arrays, or if an array is
        not contiguous or has no memory, as torch's zero tensors, or is an inference tensor that cannot be written to.
    """
    if fused.kernel_choice_host().module is None or not arrays[0].is_cpu or not all(map(torch.Tensor.is_contiguous, arrays)):
        return None
    dtypes = list(map(_dtype, arrays))
    names = {dtype: name_of(dtype) for dtype in set(dtypes)}
    if not all(map(fused.supports, names.values())):
        return None
    if len(names) == 1:  # the usual case
        groups, spans = list[Any]([slice(None)]), [_spans_host(arrays, names[dtypes[0]])]
    else:
        groups = [[index for index, other in enumerate(dtypes) if other is dtype] for dtype in names]
        spans = [_spans_host([arrays[index] for index in indices], names[dtypes[indices[0]]]) for indices in groups]
    if any(not of_group.sources.all() and of_group.sizes[of_group.sources == 0].any() for of_group in spans):
        return None
    if op.measures:
        check_size(max(of_group.largest for of_group in spans))
    if op.factor is not None and not _increment_versions(arrays):
        return None
    sums, statistics, finite = np.empty(len(arrays), op.square_dtype), np.empty((len(arrays), len(COLUMNS)), np.int32), True
    for of_group, indices in zip(spans, groups, strict=True):
        result = fused.run_spans_host(op, of_group, torch.get_num_threads())
        finite &= result.finite
        if op.square_dtype is not None:
            sums[indices] = result.sums
        if op.measures:
            statistics[indices] = result.statistics
    return PassResult(finite, sums, statistics)


def _increment_versions(arrays: list[Array]) -> bool:
    """Tell autograd that *arrays* will be written. Return False if one is an inference tensor that cannot be written to."""
    try:
        torch.autograd.graph.increment_version(arrays)
    except RuntimeError:  # inference tensors have no version
        if not torch.is_inference_mode_enabled():
            return False
        torch.autograd.graph.increment_version([array for array in arrays if not array.is_inference()])
    return True


def _spans_host(arrays: list[Array], dtype: str) -> Spans:
    addresses = np.fromiter(map(torch.Tensor.data_ptr, arrays), np.int64, len(arrays))
    sizes = np.fromiter(map(torch.Tensor.numel, arrays), np.int64, len(arrays))
    return Spans(addresses, addresses, sizes, int(sizes.max()), int(sizes.sum()), dtype, dtype)
