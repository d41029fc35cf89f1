"""
Compiled kernels of `backends.cpu` for torch tensors in main memory.

Spec: BACKENDS-bit-identical.
"""

from typing import Any, NamedTuple

import numpy as np
import torch

from ...core.dtypes import name_of
from ...core.statistics import check_size
from ...core.typing import Array
from ..cpu import fused
from ..cpu.fused import ITEMSIZES, FusedOp, PassResult, Spans


class _Group(NamedTuple):
    """Tensors of one dtype."""

    indices: Any  # indices of the tensors among all arrays: a list of ints, or a slice
    spans: Spans  # their memory
    are_in_order: bool  # True if each tensor ends before the next one starts


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
    groups = _groups_host(arrays)
    if not groups or (disjoint and not _are_disjoint_host(groups)):
        return None
    if op.measures:
        check_size(max(group.spans.largest for group in groups))
    if op.factor is not None and not increment_versions(arrays):
        return None
    results = [(group.indices, fused.run_spans_host(op, group.spans, torch.get_num_threads())) for group in groups]
    return results[0][1] if len(results) == 1 else fused.merged(op, len(arrays), results)


def increment_versions(arrays: list[Array]) -> bool:
    """Increment the versions by which autograd detects writes. Return False for an inference tensor that cannot be written to."""
    try:
        torch.autograd.graph.increment_version(arrays)
    except RuntimeError:  # inference tensors have no version
        if not torch.is_inference_mode_enabled():
            return False
        torch.autograd.graph.increment_version([array for array in arrays if not array.is_inference()])
    return True


def _groups_host(arrays: list[Array]) -> list[_Group]:
    """Return one group for each dtype of *arrays*; no groups if the kernels do not support all arrays."""
    module = fused.kernel_choice_host().module
    if module is None or not arrays[0].is_cpu:
        return []
    try:
        addresses = np.fromiter(map(torch.Tensor.data_ptr, arrays), np.int64, len(arrays))
    except RuntimeError:  # a sparse array, for example, has no single address
        return []
    names = {dtype: name_of(dtype) for dtype in {array.dtype for array in arrays}}
    if not (all(map(fused.supports, names.values())) and all(map(torch.Tensor.is_contiguous, arrays))):
        return []
    sizes = np.fromiter(map(torch.Tensor.numel, arrays), np.int64, len(arrays))
    groups = []
    for dtype, name in names.items():
        indices: Any = slice(None)
        if len(names) > 1:
            indices = [index for index, array in enumerate(arrays) if array.dtype is dtype]
        group_addresses, group_sizes = addresses[indices], sizes[indices]
        largest, total, are_in_order = module.survey(group_addresses, group_sizes, ITEMSIZES[name])
        spans = Spans(group_addresses, group_addresses, group_sizes, largest, total, name, name)
        groups.append(_Group(indices, spans, are_in_order))
    return [] if any(group.spans.largest < 0 for group in groups) else groups


def _are_disjoint_host(groups: list[_Group]) -> bool:
    """Return True if no two arrays in *groups* share memory."""
    if len(groups) == 1 and groups[0].are_in_order:
        return True
    spans = [group.spans for group in groups]
    lengths = [part.sizes * ITEMSIZES[part.source_dtype] for part in spans]
    return fused.are_disjoint_host(np.concatenate([part.sources for part in spans]), np.concatenate(lengths))
