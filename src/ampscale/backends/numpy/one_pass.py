"""
One pass over NumPy's arrays: each value is read from memory once, and what is to be known of it is found while it is near.

Memory sets the pace: what is done to a block that was just read costs a quarter of reading it. So large arrays are worked on
block by block, and small ones are gathered into one. How arrays are cut depends on their shapes alone, and so does every sum.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ...core import scaling
from ...core.dtypes import name_of
from ...core.typing import Array
from . import blocks as kernels
from . import half_tables as halves
from .blocks import Blocks, total
from .threads import in_threads, thread_count_host

SEGMENT = 1 << 22  # numbers of one array that a thread works on at once
COPIED = 1 << 17  # numbers that are copied at once, where an array is not contiguous or changes its dtype
SMALL = 1 << 12  # an array of more numbers is a unit of its own
GATHERED = 1 << 17  # numbers that small arrays have together
THREADED = 1 << 24  # bytes of large arrays; for less, threads cost more than they save. Small arrays and 16-bit ones, with an
# operation every few microseconds, keep the interpreter busy, which one thread alone can have
TABLE = 1 << 16  # 16-bit values in all for which a table of results is worth while

SIZE_OF, DTYPE_OF = attrgetter("size"), attrgetter("dtype")
PARTS = {np.dtype(np.complex64): kernels.FLOAT32, np.dtype(np.complex128): kernels.FLOAT64}


class Unit(NamedTuple):
    """What is worked on at once: a part of one array, or several small arrays of one dtype; none of them empty."""

    places: list[int]  # of the arrays among all
    sources: list[Array]
    targets: list[Array]  # where nothing is written, or all of it in place, the sources
    is_flat: bool = False  # one part of one array, of shape (n,), contiguous and not complex


class Task(NamedTuple):
    """A unit, with its blocks where it has some."""

    unit: Unit
    blocks: Blocks | None


class Outcome(NamedTuple):
    """What is known of the results of a unit, or of a pass."""

    finite: bool  # True where it was not asked for
    sums: Any  # of the squares in each array; empty where they were not asked for


class Pass(NamedTuple):
    """What is done with every value, and what is to be known of the results."""

    number: float | None = None  # None: nothing is done
    divides: bool = True  # by the number; or multiplies by it
    checks: bool = False
    sums: Any = None  # the dtype in which squares are taken; None for no sums
    many: bool = False  # whether a table of 16-bit results is worth while

    def prepared(self, unit: Unit) -> Blocks | None:
        """The blocks of *unit*; None where it is worked on in another way."""
        source, target = unit.sources[0], unit.targets[0]
        large = unit.is_flat and source.size > kernels.BLOCK and source.itemsize > 2
        if not large or self.number is None or (source is not target and source.dtype != target.dtype):
            return None
        if self.sums is not None:
            return kernels.blocks_to_sum(source, target) if kernels.sums_by_row_host(source.dtype, self.sums) else None
        return kernels.blocks_to_check(source, target) if self.checks else None

    def work_host(self, tasks: Iterator[tuple[int, Task]]) -> list[tuple[int, Any]]:
        """What is known of the units of *tasks*, which have numbers; of those with blocks, as yet the products."""
        with np.errstate(all="ignore"):  # it holds for one thread
            return [(index, self._task_host(*task)) for index, task in tasks]

    def concluded_host(self, task: Task, found: Any) -> Outcome:
        """What is known of the unit of *task*, from what `work_host` has found."""
        if task.blocks is None:
            outcome: Outcome = found
            return outcome
        (target,) = task.unit.targets
        if self.sums is None:
            return Outcome(kernels.are_finite_host(found, target), ())
        finite, square = kernels.square_host(found, task.blocks.rest, target)
        return Outcome(finite, [square])

    def _task_host(self, unit: Unit, blocks: Blocks | None) -> Any:
        if blocks is not None:
            return kernels.run_host(blocks, kernels.factor_host(self.number, unit.sources[0].dtype, divides=self.divides))
        if len(unit.places) > 1:
            return self._each_host(unit)
        return self._flat_host(unit.sources[0], unit.targets[0]) if unit.is_flat else self._one_host(unit)

    def _one_host(self, unit: Unit) -> Outcome:
        """A part of one array, or all of a small one."""
        (source,), (target,) = unit.sources, unit.targets
        if source.size <= SMALL and source.flags.c_contiguous and target.flags.c_contiguous:
            return self._flat_host(_parts(source.reshape(-1)), _parts(target.reshape(-1)))
        values = _parts(np.array(source, order="C").reshape(-1))
        results = values if source.dtype == target.dtype else np.empty(values.shape, target.dtype)
        outcome = self._flat_host(values, results)
        if self.number is not None:
            target[...] = results.view(target.dtype).reshape(target.shape)
        return outcome

    def _flat_host(self, source: Array, target: Array) -> Outcome:
        """Values of shape (n,), contiguous."""
        if source.dtype != target.dtype:
            return _joined(self._widened_host(*parts) for parts in _cut_flat(source, target, COPIED))
        if source.itemsize == 2:
            if self.sums is None:
                return self._halves_host(source, target)
            return _joined(self._halves_host(*parts) for parts in _cut_flat(source, target, COPIED))
        factor = None if self.number is None else kernels.factor_host(self.number, source.dtype, divides=self.divides)
        if self.sums is not None and not kernels.sums_by_row_host(source.dtype, self.sums):
            finite, square = kernels.add_up_as_defined_host(source, target, factor, self.sums)
            return Outcome(finite, [square])
        if factor is not None:
            factor.operation(source, factor.number, target)
        if self.sums is not None:
            finite, square = kernels.add_up_host(target, self.sums)
            return Outcome(finite, [square])
        return Outcome(not self.checks or kernels.check_host(target), ())

    def _widened_host(self, source: Array, target: Array) -> Outcome:
        target[...] = scaling.unscale(source, self.number, name_of(target.dtype))
        return self._replace(number=None)._flat_host(target, target)

    def _halves_host(self, source: Array, target: Array) -> Outcome:
        dtype, bits, results, finite = source.dtype, source.view(np.uint16), target.view(np.uint16), True
        if self.number is not None:
            finite = halves.Half(dtype, self.divides, float(np.float32(self.number))).apply_host(bits, results, many=self.many)
        elif self.checks:
            finite = halves.are_finite_host(results, dtype)
        if self.sums is None:
            return Outcome(finite, ())
        parts = (halves.magnitudes_host(part, dtype) for part, _ in _cut_flat(results, results, halves.STEP))
        return Outcome(finite, [total([kernels.add_up_host(part, self.sums)[1] for part in parts])])

    def _each_host(self, unit: Unit) -> Outcome:
        """Several small arrays."""
        if unit.sources[0].itemsize == 2:
            values = np.concatenate(unit.sources, axis=None)
            outcome = self._replace(sums=None)._halves_host(values, values)
            if self.number is not None:
                _scatter(values, unit.targets)
            return outcome if self.sums is None else self._sums_of_each_host(unit, values.astype(np.float32))
        if self.number is not None:
            factor = kernels.factor_host(self.number, unit.sources[0].dtype, divides=self.divides)
            deque(map(factor.operation, unit.sources, repeat(factor.number), unit.targets), maxlen=0)
        if self.sums is not None:
            return self._sums_of_each_host(unit, _gathered(unit.targets))
        if not self.checks:
            return Outcome(True, ())
        values = _gathered(unit.targets)
        return Outcome(kernels.check_host(values), ())

    def _sums_of_each_host(self, unit: Unit, values: Array) -> Outcome:
        return Outcome(*kernels.add_up_each_host(values, list(map(SIZE_OF, unit.targets)), self.sums))


def run_host(work: Pass, sources: Sequence[Array], targets: Sequence[Array]) -> Outcome:
    """
    *work* on *sources*, with the results in *targets*.

    Args:
        work: What to do.
        sources: Arrays as `numpy_layout.plain` gives them.
        targets: *sources* themselves where nothing is written; else arrays of the same shapes that `numpy_layout.can_write`.

    Returns:
        What is known of all results; the sums in the dtype in which squares were taken, one for each array.
    """
    units = units_of(sources, targets)
    work = work._replace(many=_count_halves(units) >= TABLE)
    large = sum(unit.sources[0].nbytes for unit in units if len(unit.places) == 1 and unit.sources[0].itemsize > 2)
    threads = min(thread_count_host(), len(units)) if large >= THREADED else 1
    tasks = [Task(unit, work.prepared(unit)) for unit in units]
    done = in_threads(work.work_host, tasks, threads)
    with np.errstate(all="ignore"):
        outcomes = list(map(work.concluded_host, tasks, done))
    finite = all(outcome.finite for outcome in outcomes)
    return Outcome(finite, () if work.sums is None else _totals(units, outcomes, len(sources), work.sums))


def units_of(sources: Sequence[Array], targets: Sequence[Array]) -> list[Unit]:
    """The units into which arrays are cut or gathered."""
    units: list[Unit] = []
    places, froms, intos, _ = Unit([], [], [])
    current, room = None, 0
    rows = zip(sources, targets, map(SIZE_OF, sources), map(DTYPE_OF, sources), strict=True)
    for place, (source, target, size, dtype) in enumerate(rows):
        if dtype is not current or not 0 < size <= room:
            if not size:
                continue
            if size > SMALL or dtype in PARTS or dtype != target.dtype:
                units.extend(_units_of_one(place, source, target))
                continue
            units.append(Unit([], [], []))
            places, froms, intos, _ = units[-1]
            current, room = dtype, GATHERED
        places.append(place)
        froms.append(source)
        intos.append(target)
        room -= size
    return units


def _count_halves(units: Sequence[Unit]) -> int:
    """How many 16-bit values there are."""
    return sum(sum(map(SIZE_OF, unit.sources)) for unit in units if unit.sources[0].itemsize == 2)


def _units_of_one(place: int, source: Array, target: Array) -> Iterator[Unit]:
    """The units of an array that is not gathered with others."""
    if source is target:
        flat = into = _flat(source, source.flags.c_contiguous)
    else:
        order = source.flags.c_contiguous and target.flags.c_contiguous
        flat, into = _flat(source, order), _flat(target, order)
    if flat is None or into is None:
        yield from (Unit([place], [part], [out]) for part, out in _cut(source, target))
    elif flat.size <= SEGMENT:
        yield Unit([place], [flat], [into], is_flat=True)
    else:
        yield from (Unit([place], [part], [out], is_flat=True) for part, out in _cut_flat(flat, into, SEGMENT))


def _flat(array: Array, in_rows: bool) -> Array | None:
    """*array* in shape (n,), complex numbers as pairs, its rows or its columns one after the other; None where it is copied."""
    if in_rows:
        return _parts(array if array.ndim == 1 else array.reshape(-1))
    return _parts(array.T.reshape(-1)) if array.flags.f_contiguous else None


def _cut_flat(source: Array, target: Array, most: int) -> Iterator[tuple[Array, Array]]:
    """Parts of up to *most* numbers of shape (n,), in order."""
    yield from ((source[start : start + most], target[start : start + most]) for start in range(0, source.size, most))


def _cut(source: Array, target: Array) -> Iterator[tuple[Array, Array]]:
    """Parts that can be copied, of arrays that are not contiguous."""
    if source.size <= COPIED:
        yield source, target
    else:
        axis = source.shape.index(max(source.shape))
        middle = source.shape[axis] // 2
        for half in (slice(middle), slice(middle, None)):
            index = (*[slice(None)] * axis, half)
            yield from _cut(source[index], target[index])


def _parts(flat: Array) -> Array:
    """A contiguous array of shape (n,), with complex numbers as pairs of real ones."""
    return flat.view(PARTS[flat.dtype]) if flat.dtype in PARTS else flat


def _gathered(arrays: Sequence[Array]) -> Array:
    """The values of *arrays*, one after the other, read-only."""
    try:
        return np.frombuffer(b"".join(arrays), arrays[0].dtype)  # the fastest way there is, for contiguous ones
    except TypeError:
        return np.concatenate(arrays, axis=None)


def _scatter(values: Array, arrays: Sequence[Array]) -> None:
    """Writes *values* into *arrays*, one after the other."""
    start = 0
    for array in arrays:
        array[...] = values[start : start + array.size].reshape(array.shape)
        start += array.size


def _joined(parts: Iterator[Outcome]) -> Outcome:
    """What is known of an array, from what is known of its parts."""
    outcomes = list(parts)
    sums = [square for outcome in outcomes for square in outcome.sums]
    return Outcome(all(outcome.finite for outcome in outcomes), [total(sums)] if sums else ())


def _totals(units: Sequence[Unit], outcomes: Sequence[Outcome], count: int, dtype: Any) -> Array:
    """The sums of *count* arrays, each rounded once to *dtype*."""
    totals = np.zeros(count)
    parts: dict[int, list[float]] = {}
    for unit, outcome in zip(units, outcomes, strict=True):
        if len(unit.places) > 1:
            totals[unit.places] = outcome.sums
        else:
            parts.setdefault(unit.places[0], []).extend(outcome.sums)
    for place, squares in parts.items():
        totals[place] = total(squares)
    with np.errstate(over="ignore"):
        return totals.astype(dtype)
