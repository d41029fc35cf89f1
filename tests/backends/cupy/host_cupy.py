"""As much of CuPy as the backend uses, in the host's memory: the kernels are compiled by a C++ compiler and really run."""

import ctypes
import importlib
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import NamedTuple
from unittest import mock

import array_api_compat.numpy
import numpy as np

from ampscale.backends import cupy as package

COMPILER = ("g++", "-std=c++20", "-O0", "-ffp-contract=off", "-shared", "-fPIC", "-x", "c++")
WRAPPER = Path(__file__).with_name("host_cuda.cpp")
SMALL = {"THREADS": 8, "CHUNK": 256, "DEPTH": 2, "TABLE_PART": 3}  # so that small arrays have many chunks
MODULES = ("ampscale.backends.cupy.backend", "ampscale.backends.cupy.launches")

# All that a device would be given to do: a "copy" from the host, a "fill", a "move", or a kernel's name.
operations: list[str] = []


class Memory(NamedTuple):
    """Where an array begins."""

    ptr: int

    def memset_async(self, value, size):
        """Fills as many bytes."""
        operations.append("fill")
        ctypes.memset(self.ptr, value, size)

    def copy_from_device_async(self, source, size):
        """Fills as many bytes with those of other memory."""
        operations.append("move")
        ctypes.memmove(self.ptr, source.ptr, size)


class ndarray(np.ndarray):  # noqa: N801
    """An array that tells its address and its device as CuPy's do."""

    @property
    def data(self):
        """Where its numbers are."""
        return Memory(self.ctypes.data)

    @property
    def device(self):
        """What makes its device the current one: there is nothing to do."""
        return nullcontext()


class Stream:
    """A stream on which everything has happened at once."""

    ptr = 0
    capturing = False

    def is_capturing(self):
        """Whether a graph is being captured, as a test may pretend."""
        return self.capturing


class RawModule:
    """The kernels of a source, compiled here."""

    def __init__(self, code, options):
        self._library = compiled(code, tuple(option for option in options if option.startswith("-D")))
        self._threads = range(SMALL["THREADS"])
        self._pool = ThreadPoolExecutor(len(self._threads))

    def get_function(self, name):
        """One kernel, as CuPy has it called: with a grid, a block and its arguments."""
        kernel = getattr(self._library, name)

        def launch(grid, block, arguments):
            assert block == (len(self._threads),)
            values = [as_c(argument) for argument in arguments]
            operations.append(name)

            def work(thread):
                for index in range(grid[0]):
                    self._library.enter(index, thread)
                    kernel(*values)
                    self._library.leave()

            list(self._pool.map(work, self._threads))

        return launch


@cache
def compiled(code, definitions):
    """The library that the C++ compiler makes of the kernels."""
    folder = Path(tempfile.mkdtemp())
    kernels, library = folder / "kernels.cu", folder / "kernels.so"
    kernels.write_text(code)
    command = [*COMPILER, *definitions, f'-DKERNELS="{kernels}"', str(WRAPPER), "-o", str(library)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


def as_c(argument):
    """A kernel's argument as C takes it: addresses, numbers in their own width, and records by value."""
    if argument is None or isinstance(argument, ndarray):
        return ctypes.c_void_p(argument if argument is None else argument.data.ptr)
    if isinstance(argument, np.ndarray):
        record = type("Record", (ctypes.Structure,), {"_fields_": [("words", ctypes.c_int64 * (argument.nbytes // 8))]})
        return record.from_buffer_copy(argument)
    kinds = {np.bool_: ctypes.c_bool, np.int32: ctypes.c_int32, np.float64: ctypes.c_double}
    return kinds[type(argument)](argument.item())


def empty(shape, dtype):
    """A new array, full of what nobody may rely on."""
    array = np.empty(shape, dtype).view(ndarray)
    array.reshape(-1).view(np.uint8)[...] = 0xA5
    return array


def asarray(array):
    """*array* in the memory of this library, laid out as it is."""
    operations.append("copy")
    return np.array(array, copy=True, order="K").view(ndarray)


def stand_in():
    """A module that can be imported as CuPy."""
    module = ModuleType("cupy")
    stream = Stream()
    module.ndarray, module.RawModule, module.empty, module.asarray = ndarray, RawModule, empty, asarray
    module.empty_like = lambda array: empty(array.shape, array.dtype)
    module.asnumpy = np.asarray
    module.cuda = SimpleNamespace(get_current_stream=lambda: stream, is_available=lambda: False)
    return module


@cache
def backend():
    """The modules `backend` and `launches` of ampscale on this library; nobody else sees them."""
    libraries = {"cupy": stand_in(), "array_api_compat.cupy": array_api_compat.numpy}
    with (
        mock.patch.dict(sys.modules, libraries),
        mock.patch.multiple(package, backend=None, launches=None, create=True),
        mock.patch.object(array_api_compat, "cupy", array_api_compat.numpy, create=True),
    ):
        for name in MODULES:
            sys.modules.pop(name, None)
        module, kernels = (importlib.import_module(name) for name in MODULES)
    vars(kernels).update(SMALL)
    return module, kernels
