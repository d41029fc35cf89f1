"""Reader and writer of torch's files, based on `torch.load(weights_only=True)`. Importing this module imports torch."""

import re
import warnings
from collections.abc import Mapping
from io import BytesIO
from typing import Any, BinaryIO
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo, is_zipfile

import numpy as np
import torch

from ...parsing import LONGEST_PICKLE, MOST_ENTRIES, cut, excerpt

_OBJECT = re.compile(r"GLOBAL (\S+) was not an allowed global")  # in the message of the weights-only loader
_REMEDY = "load the file with the code that wrote it, and save the scaler's entries with torch.save or as JSON"


def read(file: BinaryIO) -> Any:
    """Return the object in a file of `torch.save`. Its tensors are on the CPU; those of a zip file on disk are memory-mapped."""
    zipped, pickles = _pickles(file)
    # The weights-only loader would allocate a bytearray of any size that the file requests.
    if b"bytearray" in pickles:
        raise ValueError("the file must not contain a bytearray, whose size torch.load does not check")
    mapped = zipped and not isinstance(file, BytesIO)  # files of torch before 1.6 are not zip files and cannot be mapped
    file.seek(0)
    try:
        with warnings.catch_warnings(action="ignore"):  # such as the one about a new pickle protocol, which precedes an error
            return torch.load(file.name if mapped else file, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as problem:  # on a damaged file the loader can raise any exception, OSError among them
        original = problem.__context__ or problem  # torch wraps it in advice to unpickle the file anyway
        if match := _OBJECT.search(str(original)):
            raise ValueError(f"it contains a pickled {cut(match[1], 100)}, which is not loaded: {_REMEDY}") from problem
        reason = (str(original).strip() or type(original).__name__).splitlines()[0]
        raise ValueError(f"torch.load(weights_only=True) fails: {cut(reason, 200)}") from problem


def content(mapping: Mapping[str, Any]) -> bytes:
    """Return the bytes that `torch.save` writes for *mapping*, with its NumPy arrays and scalars as tensors."""
    file = BytesIO()
    try:
        with torch.device("cpu"):  # the default device may be another one
            numpy_values = {key: value for key, value in mapping.items() if isinstance(value, np.ndarray | np.generic)}
            tensors = {key: torch.as_tensor(value) for key, value in numpy_values.items()}
            torch.save({**mapping, **tensors}, file)
    except Exception as problem:  # pickling can raise any exception
        raise ValueError(f"torch.save cannot write the mapping: {cut(str(problem), 200)}") from problem
    return file.getvalue()


def _pickles(file: BinaryIO) -> tuple[bool, bytes]:
    """Return True and the bytes of all pickles in a zip file; for another file, False and its first `LONGEST_PICKLE` bytes."""
    try:
        if not is_zipfile(file):
            file.seek(0)
            return False, file.read(LONGEST_PICKLE)
        archive = ZipFile(file)
        return True, b"".join(map(archive.read, _pickle_entries(archive)))
    except (BadZipFile, RuntimeError, OSError, EOFError) as problem:  # also raised for encrypted or truncated entries
        raise ValueError(f"the archive must be an undamaged, unencrypted zip file: {cut(str(problem), 200)}") from problem


def _pickle_entries(archive: ZipFile) -> list[ZipInfo]:
    """Return the entries that are pickles; raise a ValueError if the archive exceeds a limit or is compressed."""
    entries = archive.infolist()
    if len(entries) > MOST_ENTRIES:
        raise ValueError(f"the archive must have at most {MOST_ENTRIES} entries, got {len(entries)}")
    for entry in entries:  # torch does not compress entries; without compression, none is larger than the file
        if entry.compress_type != ZIP_STORED or entry.file_size != entry.compress_size:
            raise ValueError(f"each entry of the archive must be stored without compression, got {excerpt(entry.filename)}")
    pickles = [entry for entry in entries if entry.filename.endswith(".pkl")]
    size = sum(entry.file_size for entry in pickles)
    if size > LONGEST_PICKLE:
        raise ValueError(f"all pickles of the archive together must have at most {LONGEST_PICKLE} bytes, got {size}")
    return pickles
