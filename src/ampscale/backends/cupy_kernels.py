"""
The launches of cupy_kernels.cu, whose opening comment says what holds for memory, order and races.

One launch for all arrays of one dtype, however many there are. What it has to know about them is a table on the device. A
kernel writes the table from its own arguments, so a graph can capture that as well, and nothing is copied from the host.
A table is kept for the next call on the same memory, which then has nothing to write.
"""

from functools import cache, lru_cache
from importlib.resources import files
from itertools import groupby
from threading import get_ident
from typing import Any, NamedTuple

import cupy
import numpy as np

from ..core.dtypes import COMPLEX_PARTS, name_of
from ..core.norms import CLIP_EPSILON
from ..core.typing import Array, Flag, Scale

THREADS = 256  # a power of two
CHUNK = 16384  # numbers that one block looks at; a multiple of 8, so that every chunk begins at 16 bytes where the array does
DEPTH = 4
TABLE_PART = 96  # rows of five int64: with the other arguments they fit into the 4096 bytes that a kernel may be given
KEPT_TABLES = 32


class Launch(NamedTuple):
    """One launch of a pass: which kernel, on which rows of the table, in how many blocks."""

    kernel: str
    first: int
    rows: int
    blocks: int


def launch_pass(
    sources: list[Array], targets: list[Array] | None, factor: Scale, *, divides: bool, sums: str | None = None
) -> tuple[Flag, Array | None]:
    """
    Divides or multiplies all numbers of *sources* by *factor*, rounding them into *targets*, and looks at what came out.

    Args:
        sources: Floating-point or complex, C-contiguous.
        targets: Of the same shapes, in the same dtypes or wider ones, C-contiguous; each its own source, or memory that is
            no other array's. None to look only.
        factor: float32 or float64, shape () or (1,), or a Python number.
        divides: Whether to divide by *factor*, and not to multiply.
        sums: "float32" or "float64": also take squares in it and sum them; None for no sums.

    Returns:
        Bool, shape (): whether all results are finite; and for each array the sum of its squares in the dtype *sums*,
        shape (number of arrays,), or None.
    """
    rows, launches = plan(sources, targets)
    table = _table(rows)
    finite = cupy.ones((), dtype=np.bool_)
    partials = None if sums is None else cupy.empty(sum(launch.blocks for launch in launches), dtype=np.float64)
    bits = np.int32({None: 0, "float32": 32, "float64": 64}[sums])
    for kernel, first, count, blocks in launches:
        _launch(kernel, blocks, table[first:], np.int32(count), *_as_arguments(factor), np.bool_(divides), bits, finite, partials)
    if sums is None:
        return finite, None
    totals = cupy.empty(len(rows), dtype=sums)
    _launch(f"square_sums_{sums}", len(rows), table, partials, totals)
    return finite, totals


def launch_norms(sums: Array, limit: float) -> tuple[Array, Array, Array]:
    """
    The norms of arrays, given the sums of their squares: float32 or float64, shape (number of arrays,).

    Returns:
        In that dtype, the norm of each array; that of all together, shape (); and what to multiply by to clip to *limit*,
        shape ().
    """
    local, norm, coefficient = cupy.empty_like(sums), cupy.empty((), dtype=sums.dtype), cupy.empty((), dtype=sums.dtype)
    limits = np.float64(limit), np.float64(CLIP_EPSILON)
    _launch(f"norms_{name_of(sums.dtype)}", 1, sums, np.int32(sums.size), *limits, local, norm, coefficient)
    return local, norm, coefficient


def plan(sources: list[Array], targets: list[Array] | None) -> tuple[np.ndarray, list[Launch]]:
    """The table's rows, int64, shape (number of arrays, 5), those of one kernel together; and the launches."""
    addresses = [0] * len(sources) if targets is None else [target.data.ptr for target in targets]
    kernels = [f"pass_{_real(source)}_{_real(target)}" for source, target in zip(sources, targets or sources, strict=True)]
    order = sorted(range(len(sources)), key=kernels.__getitem__)
    lengths = np.asarray([_length(sources[index]) for index in order], np.int64)
    chunks = -(-lengths // CHUNK)
    rows = np.empty((len(order), 5), np.int64)
    rows[:, 0] = [sources[index].data.ptr for index in order]
    rows[:, 1] = [addresses[index] for index in order]
    rows[:, 2] = lengths
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


def _real(array: Array) -> str:
    name = name_of(array.dtype)
    return COMPLEX_PARTS.get(name, name)


def _length(array: Array) -> int:
    parts = 2 if name_of(array.dtype) in COMPLEX_PARTS else 1
    length: int = array.size * parts
    return length


def _as_arguments(factor: Scale) -> tuple[Array | None, np.bool_, np.float64]:
    if isinstance(factor, int | float):
        return None, np.bool_(False), np.float64(factor)
    return factor, np.bool_(name_of(factor.dtype) == "float64"), np.float64(1)


def _table(rows: np.ndarray) -> Array:
    stream = cupy.cuda.get_current_stream()
    if stream.is_capturing():  # what a graph has captured has not happened yet, and no eviction may take it away
        return _written(rows)
    return _kept(rows.tobytes(), stream.ptr, get_ident())


@lru_cache(KEPT_TABLES)
def _kept(rows: bytes, stream: int, thread: int) -> Array:  # noqa: ARG001
    """A table belongs to one stream of one thread: their order is what lets a launch read what an earlier one wrote."""
    return _written(np.frombuffer(rows, np.int64).reshape(-1, 5))


def _written(rows: np.ndarray) -> Array:
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
    source = files(__package__).joinpath("cupy_kernels.cu").read_text("utf-8")
    constants = {"THREADS": THREADS, "CHUNK": CHUNK, "DEPTH": DEPTH, "TABLE_PART": TABLE_PART}
    return cupy.RawModule(code=source, options=("-fmad=false", *(f"-D{name}={value}" for name, value in constants.items())))
