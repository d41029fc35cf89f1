"""
Backends: one implementation of the `Backend` protocol per array library.

`get_backend` returns the backend that an array belongs to. Except for NumPy, this package imports an array library only if the
program has imported it before, or selects its backend by name.
"""

from .choice import get_backend, get_namespace, use_backend
from .protocol import Backend
from .registry import list_backends, network_of, register_backend

__all__ = ["Backend", "get_backend", "get_namespace", "list_backends", "network_of", "register_backend", "use_backend"]
