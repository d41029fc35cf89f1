"""
Reader and writer of the safetensors format: the length of the header in eight bytes, the header in JSON, and the tensors' bytes.

The safetensors package is not used, because a strict reader is short, and `read` skips all tensors of more than one element: a
scaler requires only a few numbers of a model's checkpoint.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import SEEK_END
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np

from ...parsing import LONGEST_JSON, MOST_ENTRIES, cut, excerpt, json_text, parse_json

_DTYPES = {"BOOL": "?", "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1"}
_DTYPES |= {"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1"}
_FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_MOST_AXES, _LARGEST_SIZE = 32, 2**63 - 1


@dataclass(frozen=True)
class Unread:
    """Tensor that was not read, because it has several elements or none, or a dtype that NumPy does not support."""

    dtype: str
    shape: tuple[int, ...]


def read(file: BinaryIO) -> dict[str, Any]:
    """Return the tensors of a file by name: those of one element as NumPy arrays, all others as `Unread`."""
    tensors, start = _header(file)
    return {name: tensor.read(file, start) for name, tensor in tensors.items()}


def read_floats(file: BinaryIO, most: int) -> Iterator[tuple[str, str, np.ndarray]]:
    """
    Yield the name, the dtype and the values of each floating-point tensor of a file; bfloat16 is widened to float32.

    Raises:
        ValueError: The file is damaged, or a tensor has more than *most* bytes.
    """
    tensors, start = _header(file)
    for name, tensor in tensors.items():
        if tensor.dtype in _FLOATS:
            if tensor.end - tensor.start > most:
                raise ValueError(f"{tensor.name} must have at most {most} bytes, got {tensor.end - tensor.start}")
            yield name, _FLOATS[tensor.dtype], tensor.values(file, start)


def content(mapping: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file with *mapping* as tensors: Python floats become float64, ints int64, and bools bool."""
    try:
        arrays = {name: np.asarray(value) for name, value in mapping.items()}
    except (TypeError, RuntimeError) as problem:  # torch tensors of a dtype that NumPy lacks, or that require a gradient
        raise ValueError(f"each value in a safetensors file must be a number or an array of numbers: {problem}") from problem
    codes = {np.dtype(code): name for name, code in _DTYPES.items()}
    invalid = [name for name, array in arrays.items() if array.dtype not in codes]
    if invalid:
        expected = "a number or an array of numbers"
        raise ValueError(f"each value in a safetensors file must be {expected}, got other types for {excerpt(invalid)}")
    header = dict[str, Any]()
    offset = 0
    for name, array in arrays.items():
        end = offset + array.nbytes
        header[name] = {"dtype": codes[array.dtype], "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json_text(header).encode()
    text += b" " * (-len(text) % 8)  # the tensors' bytes begin at a multiple of 8
    data = b"".join(array.astype(array.dtype.newbyteorder("<")).tobytes() for array in arrays.values())
    return len(text).to_bytes(8, "little") + text + data


def _header(file: BinaryIO) -> tuple[dict[str, "_Tensor"], int]:
    """Return the entries of the tensors by name, and the position of the tensors' bytes."""
    size = file.seek(0, SEEK_END)
    if size < 8:
        raise ValueError(f"the file must have at least 8 bytes, got {size}")
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if length > min(size - 8, LONGEST_JSON):
        expected = f"fit into the {size - 8} bytes after the length field and have at most {LONGEST_JSON} bytes"
        raise ValueError(f"the header must {expected}, got {length}")
    header = parse_json(file.read(length))
    if not isinstance(header, dict):
        raise ValueError(f"the header must be a JSON object, got {type(header).__name__}")
    header.pop("__metadata__", None)
    if len(header) > MOST_ENTRIES:
        raise ValueError(f"the file must have at most {MOST_ENTRIES} tensors, got {len(header)}")
    tensors = {name: _Tensor(cut(name), entry) for name, entry in header.items()}
    _check_layout(list(tensors.values()), size - 8 - length)
    return tensors, 8 + length


class _Tensor:
    """Entry of one tensor in a header."""

    def __init__(self, name: str, entry: Any) -> None:
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"{name} must have dtype, shape and data_offsets, got {excerpt(entry)}")
        if not isinstance(entry["dtype"], str) or not all(map(_are_sizes, (entry["shape"], entry["data_offsets"]))):
            expected = f"a str as dtype, and lists of at most {_MOST_AXES} ints from 0 to 2**63 - 1 as shape and data_offsets"
            raise ValueError(f"{name} must have {expected}, got {excerpt(entry)}")
        self.name, self.dtype, self.shape = name, entry["dtype"], tuple(entry["shape"])
        if len(entry["data_offsets"]) != 2:
            raise ValueError(f"{name} must have two data_offsets, got {excerpt(entry['data_offsets'])}")
        self.start, self.end = entry["data_offsets"]
        code = _DTYPES.get(self.dtype, "<u2" if self.dtype == "BF16" else None)
        if code and self.end - self.start != math.prod(self.shape) * np.dtype(code).itemsize:
            actual = f"data_offsets {self.start} and {self.end}"
            raise ValueError(f"{name} must have as many bytes as its shape {self.shape} requires, got {actual}")

    def read(self, file: BinaryIO, start: int) -> Any:
        """Return the tensor from *file*, whose tensor data begin at byte *start*, or an `Unread`."""
        if math.prod(self.shape) != 1 or self.dtype not in _DTYPES:
            return Unread(self.dtype, self.shape)
        return self.values(file, start)

    def values(self, file: BinaryIO, start: int) -> np.ndarray:
        """Return the values, for a dtype of `_DTYPES` or bfloat16, which is widened to float32."""
        file.seek(start + self.start)
        data = file.read(self.end - self.start)
        if self.dtype == "BF16":
            return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(self.shape)
        return np.frombuffer(data, _DTYPES[self.dtype]).reshape(self.shape)


def _are_sizes(value: Any) -> bool:
    is_short = isinstance(value, list) and len(value) <= _MOST_AXES
    return is_short and all(type(size) is int and 0 <= size <= _LARGEST_SIZE for size in value)


def _check_layout(tensors: list[_Tensor], size: int) -> None:
    """Check that the tensors fill the data without gaps or overlaps."""
    spans = [(0, 0), *sorted((tensor.start, tensor.end) for tensor in tensors), (size, size)]
    if any(left[1] != right[0] or right[0] > right[1] for left, right in pairwise(spans)):
        raise ValueError(f"the tensors must fill the {size} bytes of data without gaps or overlaps, got {excerpt(spans[1:-1])}")
