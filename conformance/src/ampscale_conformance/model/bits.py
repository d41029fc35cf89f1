"""Arrays as their bits: what cases are written in, what goes over the wire, and what results are compared by."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .floats import decode

# Hex digits of one pattern; a complex element has two, its real one first.
DIGITS = {
    "bool": 2,
    "int32": 8,
    "int64": 16,
    "float16": 4,
    "bfloat16": 4,
    "float32": 8,
    "float64": 16,
    "complex64": 16,
    "complex128": 32,
}

SHOWN = 300  # characters of a value in a message


@dataclass(frozen=True)
class Bits:
    """
    An array, as its bits.

    Args:
        dtype: A name of `DIGITS`.
        shape: Its shape.
        bits: One big-endian pattern an element, as an int, row by row.
    """

    dtype: str
    shape: tuple[int, ...]
    bits: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.dtype not in DIGITS:
            raise ValueError(f"dtype must be one of {list(DIGITS)}, got {self.dtype!r}")
        if any(size < 0 for size in self.shape):
            raise ValueError(f"wanted a shape of sizes from 0 on, got {self.shape}")
        if len(self.bits) != math.prod(self.shape):
            raise ValueError(f"an array of shape {self.shape} has {math.prod(self.shape)} elements, got {len(self.bits)}")
        if not all(0 <= pattern < 16 ** DIGITS[self.dtype] for pattern in self.bits):
            raise ValueError(f"a {self.dtype} has {DIGITS[self.dtype]} hex digits, got {[hex(pattern) for pattern in self.bits]}")

    def to_json(self) -> dict[str, Any]:
        """As spec/vectors writes an array."""
        digits = DIGITS[self.dtype]
        return {"dtype": self.dtype, "shape": list(self.shape), "bits": [f"{pattern:0{digits}x}" for pattern in self.bits]}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> "Bits":
        """Back from `to_json`; a ValueError says what is wrong with it."""
        try:
            dtype, shape, bits = said["dtype"], said["shape"], said["bits"]
            if not isinstance(shape, list) or any(type(size) is not int for size in shape):
                raise ValueError(f"a shape must be a list of integers, got {shape!r}")
            digits = re.compile(f"[0-9a-f]{{{DIGITS.get(dtype, 0)}}}")
            if dtype in DIGITS and not all(digits.fullmatch(pattern) for pattern in bits):
                raise ValueError(f"a {dtype} has {DIGITS[dtype]} hex digits in lower case, got {bits!r}")
            return cls(dtype, tuple(shape), tuple(int(pattern, 16) for pattern in bits))
        except (KeyError, TypeError) as error:
            raise ValueError(f"an array must have dtype, shape and bits, got {said!r}") from error


def map_tree(function: Callable[[Any], Any], tree: Any) -> Any:
    """A tree of the same lists, tuples and dicts, with *function* of each leaf; None stays None."""
    if isinstance(tree, list):
        return [map_tree(function, child) for child in tree]
    if isinstance(tree, tuple):
        return tuple(map_tree(function, child) for child in tree)
    if isinstance(tree, Mapping):
        return {key: map_tree(function, child) for key, child in tree.items()}
    return None if tree is None else function(tree)


def leaves(tree: Any, path: str = "") -> list[tuple[str, Any]]:
    """Each leaf with its path, None among them."""
    if isinstance(tree, list | tuple):
        return [found for index, child in enumerate(tree) for found in leaves(child, f"{path}[{index}]")]
    if isinstance(tree, Mapping):
        return [found for key, child in tree.items() for found in leaves(child, f"{path}[{key!r}]")]
    return [(path, tree)]


def arrays(tree: Any) -> list[Any]:
    """Each leaf that is not None."""
    return [leaf for _, leaf in leaves(tree) if leaf is not None]


def tree_to_json(tree: Any, leaf: Callable[[Any], Any] = Bits.to_json) -> Any:
    """As spec/vectors writes a tree, a tuple as `{"tuple": [...]}`, with *leaf* of each leaf."""
    if isinstance(tree, list):
        return [tree_to_json(child, leaf) for child in tree]
    if isinstance(tree, tuple):
        return {"tuple": [tree_to_json(child, leaf) for child in tree]}
    if isinstance(tree, Mapping):
        return {"dict": {str(key): tree_to_json(child, leaf) for key, child in tree.items()}}
    return None if tree is None else leaf(tree)


def tree_from_json(said: Any, leaf: Callable[[Any], Any] = Bits.from_json) -> Any:
    """Back from `tree_to_json`, with *leaf* of each array; a ValueError where it is no tree."""
    if isinstance(said, list):
        return [tree_from_json(child, leaf) for child in said]
    if isinstance(said, dict) and set(said) == {"tuple"} and isinstance(said["tuple"], list):
        return tuple(tree_from_json(child, leaf) for child in said["tuple"])
    if isinstance(said, dict) and set(said) == {"dict"} and isinstance(said["dict"], dict):
        return {key: tree_from_json(child, leaf) for key, child in said["dict"].items()}
    return None if said is None else leaf(said)


def seen(value: object) -> str:
    """For a message: what Python shows of it, shortened, or its type where it shows nothing."""
    try:
        shown = repr(value)
    except Exception:  # noqa: BLE001 - it is the implementation's own
        return f"one of type {type(value).__name__}"
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."


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
