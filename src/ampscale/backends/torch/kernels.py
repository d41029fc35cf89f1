"""
torch's kernels for many arrays at once, in the place of the definitions: which arrays they take, and what keeps their bits.

Spec: BACKENDS-bit-identical, SCALING-reciprocal, OVERFLOW-both-sides, OVERFLOW-no-host-sync, NORMS-accumulation-dtype.
"""

import ctypes
from collections.abc import Callable, Iterable, Iterator, Set
from math import frexp, inf
from operator import attrgetter

import torch

from ...core.dtypes import name_of
from ...core.norms import LIFTS
from ...core.scaling import unscaled_dtype
from ...core.typing import Array, Flag, Scale

FLOATS = frozenset([torch.float16, torch.bfloat16, torch.float32, torch.float64])
_OWN = frozenset([torch.Tensor, torch.nn.Parameter])  # of another class, an operation may mean something else
_OWN_ALONE = ({torch.Tensor}, {torch.nn.Parameter}, {torch.Tensor, torch.nn.Parameter})
_RECORDS = torch._C._TorchDispatchModeKey.PROXY
_CELLS = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}
_LEAST = {torch.float32: LIFTS["float32"].least, torch.float64: LIFTS["float64"].least}
_SMALL = 1 << 12  # values: calling for a smaller array costs more than reading it
_BLOCK = 1 << 17  # values for each thread: in float32 half of a core's cache, where they are read for the second time

_dtype, _layout, _device = attrgetter("dtype"), attrgetter("layout"), attrgetter("device")
_is_cpu, _ndim, _requires_grad = attrgetter("is_cpu"), attrgetter("ndim"), attrgetter("requires_grad")


def takes(arrays: list[Array], dtypes: Set[torch.dtype] = FLOATS) -> bool:
    """
    Whether the kernels take *arrays*: torch's own, strided, of *dtypes* alone, and on one CPU or CUDA device; and operations
    are done as they are called, without autograd.
    """
    return (
        len(arrays) > 0
        and _is_eager()
        and set(map(type, arrays)) <= _OWN
        and set(map(_dtype, arrays)) <= dtypes
        and set(map(_layout, arrays)) == {torch.strided}
        and (all(map(_is_cpu, arrays)) or _share_cuda_device(arrays))
        and not any(map(torch.Tensor.is_neg, arrays))
        and not (torch.is_grad_enabled() and any(map(_requires_grad, arrays)))
    )


def are_apart(arrays: list[Array]) -> bool:
    """Whether each value of *arrays* has memory of its own, so that they can be written to in any order."""
    begins = sorted(map(torch.Tensor.data_ptr, arrays))
    ends = [array.data_ptr() + array.nbytes for array in arrays]
    return sorted(begins + ends)[::2] == begins and all(map(_is_dense, arrays))  # each has ended before the next begins


def unscale_(arrays: list[Array], scale: Scale, *, least: float = 0.0) -> Array:
    """
    Divides *arrays* by *scale*, in place, and checks them before and after.

    Args:
        arrays: What the kernels take, apart.
        scale: A Python number, or float32 or float64 of shape () or (1,), where the arrays are.
        least: Where the caller knows that *scale* is a power of two, normal in float32: what it is at least; else 0.0.

    Returns:
        Float32, shape (): 1.0 where something was not finite, else 0.0, as torch's own update and optimizers take it.

    The kernel looks at what it finds and multiplies, in one pass. With an exact reciprocal that is the definition, and from
    a scale of 1 up no finite value becomes infinite. Else a second pass looks at the quotients: also where the caller does
    not tell of a scale on a device, which is never looked at; in the host's memory it is.
    """
    once = least >= 1 or _is_exact(_value_host(scale))
    found = torch.zeros((), dtype=torch.float32, device=arrays[0].device)
    if once or least:
        _look_and_multiply(arrays, found, _scalar(scale, torch.float32, found).reciprocal())
    else:
        _divide(arrays, scale)
    if not once:
        _look_and_multiply(arrays, found, torch.ones_like(found))
    return found


def takes_at_once(arrays: list[Array], scale: Scale, dtypes: Set[torch.dtype] = FLOATS) -> bool:
    """
    Return True if `unscale_at_once_` takes *arrays*, of any kind, and *scale*; asked with as few questions as will do.

    Args:
        arrays: Of any kind.
        scale: As for `unscale_`.
        dtypes: Which of the kernel's dtypes *arrays* may have.
    """
    return (
        type(scale) is torch.Tensor
        and scale.dtype is torch.float32
        and not scale.ndim
        and _is_exact(_value_host(scale))
        and _is_eager()
        and set(map(type, arrays)) in _OWN_ALONE
        and set(map(_dtype, arrays)) <= dtypes
        and not (torch.is_grad_enabled() and (scale.requires_grad or any(map(_requires_grad, arrays))))
        and _are_apart_on_host(arrays)
    )


