"""
Array libraries that the tests run on: conversion from and to NumPy, and counting of device-to-host copies.

torch and JAX are imported when a test first requests them.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import array_api_compat.numpy
import array_api_strict
import numpy as np
import pytest
import strict16
from strategies import DTYPES, same

from ampscale.core.trees import map_leaves

EVERY = ("numpy", "strict", "strict16", "torch", "jax")
WITHOUT = {"torch", "jax"} - set(os.environ.get("AMPSCALE_TEST_LIBRARIES", "torch jax").split())
NAMES = tuple(name for name in EVERY if name not in WITHOUT)
ON_DEVICE = (pytest.param("cupy", marks=pytest.mark.device),)
DTYPES_OF = {name: tuple(DTYPES) for name in (*EVERY, "cupy")} | {"strict": ("float32", "float64")}
# Functions that read an array on the host, by the method that they call.
READS = {
    "__bool__": bool,
    "__int__": int,
    "__float__": float,
    "__complex__": complex,
    "__index__": lambda array: "ab"[array],
    "__array__": lambda array: np.asarray(array),  # looked up when it is called, as in user code
    "__iter__": list,
    "item": lambda array: array.item(),
    "tolist": lambda array: array.tolist(),
}


def close(left, right):
    """Return True if two arrays of norms have one dtype and shape, and are equal or at most two units in the last place apart."""
    left, right = np.asarray(left), np.asarray(right)
    if (left.dtype, left.shape) != (right.dtype, right.shape):
        return False
    with np.errstate(all="ignore"):
        both_finite = np.isfinite(left) & np.isfinite(right)
        within_two_units = both_finite & (np.abs(left - right) <= 2 * unit_of(np.maximum(left, right)))
    return bool((within_two_units | (left == right) | (np.isnan(left) & np.isnan(right))).all())


def unit_of(norm):
    """Return the unit in the last place, even of the largest number, for which `np.spacing` returns infinity."""
    with np.errstate(over="ignore"):
        return np.where(norm > 1, 2 * np.spacing(norm / norm.dtype.type(2)), np.spacing(norm))


def on(*names):
    """Return a mark that runs a test on these libraries only."""
    return pytest.mark.parametrize("library", names, indirect=True)


def with_dtypes(*dtypes):
    """Return a mark that runs a test on each library, once for each of *dtypes* that the library supports, as `dtype`."""
    pairs = [(name, dtype) for name in NAMES for dtype in dtypes if dtype in DTYPES_OF[name]]
    return pytest.mark.parametrize(("library", "dtype"), pairs, indirect=["library"])


@dataclass(frozen=True)
class Library:
    """Array library with the functions that tests need."""

    name: str
    xp: Any  # Array API namespace of array_api_compat
    put: Callable[[np.ndarray], Any]  # converts from NumPy to a new array, bit for bit
    get: Callable[[Any], np.ndarray]  # converts to a new NumPy array, bit for bit
    writable: bool = True
    flushes_subnormals: bool = False  # operators replace subnormal float32 (JAX: also float64) operands and results by zeros
    count_reads: Callable[[], AbstractContextManager[list[str]]] | None = None  # yields a list of the copies to the host

    @property
    def dtypes(self):
        """Return the names of the supported floating-point formats."""
        return DTYPES_OF[self.name]

    def from_numpy(self, tree):
        """Convert a tree of NumPy arrays to this library, bit for bit."""
        return map_leaves(self.put, tree)

    def to_numpy(self, tree):
        """Convert a tree of this library's arrays to NumPy, bit for bit."""
        return map_leaves(self.get, tree)

    def item(self, array):
        """Return the value of an array of shape (), which is a NumPy array if it was computed from a tree without arrays."""
        return (array if isinstance(array, np.ndarray) else self.get(array)).item()

    def same(self, left, right):
        """Return True if two trees of this library's arrays are equal, bit for bit."""
        return same(self.to_numpy(left), self.to_numpy(right))

    def array(self, values, dtype="float32"):
        """Create an array of this library from numbers."""
        return self.put(np.asarray(values, DTYPES.get(dtype, dtype)))

    def quiet(self):
        """Return a context that, for array_api_strict, silences the floating-point warnings that it inherits from NumPy."""
        return np.errstate(all="ignore" if self.name == "strict" else None)


