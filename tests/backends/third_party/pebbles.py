"""Fictitious array library: flat arrays of Python floats, with the parts of the Array API standard that ampscale uses."""

import sys

__version__ = "0.3"

float16, float32, float64, int32 = "float16", "float32", "float64", "int32"


class Array:
    """Array of shape () or (n,), without arithmetic."""

    device = "pile"

    def __init__(self, values, dtype):
        self.values, self.dtype = values, dtype

    @property
    def shape(self):
        """Return (n,) for a list of n numbers, and () for a number."""
        return (len(self.values),) if isinstance(self.values, list) else ()

    def __array_namespace__(self, *, api_version=None):
        return sys.modules[__name__]


def asarray(values, *, dtype=float64, device=None):
    """Return a new array of a number or a list of numbers."""
    if dtype not in (float16, float32, float64, int32) or device not in (None, Array.device):
        raise TypeError(f"dtype and device must be those of pebbles, got {dtype} on {device}")
    return Array(values, dtype)


def result_type(dtype):
    return dtype


def astype(array, dtype, *, copy=True):
    return array if array.dtype == dtype and not copy else asarray(array.values, dtype=dtype)
