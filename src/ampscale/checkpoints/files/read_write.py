"""
Readers and writers of checkpoint files: JSON, safetensors and torch's format.

Plain pickles are not read, since a pickle can run any code. torch's files are read with `torch.load(weights_only=True)`, and
torch is imported only for these files.
"""

import os
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ...files import check_regular, write_atomically
from ...parsing import LONGEST_JSON, json_text, parse_json
from . import safetensors


class _FileType(NamedTuple):
    read: Callable[[BinaryIO], Any]
    content: Callable[[Mapping[str, Any]], bytes]


def _read_torch(file: BinaryIO) -> Any:
    from .torch import read

    return read(file)


def _torch_content(mapping: Mapping[str, Any]) -> bytes:
    from .torch import content

    return content(mapping)


def _ckpt_content(_mapping: Mapping[str, Any]) -> bytes:
    raise ValueError("a .ckpt file can be read, not written, since torch and MindSpore both use the suffix: write .pt instead")


_TORCH = _FileType(_read_torch, _torch_content)
_FILE_TYPES = {
    ".json": _FileType(
        lambda file: parse_json(file.read(LONGEST_JSON + 1)), lambda mapping: f"{json_text(mapping, indent=2)}\n".encode()
    ),
    ".safetensors": _FileType(safetensors.read, safetensors.content),
    ".pt": _TORCH,
    ".pth": _TORCH,
    ".bin": _TORCH,
    ".ckpt": _FileType(_read_torch, _ckpt_content),
}
_SAVE_AS_JSON = "load it with its own library, and save the scaler's entries as JSON"
_CKPT_REMEDY = 'save files of MindSpore with mindspore.save_checkpoint(..., format="safetensors")'
_REASONS = dict.fromkeys((".pkl", ".pickle"), "a pickle runs code: ") | dict.fromkeys((".npy", ".npz"), "it can be a pickle: ")


def read_file(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """
    Read a checkpoint file.

    Args:
        path: File whose name ends in .json, .safetensors, or torch's .pt, .pth, .bin or .ckpt (Lightning).

    Returns:
        The mapping in the file. From a safetensors file, only tensors of one element are read.

    Raises:
        ImportError: The file is torch's, and torch is not installed.
        OSError: The file cannot be read.
        ValueError: The file has another suffix, is a device, is damaged, or does not contain a mapping.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "scaler.json")
    >>> write_file(path, {"fin_steps": 4, "scale": 1024.0})
    >>> read_file(path)
    {'fin_steps': 4, 'scale': 1024.0}
    """
    file_type = _file_type(Path(path))
    check_regular(path)
    with open(path, "rb") as file:
        return _read(file_type, file, Path(path))


def write_file(path: str | os.PathLike[str], mapping: Mapping[str, Any]) -> None:
    """
    Write a mapping, such as the result of `save`, to a checkpoint file.

    The file is replaced atomically: it always contains either its old content or the complete mapping.

    Args:
        path: See `read_file`.
        mapping: Numbers and arrays by name; a JSON file can also hold strings, lists and nested mappings.

    Raises:
        ImportError: The file is torch's, and torch is not installed.
        OSError: The file cannot be written.
        ValueError: The file has another suffix, its format cannot hold the mapping, or `read_file` would reject the file.

    >>> import os, tempfile
    >>> import numpy as np
    >>> path = os.path.join(tempfile.mkdtemp(), "scaler.safetensors")
    >>> write_file(path, {"fin_steps": np.int32(4), "scale": np.float32(1024.0)})
    >>> read_file(path)["scale"]
    array(1024., dtype=float32)
    """
    file_type = _file_type(Path(path))
    content = file_type.content(mapping)
    # Check that the content can be read before it replaces a file.
    _read(file_type, BytesIO(content), Path(path))
    write_atomically(path, content)


def _read(file_type: _FileType, file: BinaryIO, path: Path) -> Mapping[str, Any]:
    """Return the mapping in an open file. Error messages contain *path*."""
    try:
        mapping = file_type.read(file)
    except ValueError as problem:
        remedy = f"; {_CKPT_REMEDY}" if path.suffix.lower() == ".ckpt" else ""
        raise ValueError(f"{path} must be a {path.suffix.lower()} file: {problem}{remedy}") from problem
    if not isinstance(mapping, Mapping):
        raise ValueError(f"{path} must contain a mapping, got {type(mapping).__name__}")
    return mapping


def _file_type(file: Path) -> _FileType:
    suffix = file.suffix.lower()
    if suffix not in _FILE_TYPES:
        raise ValueError(f"{file} must end in one of {list(_FILE_TYPES)}; {_REASONS.get(suffix, '')}{_SAVE_AS_JSON}")
    return _FILE_TYPES[suffix]
