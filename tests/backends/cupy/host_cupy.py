"""Stand-in for the part of CuPy that the backend uses: a C++ compiler compiles the kernels, which run on the host."""

import ctypes
import importlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import array_api_compat.numpy
import numpy as np

from ampscale.backends import cupy as package

COMPILER = ("g++", "-std=c++20", "-O0", "-ffp-contract=off", "-shared", "-fPIC", "-x", "c++")
WRAPPER = Path(__file__).with_name("host_cuda.cpp")
LIBRARIES = Path(__file__).parents[3] / "build/host_cuda"
SMALL = {"THREADS": 8, "CHUNK": 256, "DEPTH": 2, "TABLE_PART": 3, "WARP": 4}  # so that small arrays have many chunks
MODULES = ("ampscale.backends.cupy.backend", "ampscale.backends.cupy.launches")

# Operations that a device would execute: a "copy" from the host, a "fill", a "move", or the name of a kernel.
operations: list[str] = []

# Functions that allocate the memory of new arrays; the last one is used. NumPy allocates it if there is none.
allocators: list[Callable[[int], Any]] = []


class Memory(NamedTuple):
    """Address of an array."""

    ptr: int

    def memset_async(self, value, size):
        operations.append("fill")
        ctypes.memset(self.ptr, value, size)

    def copy_from_device_async(self, source, size):  # used by benchmarks/gpu_cupy.py
        operations.append("move")
        ctypes.memmove(self.ptr, source.ptr, size)


class ndarray(np.ndarray):  # noqa: N801
    """Array with the attributes `data` and `device` of CuPy arrays."""

    @property
    def data(self):
        return Memory(self.ctypes.data)

    @property
    def device(self):
        """Return a context manager that does nothing instead of selecting the device."""
        return nullcontext()


class UnownedMemory(NamedTuple):
    """Memory of another library, which is freed with its owner."""

    ptr: int
    size: int
    owner: Any
    device: Any


@contextmanager
def using_allocator(allocate):
    """Return a context manager in which arrays are created in memory that *allocate* returns."""
    allocators.append(allocate)
    yield
    allocators.pop()


class Stream:
    """Stream whose operations are synchronous."""

    ptr = 0
    capturing = False

    def is_capturing(self):
        """Return True if a test pretends that a graph is being captured."""
        return self.capturing


class RawModule:
    """Module of kernels, compiled for the host."""

    _threads = range(SMALL["THREADS"])
    _pool = ThreadPoolExecutor(len(_threads))

    def __init__(self, code, options):
        self._library = compiled(code, tuple(option for option in options if option.startswith("-D")))

    def get_function(self, name):
        """Return a function that launches a kernel, with a grid, a block and the arguments of the kernel."""
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
    """Return the library that other processes have stored in build/ for the same code, or compile it."""
    content = "\n".join([*COMPILER, *definitions, WRAPPER.read_text(), code])
    library = LIBRARIES / f"{sha256(content.encode()).hexdigest()}.so"
    if not library.exists():
        LIBRARIES.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=LIBRARIES) as folder:
            kernels, new = Path(folder, "kernels.cu"), Path(folder, "kernels.so")
            kernels.write_text(code)
            subprocess.run([*COMPILER, *definitions, f'-DKERNELS="{kernels}"', str(WRAPPER), "-o", str(new)], check=True)
            new.replace(library)
    return ctypes.CDLL(str(library))


def as_c(argument):
    """Convert an argument of a kernel to C: an address, a number of the same width, or a record by value."""
    if argument is None or isinstance(argument, ndarray):
        return ctypes.c_void_p(argument if argument is None else argument.data.ptr)
    if isinstance(argument, np.ndarray):
        record = type("Record", (ctypes.Structure,), {"_fields_": [("words", ctypes.c_int64 * (argument.nbytes // 8))]})
        return record.from_buffer_copy(argument)
    c_types = {np.bool_: ctypes.c_bool, np.int32: ctypes.c_int32, np.int64: ctypes.c_int64, np.float64: ctypes.c_double}
    return c_types[type(argument)](argument.item())


def empty(shape, dtype):
    """Return a new array with arbitrary values."""
    array = np.empty(shape, dtype).view(ndarray)
    if allocators:
        memory = allocators[-1](array.nbytes)
        buffer = (ctypes.c_uint8 * array.nbytes).from_address(memory.ptr)
        buffer.owner = memory.owner
        array = np.ndarray(shape, dtype, buffer).view(ndarray)
    array.reshape(-1).view(np.uint8)[...] = 0xA5
    return array


def asarray(array):
    """Return a copy of a NumPy array, in the same layout unless an allocator is used; or a view of another library's array."""
    if not isinstance(array, np.ndarray | np.generic):
        return np.asarray(array).view(ndarray)
    operations.append("copy")
    copy = np.array(array, copy=True, order="K").view(ndarray)
    if allocators:
        copy = empty(copy.shape, copy.dtype)
        copy[...] = array
    return copy


def stand_in():
    """Return a module with the attributes of CuPy that the backend uses."""
    module = ModuleType("cupy")
    stream = Stream()
    module.ndarray, module.RawModule, module.empty, module.asarray = ndarray, RawModule, empty, asarray
    module.empty_like = lambda array: empty(array.shape, array.dtype)
    module.asnumpy = np.asarray
    runtime = SimpleNamespace(device=0, getDevice=lambda: runtime.device, runtimeGetVersion=lambda: 13000)
    module.cuda = SimpleNamespace(get_current_stream=lambda: stream, is_available=lambda: False, runtime=runtime)
    module.cuda.Device, module.cuda.Stream = lambda _: nullcontext(), SimpleNamespace(from_external=nullcontext)
    module.cuda.using_allocator, module.cuda.UnownedMemory = using_allocator, UnownedMemory
    module.cuda.MemoryPointer = lambda memory, _: memory
    return module


@cache
def backend():
    """Import ampscale's modules `backend` and `launches` with this stand-in, without keeping them in sys.modules; return both."""
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