def unscale_at_once_(arrays: list[Array], scale: Array) -> Array | None:
    """
    `unscale_` for every step of a loop: in one pass over arrays in the host's memory.

    Returns:
        As `unscale_`; None if an array is a negated view, and then nothing has changed.
    """
    found = torch.zeros_like(scale)
    try:
        torch._amp_foreach_non_finite_check_and_unscale_(arrays, found, scale.reciprocal())
    except RuntimeError:
        if any(map(torch.Tensor.is_neg, arrays)):  # told before anything is written
            return None
        raise
    return found


def quotients(arrays: list[Array], scale: Scale, dtype: str | None = None) -> list[Array]:
    """New arrays: *arrays*, which the kernels take, divided by *scale*, as `core.scaling.unscale` has it."""
    if dtype is None:
        return _applied(torch._foreach_div, arrays, scale)
    results = _applied(torch._foreach_div, [array.float() if array.itemsize == 2 else array for array in arrays], scale)
    wanted = {each: getattr(torch, unscaled_dtype(name_of(each), dtype)) for each in {array.dtype for array in arrays}}
    return [result.to(wanted[array.dtype]) for array, result in zip(arrays, results, strict=True)]


def products(arrays: list[Array], factor: Scale) -> list[Array]:
    """New arrays: *arrays*, which the kernels take, times *factor*, as `core.scaling.scale` has it."""
    return _applied(torch._foreach_mul, arrays, factor)


def all_finite(arrays: list[Array]) -> Flag:
    """Whether all values of *arrays*, which the kernels take, are finite: bool, shape (). They are read once, and no more."""
    filled = [array for array in arrays if array.numel()]
    extremes = [value.double() for each in _by_dtype(filled) for value in _extremes(each)]
    if not extremes:
        return torch.ones((), dtype=torch.bool, device=arrays[0].device)
    return torch.stack(extremes).isfinite().all()


def square_sums(arrays: list[Array], dtype: torch.dtype) -> Array:
    """
    The sum of the squares of each of *arrays*, which the kernels take, and which lie in the host's memory.

    Args:
        arrays: No wider than *dtype*.
        dtype: float32 or float64: of the squares, and of each sum once it has been taken in float64.

    Returns:
        Shape (number of arrays,). Nothing larger than a block is allocated for arrays that are contiguous.
    """
    room = max(1, min(_BLOCK * torch.get_num_threads(), max(array.numel() for array in arrays)))
    squares, wide = torch.empty(room, dtype=dtype), torch.empty(room, dtype=torch.float64)
    if dtype == torch.float64:
        return torch.stack([_sum_in_blocks(array, squares, squares) for array in arrays])
    batches = (_sums(each) if len(each) > 1 else _sum_in_blocks(each[0], squares, wide).reshape(1) for each in _batches(arrays))
    return torch.cat(list(batches)).to(dtype)


def added_in_order(sums: Array) -> Array:
    """The sum of *sums*, shape (n,) and in the host's memory, each added to those before it and rounded: shape ()."""
    total, place = torch.zeros(1, dtype=sums.dtype), torch.zeros(len(sums), dtype=torch.int64)
    return total.index_add_(0, place, sums).reshape(())  # torch's `sum` has an order of its own


def wrong_norms(norms: Array) -> list[int]:
    """Return the indices of those of *norms*, plain ones in the host's memory, that are infinite or tiny."""
    cell, least = _CELLS[norms.dtype], _LEAST[norms.dtype]
    values = (cell * norms.numel()).from_address(norms.data_ptr())
    return [index for index, value in enumerate(values) if value == inf or value < least]


def _is_eager() -> bool:
    """Whether operations are done as they are called: nothing compiles, transforms or records them."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._get_tracing_state() is not None
        or torch._C._get_dispatch_mode(_RECORDS) is not None
    )


def _share_cuda_device(arrays: list[Array]) -> bool:
    devices = set(map(_device, arrays))
    return len(devices) == 1 and arrays[0].is_cuda


def _are_apart_on_host(arrays: list[Array]) -> bool:
    """Whether *arrays* are apart and lie in the host's memory; mostly told from their storages, which share no memory."""
    try:
        places = set(map(torch.Tensor.data_ptr, arrays))
    except RuntimeError:  # a sparse array, say, has no one piece of memory
        return False
    fill_storages = not any(map(torch.Tensor.storage_offset, arrays)) and all(map(torch.Tensor.is_contiguous, arrays))
    apart = fill_storages and len(places) == len(arrays)
    if apart and 0 not in places and torch.accelerator.current_accelerator() is None:  # 0 is the place of the meta device
        return True  # for what else has memory, has it here
    return all(map(_is_cpu, arrays)) and (apart or are_apart(arrays))


def _is_dense(array: Array) -> bool:
    """Whether its values lie one beside the other, in any order of its dimensions; not sure of slices."""
    return array.is_contiguous() or torch._debug_has_internal_overlap(array) == 0


