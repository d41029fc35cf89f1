"""
Multi-tensor torch kernels that replace the core's definitions with the same bits, and checks that they support the arrays.

New tensors are created with a device, since `torch.set_default_device` may have set another one than that of the arrays.

Spec: BACKENDS-bit-identical, SCALING-reciprocal, OVERFLOW-both-sides, OVERFLOW-no-host-sync, NORMS-accumulation-dtype.
"""

import ctypes
from collections.abc import Callable, Iterable, Iterator, Set
from math import frexp, inf
from operator import attrgetter
from typing import Any

import torch

from ...core.dtypes import name_of, unscaled_dtype
from ...core.norms import LIFTS, norm_dtype
from ...core.typing import Array, Flag, Scale
from ..cpu.fused import FusedOp
from . import compiled

FLOATS = frozenset([torch.float16, torch.bfloat16, torch.float32, torch.float64])
_CLASS_SETS = ({torch.Tensor}, {torch.nn.Parameter}, {torch.Tensor, torch.nn.Parameter})  # other classes may override operations
_TRACING = torch._C._TorchDispatchModeKey.PROXY
_C_TYPES = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}
_LEAST = {torch.float32: LIFTS["float32"].least, torch.float64: LIFTS["float64"].least}
_SMALL = 1 << 12  # values; for a smaller array, a call takes longer than reading the values
_BLOCK = 1 << 17  # values per thread; as float32, they fill half of a core's cache, so that reading them again is fast

_last_reciprocal: dict[float, Array] = {}

_dtype, _layout, _device = attrgetter("dtype"), attrgetter("layout"), attrgetter("device")
_is_cpu, _ndim, _requires_grad = attrgetter("is_cpu"), attrgetter("ndim"), attrgetter("requires_grad")


def supports(arrays: list[Array]) -> bool:
    """Return True if *arrays* are plain strided float tensors on the CPU or one CUDA device, without autograd, in eager mode."""
    return (
        _are_plain(arrays)
        and set(map(_dtype, arrays)) <= FLOATS
        and set(map(_layout, arrays)) == {torch.strided}
        and (all(map(_is_cpu, arrays)) or (arrays[0].is_cuda and len(set(map(_device, arrays))) == 1))
        and not any(map(torch.Tensor.is_neg, arrays))
    )


def are_disjoint(arrays: list[Array]) -> bool:
    """Return True if no two values of *arrays* share memory, so that they can be written in any order."""
    starts = sorted(map(torch.Tensor.data_ptr, arrays))
    ends = [array.data_ptr() + array.nbytes for array in arrays]
    return sorted(starts + ends)[::2] == starts and all(map(is_dense, arrays))  # starts and ends alternate if none overlap


def unscale_(arrays: list[Array], scale: Scale, *, least: float = 0.0) -> Array:
    """
    Divide *arrays* by *scale* in place, and check them before and after the division.

    In one pass, torch's kernel checks the values and then multiplies them by the reciprocal. This is enough if the reciprocal
    is exact, and the scale is at least 1, so that no finite value becomes infinite. Otherwise a second pass checks the quotients.
    A scale on a device is not copied to the host, so one pass is enough only if *least* is at least 1.

    Args:
        arrays: Disjoint arrays that the kernels support.
        scale: Python number, or float32 or float64 of shape () or (1,) on the device of the arrays.
        least: Lower bound of *scale* if *scale* is certainly a power of two and normal in float32; else 0.0.

    Returns:
        torch's `found_inf`: float32, shape (), 1.0 if a value is non-finite, else 0.0.
    """
    value = value_host(scale)
    in_one_pass = least >= 1 or _allows_one_pass(value)
    # For float32, one pass of torch's kernel is at least as fast as the compiled kernels.
    if value is not None and not (in_one_pass and torch.float32 in set(map(_dtype, arrays))):
        result = compiled.run_host(FusedOp(value, checks=True), arrays)
        if result is not None:
            return torch.full((), not result.finite, dtype=torch.float32, device="cpu")
    found_inf = torch.zeros((), dtype=torch.float32, device=arrays[0].device)
    if in_one_pass or least:
        _check_and_multiply(arrays, found_inf, _scalar(scale, torch.float32, found_inf).reciprocal())
    else:
        _divide(arrays, scale)
    if not in_one_pass:
        _check_and_multiply(arrays, found_inf, torch.ones_like(found_inf))
    return found_inf


