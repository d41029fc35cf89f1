"""Fictitious array library whose version its backend rejects."""

import sys

__version__ = "1.0"


class Array:
    """Array with the attributes that ampscale requires."""

    device, dtype, shape = "pit", "float32", ()

    def __array_namespace__(self, *, api_version=None):
        return sys.modules[__name__]