def _value_host(scale: Scale) -> float | None:
    """
    The value of a number, and of an array in the host's memory; None where it would have to be fetched.

    It is taken as it lies there, by no operation of torch's, and nothing has to be waited for: the host looks at its own
    memory, as it does with NumPy's arrays. What is counted as a read is a wait for a device.
    """
    if isinstance(scale, int | float):
        return float(scale)
    if not scale.is_cpu or scale.is_neg():
        return None
    return float(_CELLS[scale.dtype].from_address(scale.data_ptr()).value)


def _is_exact(scale: float | None) -> bool:
    """Whether one pass will do: a power of two whose reciprocal is normal in float32, and that makes no value larger."""
    return scale is not None and 1 <= scale <= 2.0**126 and frexp(scale)[0] == 0.5


def _scalar(value: Scale, dtype: torch.dtype, like: Array) -> Array:
    """*value* in *dtype*, shape (), where *like* is."""
    if isinstance(value, int | float):
        return torch.full((), value, dtype=dtype, device=like.device)
    return value.reshape(()).to(dtype)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _by_dtype(arrays: list[Array]) -> list[list[Array]]:
    groups = dict[torch.dtype, list[Array]]()
    for array in arrays:
        groups.setdefault(array.dtype, []).append(array)
    return list(groups.values())


def _look_and_multiply(arrays: list[Array], found: Array, factor: Array) -> None:
    for each in [arrays] if found.is_cpu else _by_dtype(arrays):  # on CUDA one dtype is one launch
        torch._amp_foreach_non_finite_check_and_unscale_(each, found, factor)


def _divide(arrays: list[Array], scale: Scale) -> None:
    for each in _by_dtype(arrays):
        divisor = _scalar(scale, _wide(each[0].dtype), each[0])
        if each[0].is_cpu or each[0].dtype == divisor.dtype:
            torch._foreach_div_(each, divisor)
        else:
            torch._foreach_copy_(each, torch._foreach_div(list(map(_operand, each)), divisor))


def _applied(operation: Callable[..., Iterable[Array]], arrays: list[Array], factor: Scale) -> list[Array]:
    """*operation* on each of *arrays* and *factor*: computed in float32, or float64 for float64, and rounded once."""
    dtypes = set(map(_dtype, arrays))
    if len(dtypes) > 1 and torch.float64 in dtypes:
        return [result for array in arrays for result in _applied(operation, [array], factor)]
    scalar = _scalar(factor, _wide(arrays[0].dtype), arrays[0])
    if all(map(_ndim, arrays)) and (scalar.is_cpu or dtypes == {scalar.dtype}):
        return list(operation(arrays, scalar))
    return list(map(_like, operation(list(map(_operand, arrays)), scalar), arrays))


def _operand(array: Array) -> Array:
    """Beside an array of shape () a scalar would widen the result, and on CUDA it is rounded to 16 bits before it divides."""
    if not array.is_cpu and array.itemsize == 2:
        array = array.float()
    return array if array.ndim else array.reshape(1)


def _like(value: Array, array: Array) -> Array:
    return value.to(array.dtype).reshape(array.shape)


def _extremes(arrays: list[Array]) -> Iterable[Array]:
    """Some values of *arrays*, of one dtype and none empty, that are finite where all are: a NaN is an extreme too."""
    if not arrays[0].is_cpu:
        norms: Iterable[Array] = torch._foreach_norm(arrays, inf)
        return norms
    batches = (batch[0] if len(batch) == 1 else torch._C._nn.flatten_dense_tensors(batch) for batch in _batches(arrays))
    return [value for values in batches for value in torch.aminmax(values)]


def _sums(arrays: list[Array]) -> Array:
    """The sums of the squares of small arrays, each value added to those before it: float64, shape (number of arrays,)."""
    values = torch._C._nn.flatten_dense_tensors(arrays).float()
    lengths = torch.tensor([array.numel() for array in arrays])
    return torch.segment_reduce((values * values).double(), "sum", lengths=lengths, unsafe=True)


def _sum_in_blocks(array: Array, squares: Array, wide: Array) -> Array:
    """The sum of the squares of *array*: float64, shape (). The squares are taken in the memory given, and so is their sum."""
    sums = []
    for block in array.reshape(-1).split(len(squares)):
        held, widened = squares[: len(block)], wide[: len(block)]
        torch.mul(block, block, out=held) if block.dtype == held.dtype else held.copy_(block).mul_(held)
        sums.append((held if squares is wide else widened.copy_(held)).sum())
    return torch.stack(sums).sum()


def _batches(arrays: list[Array]) -> Iterator[list[Array]]:
    """*arrays* in their order: small ones of one dtype together, up to a block, and each larger one by itself."""
    batch, values = list[Array](), 0
    for array in arrays:
        size = array.numel()
        if batch and (size > _SMALL or values + size > _BLOCK or array.dtype != batch[0].dtype):
            yield batch
            batch, values = [], 0
        if size > _SMALL:
            yield [array]
        else:
            batch.append(array)
            values += size
    if batch:
        yield batch
