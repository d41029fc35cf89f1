"""
Launches of the kernels in cuda/kernels.cu, whose first comment defines the rules for memory, order and races.

One launch processes all arrays of one dtype. It reads their addresses and lengths from a table on the device, which takes one
copy and is cached for later calls on the same memory. During graph capture, a kernel writes the table from its own arguments
instead, because a captured copy would read host memory again at every replay.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from importlib.resources import files
from itertools import groupby
from threading import get_ident
from typing import Any, NamedTuple

import cupy
import numpy as np

from ...core.dtypes import COMPLEX_PARTS, FLOATS, name_of
from ...core.norms import CLIP_EPSILON, LIFTS
from ...core.typing import Array, Flag, Scale

THREADS = 256  # a power of two
CHUNK = 16384  # numbers per block; a multiple of 8, so that every chunk is aligned to 16 bytes if the array is
DEPTH = 4  # packs that a thread reads ahead; even
TABLE_PART = 96  # rows of five int64, which with the other arguments fit into the 4096 bytes of kernel parameters
CACHED_TABLES = 32


class Launch(NamedTuple):
    """One launch of a fused pass: a kernel, its rows of the table, and the number of blocks."""

    kernel: str
    first: int
    rows: int
    blocks: int


Table = tuple[Array, list[tuple[Launch, Array]]]  # all rows on the device, and those of each launch


def launch_pass(
    sources: list[Array], targets: list[Array] | None, factor: Scale, *, divides: bool, sums: str | None = None
) -> tuple[Flag, Array | None]:
    """
    Divide or multiply all numbers of *sources* by *factor*, round the results into *targets*, and check them.

    Args:
        sources: Floating-point or complex arrays, C-contiguous.
        targets: C-contiguous arrays of the same shapes, in the same or wider dtypes. Each is its own source, or shares no memory
            with other arrays. None to check only.
        factor: float32 or float64 of shape () or (1,), or a Python number.
        divides: True to divide by *factor*, False to multiply.
        sums: Dtype in which squares are taken and summed, "float32" or "float64"; None for no sums.

    Returns:
        A bool of shape (), True if all results are finite, and the sums or None. The sums are float64 of shape (number of
        arrays, 2): the sum of squares in the precision of *sums*, and the power of two by which the values were scaled.
    """
    table, launches = _prepared(sources, targets)
    finite = _true()
    partials = None if sums is None else cupy.empty((sum(launch.blocks for launch, _ in launches), 3), dtype=np.float64)
    bits = np.int32({None: 0, "float32": 32, "float64": 64}[sums])
    arguments = *_as_arguments(factor), np.bool_(divides), bits, finite, partials
    for launch, rows in launches:
        _launch(launch.kernel, launch.blocks, rows, np.int32(launch.rows), *arguments)
    if sums is None:
        return finite, None
    totals = cupy.empty((len(sources), 2), dtype=np.float64)
    _launch(f"square_sums_{sums}", len(sources), table, partials, totals)
    return finite, totals


def launch_norms(sums: Array, dtype: str, limit: float) -> tuple[Array, Array, Array]:
    """
    Return the norms of arrays, given the sums of their squares as `launch_pass` returns them.

    Returns:
        The norm of each array, the norm of all arrays together, of shape (), and the coefficient that clips to *limit*, of
        shape (): all in *dtype*, float32 or float64.
    """
    local, norm, coefficient = (cupy.empty(shape, dtype=dtype) for shape in ((len(sums),), (), ()))
    down = LIFTS[dtype].down
    limits = (np.float64(min(value, FLOATS[dtype].largest)) for value in (limit, limit * down))
    arguments = *limits, np.float64(down), np.float64(CLIP_EPSILON)
    _launch(f"norms_{dtype}", 1, sums, np.int32(len(sums)), *arguments, local, norm, coefficient)
    return local, norm, coefficient


def described(sources: list[Array], targets: list[Array] | None) -> tuple[bytes, tuple[str, ...]]:
    """
    Return all that a table depends on: the memory of the arrays, and the kernel for each array.

    The memory is the bytes of an int64 array of shape (3, number of arrays): source addresses, target addresses and lengths.
    """
    addresses = [source.data.ptr for source in sources]
    target_addresses = [0] * len(sources) if targets is None else [target.data.ptr for target in targets]
    names = [name_of(source.dtype) for source in sources]
    lengths = [source.size * (2 if name in COMPLEX_PARTS else 1) for source, name in zip(sources, names, strict=True)]
    target_names = names if targets is None or targets is sources else [name_of(target.dtype) for target in targets]
    return np.asarray([addresses, target_addresses, lengths], np.int64).tobytes(), tuple(map(_kernel_for, names, target_names))


def plan(memory: bytes, kernels: tuple[str, ...]) -> tuple[np.ndarray, list[Launch]]:
    """Return the rows of the table, int64 of shape (number of arrays, 5), grouped by kernel, and the launches."""
    order = np.asarray(sorted(range(len(kernels)), key=kernels.__getitem__), np.int64)
    rows = np.empty((len(order), 5), np.int64)
    rows[:, :3] = np.frombuffer(memory, np.int64).reshape(3, -1).T[order]
    chunks = -(-rows[:, 2] // CHUNK)
    rows[:, 3] = np.cumsum(chunks) - chunks
    rows[:, 4] = order
    return rows, _launches([kernels[index] for index in order], chunks)


def _launches(kernels: list[str], chunks: np.ndarray) -> list[Launch]:
    launches, first = [], 0
    for kernel, group in groupby(kernels):
        count = len(list(group))
        launches.append(Launch(kernel, first, count, chunks[first : first + count].sum()))
        first += count
    return launches


@cache
def _kernel_for(source: str, target: str) -> str:
    return f"pass_{COMPLEX_PARTS.get(source, source)}_{COMPLEX_PARTS.get(target, target)}"


def _as_arguments(factor: Scale) -> tuple[Array | None, np.bool_, np.float64]:
    if isinstance(factor, int | float):
        return None, np.bool_(False), np.float64(factor)
    return factor, np.bool_(name_of(factor.dtype) == "float64"), np.float64(1)


def _true() -> Flag:
    flag = cupy.empty((), dtype=np.bool_)
    flag.data.memset_async(1, flag.nbytes)
    return flag


def _prepared(sources: list[Array], targets: list[Array] | None) -> Table:
    stream, (memory, kernels) = cupy.cuda.get_current_stream(), described(sources, targets)
    if stream.is_capturing():  # captured operations have not run yet, and the cache must not evict the table
        return _table(memory, kernels, _write_table)
    return _cached_table(memory, kernels, stream.ptr, get_ident())


@lru_cache(CACHED_TABLES)
def _cached_table(memory: bytes, kernels: tuple[str, ...], stream: int, thread: int) -> Table:  # noqa: ARG001
    """Return the table for one stream of one thread, whose order guarantees that a launch reads the table after its copy."""
    return _table(memory, kernels, cupy.asarray)  # asynchronous; CuPy keeps the pinned memory until it has been read


def _table(memory: bytes, kernels: tuple[str, ...], put: Callable[[np.ndarray], Array]) -> Table:
    rows, launches = plan(memory, kernels)
    table = put(rows)
    return table, [(launch, table[launch.first :]) for launch in launches]


def _write_table(rows: np.ndarray) -> Array:
    table = cupy.empty(rows.shape, dtype=np.int64)
    for first in range(0, len(rows), TABLE_PART):
        part = np.zeros((TABLE_PART, 5), np.int64)
        count = len(rows[first : first + TABLE_PART])
        part[:count] = rows[first : first + TABLE_PART]
        _launch("write_rows", 1, part.reshape(-1).view(f"V{part.nbytes}"), table[first:], np.int32(count))
    return table


def _launch(kernel: str, blocks: int, *arguments: Any) -> None:
    if blocks:
        _kernel(kernel)((blocks,), (THREADS,), arguments)


@cache
def _kernel(name: str) -> Any:
    return _module().get_function(name)


@cache
def _module() -> Any:
    source = files("ampscale.backends").joinpath("cuda/kernels.cu").read_text("utf-8")
    constants = {"THREADS": THREADS, "CHUNK": CHUNK, "DEPTH": DEPTH, "TABLE_PART": TABLE_PART}
    constants |= {name.upper(): value for name, value in LIFTS["float64"]._asdict().items()}
    return cupy.RawModule(code=source, options=("-fmad=false", *(f"-D{name}={value}" for name, value in constants.items())))
