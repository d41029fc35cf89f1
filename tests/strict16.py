"""
Strict Array API namespace on NumPy for tests, with float16 and bfloat16 in addition to the dtypes of the standard.

It raises an error for operations on which libraries disagree: on two dtypes, and on a Python number and a floating-point array.
It also rejects reads of values on the host, except inside `counting_reads`, which counts them.
"""

import sys
from contextlib import contextmanager
from contextvars import ContextVar

import ml_dtypes
import numpy as np

bool = np.dtype(np.bool_)
uint8, int32, int64 = np.dtype(np.uint8), np.dtype(np.int32), np.dtype(np.int64)
float16, bfloat16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
float32, float64 = np.dtype(np.float32), np.dtype(np.float64)
complex64, complex128 = np.dtype(np.complex64), np.dtype(np.complex128)


class HostReadError(RuntimeError):
    """A value was read on the host."""


_counted: ContextVar[list[str] | None] = ContextVar("counted", default=None)


@contextmanager
def counting_reads():
    """Allow host reads, and append the name of each to the list that is yielded."""
    reads = []
    token = _counted.set(reads)
    try:
        yield reads
    finally:
        _counted.reset(token)


def peek(array):
    """Return a copy of the values, for assertions. This read is neither rejected nor counted."""
    return array._values.copy()


def _read(name):
    """Return a method that calls NumPy's method *name*. Outside `counting_reads` it raises an error."""

    def read(self, *arguments, **keywords):
        reads = _counted.get()
        if reads is None:
            raise HostReadError(f"{name} reads an array of shape {self.shape} on the host")
        reads.append(name)
        return getattr(self._values, name)(*arguments, **keywords)

    return read


def _elementwise(function):
    """Return NumPy's *function* for one or several `Array`s of one dtype. Operands of integer arrays may be Python ints."""

    def compute(first, *others):
        arrays = [first, *(_integer(other, first.dtype) for other in others)]
        _check_one_dtype(*arrays)
        with np.errstate(all="ignore"):  # only NumPy warns about infinities and NaNs
            result = function(*(array._values for array in arrays))
        if first.dtype.kind in "iu" and result.dtype.kind not in "iub":
            raise TypeError(f"{function.__name__} would promote {first.dtype} to {result.dtype}")
        return Array(result)

    return compute


def _reduction(function):
    """Return NumPy's *function*, a reduction, for one `Array` and without NumPy's warnings."""

    def reduce(x, **options):
        with np.errstate(all="ignore"):
            return Array(function(x._values, **options))

    return reduce


class Array:
    """Array whose values cannot be read on the host. The functions of this module create it."""

    __array_ufunc__ = None  # so that NumPy's scalars and arrays leave operators to this class, which rejects them
    device = "cpu"

    def __init__(self, values):
        self._values = np.asarray(values)  # NumPy returns scalars for shape ()

    def __array_namespace__(self, api_version=None):
        return sys.modules[__name__]

    def __repr__(self):
        return f"Array(shape={self.shape}, dtype={self.dtype})"

    def __len__(self):
        return len(self._values)

    def __getitem__(self, key):
        return Array(self._values[key])

    def __setitem__(self, key, value):
        _check_one_dtype(self, value)
        self._values[key] = value._values

    dtype = property(lambda self: self._values.dtype)
    shape = property(lambda self: self._values.shape)
    ndim = property(lambda self: self._values.ndim)
    size = property(lambda self: self._values.size)
    T = property(lambda self: Array(self._values.T))

    __add__, __sub__ = _elementwise(np.add), _elementwise(np.subtract)
    __mul__, __truediv__ = _elementwise(np.multiply), _elementwise(np.divide)
    __pow__, __neg__ = _elementwise(np.power), _elementwise(np.negative)
    __and__, __or__, __invert__ = _elementwise(np.bitwise_and), _elementwise(np.bitwise_or), _elementwise(np.invert)
    __eq__, __ne__ = _elementwise(np.equal), _elementwise(np.not_equal)
    __lt__, __le__ = _elementwise(np.less), _elementwise(np.less_equal)
    __gt__, __ge__ = _elementwise(np.greater), _elementwise(np.greater_equal)

    __bool__, __int__, __float__, __complex__ = _read("__bool__"), _read("__int__"), _read("__float__"), _read("__complex__")
    __index__, __iter__, __array__ = _read("__index__"), _read("__iter__"), _read("__array__")
    item, tolist = _read("item"), _read("tolist")


abs = _elementwise(np.abs)
isfinite, isnan, isinf = _elementwise(np.isfinite), _elementwise(np.isnan), _elementwise(np.isinf)
real, imag, sqrt = _elementwise(np.real), _elementwise(np.imag), _elementwise(np.sqrt)
minimum, maximum = _elementwise(np.minimum), _elementwise(np.maximum)
all, sum, min, max = _reduction(np.all), _reduction(np.sum), _reduction(np.min), _reduction(np.max)


def asarray(obj, dtype=None, device=None, copy=None):
    _check_device(device)
    if isinstance(obj, Array):
        return astype(obj, dtype or obj.dtype, copy=copy is not False)
    return Array(np.array(obj, dtype))


def zeros(shape, dtype=float64, device=None):
    _check_device(device)
    return Array(np.zeros(shape, dtype))


def ones(shape, dtype=float64, device=None):
    _check_device(device)
    return Array(np.ones(shape, dtype))


def zeros_like(x, dtype=None, device=None):
    return zeros(x.shape, dtype or x.dtype, device)


def ones_like(x, dtype=None, device=None):
    return ones(x.shape, dtype or x.dtype, device)


def full_like(x, fill_value, dtype=None, device=None):
    _check_device(device)
    return Array(np.full(x.shape, fill_value, dtype or x.dtype))


def astype(x, dtype, copy=True, device=None):
    _check_device(device)
    if x.dtype.kind == "c" and dtype.kind != "c":
        raise TypeError(f"astype would lose the imaginary part of {x.dtype}")
    with np.errstate(all="ignore"):
        return Array(x._values.astype(dtype, copy=copy))


def reshape(x, shape):
    return Array(np.reshape(x._values, shape))


def result_type(dtype):
    """Return the dtype itself, since this namespace has 64-bit dtypes."""
    return dtype


def stack(arrays, axis=0):
    _check_one_dtype(*arrays)
    return Array(np.stack([array._values for array in arrays], axis))


def take(x, indices, axis=None):
    return Array(np.take(x._values, indices._values, axis))


def where(condition, x1, x2):
    _check_one_dtype(condition)
    _check_one_dtype(x1, x2)
    return Array(np.where(condition._values, x1._values, x2._values))


def _integer(value, dtype):
    return Array(np.asarray(value, dtype)) if type(value) is int and dtype.kind in "iu" else value


def _check_one_dtype(*arrays):
    for array in arrays:
        if not isinstance(array, Array):
            raise TypeError(f"operands must be arrays, got {array!r} of type {type(array).__name__}")
    if len({array.dtype for array in arrays}) > 1:
        raise TypeError(f"arrays must have one dtype, got {[str(array.dtype) for array in arrays]}")


def _check_device(device):
    if device not in (None, "cpu"):
        raise ValueError(f"device must be 'cpu' or None, got {device!r}")
