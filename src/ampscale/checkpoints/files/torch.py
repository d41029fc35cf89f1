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
    zipped = is_zipfile(file)  # else it is of the time before torch 1.6, and cannot be mapped into memory
    if zipped:
        _check_archive(file)
    mapped = zipped and not isinstance(file, BytesIO)
    file.seek(0)
    try:
        return torch.load(file.name if mapped else file, map_location="cpu", weights_only=True, mmap=mapped)
    except OSError:
        raise
    except Exception as problem:  # a damaged file makes the loader raise anything
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
        raise ValueError(f"torch.save cannot write the mapping: {problem}") from problem
    return file.getvalue()


def _check_archive(file: BinaryIO) -> None:
    """Check the entries of a zip file: torch stores them without compression, so that their sizes add up to the file's."""
    try:
        entries = ZipFile(file).infolist()
    except (BadZipFile, NotImplementedError, UnicodeDecodeError) as problem:
        raise ValueError(f"the archive must be a zip file: {problem}") from problem
    if len(entries) > MOST_ENTRIES:
        raise ValueError(f"the archive must have at most {MOST_ENTRIES} entries, got {len(entries)}")
    for entry in entries:
        if entry.compress_type != ZIP_STORED or entry.file_size != entry.compress_size:
            raise ValueError(f"each entry of the archive must be stored without compression, got {excerpt(entry.filename)}")
        if entry.filename.endswith(".pkl") and entry.file_size > LONGEST_PICKLE:
            raise ValueError(f"{excerpt(entry.filename)} must have at most {LONGEST_PICKLE} bytes, got {entry.file_size}")
