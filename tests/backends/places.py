"""Where CuPy's backend can run: on a device, or its kernels compiled for the host."""

import importlib
import shutil
import warnings
from importlib.util import find_spec
from typing import Any, NamedTuple

import pytest
from backends.cupy import host_cupy

from ampscale.core.trees import map_leaves


class Place(NamedTuple):
    """A backend's modules, and the library under them."""

    backend: Any
    kernels: Any
    library: Any

    def put(self, tree):
        """A tree of NumPy's arrays, in this library."""
        return map_leaves(self.library.asarray, tree)

    def got(self, tree):
        """A tree of this library, in NumPy's arrays."""
        return map_leaves(self.library.asnumpy, tree)


def host():
    """The kernels as a C++ compiler understands them."""
    if shutil.which(host_cupy.COMPILER[0]) is None:
        pytest.skip(f"needs {host_cupy.COMPILER[0]}")
    backend, kernels = host_cupy.backend()
    return Place(backend, kernels, backend.cupy)


def device():
    """The kernels on the current device."""
    if find_spec("cupy") is None:
        pytest.skip("needs CuPy and a CUDA device")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy warns of a toolkit that it does not find
        cupy = importlib.import_module("cupy")
    if not cupy.cuda.is_available():
        pytest.skip("needs CuPy and a CUDA device")
    backend, kernels = (importlib.import_module(name) for name in host_cupy.MODULES)
    return Place(backend, kernels, cupy)
