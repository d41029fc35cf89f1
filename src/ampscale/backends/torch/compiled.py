"""
Compiled kernels of `backends.cpu` for torch tensors in main memory.

Spec: BACKENDS-bit-identical.
"""

from operator import attrgetter

import numpy as np
import torch

from ...core.dtypes import name_of
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
        not contiguous or has no memory, as torch's zero tensors.
    """
    if fused.kernel_choice_host().module is None or not arrays[0].is_cpu or not all(map(torch.Tensor.is_contiguous, arrays)):
        return None
    groups: dict[torch.dtype, list[int]] = {}
    for index, dtype in enumerate(map(_dtype, arrays)):
        groups.setdefault(dtype, []).append(index)
    if not all(fused.supports(name_of(dtype)) for dtype in groups):
        return None
    spans = [_spans_host([arrays[index] for index in indices], name_of(dtype)) for dtype, indices in groups.items()]
    if any((of_group.sizes[of_group.sources == 0] > 0).any() for of_group in spans):
        return None
    if op.factor is not None:
        torch.autograd.graph.increment_version([array for array in arrays if not array.is_inference()])
    sums, finite = np.empty(len(arrays), op.square_dtype), True
    for of_group, indices in zip(spans, groups.values(), strict=True):
        result = fused.run_spans_host(op, of_group, torch.get_num_threads())
        finite &= result.finite
        if op.square_dtype is not None:
            sums[indices] = result.sums
    return PassResult(finite, sums)


def _spans_host(arrays: list[Array], dtype: str) -> Spans:
    addresses = np.fromiter(map(torch.Tensor.data_ptr, arrays), np.int64, len(arrays))
    sizes = np.fromiter(map(torch.Tensor.numel, arrays), np.int64, len(arrays))
    return Spans(addresses, addresses, sizes, int(sizes.max()), int(sizes.sum()), dtype, dtype)
