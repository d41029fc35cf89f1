"""
Backends: one module per array library, all with the same contents in the same order.

`backend_of` finds the one that an array belongs to. A library that its user has not imported is not imported here
either, unless it is asked for by name.
"""

from .choice import backend_of, namespace, use_backend
from .protocol import Backend
from .registry import backends, network_of, register_backend

__all__ = ["Backend", "backend_of", "backends", "namespace", "network_of", "register_backend", "use_backend"]
