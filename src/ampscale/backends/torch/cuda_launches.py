"""
Kernels of cuda/kernels.cu for torch's CUDA tensors: one launch for all arrays of a dtype, if CuPy is installed.

CuPy compiles and launches them on torch's current stream, with memory of torch. torch's own `torch.cuda._compile_kernel` is
private, and passes integers in 32 bits, which addresses and sizes exceed.

Spec: BACKENDS-bit-identical, OVERFLOW-fused, OVERFLOW-no-host-sync, NORMS-fused, STATISTICS-same-everywhere.
"""

import os
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

import torch

from ...core.dtypes import name_of, unscaled_dtype
from ...core.norms import norm_dtype
from ...core.statistics import check_sizes
from ...core.typing import Array, Flag, Scale
from ...parsing import cut
from ..cpu.fused import VARIABLE, KernelChoice
from . import kernels
from .compiled import increment_versions

_dtype, _is_cuda = attrgetter("dtype"), attrgetter("is_cuda")


class Results(NamedTuple):
    """Results of a pass over tensors: the arrays that contain the values, the finite flag, and what was collected, or None."""

    values: list[Array]
    finite: Flag
    collected: Array | None = None


@cache
def kernel_choice_host() -> KernelChoice:
    """Decide whether to use these kernels. The first call reads the environment and imports CuPy."""
    if os.environ.get(VARIABLE) == "numpy":
        return KernelChoice(None, f"{VARIABLE} is numpy")
    if torch.version.cuda is None:
        return KernelChoice(None, "torch is not built for CUDA")
    try:
        from ..cupy import launches

        launches.check_compiler()
    except Exception as error:  # noqa: BLE001 - CuPy and the driver may fail in any way
        return KernelChoice(None, f"CuPy cannot be used: {cut(str(error), 400)}")
    return KernelChoice(launches, "CuPy is installed")


def unscaled(
    arrays: list[Array], scale: Scale, out: list[Array] | None = None, dtype: str | None = None, *, collects: str | None = None
) -> Results | None:
    """
    Divide *arrays* by *scale* as `core.scaling.unscale` does, and check the results.

    Args:
        arrays: Tensors that `kernels.supports` supports.
        scale: Python number, or float32 or float64 of shape () or (1,), which `kernels.supports` supports.
        out: Tensors of the same shapes that receive the results, *arrays* itself to divide in place; None for new tensors.
        dtype: As for `core.scaling.unscale`, for new tensors.
        collects: "norm" for the global norm of the results, "statistics" for the statistics of *arrays*; None for neither.

    Returns:
        The results. None, and nothing was written, in the cases of `checked`, or if *scale* is on another device, or if tensors
        of *out* have other strides than their sources, share memory with other tensors, or are inference tensors that cannot be
        written to.
    """
    launches = _launches_for(arrays, collects)
    if launches is None or (out is not None and out is not arrays and not _supports_targets(arrays, out)):
        return None
    factor = kernels.value_host(scale)
    if factor is None and scale.device != arrays[0].device:
        return None
    targets = _like(arrays, dtype) if out is None else out
    operands = _operands_of(launches, arrays, targets)
    if out is not None and not (launches.plan_of(operands).writable and increment_versions(out)):
        return None
    return _run(launches, operands, targets, scale if factor is None else factor, collects)


def checked(arrays: list[Array], *, collects: str | None = None) -> Results | None:
    """
    Check *arrays*, which `kernels.supports` must support, and collect what `unscaled` does.

    Returns:
        The results. None if the kernels are not used, *arrays* are not on a CUDA device or not dense, or a graph is being
        captured: the first launch of a kernel compiles it, which a capture does not allow.
    """
    launches = _launches_for(arrays, collects)
    return None if launches is None else _run(launches, _operands_of(launches, arrays), arrays, 1, collects)


def _launches_for(arrays: list[Array], collects: str | None) -> Any:
    """Return the module that launches the kernels if they are used for *arrays*, else None; check sizes before measuring."""
    if not _is_cuda(arrays[0]) or torch.cuda.is_current_stream_capturing():
        return None
    if 0 in map(torch.Tensor.data_ptr, arrays) and any(array.numel() and not array.data_ptr() for array in arrays):
        return None  # torch's zero tensors have no memory
    if collects == "statistics":
        check_sizes(arrays)
    are_dense = all(map(torch.Tensor.is_contiguous, arrays)) or all(map(kernels.is_dense, arrays))
    return kernel_choice_host().module if are_dense else None


def _supports_targets(arrays: list[Array], targets: list[Array]) -> bool:
    """Return True if the kernels support *targets* beside *arrays*, and each target has the strides of its source."""
    if not kernels.supports([*arrays, *targets]):
        return False
    return list(map(torch.Tensor.stride, targets)) == list(map(torch.Tensor.stride, arrays))


def _operands_of(launches: Any, sources: list[Array], targets: list[Array] | None = None) -> Any:
    """Do for torch tensors what `operands_of` in the module *launches* does for CuPy arrays."""
    addresses = tuple(map(torch.Tensor.data_ptr, sources))
    sizes = tuple(map(torch.Tensor.numel, sources))
    dtypes = tuple(map(_dtype, sources))
    if targets is None:
        return launches.Operands(addresses, sizes, dtypes, None, dtypes)
    if targets is sources:
        return launches.Operands(addresses, sizes, dtypes, addresses, dtypes)
    return launches.Operands(addresses, sizes, dtypes, tuple(map(torch.Tensor.data_ptr, targets)), tuple(map(_dtype, targets)))


def _like(arrays: list[Array], dtype: str | None) -> list[Array]:
    """Return new, uninitialized tensors with the layouts of *arrays* and the `unscaled_dtype` of each."""
    dtypes = {source: getattr(torch, unscaled_dtype(name_of(source), dtype)) for source in set(map(_dtype, arrays))}
    return [torch.empty_like(array, dtype=dtypes[array.dtype]) for array in arrays]


def _run(launches: Any, operands: Any, values: list[Array], factor: Scale, collects: str | None) -> Results:
    """Divide by *factor*, check, and collect, on the current stream of torch; *values* contain the results."""
    device = values[0].device

    def allocate(size: int) -> tuple[int, Array]:
        memory = torch.empty(size, dtype=torch.uint8, device=device)
        return memory.data_ptr(), memory

    with launches.on_stream(device.index, torch.cuda.current_stream(device), allocate):
        if isinstance(factor, torch.Tensor):
            factor = launches.cupy.asarray(factor.detach())  # shares the memory
        if collects == "statistics":
            finite, collected = launches.launch_measuring_pass(operands, factor)
        elif collects == "norm":
            finite, sums = launches.launch_pass(operands, factor, divides=True, sums=norm_dtype(values))
            _, collected, _ = launches.launch_norms(sums, norm_dtype(values))
        else:
            finite, collected = launches.launch_pass(operands, factor, divides=True)
        finite = torch.as_tensor(finite, device=device)
        return Results(values, finite, None if collected is None else torch.as_tensor(collected, device=device))