def unscale_and_square_(arrays: list[Array], scale: Scale) -> tuple[Flag, Array] | None:
    """
    Do what `unscale_` and `square_sums` do, in one pass over arrays on the host.

    Returns:
        True if all values are finite, and the sums. None, and nothing was written, if there are no compiled kernels for the
        arrays, if the arrays share memory, or if *scale* is on a device.
    """
    op = FusedOp(value_host(scale), checks=True, square_dtype=norm_dtype(arrays))
    result = None if op.factor is None else compiled.run_host(op, arrays, disjoint=True)
    if result is None:
        return None
    return torch.full((), result.finite, device="cpu"), torch.from_numpy(result.sums)


def unscale_and_measure_(arrays: list[Array], scale: Scale) -> tuple[Flag, Array] | None:
    """
    Do what `unscale_` does, and collect the statistics of the values before the division, in one pass over arrays on the host.

    Every step may call this, so it makes few checks: *arrays* may be any tensors.

    Returns:
        True if all values are finite, and the statistics. None, and nothing was written, in the cases of `unscale_and_square_`,
        and if the kernels do not support the arrays or *scale*.
    """
    if not _are_plain(arrays if isinstance(scale, int | float) else [*arrays, scale]):
        return None
    op = FusedOp(value_host(scale), checks=True, measures=True)
    is_supported = op.factor is not None and not any(map(torch.Tensor.is_neg, arrays))
    result = compiled.run_host(op, arrays, disjoint=True) if is_supported else None
    if result is None:
        return None
    return torch.full((), result.finite, device="cpu"), torch.from_numpy(result.statistics)


def supports_in_one_pass(arrays: list[Array], scale: Scale, dtypes: Set[torch.dtype] = FLOATS) -> bool:
    """
    Return True if `unscale_in_one_pass_` supports *scale* and *arrays*, and all *arrays* have one of *dtypes*.

    The arguments may be any tensors. Every step calls this, so it makes few checks.
    """
    return (
        type(scale) is torch.Tensor
        and scale.dtype is torch.float32
        and not scale.ndim
        and _allows_one_pass(value_host(scale))
        and _are_plain(arrays)
        and set(map(_dtype, arrays)) <= dtypes
        and not (torch.is_grad_enabled() and scale.requires_grad)
        and _are_disjoint_on_host(arrays)
    )


def unscale_in_one_pass_(arrays: list[Array], scale: Array) -> Array | None:
    """
    Do what `unscale_` does, in one pass over arrays on the host and with little overhead, for training loops.

    Returns:
        torch's `found_inf` as from `unscale_`. None, and nothing was written, if an array is a negated view or a zero tensor.
    """
    found_inf = torch.zeros_like(scale)
    try:
        torch._amp_foreach_non_finite_check_and_unscale_(arrays, found_inf, _reciprocal(scale))
    except RuntimeError:
        if any(array.is_neg() or array._is_zerotensor() for array in arrays):  # the kernel rejects these before it writes
            return None
        raise
    return found_inf


def quotients(arrays: list[Array], scale: Scale, dtype: str | None = None) -> list[Array]:
    """Divide *arrays*, which the kernels must support, by *scale* as in `core.scaling.unscale`; return new arrays."""
    if dtype is None:
        return _applied(torch._foreach_div, arrays, scale)
    results = _applied(torch._foreach_div, [array.float() if array.itemsize == 2 else array for array in arrays], scale)
    dtypes = {source: getattr(torch, unscaled_dtype(name_of(source), dtype)) for source in set(map(_dtype, arrays))}
    return [result.to(dtypes[array.dtype]) for array, result in zip(arrays, results, strict=True)]


def products(arrays: list[Array], factor: Scale) -> list[Array]:
    """Multiply *arrays*, which the kernels must support, by *factor* as in `core.scaling.scale`; return new arrays."""
    return _applied(torch._foreach_mul, arrays, factor)


def multiply_(arrays: list[Array], factor: Array) -> None:
    """Multiply disjoint *arrays*, which the kernels must support, by *factor* in place, as `products` does."""
    value = value_host(factor)
    if value is None or compiled.run_host(FusedOp(value, divides=False), arrays) is None:
        torch._foreach_copy_(arrays, products(arrays, factor))


def all_finite(arrays: list[Array]) -> Flag:
    """Return a bool of shape (): True if all *arrays*, which the kernels must support, are finite. Each value is read once."""
    non_empty = [array for array in arrays if array.numel()]
    extremes = [value.double() for group in grouped(non_empty, _dtype) for value in _extremes(group)]
    if not extremes:
        return torch.ones((), dtype=torch.bool, device=arrays[0].device)
    return torch.stack(extremes).isfinite().all()


