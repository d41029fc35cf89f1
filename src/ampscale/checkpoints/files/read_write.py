"""
Files of checkpoints: JSON, safetensors, and torch's.

Nothing is ever unpickled, since a pickle runs whatever code its writer put into it. torch's files are read by its loader for
weights alone, and torch is imported for them only.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from . import safetensors, strict_json


class _Kind(NamedTuple):
    read: Callable[[Path], Any]
    write: Callable[[Path, Mapping[str, Any]], None]


def _read_torch(path: Path) -> Any:
    from .torch import read

    return read(path)


def _write_torch(path: Path, mapping: Mapping[str, Any]) -> None:
    from .torch import write

    write(path, mapping)


_JSON = _Kind(
    lambda path: strict_json.parsed(path.read_bytes()), lambda path, mapping: _write_text(path, strict_json.written(mapping))
)
_TORCH = _Kind(_read_torch, _write_torch)
_KINDS = {
    ".json": _JSON,
    ".safetensors": _Kind(safetensors.read, safetensors.write),
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
        ValueError: It has another ending, is damaged, or holds something else than a mapping.
    """
    file = Path(path)
    kind = _kind(file)
    try:
        held = kind.read(file)
    except ValueError as problem:
        raise ValueError(f"{file} must be a {file.suffix.lower()} file: {problem}") from problem
    if not isinstance(held, Mapping):
        raise ValueError(f"{file} must hold a mapping, got {type(held).__name__}")
    return held


def write_file(path: str | os.PathLike[str], mapping: Mapping[str, Any]) -> None:
    """
    Writes a mapping that `save` has made; what was in the file is gone.

    Args:
        path: See `read_file`.
        mapping: Numbers and arrays by name; in JSON anything that JSON can say, too.

    Raises:
        ImportError: It is torch's, and torch is not installed.
        OSError: It cannot be written.
        ValueError: It has another ending, or such a file cannot hold the mapping.
    """
    file = Path(path)
    _kind(file).write(file, mapping)


def _kind(file: Path) -> _Kind:
    suffix = file.suffix.lower()
    if suffix not in _KINDS:
        raise ValueError(f"{file} must end in one of {list(_KINDS)}; {_REFUSED.get(suffix, _SAVE_AS_JSON)}")
    return _KINDS[suffix]


def _write_text(path: Path, text: str) -> None:
    path.write_text(text + "\n", encoding="utf-8")
