"""
Table of the supported dtypes, and the dtypes in which arithmetic on them is done.

The Array API standard has no 16-bit floats and `numpy.finfo` rejects bfloat16, hence this table.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple


class FloatFormat(NamedTuple):
    """Binary floating-point format that follows IEEE 754."""

    exponent_bits: int
    fraction_bits: int

    @property
    def largest(self) -> float:
        """Return the largest finite value."""
        return math.ldexp(2.0 - 2.0**-self.fraction_bits, 2 ** (self.exponent_bits - 1) - 1)

    @property
    def smallest_normal(self) -> float:
        """Return the smallest positive normal value."""
        return math.ldexp(1.0, 2 - 2 ** (self.exponent_bits - 1))

    @property
    def smallest_subnormal(self) -> float:
        """Return the smallest positive value; half of it rounds to zero."""
        return math.ldexp(self.smallest_normal, -self.fraction_bits)


FLOATS = {
    "float16": FloatFormat(5, 10),
    "bfloat16": FloatFormat(8, 7),
    "float32": FloatFormat(8, 23),
    "float64": FloatFormat(11, 52),
}
COMPLEX_PARTS = {"complex64": "float32", "complex128": "float64"}
INTEGERS = frozenset(["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])


@lru_cache(typed=True)  # typed, since dtypes of two libraries can compare equal, or warn when compared
def name_of(dtype: Any) -> str:
    """
    Return the name that all libraries use for *dtype*: "float16" for ``numpy.float16`` and for ``torch.float16``.

    Raises:
        TypeError: The dtype is not supported.
    """
    name = plain_name(dtype)
    if name in FLOATS or name in COMPLEX_PARTS or name in INTEGERS:
        return name
    supported = ", ".join([*FLOATS, *COMPLEX_PARTS, *sorted(INTEGERS)])
    raise TypeError(f"the dtype of an array must be one of {supported}, got {dtype}")


def plain_name(dtype: Any) -> str:
    """Return the name of *dtype* without that of its library, whether or not the dtype is supported."""
    return str(getattr(dtype, "name", dtype)).rpartition(".")[2]


def argument_name(dtype: Any) -> str:
    """Return the name of a *dtype* that a caller passes: a name, a dtype, or a scalar type such as ``numpy.float32``."""
    if isinstance(dtype, str):
        return dtype
    return dtype.__name__ if isinstance(dtype, type) else plain_name(dtype)


@lru_cache(typed=True)
def is_scalable(dtype: Any) -> bool:
    """Return True if *dtype* is a supported floating-point or complex dtype."""
    return plain_name(dtype) in FLOATS or plain_name(dtype) in COMPLEX_PARTS


def part_dtype(name: str) -> str:
    """Return the dtype of the real and imaginary parts of the complex dtype *name*; return any other *name* unchanged."""
    return COMPLEX_PARTS.get(name, name)


def compute_dtype(name: str) -> str:
    """Return the dtype in which arithmetic on dtype *name* is done before rounding once: "float64" or "float32"."""
    return "float64" if part_dtype(name) == "float64" else "float32"


def accumulation_dtype(names: list[str]) -> str:
    """Return the dtype in which values of several dtypes are added: "float64" or "float32"."""
    return "float64" if any(compute_dtype(name) == "float64" for name in names) else "float32"


def unscaled_dtype(name: str, dtype: str | None) -> str:
    """Return the dtype of the quotients of an array of dtype *name*: *dtype* if the array is real and narrower, else *name*."""
    if dtype is None or name not in FLOATS:
        return name
    return dtype if FLOATS[name].fraction_bits < FLOATS[dtype].fraction_bits else name
