"""Readers of gradients in .npz and .safetensors files, one array at a time."""

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from ..checkpoints.files import safetensors
from ..files import check_before_opening
from ..parsing import MOST_ENTRIES, cut, excerpt

LARGEST_ARRAY = 2**33  # bytes of an array in memory; a compressed entry of an archive can expand a thousand times
LONGEST_HEADER = 10_000  # bytes of the header of an array in an archive
_DTYPES = ("float16", "float32", "float64", "complex64", "complex128")
_HEADER_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}

Gradient = tuple[str, str, np.ndarray]  # name, dtype and values of an array; the values of a bfloat16 array are float32


def read_gradients(path: Path, progress: Callable[[float], None]) -> Iterator[Gradient]:
    """
    Yield the floating-point and complex arrays of a .npz or .safetensors file. Nothing is unpickled.

    *progress* is called with the share of the file that has been read. A damaged file, or an array above a limit, raises a
    ValueError.
    """
    readers = {".npz": _from_archive, ".safetensors": _from_safetensors}
    suffix = path.suffix.lower()
    if suffix not in readers:
        raise ValueError(f"{path} must end in {' or '.join(readers)}, got {excerpt(path.suffix)}")
    check_before_opening(path)
    try:
        yield from readers[suffix](path, progress)
    except (BadZipFile, NotImplementedError, EOFError, RuntimeError) as error:  # the errors of `zipfile` for damaged files
        raise ValueError(f"{path} cannot be read: {error}") from None


def _from_archive(path: Path, progress: Callable[[float], None]) -> Iterator[Gradient]:
    with ZipFile(path) as archive:
        entries = archive.infolist()
        if len(entries) > MOST_ENTRIES:
            raise ValueError(f"{path} must have at most {MOST_ENTRIES} arrays, got {len(entries)}")
        for index, entry in enumerate(entries):
            if entry.file_size > LARGEST_ARRAY:
                raise ValueError(f"{cut(entry.filename)} must have at most {LARGEST_ARRAY} bytes, got {entry.file_size}")
            with archive.open(entry) as file:
                values = _array(file, entry.filename, entry.file_size)
            if values is not None:
                yield entry.filename.removesuffix(".npy"), values.dtype.name, values
            progress((index + 1) / len(entries))


def _array(file: Any, name: str, size: int) -> np.ndarray | None:
    """Return the array of an entry, which has *size* bytes; None if its dtype is not in `_DTYPES`."""
    try:
        version = np.lib.format.read_magic(file)
        if version not in _HEADER_READERS:
            raise ValueError(f"got format {'.'.join(map(str, version))}")
        shape, is_fortran, dtype = _HEADER_READERS[version](file, max_header_size=LONGEST_HEADER)
    except ValueError as error:
        raise ValueError(f"{cut(name)} must be an array in NumPy's format 1.0 or 2.0: {cut(str(error))}") from None
    if dtype.name not in _DTYPES:
        return None
    if any(length < 0 for length in shape):
        raise ValueError(f"{cut(name)} must have a shape without negative lengths, got {shape}")
    expected = math.prod(shape) * dtype.itemsize
    data = file.read(expected + 1) if expected <= size else b""  # a damaged header can contain a huge shape
    if len(data) != expected:
        actual = "fewer" if len(data) < expected else "more"
        raise ValueError(f"{cut(name)} must have {expected} bytes for its shape {shape}, got {actual}")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if is_fortran else "C").astype(dtype.newbyteorder("="), copy=False)


def _from_safetensors(path: Path, progress: Callable[[float], None]) -> Iterator[Gradient]:
    total = max(1, os.stat(path).st_size)
    with path.open("rb") as file:
        for gradient in safetensors.read_floats(file, LARGEST_ARRAY):
            yield gradient
            progress(min(1.0, file.tell() / total))