def square_sums(arrays: list[Array], dtype: torch.dtype) -> Array:
    """
    Return the sum of the squares of each of *arrays*, which the kernels support on the host: shape (number of arrays,).

    The squares and the result have *dtype*, float32 or float64, which is no narrower than the arrays; each sum is computed in
    float64 and rounded. For contiguous arrays, scratch memory is allocated only for one block.
    """
    result = compiled.run_host(FusedOp(square_dtype=name_of(dtype)), arrays)
    if result is not None:
        return torch.from_numpy(result.sums)
    if dtype == torch.float64:
        return torch.stack([_sum_in_blocks(array, dtype) for array in arrays])
    sums = (_sums(batch) if len(batch) > 1 else _sum_in_blocks(batch[0], dtype).reshape(1) for batch in _batches(arrays))
    return torch.cat(list(sums)).to(dtype)


def sum_in_order(sums: Array) -> Array:
    """Return the sum, shape (), of an array of shape (n,) on the host, adding the values in order and rounding each time."""
    if len(sums) == 1:
        return sums.reshape(())
    indices = torch.zeros_like(sums, dtype=torch.int64)
    return torch.zeros_like(sums[:1]).index_add_(0, indices, sums).reshape(())  # torch's `sum` adds in a different order


def inaccurate_norms(norms: Array) -> list[int]:
    """Return the indices of norms on the host that are infinite or tiny, because squares may have overflowed or underflowed."""
    least = _LEAST[norms.dtype]
    values = (_C_TYPES[norms.dtype] * norms.numel()).from_address(norms.data_ptr())
    return [index for index, value in enumerate(values) if value == inf or value < least]


def is_dense(array: Array) -> bool:
    """Return True if the values fill a range of memory without gaps or overlaps, in any order of the dimensions."""
    return array.is_contiguous() or torch._debug_has_internal_overlap(array) == 0


def value_host(scale: Scale) -> float | None:
    """
    Return the value of a number or of an array on the host; None if a device-to-host copy would be necessary.

    The value is read from the memory of the array without a torch operation, so no host synchronization takes place.
    """
    if isinstance(scale, int | float):
        return float(scale)
    if not scale.is_cpu or scale.is_neg():
        return None
    return float(_C_TYPES[scale.dtype].from_address(scale.data_ptr()).value)


def grouped(arrays: list[Array], key: Callable[[Array], Any]) -> list[list[Array]]:
    """Return *arrays* in one list for each result of *key*, in the order of their first arrays."""
    groups = dict[Any, list[Array]]()
    for array in arrays:
        groups.setdefault(key(array), []).append(array)
    return list(groups.values())


def _are_plain(arrays: list[Array]) -> bool:
    """Return True if *arrays* has at least one tensor, all are plain and without autograd, and torch is in eager mode."""
    return (
        _is_eager()
        and set(map(type, arrays)) in _CLASS_SETS
        and not (torch.is_grad_enabled() and any(map(_requires_grad, arrays)))
    )


def _is_eager() -> bool:
    """Return True if operations run when they are called: no compilation, functorch transform or tracing is active."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._get_tracing_state() is not None
        or torch._C._get_dispatch_mode(_TRACING) is not None
    )


def _are_disjoint_on_host(arrays: list[Array]) -> bool:
    """Return True if *arrays* are disjoint and on the host. Two storages are assumed to share no memory."""
    try:
        addresses = set(map(torch.Tensor.data_ptr, arrays))
    except RuntimeError:  # a sparse array, for example, has no single address
        return False
    # Two contiguous arrays that begin where their storages begin are disjoint if and only if their addresses differ.
    begin_storages = not any(map(torch.Tensor.storage_offset, arrays)) and all(map(torch.Tensor.is_contiguous, arrays))
    disjoint = begin_storages and len(addresses) == len(arrays)
    if disjoint and 0 not in addresses and not torch.accelerator.is_available():  # meta tensors have address 0
        return True  # without an accelerator, all other memory is on the host
    return all(map(_is_cpu, arrays)) and (disjoint or are_disjoint(arrays))


def _allows_one_pass(scale: float | None) -> bool:
    """Return True if *scale* is a power of two of at least 1 whose reciprocal is normal in float32; see `unscale_`."""
    return scale is not None and 1 <= scale <= 2.0**126 and frexp(scale)[0] == 0.5


def _reciprocal(scale: Array) -> Array:
    """Return the reciprocal of a float32 scale on the host. The last result is cached, because a scale seldom changes."""
    value = ctypes.c_float.from_address(scale.data_ptr()).value
    result = _last_reciprocal.get(value)
    if result is None:
        result = scale.reciprocal()
        if type(result) is torch.Tensor and not result.is_inference():
            _last_reciprocal.clear()
            _last_reciprocal[value] = result
    return result


def _scalar(value: Scale, dtype: torch.dtype, like: Array) -> Array:
    """Return *value* in *dtype* with shape () on the device of *like*."""
    if isinstance(value, int | float):
        return torch.full((), 1.0 * value, dtype=dtype, device=like.device)  # torch rejects ints of more than 64 bits
    return value.reshape(()).to(dtype)


def _compute_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _check_and_multiply(arrays: list[Array], found_inf: Array, factor: Array) -> None:
    """Check *arrays*, set *found_inf* to 1.0 if a value is non-finite, and multiply *arrays* by *factor* in place."""
    groups = [arrays] if found_inf.is_cpu else grouped(arrays, _dtype)  # on CUDA, arrays of one dtype take one launch
    for group in groups:
        if _amp_rejects(group):
            found_inf.copy_(torch.maximum(found_inf, all_finite(group).logical_not()))
            torch._foreach_copy_(group, products(group, factor))
        else:
            torch._amp_foreach_non_finite_check_and_unscale_(group, found_inf, factor)


def _amp_rejects(arrays: list[Array]) -> bool:
    """Return True if torch's kernel does not support the dtype: bfloat16 on CUDA."""
    is_cuda: bool = arrays[0].is_cuda
    return is_cuda and arrays[0].dtype == torch.bfloat16


