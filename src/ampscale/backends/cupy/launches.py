"""
The launches of cuda/kernels.cu, whose opening comment says what holds for memory, order and races.

One launch for all arrays of one dtype, however many there are. What it has to know about them is a table on the device: one
copy, kept for the next call on the same memory, which then has nothing to write. For a graph a kernel writes the table from
its own arguments, since a copy that a graph captures would read the host's memory again at every replay.
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
CHUNK = 16384  # numbers that one block looks at; a multiple of 8, so that every chunk begins at 16 bytes where the array does
DEPTH = 4  # even
TABLE_PART = 96  # rows of five int64: with the other arguments they fit into the 4096 bytes that a kernel may be given
KEPT_TABLES = 32


class Launch(NamedTuple):
    """One launch of a pass: which kernel, on which rows of the table, in how many blocks."""

    kernel: str
    first: int
    rows: int
    blocks: int


Table = tuple[Array, list[tuple[Launch, Array]]]  # all rows, on the device; and those of each launch


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
        Bool, shape (): whether all results are finite; and for each array the sum of its squares in the digits of *sums*,
        and the power of two that its values were multiplied by: float64, shape (number of arrays, 2), or None.
    """
    table, launches = _prepared(sources, targets)
    finite = _true()
    partials = None if sums is None else cupy.empty((sum(launch.blocks for launch, _ in launches), 3), dtype=np.float64)
    bits = np.int32({None: 0, "float32": 32, "float64": 64}[sums])
    given = *_as_arguments(factor), np.bool_(divides), bits, finite, partials
    for launch, rows in launches:
        _launch(launch.kernel, launch.blocks, rows, np.int32(launch.rows), *given)
    if sums is None:
        return finite, None
    totals = cupy.empty((len(sources), 2), dtype=np.float64)
    _launch(f"square_sums_{sums}", len(sources), table, partials, totals)
    return finite, totals


def launch_norms(sums: Array, dtype: str, limit: float) -> tuple[Array, Array, Array]:
    """
    The norms of arrays, given the sums of their squares as `launch_pass` returns them.

    Returns:
        In *dtype*, float32 or float64, the norm of each array; that of all together, shape (); and what to multiply by to
        clip to *limit*, shape ().
    """
    local, norm, coefficient = (cupy.empty(shape, dtype=dtype) for shape in ((len(sums),), (), ()))
    down = LIFTS[dtype].down
    limits = (np.float64(min(each, FLOATS[dtype].largest)) for each in (limit, limit * down))
    given = *limits, np.float64(down), np.float64(CLIP_EPSILON)
    _launch(f"norms_{dtype}", 1, sums, np.int32(len(sums)), *given, local, norm, coefficient)
    return local, norm, coefficient


def described(sources: list[Array], targets: list[Array] | None) -> tuple[bytes, tuple[str, ...]]:
    """
    All that a table depends on: int64, shape (3, number of arrays): where the numbers are, where they go, and how many of them
    there are; and the kernel for each array.
    """
    addresses = [source.data.ptr for source in sources]
    written = [0] * len(sources) if targets is None else [target.data.ptr for target in targets]
    names = [name_of(source.dtype) for source in sources]
    lengths = [source.size * (2 if name in COMPLEX_PARTS else 1) for source, name in zip(sources, names, strict=True)]
    wanted = names if targets is None or targets is sources else [name_of(target.dtype) for target in targets]
    return np.asarray([addresses, written, lengths], np.int64).tobytes(), tuple(map(_kernel_for, names, wanted))


def plan(memory: bytes, kernels: tuple[str, ...]) -> tuple[np.ndarray, list[Launch]]:
    """The table's rows, int64, shape (number of arrays, 5), those of one kernel together; and the launches."""
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
    if stream.is_capturing():  # what a graph has captured has not happened yet, and no eviction may take it away
        return _table(memory, kernels, _written)
    return _kept(memory, kernels, stream.ptr, get_ident())


@lru_cache(KEPT_TABLES)
def _kept(memory: bytes, kernels: tuple[str, ...], stream: int, thread: int) -> Table:  # noqa: ARG001
    """A table belongs to one stream of one thread: their order is what lets a launch read what was copied before it."""
    return _table(memory, kernels, cupy.asarray)  # asynchronous, from pinned memory that CuPy holds until it has been read


def _table(memory: bytes, kernels: tuple[str, ...], put: Callable[[np.ndarray], Array]) -> Table:
    rows, launches = plan(memory, kernels)
    table = put(rows)
    return table, [(launch, table[launch.first :]) for launch in launches]


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
    source = files("ampscale.backends").joinpath("cuda/kernels.cu").read_text("utf-8")
    constants = {"THREADS": THREADS, "CHUNK": CHUNK, "DEPTH": DEPTH, "TABLE_PART": TABLE_PART}
    constants |= {name.upper(): value for name, value in LIFTS["float64"]._asdict().items()}
    return cupy.RawModule(code=source, options=("-fmad=false", *(f"-D{name}={value}" for name, value in constants.items())))
