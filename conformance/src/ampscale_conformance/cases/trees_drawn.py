"""Drawn trees of arrays: dtypes, shapes, containers and layouts."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import cycle
from math import inf, prod
from operator import is_
from typing import Any, NamedTuple

import numpy as np

from ..model.adapter import ImplementationInfo, Unsupported
from ..model.bits import DIGITS, Bits, map_tree
from ..model.bits import arrays as flat
from ..model.draw import Pick, one_in
from ..model.floats import FORMATS
from ..model.subject import Subject
from ..oracle.tensors import PARTS

COUNTS = (1, 2, 3) * 9 + (12, 100)  # numbers of arrays
SHAPES = ((1,), (), (3,), (2, 2), (0, 3), (2, 1, 1, 3, 1), (1, 1, 1, 3), (0,), (129, 2), (21,))
MATRICES = ((2, 3), (4, 5), (5, 2), (2, 3, 4), (5,))  # for layouts with another order of axes, or with repeated rows
LARGE = ((1024,), (2, 515), (17, 5, 26), (4097,), (100_003,))  # also a block of one element after others
CLAIMS = {"bfloat16": "bfloat16", **dict.fromkeys(PARTS, "complex")}  # capabilities of dtypes
REACH = 30  # range of exponents around 0: scaled values stay normal, since some libraries flush subnormal ones to zero
PERIOD = 7  # number of elements after which arrays repeat themselves
ORDERS = (range(PERIOD), (*range(1, PERIOD), 0), (0, 1, 3, 2, 4, 5, 6))  # of these elements; some arrays have equal beginnings
LAYOUTS = {
    "numpy": ("plain", "strided", "transposed", "broadcast", "reversed", "read-only", "offset", "unaligned"),
    "torch": ("plain", "strided", "transposed", "broadcast", "offset"),
}
ANY = LAYOUTS["numpy"]


class Array(NamedTuple):
    """Drawn array, without its elements."""

    dtype: str
    shape: tuple[int, ...]
    layout: str


class Tree(NamedTuple):
    """Drawn tree, without the elements of its arrays."""

    arrays: Sequence[Array | None]
    nest: Callable[[list[Any]], Any]

    def filled(self, pick: Pick, draw_pattern: Callable[[Pick, str], int]) -> Any:
        """Return the tree with drawn elements. Arrays repeat a few elements of their dtype, in one of `ORDERS`."""
        dtypes = dict.fromkeys(array.dtype for array in self.arrays if array is not None)
        pools = {dtype: [draw_pattern(pick, dtype) for _ in range(PERIOD)] for dtype in dtypes}
        pairs = zip(self.arrays, cycle(ORDERS), strict=False)
        return self.nest([None if array is None else _filled(array, pools[array.dtype], order) for array, order in pairs])

    def create(self, subject: Subject, tree: Any, reused: Any = None, shared: bool = False) -> Any:
        """
        Convert a tree of `Bits` to arrays with the drawn layouts.

        Write into the *reused* arrays if they are writable; if all are, return the *reused* tree. If *shared* is True, equal
        arrays are one object.
        """
        layouts = iter([array.layout for array in self.arrays if array is not None])
        new_array: Callable[[Bits, str], Any] = partial(with_layout, subject)
        if shared:
            new_array = cache(new_array)
        created = map_tree(lambda leaf: new_array(leaf, next(layouts)), tree)
        if reused is None:
            return created
        old_arrays = iter(flat(reused))
        written = map_tree(lambda new: overwritten(next(old_arrays), new), created)
        return reused if all(map(is_, flat(written), flat(reused))) else written


def draw_tree(
    pick: Pick,
    info: ImplementationInfo,
    dtypes: Sequence[str] = (),
    layouts: Sequence[str] = ANY[:1],
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    count: int = 0,
    dtype: str = "",
) -> Tree:
    """
    Draw a tree of arrays of one or several dtypes: the basic ones, those that are claimed, and *dtypes*.

    Each array has one of these *shapes*, and one of the *layouts* that the library supports. *count* is the number of arrays, and
    *dtype* their dtype; if they are 0 and "", they are drawn.
    """
    every = (*float_dtypes(info), *dtypes)
    palette = (dtype,) if dtype else pick((("float32",), (pick(every),), (pick(every),), ("float32", "float64"), every))
    known = LAYOUTS.get(info.arrays, ANY[:1]) if "layout" in info.capabilities else ANY[:1]
    if not (available := [layout for layout in layouts if layout in known]):
        raise Unsupported(f"{' or '.join(layouts)} arrays are not claimed, or {info.arrays} does not have them")
    count = count or pick(COUNTS)
    arrays = list[Array | None]()
    for _ in range(min(count, 4)):
        layout = pick(available)
        matrices = layout in ("transposed", "broadcast") and len(shapes[0]) < 2
        arrays.append(Array(pick(palette), pick(MATRICES if matrices else shapes), layout))
    arrays += [Array(palette[0], (3,), "plain")] * (count - 4)
    if "none" in info.capabilities and one_in(3, pick):
        arrays.insert(pick(range(len(arrays) + 1)), None)
    return Tree(arrays, pick(NESTS))


def float_dtypes(info: ImplementationInfo) -> list[str]:
    """Return the floating-point and complex dtypes that trees may contain."""
    return ["float32", "float64", "float16", *(dtype for dtype, claim in CLAIMS.items() if claim in info.capabilities)]


def views(subject: Subject, leaf: Bits) -> tuple[list[Bits], list[Any]]:
    """Return two views of a new array, as `Bits` and as arrays: its first half, and every second element."""
    array = subject.to_arrays(leaf)
    array = array.copy() if isinstance(array, np.ndarray) else array  # no view, so that it is the base of its views
    parts = (slice(len(leaf.bits) // 2), slice(None, None, 2))
    return [Bits(leaf.dtype, (len(leaf.bits) // 2,), leaf.bits[part]) for part in parts], [array[part] for part in parts]


NESTS: tuple[Callable[[list[Any]], Any], ...] = (
    list,
    list,
    lambda arrays: {str(index): array for index, array in enumerate(arrays)},  # the keys are those of a list
    tuple,
    # Different paths, which are equal if their keys are joined, or in lower case.
    lambda arrays: {"a.w": arrays[:1], "a/w": arrays[1:2], "a": {"w": arrays[2:3], "rest": arrays[4:]}, "A": {"w": arrays[3:4]}},
    # Every container in every other one, and empty ones, in six levels, the limit of MindSpore.
    lambda arrays: [[], (), {}, (arrays[0],), {"_a": (tuple(arrays[1:2]), arrays[2:3]), "b": ({"c": [arrays[3:]]},)}],
)


def _filled(array: Array, pool: Sequence[int], order: Sequence[int]) -> Bits:
    """Return an array that repeats the pool in this order; in a broadcast array, all rows are equal."""
    size, patterns = prod(array.shape), tuple(pool[index] for index in order)
    length = prod(array.shape[1:]) if array.layout == "broadcast" else size
    row = (patterns * (length // PERIOD + 1))[:length]
    return Bits(array.dtype, array.shape, (row * size)[:size] if length != size else row)


def draw_number(pick: Pick, dtype: str) -> int:
    """Draw the bit pattern of a finite number; the first is 1.0, and powers of two follow."""
    if dtype in PARTS:
        part = PARTS[dtype]
        return (draw_number(pick, part) << (4 * DIGITS[part])) | draw_number(pick, part)
    exponent_bits, fraction_bits = FORMATS[dtype]
    bias = (1 << (exponent_bits - 1)) - 1
    reach = min(REACH, bias)  # in float16, all exponents
    exponents = 2 * reach + 1
    choice = pick(range(2 * exponents * 2**fraction_bits))  # one choice for all parts of the number, which is faster than three
    rest, sign = divmod(choice, 2)
    fraction, index = divmod(rest, exponents)
    exponent = (index + 1) // 2 if index % 2 else -index // 2  # 0, 1, -1, 2, -2 and so on
    return (sign << (exponent_bits + fraction_bits)) | ((bias + exponent) << fraction_bits) | fraction


def with_layout(subject: Subject, leaf: Bits, layout: str) -> Any:
    """Return an array with this layout, or a plain array if the layout does not apply to it."""
    array = subject.to_arrays(leaf)
    required_axes = {"read-only": 0, "transposed": 2}.get(layout, 1)
    if layout == "plain" or not leaf.bits or len(leaf.shape) < required_axes:
        return array
    if layout == "read-only":
        return _repeated(array, leaf.shape)
    if layout == "broadcast":
        are_rows_equal = leaf.bits == leaf.bits[: prod(leaf.shape[1:])] * leaf.shape[0]
        return _repeated(array[:1], leaf.shape) if are_rows_equal else array
    view = _unaligned(array) if layout == "unaligned" else _view(array, layout, inf if leaf.dtype in FORMATS else 0)
    view[...] = array
    return view


def _view(array: Any, layout: str, spoiled: float) -> Any:
    """Return a view that has the shape of *array*; the other elements of its base are *spoiled*."""
    first, *inner = array.shape
    doubled = (2 * first, *inner[:-1], *(2 * size for size in inner[-1:]))
    shape = {"strided": doubled, "offset": (first + 1, *inner), "transposed": (*inner, first)}.get(layout, array.shape)
    base = array.new_full(shape, spoiled) if hasattr(array, "new_full") else np.full(shape, spoiled, array.dtype)
    if layout == "strided":  # along the first and the last axis
        return base[::2, ..., ::2] if inner else base[::2]
    if layout == "transposed":  # the first axis is the last one in memory
        axes = (len(inner), *range(len(inner)))
        return base.permute(axes) if hasattr(base, "permute") else base.transpose(axes)
    return base[1:] if layout == "offset" else np.flip(base)


def _repeated(part: Any, shape: tuple[int, ...]) -> Any:
    return part.expand(shape) if hasattr(part, "expand") else np.broadcast_to(part.copy(), shape)


def _unaligned(array: Any) -> Any:
    return np.empty(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)


def overwritten(old: Any, new: Any) -> Any:
    """Write *new* into *old* and return *old*, if the library and layout of *old* permit it; otherwise return *new*."""
    try:
        old[...] = new
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return new
    return old
