"""Scaling, unscaling and overflow checks, element by element: spec/10-scaling.md and spec/20-overflow.md."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from ..model.bits import Bits, arrays
from ..model.floats import FORMATS, Number, decode, encode, is_finite, rounded, width
from .arithmetic import product, quotient

PARTS = {"complex64": "float32", "complex128": "float64"}
INTEGERS = {"int32": 32, "int64": 64, "bool": 1}  # widths in bits
Operation = Callable[[Number, Number, str], Number]


def scale(leaf: Bits, scale: float, dtype: str | None = None) -> Bits:
    """
    Return an array times a scale, which is rounded to float32, or to float64 for float64 and complex128 arrays.

    *dtype* is "float32" or "float64" to widen narrower arrays, and None to keep every dtype. Raises a TypeError if the array
    contains integers or bools.
    """
    return computed(leaf, scale, dtype, product)


def unscale(leaf: Bits, scale: float, dtype: str | None = None) -> Bits:
    """Return an array divided by a scale; see `scale`. This is a division, not a multiplication by the reciprocal."""
    return computed(leaf, scale, dtype, quotient)


def all_finite(tree: Any) -> bool:
    """Return True if a tree of `Bits` contains no infinity and no NaN. Integers, bools and None are finite."""
    return all(is_finite(number) for leaf in arrays(tree) if _has_floats(leaf) for number in _numbers({*leaf.bits}, leaf.dtype))


def array(dtype: str, values: Any, shape: tuple[int, ...] | None = None) -> Bits:
    """Return an array of numbers, each rounded once. Its default shape is () for a single number, and (n,) for a list of n."""
    elements = values if isinstance(values, (list, tuple)) else [values]
    if shape is None:
        shape = () if elements is not values else (len(values),)
    distinct = {id(value): value for value in elements}  # large arrays repeat few objects, and -0.0 equals 0.0
    patterns = {key: _pattern(dtype, value) for key, value in distinct.items()}
    return Bits(dtype, shape, tuple(patterns[id(value)] for value in elements))


def float32(*values: Any) -> Bits:
    """Return an array of shape (n,) of n numbers."""
    return array("float32", values)


def numbers(leaf: Bits) -> list[Number]:
    """Return the exact numbers of an array; of a complex array, the real and the imaginary part of each element."""
    return _numbers(leaf.bits, leaf.dtype)


def _numbers(patterns: Iterable[int], dtype: str) -> list[Number]:
    part = part_of(dtype)
    if dtype not in PARTS:
        return [decode(pattern, part) for pattern in patterns]
    return [decode(half, part) for pattern in patterns for half in divmod(pattern, 1 << width(part))]


def from_numbers(dtype: str, shape: tuple[int, ...], values: list[Number]) -> Bits:
    """Return an array of these exact numbers, each rounded once to *dtype*."""
    part = part_of(dtype)
    patterns = [encode(value, part) for value in values]
    if dtype in PARTS:
        pairs = zip(patterns[::2], patterns[1::2], strict=True)
        patterns = [(real << width(part)) | imaginary for real, imaginary in pairs]
    return Bits(dtype, shape, tuple(patterns))


def same(left: Bits, right: Bits) -> bool:
    """Return True if two arrays have the same dtype, shape and bits. All NaNs are equal."""
    if left == right or (left.dtype, left.shape) != (right.dtype, right.shape) or not _has_floats(left):
        return left == right
    pairs = set(zip(left.bits, right.bits, strict=True))  # large arrays repeat few elements
    # Encode all NaNs in the same way.
    encoded = [from_numbers(left.dtype, (len(pairs),), _numbers(side, left.dtype)) for side in zip(*pairs, strict=True)]
    return encoded[0] == encoded[1]


def part_of(dtype: str) -> str:
    """Return the floating-point format of *dtype* or, if it is complex, of its parts; raise a TypeError for other dtypes."""
    part = PARTS.get(dtype, dtype)
    if part not in FORMATS:
        raise TypeError(f"dtype must be one of {[*FORMATS, *PARTS]}, got {dtype!r}")
    return part


def computed_in(dtype: str) -> str:
    """Return the compute dtype of an array, from which results are rounded to its own dtype (SCALING-round-once)."""
    return "float64" if part_of(dtype) == "float64" else "float32"


def widened(leaf_dtype: str, dtype: str | None) -> str:
    """Return *dtype* if it is wider than *leaf_dtype*; if not, or if *leaf_dtype* is complex or *dtype* None, *leaf_dtype*."""
    if dtype is None or leaf_dtype in PARTS or width(part_of(leaf_dtype)) >= width(dtype):
        return leaf_dtype
    return dtype


@lru_cache(2**14)  # cases compute with few arrays, at few scales
def computed(leaf: Bits, factor: Number, dtype: str | None, operation: Operation) -> Bits:
    """Return the results of an operation on each element and a factor, which may be zero or infinite; see `scale`."""
    compute_dtype = computed_in(leaf.dtype)
    operand = rounded(factor, compute_dtype)
    distinct, result_dtype = (*{*leaf.bits},), widened(leaf.dtype, dtype)  # large arrays repeat few elements
    results = [operation(value, operand, compute_dtype) for value in _numbers(distinct, leaf.dtype)]
    result_of = dict(zip(distinct, from_numbers(result_dtype, (len(distinct),), results).bits, strict=True))
    return Bits(result_dtype, leaf.shape, tuple(map(result_of.__getitem__, leaf.bits)))


def _has_floats(leaf: Bits) -> bool:
    return PARTS.get(leaf.dtype, leaf.dtype) in FORMATS


def _pattern(dtype: str, value: Any) -> int:
    if dtype in INTEGERS:
        return int(value % (1 << INTEGERS[dtype]))
    if dtype not in PARTS:
        return encode(value, dtype)
    real, imaginary = (encode(part, PARTS[dtype]) for part in (value.real, value.imag))
    return (real << width(PARTS[dtype])) | imaginary