def _divide(arrays: list[Array], scale: Scale) -> None:
    """Divide *arrays* by *scale* in place: in float64 for float64 arrays, else in float32, rounded once."""
    for group in grouped(arrays, _dtype):
        divisor = _scalar(scale, _compute_dtype(group[0].dtype), group[0])
        if group[0].is_cpu or group[0].dtype == divisor.dtype:
            torch._foreach_div_(group, divisor)
        else:
            torch._foreach_copy_(group, torch._foreach_div(list(map(_operand, group)), divisor))


def _applied(operation: Callable[..., Iterable[Array]], arrays: list[Array], factor: Scale) -> list[Array]:
    """Apply *operation* to each of *arrays* and *factor*, in float64 for float64 arrays, else in float32, and round once."""
    dtypes = set(map(_dtype, arrays))
    if len(dtypes) > 1 and torch.float64 in dtypes:
        return [result for array in arrays for result in _applied(operation, [array], factor)]
    scalar = _scalar(factor, _compute_dtype(arrays[0].dtype), arrays[0])
    is_direct = all(map(_ndim, arrays)) and (scalar.is_cpu or dtypes == {scalar.dtype})  # otherwise see `_operand`
    if is_direct:
        return list(operation(arrays, scalar))
    results = operation(list(map(_operand, arrays)), scalar)
    return [result.to(array.dtype).reshape(array.shape) for result, array in zip(results, arrays, strict=True)]


def _operand(array: Array) -> Array:
    """Return *array* with at least one dimension, and in float32 if it is a 16-bit array on a device."""
    # torch would widen an array of shape () to the dtype of the scalar. On CUDA, it would round the scalar to a 16-bit dtype.
    if not array.is_cpu and array.itemsize == 2:
        array = array.float()
    return array if array.ndim else array.reshape(1)


def _extremes(arrays: list[Array]) -> Iterable[Array]:
    """Return the extremes of non-empty *arrays* of one dtype. They are finite only if all values are: aminmax propagates NaNs."""
    if not arrays[0].is_cpu:
        norms: Iterable[Array] = torch._foreach_norm(arrays, inf)
        return norms
    batches = (batch[0] if len(batch) == 1 else torch._C._nn.flatten_dense_tensors(batch) for batch in _batches(arrays))
    return [value for values in batches for value in torch.aminmax(values)]


def _sums(arrays: list[Array]) -> Array:
    """Return the sum of the squares of each of several small arrays: float64, shape (number of arrays,)."""
    values = torch._C._nn.flatten_dense_tensors(arrays).float()
    lengths = torch.tensor([array.numel() for array in arrays], device="cpu")
    return torch.segment_reduce((values * values).double(), "sum", lengths=lengths, unsafe=True)


def _sum_in_blocks(array: Array, dtype: torch.dtype) -> Array:
    """Return the float64 sum, of shape (), of the squares of *array*. The squares are taken in *dtype*."""
    blocks = array.reshape(-1).split(_BLOCK * torch.get_num_threads())
    return torch.stack([block.to(dtype).square().double().sum() for block in blocks]).sum()


def _batches(arrays: list[Array]) -> Iterator[list[Array]]:
    """Yield batches of *arrays* in order: small arrays of one dtype, together up to `_BLOCK` values, or one larger array."""
    batch = list[Array]()
    batch_size = 0
    for array in arrays:
        size = array.numel()
        if batch and (size > _SMALL or batch_size + size > _BLOCK or array.dtype != batch[0].dtype):
            yield batch
            batch = []
            batch_size = 0
        if size > _SMALL:
            yield [array]
        else:
            batch.append(array)
            batch_size += size
    if batch:
        yield batch
