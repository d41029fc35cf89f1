"""
The safetensors format: eight bytes that say how long the header is, the header in JSON, and the bytes of the tensors.

It is read here rather than by its own package, for two reasons: it is so simple that a strict reader is short, and of a whole
model's checkpoint a scaler needs a few numbers, so that no tensor with more than one element is read at all.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .strict_json import parsed, written

_DTYPES = {"BOOL": "?", "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1"}
_DTYPES |= {"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1"}
_LONGEST_HEADER = 100_000_000  # bytes, as in the format's own reader


@dataclass(frozen=True)
class Unread:
    """A tensor that was left in its file: it has more than one element, or a dtype that NumPy has not."""

    dtype: str
    shape: tuple[int, ...]


def read(path: Path) -> dict[str, Any]:
    """
    The tensors of a file, by name: NumPy arrays where they have one element, else `Unread`.

    Raises:
        ValueError: The file is not of this format.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _LONGEST_HEADER):
            raise ValueError(f"a header of {length} bytes was announced in a file of {size}")
        header = parsed(file.read(length))
        if not isinstance(header, dict):
            raise ValueError(f"the header must be a JSON object, got {type(header).__name__}")
        header.pop("__metadata__", None)
        tensors = {name: _Tensor(name, entry) for name, entry in header.items()}
        _check_layout(list(tensors.values()), size - 8 - length)
        return {name: tensor.read(file, 8 + length) for name, tensor in tensors.items()}


def write(path: Path, mapping: Mapping[str, Any]) -> None:
    """
    A file that holds *mapping* as tensors: arrays as they are, Python floats in float64, ints in int64, bools in bool.

    Raises:
        ValueError: A value is something else.
    """
    arrays = {name: np.asarray(value) for name, value in mapping.items()}
    codes = {np.dtype(code): name for name, code in _DTYPES.items()}
    wrong = [name for name, array in arrays.items() if array.dtype not in codes]
    if wrong:
        raise ValueError(f"safetensors hold numbers and arrays of numbers alone, got something else under {wrong}")
    header, at = dict[str, Any](), 0
    for name, array in arrays.items():
        header[name] = {"dtype": codes[array.dtype], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = written(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(array.astype(array.dtype.newbyteorder("<")).tobytes() for array in arrays.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


class _Tensor:
    """What a header says of one tensor."""

    def __init__(self, name: str, entry: Any) -> None:
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"{name} must have dtype, shape and data_offsets, got {entry!r}")
        if not isinstance(entry["dtype"], str) or not all(map(_are_sizes, (entry["shape"], entry["data_offsets"]))):
            raise ValueError(f"{name} must have a str and two lists of sizes, got {entry!r}")
        self.name, self.dtype, self.shape = name, entry["dtype"], tuple(entry["shape"])
        if len(entry["data_offsets"]) != 2:
            raise ValueError(f"{name} must have two data_offsets, got {entry['data_offsets']!r}")
        self.start, self.end = entry["data_offsets"]
        if self.dtype in _DTYPES and self.end - self.start != math.prod(self.shape) * np.dtype(_DTYPES[self.dtype]).itemsize:
            raise ValueError(f"{name} must have as many bytes as its shape {self.shape} says, got {self.end - self.start}")

    def read(self, file: BinaryIO, start: int) -> Any:
        """The tensor, from a file whose data begin at *start*."""
        if math.prod(self.shape) != 1 or self.dtype not in _DTYPES:
            return Unread(self.dtype, self.shape)
        file.seek(start + self.start)
        return np.frombuffer(file.read(self.end - self.start), _DTYPES[self.dtype]).reshape(self.shape)


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in value)


def _check_layout(tensors: list[_Tensor], size: int) -> None:
    """The tensors fill the data, without gaps and without sharing a byte."""
    places = [(0, 0), *sorted((tensor.start, tensor.end) for tensor in tensors), (size, size)]
    if any(before[1] != after[0] or after[0] > after[1] for before, after in pairwise(places)):
        raise ValueError(f"the tensors must fill the {size} bytes of data one after the other, got {places[1:-1]}")
