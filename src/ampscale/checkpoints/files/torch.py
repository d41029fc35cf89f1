"""Files of torch, by its loader that runs no code. Whoever imports this module imports torch."""

from collections.abc import Mapping
from io import BytesIO
from typing import Any, BinaryIO
from zipfile import ZIP_STORED, BadZipFile, ZipFile, is_zipfile

import numpy as np
import torch

from ...parsing import LONGEST_PICKLE, MOST_ENTRIES, cut, excerpt


def read(file: BinaryIO) -> Any:
    """
    Return what was saved with `torch.save`, its tensors on the host and left in the file until they are looked at.

    Raises:
        ValueError: The archive exceeds a limit, or torch does not read it without running code that the file brings.
    """
    zipped, pickles = _pickles(file)  # else it is of the time before torch 1.6, and cannot be mapped into memory
    if b"bytearray" in pickles:  # torch calls it, also with a size of gigabytes
        raise ValueError("torch files with a bytearray are not read")
    mapped = zipped and not isinstance(file, BytesIO)
    file.seek(0)
    try:
        return torch.load(file.name if mapped else file, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as problem:  # a damaged file makes the loader raise anything, also an OSError of its own
        reason = (str(problem) or type(problem).__name__).splitlines()[0]
        raise ValueError(f"torch.load(weights_only=True) refuses it: {cut(reason, 200)}") from problem


def content(mapping: Mapping[str, Any]) -> bytes:
    """
    Return *mapping* as `torch.save` writes it, its NumPy arrays and numbers as tensors.

    Raises:
        ValueError: torch cannot save a value.
    """
    file, numpy = BytesIO(), (np.ndarray, np.generic)
    try:
        torch.save({key: torch.as_tensor(value) if isinstance(value, numpy) else value for key, value in mapping.items()}, file)
    except Exception as problem:  # pickling may raise anything
        raise ValueError(f"torch.save cannot write the mapping: {cut(str(problem), 200)}") from problem
    return file.getvalue()


def _pickles(file: BinaryIO) -> tuple[bool, bytes]:
    """
    Return True for a zip file, and the pickles in a file.

    torch stores the entries of a zip file without compression, so that no size exceeds the file's.
    """
    try:
        if not is_zipfile(file):
            file.seek(0)
            return False, file.read(LONGEST_PICKLE)
        archive = ZipFile(file)
        entries = archive.infolist()
        if len(entries) > MOST_ENTRIES:
            raise ValueError(f"the archive must have at most {MOST_ENTRIES} entries, got {len(entries)}")
        for entry in entries:
            if entry.compress_type != ZIP_STORED or entry.file_size != entry.compress_size:
                raise ValueError(f"each entry of the archive must be stored without compression, got {excerpt(entry.filename)}")
        pickles = [entry for entry in entries if entry.filename.endswith(".pkl")]
        if sum(entry.file_size for entry in pickles) > LONGEST_PICKLE:
            raise ValueError(f"the pickles of the archive must have at most {LONGEST_PICKLE} bytes")
        return True, b"".join(map(archive.read, pickles))
    except (BadZipFile, RuntimeError, OSError, EOFError) as problem:  # of an encrypted entry, or one at no place of the file
        raise ValueError(f"the archive must be a zip file: {cut(str(problem), 200)}") from problem
