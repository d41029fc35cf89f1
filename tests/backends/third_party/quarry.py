"""A made-up array library that its backend does not get along with."""

import sys

__version__ = "1.0"


class Array:
    """An array, for all that ampscale can tell."""

    device, dtype, shape = "pit", "float32", ()

    def __array_namespace__(self, *, api_version=None):
        return sys.modules[__name__]
