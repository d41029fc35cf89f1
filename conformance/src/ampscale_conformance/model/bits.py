"""Arrays as bit patterns: the form in which cases define them, the protocol sends them, and results are compared."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from .floats import decode_float

# Hex digits of one element. A complex element consists of two patterns, the real part first.
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

LONGEST_REPR = 300  # characters of a value in a message

# Cached, since a check against an abstract class is slow, and every node of every tree is checked.
_is_mapping: Callable[[type], bool] = cache(lambda cls: issubclass(cls, Mapping))


@dataclass(frozen=True)
class Bits:
    """Array given by its bit patterns."""

    dtype: str  # a name in `DIGITS`
    shape: tuple[int, ...]
    bits: tuple[int, ...]  # bit pattern of each element as an int, in row-major order

    def __post_init__(self) -> None:
        if self.dtype not in DIGITS:
            raise ValueError(f"dtype must be one of {list(DIGITS)}, got {self.dtype!r}")
        if min(self.shape, default=0) < 0:
            raise ValueError(f"shape must have sizes of at least 0, got {self.shape}")
        if len(self.bits) != math.prod(self.shape):
            raise ValueError(f"an array of shape {self.shape} must have {math.prod(self.shape)} elements, got {len(self.bits)}")

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that represents the array in spec/vectors."""
        digits = DIGITS[self.dtype]
        texts = {pattern: f"{pattern:0{digits}x}" for pattern in {*self.bits}}  # large arrays repeat few patterns
        return {"dtype": self.dtype, "shape": list(self.shape), "bits": [texts[pattern] for pattern in self.bits]}

    @classmethod
    def from_json(cls, encoded: Mapping[str, Any]) -> "Bits":
        """Return the array that `to_json` encoded; raise a ValueError if the object is invalid."""
        try:
            dtype, shape, bits = encoded["dtype"], encoded["shape"], encoded["bits"]
            if not isinstance(shape, list) or any(type(size) is not int for size in shape):
                raise ValueError(f"a shape must be a list of integers, got {shape!r}")
            digits = re.compile(f"[0-9a-f]{{{DIGITS.get(dtype, 0)}}}")
            if dtype in DIGITS and not all(digits.fullmatch(pattern) for pattern in bits):
                raise ValueError(f"a {dtype} must have {DIGITS[dtype]} hex digits in lower case, got {bits!r}")
            return cls(dtype, tuple(shape), tuple(int(pattern, 16) for pattern in bits))
        except (KeyError, TypeError) as error:
            raise ValueError(f"an array must have a dtype, a shape, and bits as a list of strings, got {encoded!r}") from error


def map_tree(function: Callable[[Any], Any], tree: Any) -> Any:
    """
    Return a tree of the same lists, tuples, NamedTuples and dicts with *function* applied to each leaf. None stays None.

    >>> map_tree(abs, {"w": [-1.0, None], "b": (-2.0,)})
    {'w': [1.0, None], 'b': (2.0,)}
    """
    if isinstance(tree, list):
        return [map_tree(function, child) for child in tree]
    if isinstance(tree, tuple):
        children = [map_tree(function, child) for child in tree]
        return type(tree)(*children) if hasattr(tree, "_fields") else tuple(children)
    if _is_mapping(type(tree)):
        return {key: map_tree(function, child) for key, child in tree.items()}
    return None if tree is None else function(tree)


def leaves(tree: Any, path: str = "") -> list[tuple[str, Any]]:
    """
    Return the leaves of *tree* with their paths, including None.

    >>> leaves({"w": [1.0, None], "b": (2.0,)})
    [("['w'][0]", 1.0), ("['w'][1]", None), ("['b'][0]", 2.0)]
    """
    if isinstance(tree, (list, tuple)):
        return [leaf for index, child in enumerate(tree) for leaf in leaves(child, f"{path}[{index}]")]
    if _is_mapping(type(tree)):
        return [leaf for key, child in tree.items() for leaf in leaves(child, f"{path}[{key!r}]")]
    return [(path, tree)]


def arrays(tree: Any) -> list[Any]:
    """Return the leaves of *tree* other than None."""
    return [leaf for _, leaf in leaves(tree) if leaf is not None]


def tree_to_json(tree: Any, leaf: Callable[[Any], Any] = Bits.to_json) -> Any:
    """Encode a tree as spec/vectors does, with *leaf* applied to each leaf; a tuple becomes `{"tuple": [...]}`."""
    if isinstance(tree, list):
        return [tree_to_json(child, leaf) for child in tree]
    if isinstance(tree, tuple):
        return {"tuple": [tree_to_json(child, leaf) for child in tree]}
    if _is_mapping(type(tree)):
        return {"dict": {str(key): tree_to_json(child, leaf) for key, child in tree.items()}}
    return None if tree is None else leaf(tree)


def tree_from_json(encoded: Any, leaf: Callable[[Any], Any] = Bits.from_json) -> Any:
    """Decode the result of `tree_to_json` with *leaf* applied to each array; raise a ValueError if it is invalid."""
    if isinstance(encoded, list):
        return [tree_from_json(child, leaf) for child in encoded]
    if isinstance(encoded, dict) and set(encoded) == {"tuple"} and isinstance(encoded["tuple"], list):
        return tuple(tree_from_json(child, leaf) for child in encoded["tuple"])
    if isinstance(encoded, dict) and set(encoded) == {"dict"} and isinstance(encoded["dict"], dict):
        return {key: tree_from_json(child, leaf) for key, child in encoded["dict"].items()}
    return None if encoded is None else leaf(encoded)


def safe_repr(value: object) -> str:
    """Return the repr of a value for a message, shortened; only its type if the repr raises an error."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the repr belongs to the implementation under test
        return f"an object of type {type(value).__name__}"
    return text if len(text) <= LONGEST_REPR else f"{text[:LONGEST_REPR]}..."


def values_of(bits: Bits) -> list[Any]:
    """Return one float, complex number, int or bool per element, in row-major order. Floats are exact."""
    if bits.dtype.startswith("complex"):
        part, width = ("float32", 32) if bits.dtype == "complex64" else ("float64", 64)
        parts = [divmod(pattern, 1 << width) for pattern in bits.bits]
        return [complex(decode_float(real, part), decode_float(imaginary, part)) for real, imaginary in parts]
    if bits.dtype.startswith("int"):
        width = int(bits.dtype.removeprefix("int"))
        return [pattern - (1 << width) if pattern >> (width - 1) else pattern for pattern in bits.bits]
    if bits.dtype == "bool":
        return list(map(bool, bits.bits))
    return [decode_float(pattern, bits.dtype) for pattern in bits.bits]


def element_text(bits: Bits, index: int) -> str:
    """Return one element as a number with its bit pattern: ``1.0 (3c00)``."""
    return f"{values_of(bits)[index]!r} ({bits.bits[index]:0{DIGITS[bits.dtype]}x})"
