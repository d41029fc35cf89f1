"""
Files of checkpoints: JSON, safetensors, and torch's.

Nothing is ever unpickled, since a pickle runs whatever code its writer put into it. torch's files are read by its loader for
weights alone, and torch is imported for them only.
"""

import os
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ...files import check_regular, write_atomically
from ...parsing import LONGEST_JSON, json_text, parse_json
from . import safetensors


class _Kind(NamedTuple):
    read: Callable[[BinaryIO], Any]
    content: Callable[[Mapping[str, Any]], bytes]


def _read_torch(file: BinaryIO) -> Any:
    from .torch import read

    return read(file)


def _torch_content(mapping: Mapping[str, Any]) -> bytes:
    from .torch import content

    return content(mapping)


_JSON = _Kind(lambda file: parse_json(file.read(LONGEST_JSON + 1)), lambda mapping: f"{json_text(mapping, indent=2)}\n".encode())
_TORCH = _Kind(_read_torch, _torch_content)
_KINDS = {
    ".json": _JSON,
    ".safetensors": _Kind(safetensors.read, safetensors.content),
    ".pt": _TORCH,
    ".pth": _TORCH,
    ".bin": _TORCH,
}
_SAVE_AS_JSON = "load it with its own library, and save the scaler's entries as JSON"
_REFUSED = {
    ".ckpt": 'of MindSpore save it again with mindspore.save_checkpoint(..., format="safetensors"), of torch call it .pt',
    ".h5": _SAVE_AS_JSON,
    ".keras": _SAVE_AS_JSON,
    ".msgpack": _SAVE_AS_JSON,
    ".pdparams": _SAVE_AS_JSON,
    ".pdopt": _SAVE_AS_JSON,
    ".pkl": "a pickle runs code: " + _SAVE_AS_JSON,
    ".pickle": "a pickle runs code: " + _SAVE_AS_JSON,
    ".npy": "it can be a pickle: " + _SAVE_AS_JSON,
    ".npz": "it can be a pickle: " + _SAVE_AS_JSON,
}


def read_file(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """
    A checkpoint.

    Args:
        path: A file that ends in .json, .safetensors, or torch's .pt, .pth or .bin.

    Returns:
        The mapping that it holds. Of safetensors, only tensors of one element are read.

    Raises:
        ImportError: It is torch's, and torch is not installed.
        OSError: It cannot be read.
        ValueError: It has another ending, is a device, is damaged, or holds something else than a mapping.
    """
    kind = _kind(Path(path))
    check_regular(path)
    with open(path, "rb") as file:
        return _read(kind, file, Path(path))


def write_file(path: str | os.PathLike[str], mapping: Mapping[str, Any]) -> None:
    """
    Write a mapping that `save` has made. At every moment the file holds what it held before, or all of the mapping.

    Args:
        path: See `read_file`.
        mapping: Numbers and arrays by name; in JSON anything that JSON can say, too.

    Raises:
        ImportError: It is torch's, and torch is not installed.
        OSError: It cannot be written.
        ValueError: It has another ending, such a file cannot hold the mapping, or `read_file` would reject it.
    """
    kind = _kind(Path(path))
    content = kind.content(mapping)
    _read(kind, BytesIO(content), Path(path))
    write_atomically(path, content)


def _read(kind: _Kind, file: BinaryIO, path: Path) -> Mapping[str, Any]:
    """Return the mapping in an open file, which an error calls *path*."""
    try:
        held = kind.read(file)
    except ValueError as problem:
        raise ValueError(f"{path} must be a {path.suffix.lower()} file: {problem}") from problem
    if not isinstance(held, Mapping):
        raise ValueError(f"{path} must hold a mapping, got {type(held).__name__}")
    return held


def _kind(file: Path) -> _Kind:
    suffix = file.suffix.lower()
    if suffix not in _KINDS:
        raise ValueError(f"{file} must end in one of {list(_KINDS)}; {_REFUSED.get(suffix, _SAVE_AS_JSON)}")
    return _KINDS[suffix]