@cache
def load(name):
    """Return the library *name*. Skip the test if it is not installed or not selected."""
    if name in WITHOUT:
        pytest.skip(f"AMPSCALE_TEST_LIBRARIES leaves out {name}")
    return LOADERS[name]()


def _numpy():
    """Return NumPy. Reading its arrays cannot be detected, since they are in host memory."""
    return Library("numpy", array_api_compat.numpy, np.array, np.array)


def _strict():
    """Return array_api_strict, which has neither 16-bit floats nor a counter of copies; `strict16` has both."""
    return Library("strict", array_api_strict, lambda array: array_api_strict.asarray(array, copy=True), np.array)


def _strict16():
    def put(array):
        return strict16.Array(array.copy())

    return Library("strict16", strict16, put, strict16.peek, count_reads=strict16.counting_reads)


def _torch():
    torch = pytest.importorskip("torch", reason="needs torch")
    import array_api_compat.torch

    def put(array):
        bits = np.array(array, order="C")
        if array.dtype != DTYPES["bfloat16"]:
            return torch.from_numpy(bits)
        return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)

    def get(tensor):
        if tensor.dtype != torch.bfloat16:
            return tensor.numpy(force=True).copy()
        return tensor.view(torch.int16).numpy(force=True).view(DTYPES["bfloat16"]).copy()

    return Library("torch", array_api_compat.torch, put, get, count_reads=_torch_reads)


@contextmanager
def _torch_reads():
    """Record operations with torch's tags for a result or a shape that depends on values, and four methods without these tags."""
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    reads = []
    tags = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    methods = {torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.__array__, torch.Tensor.__dlpack__}

    class Operations(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            if tags & set(operation.tags):
                reads.append(str(operation))
            return operation(*args, **(kwargs or {}))

    class Methods(TorchFunctionMode):
        def __torch_function__(self, method, types, args=(), kwargs=None):
            if method in methods:
                reads.append(method.__name__)
            return method(*args, **(kwargs or {}))

    with Operations(), Methods():
        yield reads


def _jax():
    """Return JAX in 64-bit mode, which conftest.py enables."""
    jax = pytest.importorskip("jax", reason="needs jax")
    return Library(
        "jax", jax.numpy, jax.numpy.array, np.array, writable=False,
        flushes_subnormals=jax.default_backend() == "cpu", count_reads=_jax_reads,
    )  # fmt: skip


@contextmanager
def _jax_reads():
    """Record the reads of `ArrayImpl._value`. `np.asarray` and `np.array` would read the memory directly; they are patched."""
    from jax._src.array import ArrayImpl

    reads = []
    value = ArrayImpl._value
    functions = {name: getattr(np, name) for name in ("asarray", "array")}

    def watched(array):
        reads.append(f"{array.dtype}{list(array.shape)}")
        return value.fget(array)

    def redirected(function):
        return lambda array, *args, **kwargs: function(array._value if isinstance(array, ArrayImpl) else array, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArrayImpl, "_value", property(watched))
        for name, function in functions.items():
            patch.setattr(np, name, redirected(function))
        yield reads


def _cupy():
    """Return CuPy on the current device. Its kernels flush subnormal float32 numbers to zero."""
    from backends.platforms import device

    cupy = device().library
    return Library("cupy", cupy, cupy.array, cupy.asnumpy, flushes_subnormals=True)


LOADERS = {"numpy": _numpy, "strict": _strict, "strict16": _strict16, "torch": _torch, "jax": _jax, "cupy": _cupy}
