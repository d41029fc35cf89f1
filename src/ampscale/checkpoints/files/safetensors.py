"""
The safetensors format: eight bytes that say how long the header is, the header in JSON, and the bytes of the tensors.

It is read here rather than by its own package, for two reasons: it is so simple that a strict reader is short, and of a whole
model's checkpoint a scaler needs a few numbers, so that no tensor with more than one element is read at all.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from io import SEEK_END
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np

from ...parsing import LONGEST_JSON, MOST_ENTRIES, cut, excerpt, json_text, parse_json

_DTYPES = {"BOOL": "?", "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1"}
_DTYPES |= {"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1"}
_MOST_AXES, _LARGEST_SIZE = 32, 2**63 - 1


@dataclass(frozen=True)
class Unread:
    """A tensor that was left in its file: it has more than one element, or a dtype that NumPy has not."""

    dtype: str
    shape: tuple[int, ...]


def read(file: BinaryIO) -> dict[str, Any]:
    """
    Return the tensors of a file, by name: NumPy arrays where they have one element, else `Unread`.

    Raises:
        ValueError: The file is not of this format.
    """
    size = file.seek(0, SEEK_END)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, LONGEST_JSON):
        raise ValueError(f"a header of {length} bytes was announced in a file of {size}, and at most {LONGEST_JSON} are read")
    header = parse_json(file.read(length))
    if not isinstance(header, dict):
        raise ValueError(f"the header must be a JSON object, got {type(header).__name__}")
    header.pop("__metadata__", None)
    if len(header) > MOST_ENTRIES:
        raise ValueError(f"the file must have at most {MOST_ENTRIES} tensors, got {len(header)}")
    tensors = {name: _Tensor(cut(name), entry) for name, entry in header.items()}
    _check_layout(list(tensors.values()), size - 8 - length)
    return {name: tensor.read(file, 8 + length) for name, tensor in tensors.items()}


def content(mapping: Mapping[str, Any]) -> bytes:
    """
    Return a file that holds *mapping* as tensors: arrays as they are, Python floats in float64, ints in int64, bools in bool.

    Raises:
        ValueError: A value is something else.
    """
    try:
        arrays = {name: np.asarray(value) for name, value in mapping.items()}
    except (TypeError, RuntimeError) as problem:  # tensors that NumPy cannot hold, or that need a gradient
        raise ValueError(f"safetensors hold numbers and arrays of numbers alone: {problem}") from problem
    codes = {np.dtype(code): name for name, code in _DTYPES.items()}
    wrong = [name for name, array in arrays.items() if array.dtype not in codes]
    if wrong:
        raise ValueError(f"safetensors hold numbers and arrays of numbers alone, got something else under {excerpt(wrong)}")
    header, at = dict[str, Any](), 0
    for name, array in arrays.items():
        header[name] = {"dtype": codes[array.dtype], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json_text(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(array.astype(array.dtype.newbyteorder("<")).tobytes() for array in arrays.values())
    return len(text).to_bytes(8, "little") + text + data


class _Tensor:
    """What a header says of one tensor."""

    def __init__(self, name: str, entry: Any) -> None:
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"{name} must have dtype, shape and data_offsets, got {excerpt(entry)}")
        if not isinstance(entry["dtype"], str) or not all(map(_are_sizes, (entry["shape"], entry["data_offsets"]))):
            raise ValueError(f"{name} must have a str and two lists of sizes, got {excerpt(entry)}")
        self.name, self.dtype, self.shape = name, entry["dtype"], tuple(entry["shape"])
        if len(entry["data_offsets"]) != 2:
            raise ValueError(f"{name} must have two data_offsets, got {excerpt(entry['data_offsets'])}")
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
    return isinstance(value, list) and len(value) <= _MOST_AXES and all(map(_is_size, value))


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_SIZE


def _check_layout(tensors: list[_Tensor], size: int) -> None:
    """The tensors fill the data, without gaps and without sharing a byte."""
    places = [(0, 0), *sorted((tensor.start, tensor.end) for tensor in tensors), (size, size)]
    if any(before[1] != after[0] or after[0] > after[1] for before, after in pairwise(places)):
        raise ValueError(f"the tensors must fill the {size} bytes of data one after the other, got {excerpt(places[1:-1])}")
