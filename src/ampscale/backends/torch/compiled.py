"""
Compiled kernels of `backends.cpu` for torch tensors in main memory.

Spec: BACKENDS-bit-identical.
"""

from operator import attrgetter
from typing import Any

import numpy as np
import torch

from ...core.dtypes import name_of
from ...core.statistics import check_size
from ...core.typing import Array
from ..cpu import fused
from ..cpu.fused import ITEMSIZES, FusedOp, PassResult, Spans

_dtype, _itemsize = attrgetter("dtype"), attrgetter("itemsize")


def run_host(op: FusedOp, arrays: list[Array], *, disjoint: bool = False) -> PassResult | None:
    """
    Run a fused pass over *arrays* in place, in the threads that torch may use.

    Args:
        op: Operation. If it has a factor, the arrays must be disjoint.
        arrays: At least one tensor that `kernels.supports` supports.
        disjoint: True to check that the arrays are disjoint.

    Returns:
        The result of the pass. None, and nothing was written, if there are no compiled kernels for the arrays; if an array is
        not contiguous, has no memory, like torch's zero tensors, or is an inference tensor that cannot be written to; or if the
        check of *disjoint* fails.
    """
    if fused.kernel_choice_host().module is None or not arrays[0].is_cpu:
        return None
    names = {dtype: name_of(dtype) for dtype in set(map(_dtype, arrays))}
    try:
        addresses = np.fromiter(map(torch.Tensor.data_ptr, arrays), np.int64, len(arrays))
    except RuntimeError:  # a sparse array, for example, has no single address
        return None
    if not (all(map(fused.supports, names.values())) and all(map(torch.Tensor.is_contiguous, arrays))):
        return None
    sizes = np.fromiter(map(torch.Tensor.numel, arrays), np.int64, len(arrays))
    groups: list[Any] = [slice(None)]
    if len(names) > 1:
        groups = [[index for index, array in enumerate(arrays) if array.dtype is dtype] for dtype in names]
    surveyed = [_spans_host(addresses[group], sizes[group], name) for group, name in zip(groups, names.values(), strict=True)]
    spans, are_in_order = zip(*surveyed, strict=True)
    if any(group_spans.largest < 0 for group_spans in spans):
        return None
    if disjoint and (len(names) > 1 or not are_in_order[0]):
        itemsizes = np.fromiter(map(_itemsize, arrays), np.int64, len(arrays))
        if not fused.are_disjoint_host(addresses, sizes * itemsizes):
            return None
    if op.measures:
        check_size(max(group_spans.largest for group_spans in spans))
    if op.factor is not None and not increment_versions(arrays):
        return None
    results = [fused.run_spans_host(op, group_spans, torch.get_num_threads()) for group_spans in spans]
    return results[0] if len(names) == 1 else fused.merged(op, len(arrays), zip(groups, results, strict=True))


def increment_versions(arrays: list[Array]) -> bool:
    """Increment the versions by which autograd detects writes. Return False for an inference tensor that cannot be written to."""
    try:
        torch.autograd.graph.increment_version(arrays)
    except RuntimeError:  # inference tensors have no version
        if not torch.is_inference_mode_enabled():
            return False
        torch.autograd.graph.increment_version([array for array in arrays if not array.is_inference()])
    return True


def _spans_host(addresses: Any, sizes: Any, dtype: str) -> tuple[Spans, bool]:
    """Return the memory of tensors of one dtype, and True if it is known that they are disjoint; see `kernels.survey`."""
    largest, total, are_in_order = fused.kernel_choice_host().module.survey(addresses, sizes, ITEMSIZES[dtype])
    return Spans(addresses, addresses, sizes, largest, total, dtype, dtype), are_in_order
