"""
Which backends there are, and whose an array is.

Ours, then those that were registered, then those that installed packages bring in the entry-point group
``ampscale.backends``; what none of them owns is the generic one's. A backend's name is also that of its library's
top-level module, so that it is looked at only once that has been imported.
"""

import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

from ..core.typing import Array
from . import generic, numpy
from ._protocol import Backend, check_backend

GROUP = "ampscale.backends"
OURS = ("numpy", "cupy", "torch", "jax")

_loaded: dict[str, Backend] = {numpy.NAME: numpy}
_owners: dict[type, Backend] = {}


def backends() -> tuple[str, ...]:
    """The names of all backends, installed or not; the generic one last."""
    return (*dict.fromkeys([*OURS, *_loaded, *entry_points()]), generic.NAME)


def register_backend(backend: Backend) -> None:
    """
    Adds a backend for another array library. A package that brings one names it in the entry-point group
    ``ampscale.backends`` instead, under the name of the library's top-level module.

    Args:
        backend: A module or an object with the contents of `Backend`.

    Raises:
        TypeError: Something is missing from it.
        ValueError: Its NAME is taken.
    """
    check_backend(backend, "backend")
    if backend.NAME in backends():
        raise ValueError(f"a backend's NAME must be new, got {backend.NAME!r}; there are {', '.join(backends())}")
    _loaded[backend.NAME] = backend
    _owners.clear()


def owner_of(array: Array) -> Backend:
    """
    The backend that *array* belongs to.

    Raises:
        RuntimeError: The backend that an installed package brings for an imported library does not load.
    """
    kind = type(array)
    if kind not in _owners:
        _owners[kind] = next((backend for backend in _imported() if backend.owns(array)), generic)
    return _owners[kind]


def network_of(value: Any) -> Any:
    """
    *value* as something with `params` and `vjp`: itself where it has them, or as its library's backend sees it.

    Raises:
        TypeError: It is none.
    """
    if hasattr(value, "params") and callable(getattr(value, "vjp", None)):
        return value
    for backend in _imported():
        if (network := backend.as_network(value)) is not None:
            return network
    wanted = "a Network, a torch.nn.Module that returns its loss, or anything with params and vjp(params, *inputs)"
    raise TypeError(f"network must be {wanted}, got {value!r} of type {type(value).__name__}")


def load(name: str) -> Backend:
    """
    The backend called *name*; its library is imported if need be.

    Raises:
        ImportError: The library is not there, or does not load.
        RuntimeError: A package's backend does not load, or is none.
    """
    if name not in _loaded:
        _loaded[name] = import_module(f".{name}", __package__) if name in OURS else _from_package(name)
    return _loaded[name]


@cache
def entry_points() -> dict[str, Any]:
    """What installed packages bring, by name."""
    from importlib.metadata import entry_points  # some ten milliseconds, which NumPy's arrays never need

    return {point.name: point for point in entry_points(group=GROUP)}


def _from_package(name: str) -> Backend:
    point = entry_points()[name]
    package = point.dist.name if point.dist else "an unknown package"
    try:
        backend: Backend = point.load()
        check_backend(backend, f"the entry point {name!r}")
    except Exception as error:
        raise RuntimeError(
            f"the backend {name!r} of {package} ({point.value}) failed: {type(error).__name__}: {error}"
        ) from error
    return backend


def _imported() -> Iterator[Backend]:
    """The backends whose libraries have been imported."""
    yield from (load(name) for name in (*OURS, *_loaded) if name in sys.modules)
    yield from (load(name) for name in entry_points() if name in sys.modules)
