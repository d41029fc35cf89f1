"""
Launches of the kernels in cuda/kernels.cu, whose first comment defines the rules for memory, order and races.

One launch processes all arrays with the same source and target dtypes. It reads their addresses and lengths from a table on the
device. Creating the table takes one copy; the table is cached for later calls on the same memory. During graph capture, a kernel
writes the table from its own arguments instead, because a captured copy would read host memory again at every replay.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib.resources import files
from itertools import groupby
from operator import attrgetter, is_, itemgetter
from threading import get_ident
from typing import Any, NamedTuple

import cupy
import numpy as np

from ...core.dtypes import COMPLEX_PARTS, FLOATS, name_of, part_dtype
from ...core.norms import CLIP_EPSILON, LIFTS
from ...core.statistics import BINS, COLUMNS, LOWEST, NO_LARGEST, NO_SMALLEST
from ...core.typing import Array, Flag, Scale

THREADS = 256  # a power of two
CHUNK = 16384  # numbers per block; a multiple of 8, so that every chunk is aligned to 16 bytes if the array is
DEPTH = 4  # packs that a thread reads ahead; an even number
WARP = 32  # threads that add the sums of an array if no array is long
# Number of rows of five int64 that fit, with the other arguments, into kernel parameters: 32,764 bytes in CUDA 13, 4096 before.
TABLE_PART = 800 if cupy.cuda.runtime.runtimeGetVersion() >= 13000 else 96
KINDS: dict[str, dict[str, int]] = {"pass": {}, "measure": {"STATISTICS": 1}, "histogram": {"EXPONENTS": 1}}  # macros by kind
CACHED = 32  # maximum number of cached plans, and of cached tables


class Operands(NamedTuple):
    """
    Addresses, sizes and dtypes of the arrays of a call, without references to the arrays. They determine the plan.

    The dtypes are those of any library: `name_of` must return their names, and `itemsize` their sizes in bytes.
    """

    addresses: tuple[int, ...]
    sizes: tuple[int, ...]
    dtypes: tuple[Any, ...]
    targets: tuple[int, ...] | None
    target_dtypes: tuple[Any, ...]


class Launch(NamedTuple):
    """One launch of a fused pass."""

    dtypes: str  # names of the dtypes of the sources and of the targets, such as "float16_float32"
    first: int  # index of the first chunk
    blocks: int  # one for each chunk


class Plan(NamedTuple):
    """Launches of one call of a function of the backend, and what they read from the device."""

    rows: np.ndarray  # int64 of shape (number of arrays, 5), with the fields of `Row` in cuda/kernels.cu; grouped by dtypes
    owners: np.ndarray  # for each chunk, the index of its row: int32
    launches: list[Launch]  # one launch of a fused pass for each pair of dtypes
    writable: bool  # True if the targets can be written


class Table(NamedTuple):
    """Plan together with its rows and owners on the device."""

    plan: Plan
    rows: Array
    owners: Array


def launch_pass(operands: Operands, factor: Scale, *, divides: bool, sums: str | None = None) -> tuple[Flag, Array | None]:
    """
    Divide or multiply all numbers of the sources by *factor*, round the results into the targets, and check them.

    Args:
        operands: Result of `operands_of`; if it has targets, its plan must be writable. The caller keeps the arrays alive.
        factor: float32 or float64 of shape () or (1,), or a Python number.
        divides: True to divide by *factor*, False to multiply.
        sums: Dtype in which squares are taken, "float32" or "float64"; None for no sums.

    Returns:
        A bool of shape (), True if all results are finite, and the sums or None. The sums are float64 of shape (number of
        arrays, 2): for each array, the sum of the squares, rounded to the precision of *sums*, and the power of two by which its
        values were multiplied before they were squared.
    """
    table = _prepared(operands)
    if sums is None:
        return _launch_all("pass", table, factor, None, divides=divides), None
    partials = cupy.empty((len(table.plan.owners), 3), dtype=np.float64)
    finite = _launch_all("pass", table, factor, partials, divides=divides, square_bits={"float32": 32, "float64": 64}[sums])
    return finite, _total(f"square_sums_{sums}", table, partials, 2)


def launch_measuring_pass(operands: Operands, factor: Scale) -> tuple[Flag, Array]:
    """Divide as `launch_pass` does; return the flag, and the statistics of the sources, int32 of shape (number of arrays, 8)."""
    table = _prepared(operands)
    partials = cupy.empty((len(table.plan.owners), len(COLUMNS)), dtype=np.int32)
    finite = _launch_all("measure", table, factor, partials)
    return finite, _total("statistics", table, partials, len(COLUMNS))


def launch_histograms(operands: Operands) -> Array:
    """Return the exponent histograms of the sources, int32 of shape (number of arrays, `BINS`). *operands* has no targets."""
    table = _prepared(operands)
    counts = cupy.empty((len(table.plan.rows), BINS), dtype=np.int32)
    counts.data.memset_async(0, counts.nbytes)
    _launch_all("histogram", table, 1, counts)
    return counts


def launch_norms(sums: Array, dtype: str, limit: float = 1.0) -> tuple[Array, Array, Array]:
    """
    Return the norms of arrays, given the sums of their squares as `launch_pass` returns them.

    Returns:
        Three arrays in *dtype*, float32 or float64: the norms of the arrays, of shape (number of arrays,); the norm of all arrays
        together, of shape (); and the coefficient that clips to *limit*, of shape ().
    """
    local, norm, coefficient = (cupy.empty(shape, dtype=dtype) for shape in ((len(sums),), (), ()))
    down = LIFTS[dtype].down
    limits = (np.float64(min(value, FLOATS[dtype].largest)) for value in (limit, limit * down))
    arguments = *limits, np.float64(down), np.float64(CLIP_EPSILON)
    _launch(f"norms_{dtype}", 1, sums, np.int32(len(sums)), *arguments, local, norm, coefficient)
    return local, norm, coefficient


def operands_of(sources: list[Array], targets: list[Array] | None = None) -> Operands:
    """
    Return the operands of a call with these arrays, which must be C-contiguous, and floating-point or complex.

    *targets* have the shapes of *sources*, in the same or wider dtypes; they are None to write no results.
    """
    addresses, sizes, dtypes = (_attributes(sources, name) for name in ("data.ptr", "size", "dtype"))
    if targets is None:
        return Operands(addresses, sizes, dtypes, None, dtypes)
    if all(map(is_, targets, sources)):
        return Operands(addresses, sizes, dtypes, addresses, dtypes)
    return Operands(addresses, sizes, dtypes, _attributes(targets, "data.ptr"), _attributes(targets, "dtype"))


@lru_cache(CACHED)
def plan_of(operands: Operands) -> Plan:
    """Return the plan for *operands*: calls with the same arrays reuse it."""
    dtypes = list(map(_part_dtypes, operands.dtypes, operands.target_dtypes))
    order = np.asarray(sorted(range(len(dtypes)), key=dtypes.__getitem__), np.int64)
    parts = [2 if name_of(dtype) in COMPLEX_PARTS else 1 for dtype in operands.dtypes]
    lengths = np.multiply(operands.sizes, parts)
    targets = operands.targets or [0] * len(lengths)
    rows = np.empty((len(order), 5), np.int64)  # columns: source, target, length, first chunk, index of the array
    rows[:, :3] = np.asarray([operands.addresses, targets, lengths], np.int64).T[order]
    chunks = -(-rows[:, 2] // CHUNK)  # number of chunks of each row, rounded up
    rows[:, 3] = np.cumsum(chunks) - chunks
    rows[:, 4] = order
    owners = np.repeat(np.arange(len(rows), dtype=np.int32), chunks)
    return Plan(rows, owners, _launches([dtypes[index] for index in order], chunks), _is_writable(operands))


@contextmanager
def on_stream(device: int, stream: Any, allocate: Callable[[int], tuple[int, Any]]) -> Iterator[None]:
    """
    Return a context manager in which kernels run on another library's stream, and memory is allocated by that library.

    Args:
        device: Number of the device.
        stream: Stream with the method `__cuda_stream__`.
        allocate: Function that allocates a number of bytes on the device, and returns their address and an object that owns them.
    """

    def memory(size: int) -> Any:
        address, owner = allocate(size)
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(address, size, owner, device), 0)

    with cupy.cuda.Device(device), cupy.cuda.Stream.from_external(stream), cupy.cuda.using_allocator(memory):
        yield


def check_compiler() -> None:
    """Compile the smallest module, so that an error of the compiler is raised before any launch."""
    _kernel("write_rows")


def _attributes(arrays: list[Array], name: str) -> tuple[Any, ...]:
    return tuple(map(attrgetter(name), arrays))


def _is_writable(operands: Operands) -> bool:
    """Return True if there are targets, and each is its own source or shares no memory with other arrays."""
    if operands.targets is None:
        return False
    spans = _spans(operands.addresses, operands.sizes, operands.dtypes)
    targets = _spans(operands.targets, operands.sizes, operands.target_dtypes)
    is_elsewhere = (targets != spans).any(1)  # True for each target that is not its own source
    spans = np.concatenate([spans, targets[is_elsewhere]])
    spans = spans[np.lexsort((spans[:, 1], spans[:, 0]))]  # sorted by start, then by end
    return not (spans[:-1, 1] > spans[1:, 0]).any()


def _spans(addresses: tuple[int, ...], sizes: tuple[int, ...], dtypes: tuple[Any, ...]) -> np.ndarray:
    """Return the address of each array, and the address after its last byte: int64, shape (number of arrays, 2)."""
    starts = np.asarray(addresses, np.int64)
    sizes_in_bytes = np.asarray(sizes, np.int64) * np.asarray([dtype.itemsize for dtype in dtypes], np.int64)
    return np.stack([starts, starts + sizes_in_bytes], axis=1)


def _launches(dtypes: list[str], chunks: np.ndarray) -> list[Launch]:
    """Return a launch for each pair of dtypes, given the pair and the number of chunks of each row; rows are grouped by pair."""
    launches: list[Launch] = []
    first = 0
    for pair, group in groupby(zip(dtypes, chunks, strict=True), key=itemgetter(0)):
        blocks = sum(count for _, count in group)
        launches.append(Launch(pair, first, blocks))
        first += blocks
    return launches


@cache
def _part_dtypes(source: Any, target: Any) -> str:
    return "_".join(part_dtype(name_of(dtype)) for dtype in (source, target))


def _launch_all(
    kind: str, table: Table, factor: Scale, collected: Array | None, *, divides: bool = True, square_bits: int = 0
) -> Flag:
    """Launch the fused passes of *kind*, a key of `KINDS`, and return the finite flag."""
    finite = _true()
    arguments = *_as_arguments(factor), np.bool_(divides), np.int32(square_bits), finite, collected
    for launch in table.plan.launches:
        _launch(f"{kind}_{launch.dtypes}", launch.blocks, table.rows, table.owners, np.int64(launch.first), *arguments)
    return finite


def _total(kernel: str, table: Table, partials: Array, fields: int) -> Array:
    """Add up *partials*, which has one row for each chunk, by array: shape (number of arrays, *fields*)."""
    lengths = table.plan.rows[:, 2]
    totals = cupy.empty((len(lengths), fields), dtype=partials.dtype)
    threads = WARP if lengths.max(initial=0) <= 4 * WARP * CHUNK else THREADS  # a warp is enough for few chunks
    blocks = -(-len(lengths) * threads // THREADS)
    _launch(kernel, blocks, table.rows, np.int32(len(lengths)), np.int32(threads), partials, totals)
    return totals


def _as_arguments(factor: Scale) -> tuple[Array | None, np.bool_, np.float64]:
    """Return the arguments `factor`, `factor_is_float64` and `number` of a fused pass."""
    if isinstance(factor, int | float):
        return None, np.bool_(False), np.float64(factor)
    return factor, np.bool_(name_of(factor.dtype) == "float64"), np.float64(1)


def _true() -> Flag:
    """Return a new flag of shape () that is True, set without a kernel launch."""
    flag = cupy.empty((), dtype=np.bool_)
    flag.data.memset_async(1, flag.nbytes)
    return flag


def _prepared(operands: Operands) -> Table:
    """Return the table for launches on the current stream: a cached table, or during graph capture a new one."""
    stream = cupy.cuda.get_current_stream()
    if stream.is_capturing():  # a captured table is written only at replay, and must live as long as the graph
        return _new_table(operands, _write_rows_and_owners)
    return _cached_table(operands, cupy.cuda.runtime.getDevice(), stream.ptr, get_ident())


@lru_cache(CACHED)
def _cached_table(operands: Operands, device: int, stream: int, thread: int) -> Table:  # noqa: ARG001
    """
    Return the table for one stream of one thread. The order of the stream guarantees that launches read the copied table.

    *device* and *thread* distinguish default streams, whose number is the same on all devices and in all threads.
    """
    return _new_table(operands, _copy_rows_and_owners)


def _new_table(operands: Operands, transfer: Callable[[Plan], Array]) -> Table:
    """Return the table for *operands*. *transfer* creates its memory: the int64 rows, followed by the int32 owners."""
    plan = plan_of(operands)
    memory = transfer(plan)
    return Table(plan, memory, memory[plan.rows.size :])


def _copy_rows_and_owners(plan: Plan) -> Array:
    """Return the memory of a table, copied from the host."""
    owners = np.zeros(-(-len(plan.owners) // 2) * 2, np.int32)  # an even number, since two int32 fill one int64
    owners[: len(plan.owners)] = plan.owners
    packed = np.concatenate([plan.rows.reshape(-1), owners.view(np.int64)])
    return cupy.asarray(packed)  # asynchronous; CuPy keeps the pinned memory until it has been read


def _write_rows_and_owners(plan: Plan) -> Array:
    """Return the memory of a table, written by kernels that receive the rows as arguments."""
    count = plan.rows.size
    memory = cupy.empty((count + -(-len(plan.owners) // 2),), dtype=np.int64)
    for first in range(0, len(plan.rows), TABLE_PART):
        rows = plan.rows[first : first + TABLE_PART]
        part = np.zeros((TABLE_PART, 5), np.int64)
        part[: len(rows)] = rows
        _launch("write_rows", len(rows), part.reshape(-1).view(f"V{part.nbytes}"), memory, memory[count:], np.int32(first))
    return memory


def _launch(kernel: str, blocks: int, *arguments: Any) -> None:
    if blocks:
        _kernel(kernel)((blocks,), (THREADS,), arguments)


@cache
def _kernel(name: str) -> Any:
    return _module(name if name.partition("_")[0] in KINDS else None).get_function(name)


@cache
def _module(name: str | None) -> Any:
    """Compile the fused pass *name*, or the other kernels if *name* is None. Compiling all at once takes six times as long."""
    source = files("ampscale.backends").joinpath("cuda/kernels.cu").read_text("utf-8")
    constants: dict[str, Any] = {"THREADS": THREADS, "CHUNK": CHUNK, "DEPTH": DEPTH, "TABLE_PART": TABLE_PART}
    constants |= {"BINS": BINS, "LOWEST": LOWEST, "NO_SMALLEST": NO_SMALLEST, "NO_LARGEST": NO_LARGEST}
    constants |= {lift.upper(): value for lift, value in LIFTS["float64"]._asdict().items()}
    if name is not None:
        kind, source_dtype, target_dtype = name.split("_")
        constants |= {"PASS": name, "IN": source_dtype, "OUT": target_dtype, **KINDS[kind]}
    return cupy.RawModule(code=source, options=("-fmad=false", *(f"-D{key}={value}" for key, value in constants.items())))
