"""
Backends: one module per array library, all with the same contents in the same order.

`get_backend` finds the one that an array belongs to. A library that its user has not imported is not imported here
either, unless it is asked for by name.
"""

from .choice import get_backend, get_namespace, use_backend
from .protocol import Backend
from .registry import list_backends, network_of, register_backend

__all__ = ["Backend", "get_backend", "get_namespace", "list_backends", "network_of", "register_backend", "use_backend"]
