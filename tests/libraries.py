"""
The array libraries on which tests run, as one table: how an array gets in and out, and who counts the reads on the host.

torch and JAX are imported by nobody before a test asks for them.
"""

import operator
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
from hypothesis import strategies as st
from strategies import DTYPES, SMALLEST_NORMAL, arrays, shapes, trees

from ampscale.core import scaling
from ampscale.core.scaling import Operation
from ampscale.core.trees import map_leaves

EVERY = ("numpy", "strict", "strict16", "torch", "jax")
WITHOUT = {"torch", "jax"} - set(os.environ.get("AMPSCALE_TEST_LIBRARIES", "torch jax").split())
NAMES = tuple(name for name in EVERY if name not in WITHOUT)
ON_DEVICE = (pytest.param("cupy", marks=pytest.mark.device),)
SIXTEEN_BITS = ("float16", "bfloat16")
DTYPES_OF = {name: tuple(DTYPES) for name in (*EVERY, "cupy")} | {"strict": ("float32", "float64")}


def on(*names):
    """A mark: the test runs on these libraries alone."""
    return pytest.mark.parametrize("library", names, indirect=True)


def with_dtypes(*dtypes):
    """A mark: the test runs on each library, with each of these floating-point formats that it has, named by `dtype`."""
    pairs = [(name, dtype) for name in NAMES for dtype in dtypes if dtype in DTYPES_OF[name]]
    return pytest.mark.parametrize(("library", "dtype"), pairs, indirect=["library"])


@dataclass(frozen=True)
class Library:
    """An array library as tests see it."""

    name: str
    xp: Any  # its Array API namespace, as array_api_compat gives it
    put: Callable[[np.ndarray], Any]  # a new array of this library with the bits of NumPy's
    get: Callable[[Any], np.ndarray]  # a new NumPy array with the bits of this library's
    writable: bool = True
    flushes_subnormals: bool = False  # of float32 and float64, in its operators: what goes in, and what comes out
    multiply: Operation = operator.mul  # a product that is IEEE 754's, and
    divide: Operation = operator.truediv  # a quotient
    count_reads: Callable[[], AbstractContextManager[list[str]]] | None = None  # gives a list of the host reads made inside

    @property
    def dtypes(self):
        """The names of its floating-point formats."""
        return DTYPES_OF[self.name]

    def from_numpy(self, tree):
        """A tree of NumPy's arrays with each as one of this library, bit for bit."""
        return map_leaves(self.put, tree)

    def to_numpy(self, tree):
        """A tree of this library's arrays with each as one of NumPy, bit for bit."""
        return map_leaves(self.get, tree)

    def array(self, values, dtype="float32"):
        """An array of this library, from numbers and the name of a dtype."""
        return self.put(np.asarray(values, DTYPES.get(dtype, dtype)))

    def arrays(self):
        """A strategy: NumPy's arrays of the formats of this library; beyond NumPy of few shapes, since some compile for each."""
        few = shapes if self.name == "numpy" else st.sampled_from([(), (3,)])
        return st.sampled_from(self.dtypes).flatmap(lambda name: arrays(name, few))

    def trees(self):
        """A strategy: containers of this library's arrays and None; on NumPy of any nesting, which is no library's matter."""
        if self.name == "numpy":
            return trees(self.arrays())
        leaf = self.arrays() | st.none()
        return st.fixed_dictionaries({"a": st.tuples(leaf, st.just([])), "b": leaf}).map(self.from_numpy)

    def scale(self, tree, scale):
        """`core.scaling.scale` with the product of this library."""
        return scaling.scale(tree, scale, multiply=self.multiply)

    def unscale(self, tree, scale, dtype=None):
        """`core.scaling.unscale` with the quotient of this library."""
        return scaling.unscale(tree, scale, dtype, divide=self.divide)

    def quiet(self):
        """A context in which the library says nothing of infinities: array_api_strict stands on NumPy, which warns."""
        return np.errstate(all="ignore" if self.name == "strict" else None)

    def as_computed(self, array):
        """float32 or float64 as this library's operators take and give it: subnormals are signed zeros where they flush."""
        if not self.flushes_subnormals:
            return array
        return array * (np.abs(array) >= SMALLEST_NORMAL[array.dtype.name])


@cache
def load(name):
    """The library of this name. A test that asks for one that is not installed, or not to be tested, is skipped."""
    if name in WITHOUT:
        pytest.skip(f"AMPSCALE_TEST_LIBRARIES leaves out {name}")
    return LOADERS[name]()


def _numpy():
    """Nothing can watch a NumPy array being read: its values lie in the host's memory."""
    return Library("numpy", array_api_compat.numpy, np.array, np.array)


def _strict():
    """It has neither 16-bit floats nor anyone who counts; `strict16` has both."""
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
    """An operation of torch's is tagged where its result or its shape depends on values; four methods are no operations."""
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
    """In 64 bits, which conftest.py switches on."""
    jax = pytest.importorskip("jax", reason="needs jax")
    from ampscale.backends.jax.ieee754 import divide, multiply

    return Library(
        "jax", jax.numpy, jax.numpy.array, np.array, writable=False,
        flushes_subnormals=jax.default_backend() == "cpu", multiply=multiply, divide=divide, count_reads=_jax_reads,
    )  # fmt: skip


@contextmanager
def _jax_reads():
    """All reads pass through one property, but NumPy's two, which take the memory as it lies: these are led through it."""
    from jax._src.array import ArrayImpl

    reads = []
    value, taken = ArrayImpl._value, {name: getattr(np, name) for name in ("asarray", "array")}

    def watched(array):
        reads.append(f"{array.dtype}{list(array.shape)}")
        return value.fget(array)

    def led(take):
        return lambda array, *rest, **how: take(array._value if isinstance(array, ArrayImpl) else array, *rest, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArrayImpl, "_value", property(watched))
        for name, take in taken.items():
            patch.setattr(np, name, led(take))
        yield reads


def _cupy():
    """On the current device. It compiles its arithmetic to take float32's subnormal numbers for zero."""
    from backends.places import device

    cupy = device().library
    return Library("cupy", cupy, cupy.array, cupy.asnumpy, flushes_subnormals=True)


LOADERS = {"numpy": _numpy, "strict": _strict, "strict16": _strict16, "torch": _torch, "jax": _jax, "cupy": _cupy}
