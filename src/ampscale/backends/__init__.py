"""
Backends: one package per array library, all with the same contents in the same order.

`get_backend` returns the backend that an array belongs to. A library is imported only if its user has imported it, or requests
its backend by name.
"""

from .choice import get_backend, get_namespace, use_backend
from .protocol import Backend
from .registry import list_backends, network_of, register_backend

__all__ = ["Backend", "get_backend", "get_namespace", "list_backends", "network_of", "register_backend", "use_backend"]
