"""Scaling, unscaling and looking for overflows, element by element: spec/10-scaling.md and spec/20-overflow.md."""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from ..model.bits import Bits, arrays
from ..model.floats import FORMATS, Number, decode, encode, is_negative, rounded, width
from .arithmetic import product, quotient

PARTS = {"complex64": "float32", "complex128": "float64"}
INTEGERS = {"int32": 32, "int64": 64}


def scale(leaf: Bits, scale: float, dtype: str | None = None) -> Bits:
    """
    An array times a scale.

    Args:
        leaf: Floats, or complex numbers, of which each part is scaled.
        scale: Positive and finite. It takes part in float32, or in float64 beside float64 and complex128.
        dtype: "float32" or "float64", in which what is narrower comes out; None to keep every dtype.

    Raises:
        TypeError: The array holds integers or bools.
        ValueError: The scale is not positive and finite in the dtype of the computation, or the dtype is another one.
    """
    return _computed(leaf, scale, dtype, product)


def unscale(leaf: Bits, scale: float, dtype: str | None = None) -> Bits:
    """An array divided by a scale: see `scale`. It is a division, and no product with a reciprocal."""
    return _computed(leaf, scale, dtype, quotient)


def widen(leaf: Bits, dtype: str = "float32") -> Bits:
    """The same numbers in "float32" or "float64"; an array that is no narrower stays as it is."""
    part, wider = part_of(leaf.dtype), widened(leaf.dtype, dtype)
    if wider == leaf.dtype:
        return leaf
    return Bits(wider, leaf.shape, tuple(encode(decode(pattern, part), wider) for pattern in leaf.bits))


def all_finite(tree: Any) -> bool:
    """Whether no element of a tree of `Bits` is infinite or NaN. Integers, bools and None never are."""
    return all(math.isfinite(number) for leaf in arrays(tree) if _has_floats(leaf) for number in numbers(leaf))


def array(dtype: str, values: Any, shape: tuple[int, ...] | None = None) -> Bits:
    """
    Numbers as an array, each rounded once.

    Args:
        dtype: Any name of `bits.DIGITS`.
        values: A number, or numbers in lists as deep as the array; complex numbers for a complex dtype, and Python's integers
            and bools for theirs.
        shape: In which the numbers are laid out, row by row; None for the shape of the lists.

    Raises:
        TypeError: A value is no number of that kind.
        ValueError: The lists are ragged, an integer does not fit, or there are more or fewer numbers than the shape has.
    """
    return Bits(
        dtype, _shape(values) if shape is None else tuple(shape), tuple(_pattern(dtype, value) for value in _flat(values))
    )


def _row(dtype: str) -> Callable[..., Bits]:
    """Makes arrays of shape (n,) of n numbers."""
    return lambda *values: array(dtype, values)


float16, bfloat16, float32, float64, complex64, complex128 = map(_row, (*FORMATS, *PARTS))


def numbers(leaf: Bits) -> list[Number]:
    """The exact numbers of an array, as `floats.decode` gives them; the real and then the imaginary part of a complex one."""
    part = part_of(leaf.dtype)
    if leaf.dtype not in PARTS:
        return [decode(pattern, part) for pattern in leaf.bits]
    return [decode(half, part) for pattern in leaf.bits for half in divmod(pattern, 1 << width(part))]


def from_numbers(dtype: str, shape: tuple[int, ...], values: list[Number]) -> Bits:
    """An array of numbers as `numbers` gives them, each rounded once."""
    part = part_of(dtype)
    patterns = [encode(value, part) for value in values]
    if dtype in PARTS:
        pairs = zip(patterns[::2], patterns[1::2], strict=True)
        patterns = [real << width(part) | imaginary for real, imaginary in pairs]
    return Bits(dtype, shape, tuple(patterns))


def same(one: Bits, other: Bits) -> bool:
    """Whether two arrays agree in dtype, shape and bits; any NaN equals any NaN."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if one.bits == other.bits or not _has_floats(one):
        return one.bits == other.bits
    return all(map(_alike, numbers(one), numbers(other)))


def part_of(dtype: str) -> str:
    """The format of the floats that an array holds; a TypeError where it holds none."""
    part = PARTS.get(dtype, dtype)
    if part not in FORMATS:
        raise TypeError(f"dtype must be one of {[*FORMATS, *PARTS]}, got {dtype!r}")
    return part


def computed_in(dtype: str) -> str:
    """Where an array's arithmetic is done before it is rounded to the array's own dtype: SCALING-round-once."""
    return "float64" if part_of(dtype) == "float64" else "float32"


def widened(dtype: str, wanted: str | None) -> str:
    """The dtype in which an array comes out: the wanted one where that is wider."""
    if wanted not in (None, "float32", "float64"):
        raise ValueError(f"dtype must be 'float32' or 'float64' or None, got {wanted!r}")
    if wanted is None or dtype in PARTS or width(part_of(dtype)) >= width(wanted):
        return dtype
    return wanted


def _computed(leaf: Bits, factor: float, dtype: str | None, operation: Callable[[Number, Number, str], Number]) -> Bits:
    within = computed_in(leaf.dtype)
    held = rounded(factor, within)
    if not 0 < held < math.inf:
        raise ValueError(f"scale must be positive and finite in {within}, got {factor!r}")
    results = [operation(value, held, within) for value in numbers(leaf)]
    return from_numbers(widened(leaf.dtype, dtype), leaf.shape, results)


def _alike(one: Number, other: Number) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return one == other and is_negative(one) == is_negative(other)


def _has_floats(leaf: Bits) -> bool:
    return PARTS.get(leaf.dtype, leaf.dtype) in FORMATS


def _shape(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list | tuple):
        return ()
    shapes = {_shape(value) for value in values}
    if len(shapes) > 1:
        raise ValueError(f"lists must be equally long at every depth, got {values!r}")
    return (len(values), *next(iter(shapes), ()))


def _flat(values: Any) -> Iterator[Any]:
    if not isinstance(values, list | tuple):
        yield values
        return
    for value in values:
        yield from _flat(value)


def _pattern(dtype: str, value: Any) -> int:
    if isinstance(value, bool):
        if dtype == "bool":
            return int(value)
    elif dtype in INTEGERS and isinstance(value, int):
        return _integer_pattern(dtype, value)
    elif dtype in FORMATS and isinstance(value, int | float | Fraction):
        return encode(value, dtype)
    elif dtype in PARTS and isinstance(value, int | float | Fraction | complex):
        real, imaginary = (value.real, value.imag) if isinstance(value, complex) else (value, 0)
        return encode(real, PARTS[dtype]) << width(PARTS[dtype]) | encode(imaginary, PARTS[dtype])
    raise TypeError(f"an array of {dtype} must be made of numbers of its kind, got {value!r}")


def _integer_pattern(dtype: str, value: int) -> int:
    half = 1 << INTEGERS[dtype] - 1
    if not -half <= value < half:
        raise ValueError(f"{dtype} holds integers from {-half} to {half - 1}, got {value}")
    return value % (2 * half)
