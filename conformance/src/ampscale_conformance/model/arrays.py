"""Conversion between `Bits` and the arrays of each library. A library is imported only when an adapter names it."""

import struct
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from .adapter import Unsupported
from .bits import DIGITS, Bits, safe_repr

_name_of = cache(str)  # NumPy composes the name of a dtype again in each call of str
_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}  # of the module struct, by the width of a pattern in bytes


def from_bits(bits: Bits, library: str) -> Any:
    """
    Return a new array with these bits.

    Raises Unsupported if the library is not installed, or lacks the dtype, such as float64 on JAX without jax_enable_x64.
    """
    host = _to_numpy(bits)
    if library == "numpy":
        return host
    try:
        created = _MAKERS[library](host, bits.dtype)
    except ModuleNotFoundError as error:
        raise Unsupported(f"{library} is not installed: {error}") from None
    if dtype_name(created) != bits.dtype:
        raise Unsupported(f"{library} creates {dtype_name(created)} instead of {bits.dtype}")
    return created


def to_bits(array: Any) -> Bits:
    """Return the bits of a NumPy scalar or of a readable array of any known library; raise a TypeError for anything else."""
    if not is_array(array):
        raise TypeError(f"expected an array, got {safe_repr(array)} of type {type(array).__name__}")
    try:
        host = _as_numpy(array)
    except (Unsupported, TypeError):
        raise
    except Exception as error:  # such as JAX's error for a deleted array
        raise TypeError(f"expected a readable array, got {type(error).__name__}: {error}") from error
    name = _name_of(host.dtype)
    if name not in DIGITS:
        raise TypeError(f"expected an array with a dtype of {list(DIGITS)}, got dtype {name}")
    patterns = struct.unpack(_format(name, host.size), host.tobytes())
    if name.startswith("complex"):
        width = 2 * DIGITS[name]
        patterns = tuple((real << width) | imaginary for real, imaginary in zip(patterns[::2], patterns[1::2], strict=True))
    return Bits(name, host.shape, patterns)


def is_array(value: Any) -> bool:
    """Return True if the value has a dtype and a shape, as arrays have."""
    return hasattr(value, "dtype") and hasattr(value, "shape")


def dtype_name(array: Any) -> str:
    """Return the name of the dtype of an array of any library: "float32"."""
    return str(getattr(array.dtype, "name", None) or array.dtype).rpartition(".")[2].lower()


def _to_numpy(bits: Bits) -> np.ndarray:
    dtype = _bfloat16() if bits.dtype == "bfloat16" else bits.dtype
    patterns: Sequence[int] = bits.bits
    if bits.dtype.startswith("complex"):
        patterns = [part for pattern in bits.bits for part in divmod(pattern, 1 << (2 * DIGITS[bits.dtype]))]
    return np.ndarray(bits.shape, dtype, bytearray(struct.pack(_format(bits.dtype, len(bits.bits)), *patterns)))


@cache
def _format(dtype: str, size: int) -> str:
    """Return the format of *size* elements for the module struct; the two parts of a complex element are separate patterns."""
    parts = 2 if dtype.startswith("complex") else 1
    return f"={size * parts}{_CODES[DIGITS[dtype] // 2 // parts]}"


def _as_numpy(array: Any) -> np.ndarray:
    module = type(array).__module__.partition(".")[0]
    if module == "torch":
        return _from_torch(array)
    if module == "cupy":
        return np.asarray(array.get())
    if module == "mindspore":
        return np.asarray(array.asnumpy())
    if module in ("paddle", "tensorflow"):
        host = np.asarray(array.numpy())
        is_encoded = dtype_name(array) == "bfloat16" and host.dtype == np.uint16  # as by Paddle
        return host.view(_bfloat16()) if is_encoded else host
    return np.asarray(array)


def _from_torch(array: Any) -> np.ndarray:
    torch = import_module("torch")
    array = array.detach().cpu().resolve_conj().resolve_neg()
    if array.dtype == torch.bfloat16:
        return np.asarray(array.contiguous().view(torch.int16).numpy()).view(_bfloat16())
    return np.asarray(array.numpy())


def _to_torch(host: np.ndarray, dtype: str) -> Any:
    torch = import_module("torch")
    if dtype == "bfloat16":
        return torch.from_numpy(host.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(host.copy())


def _to_paddle(host: np.ndarray, dtype: str) -> Any:
    paddle = import_module("paddle")
    return paddle.to_tensor(host.view(np.uint16), dtype="bfloat16") if dtype == "bfloat16" else paddle.to_tensor(host)


def _to_mindspore(host: np.ndarray, dtype: str) -> Any:
    mindspore = import_module("mindspore")
    if dtype == "bfloat16":
        raise Unsupported("MindSpore cannot convert bfloat16 from NumPy")
    return mindspore.Tensor(host)


_MAKERS: dict[str, Callable[[np.ndarray, str], Any]] = {
    "torch": _to_torch,
    "jax": lambda host, _: import_module("jax.numpy").asarray(host),
    "cupy": lambda host, _: import_module("cupy").asarray(host.reshape(-1)).reshape(host.shape),  # keeps the -0.0 of shape ()
    "paddle": _to_paddle,
    "mindspore": _to_mindspore,
    "tensorflow": lambda host, _: import_module("tensorflow").constant(host),
}


def _bfloat16() -> Any:
    try:
        return import_module("ml_dtypes").bfloat16
    except ModuleNotFoundError:
        raise Unsupported("bfloat16 on NumPy requires the package ml_dtypes") from None
