"""A made-up array library: flat arrays of Python's floats. It knows as much of the Array API standard as ampscale asks for."""

import sys

__version__ = "0.3"

float16, float32, float64, int32 = "float16", "float32", "float64", "int32"


class Array:
    """One number, or a row of them. They cannot be added up."""

    device = "pile"

    def __init__(self, values, dtype):
        self.values, self.dtype = values, dtype

    @property
    def shape(self):
        """() for one number."""
        return (len(self.values),) if isinstance(self.values, list) else ()

    def __array_namespace__(self, *, api_version=None):
        return sys.modules[__name__]


def asarray(values, *, dtype=float64, device=None):
    """A new array of a number or a list of numbers."""
    if dtype not in (float16, float32, float64, int32) or device not in (None, Array.device):
        raise TypeError(f"no pebbles of {dtype} on {device}")
    return Array(values, dtype)


def result_type(dtype):
    """The dtype itself."""
    return dtype


def astype(array, dtype, *, copy=True):
    """*array* in another dtype."""
    return array if array.dtype == dtype and not copy else asarray(array.values, dtype=dtype)
