"""Platforms where the CuPy backend can run: on a device, or on the host with kernels compiled for the host."""

import importlib
import shutil
import warnings
from importlib.util import find_spec
from typing import Any, NamedTuple

import pytest
from backends.cupy import host_cupy

from ampscale.core.trees import map_leaves


class Platform(NamedTuple):
    """Modules of the backend, and the array library that they use."""

    backend: Any
    kernels: Any
    library: Any

    def put(self, tree):
        return map_leaves(lambda array: self.library.asarray(array.reshape(-1)).reshape(array.shape), tree)  # in C order

    def to_numpy(self, tree):
        return map_leaves(self.library.asnumpy, tree)


def host():
    """Return the backend with kernels compiled for the host."""
    if shutil.which(host_cupy.COMPILER[0]) is None:
        pytest.skip(f"needs {host_cupy.COMPILER[0]}")
    backend, kernels = host_cupy.backend()
    return Platform(backend, kernels, backend.cupy)


def device():
    """Return the backend that uses the current device."""
    if find_spec("cupy") is None:
        pytest.skip("needs CuPy and a CUDA device")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy warns if it does not find a toolkit
        cupy = importlib.import_module("cupy")
    if not cupy.cuda.is_available():
        pytest.skip("needs CuPy and a CUDA device")
    backend, kernels = (importlib.import_module(name) for name in host_cupy.MODULES)
    return Platform(backend, kernels, cupy)
