"""What an array's bits mean, as Python's numbers, for whoever reads a message or a script."""

from typing import Any

from .bits import DIGITS, Bits
from .oracle.floats import decode


def values_of(bits: Bits) -> list[Any]:
    """Floats, complex numbers, ints or bools, one an element, row by row; each float is exactly its element."""
    if bits.dtype.startswith("complex"):
        part, width = ("float32", 32) if bits.dtype == "complex64" else ("float64", 64)
        return [complex(float(decode(one >> width, part)), float(decode(one & (1 << width) - 1, part))) for one in bits.bits]
    if bits.dtype.startswith("int"):
        width = int(bits.dtype.removeprefix("int"))
        return [one - (1 << width) if one >> width - 1 else one for one in bits.bits]
    return [bool(one) for one in bits.bits] if bits.dtype == "bool" else [float(decode(one, bits.dtype)) for one in bits.bits]


def told(bits: Bits, element: int) -> str:
    """One element as a number, and its pattern: ``1.0 (3c00)``."""
    return f"{values_of(bits)[element]!r} ({bits.bits[element]:0{DIGITS[bits.dtype]}x})"
