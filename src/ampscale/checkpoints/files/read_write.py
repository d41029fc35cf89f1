"""
Readers and writers of checkpoint files: JSON, safetensors and torch's format.

Plain pickles are not read, since a pickle can run any code. torch's files are read with `torch.load(weights_only=True)`, and
torch is imported only for these files.
"""

import os
from collections.abc import Mapping
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from ...files import check_before_opening, write_atomically
from ...parsing import LONGEST_JSON, excerpt, json_text, parse_json

# Module in this package with the functions `read` and `content` of a file type; none for JSON.
_MODULES = {".json": "", ".safetensors": ".safetensors", ".pt": ".torch", ".pth": ".torch", ".bin": ".torch", ".ckpt": ".torch"}
_REMEDIES = {".ckpt": '; save files of MindSpore with mindspore.save_checkpoint(..., format="safetensors")'}
_REASONS = dict.fromkeys((".pkl", ".pickle"), "a pickle can run code, so it is not read here: ")
_REASONS |= dict.fromkeys((".npy", ".npz"), "such a file can contain a pickle, which can run code: ")


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
        ValueError: The file has an unsupported suffix, is a device, is damaged, or does not contain a mapping.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "scaler.json")
    >>> write_file(path, {"fin_steps": 4, "scale": 1024.0})
    >>> read_file(path)
    {'fin_steps': 4, 'scale': 1024.0}
    """
    suffix = _suffix(Path(path), is_read=True)
    check_before_opening(path)
    with open(path, "rb") as file:
        return _read(file, suffix, Path(path))


def write_file(path: str | os.PathLike[str], mapping: Mapping[str, Any]) -> None:
    """
    Write a mapping, such as the result of `save`, to a checkpoint file.

    The file is replaced atomically: it always contains either its old content or the complete mapping.

    Args:
        path: See `read_file`; a .ckpt file cannot be written.
        mapping: Numbers and arrays by name; a JSON file can also hold strings, lists and nested mappings.

    Raises:
        ImportError: The file is torch's, and torch is not installed.
        OSError: The file cannot be written.
        TypeError: *mapping* is not a mapping.
        ValueError: The file has an unsupported suffix, its format cannot hold the mapping, or `read_file` would reject the file.

    >>> import os, tempfile
    >>> import numpy as np
    >>> path = os.path.join(tempfile.mkdtemp(), "scaler.safetensors")
    >>> write_file(path, {"fin_steps": np.int32(4), "scale": np.float32(1024.0)})
    >>> read_file(path)["scale"]
    array(1024., dtype=float32)
    """
    suffix = _suffix(Path(path), is_read=False)
    if not isinstance(mapping, Mapping):
        raise TypeError(f"mapping must be a mapping, got {type(mapping).__name__}")
    if suffix == ".ckpt":
        raise ValueError(
            "a .ckpt file can be read, not written, since torch and MindSpore both use the suffix: write .pt instead"
        )
    content = f"{json_text(mapping, indent=2)}\n".encode() if suffix == ".json" else _module(suffix).content(mapping)
    _read(BytesIO(content), suffix, Path(path))  # check that the content can be read before it replaces a file
    if suffix in (".json", ".safetensors"):
        _check_keys(mapping)
    write_atomically(path, content)


def _read(file: BinaryIO, suffix: str, path: Path) -> Mapping[str, Any]:
    """Return the mapping in an open file. Error messages contain *path*."""
    try:
        mapping = parse_json(file.read(LONGEST_JSON + 1)) if suffix == ".json" else _module(suffix).read(file)
    except ValueError as problem:
        raise ValueError(f"{path} must be a valid {suffix} file: {problem}{_REMEDIES.get(suffix, '')}") from problem
    if not isinstance(mapping, Mapping):
        raise ValueError(f"{path} must contain a mapping, got {type(mapping).__name__}")
    return mapping


def _check_keys(value: Any) -> None:
    """Raise a ValueError if a key is not a str: JSON has no other keys, so the key would be read as a str."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(f"each key must be a str, got {excerpt(key)} of type {type(key).__name__}; write .pt instead")
        value = list(value.values())
    if isinstance(value, list | tuple):
        for member in value:
            _check_keys(member)


def _module(suffix: str) -> Any:
    """Return the module of a file type. It is imported at its first use, since the module for torch's files imports torch."""
    try:
        return import_module(_MODULES[suffix], __package__)
    except ModuleNotFoundError as error:
        remedy = f'pip install "ampscale[torch]"{_REMEDIES.get(suffix, "")}'
        raise ModuleNotFoundError(f"a {suffix} file requires {error.name}: {remedy}", name=error.name) from error


def _suffix(path: Path, *, is_read: bool) -> str:
    suffix = path.suffix.lower()
    if suffix not in _MODULES:
        names = [name for name in _MODULES if is_read or name != ".ckpt"]
        reason = _REASONS.get(suffix, "")
        remedy = f"; {reason}load the file with its own library, and save the scaler's entries as JSON" if is_read else ""
        raise ValueError(f"{path} must end in one of {names}{remedy}")
    return suffix
