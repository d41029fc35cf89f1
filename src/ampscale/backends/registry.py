"""
Registry of backends, and the lookup of the backend that owns an array.

Built-in backends come first, then registered backends and those that installed packages provide in the entry-point group
``ampscale.backends``. The generic backend processes arrays that no other backend owns. A backend has the name of its library's
top-level module, and is loaded only after that module has been imported, or if the backend is requested by name.

Spec: BACKENDS-never-unasked, BACKENDS-third-party, BACKENDS-failure-reported.
"""

import inspect
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any

from ..core.trees import register_container
from ..core.typing import Array, Tree
from ..parsing import excerpt
from . import generic
from .numpy import backend as numpy
from .protocol import Backend, check_backend

GROUP = "ampscale.backends"
BUILT_IN = ("numpy", "cupy", "torch", "jax")
RESERVED = (*BUILT_IN, generic.NAME)

_loaded: dict[str, Backend] = {numpy.NAME: numpy}
_failures: dict[str, str] = {}  # for each backend that failed to load, the reason at the last attempt
_owners: dict[type, Backend] = {}


def list_backends() -> tuple[str, ...]:
    """
    Return the names of all backends, installed or not: the built-in ones, others in alphabetical order, and "generic".

    >>> list_backends()[:4]
    ('numpy', 'cupy', 'torch', 'jax')
    """
    others = {*_loaded, *_entry_points()} - {*RESERVED}
    return (*BUILT_IN, *sorted(others), generic.NAME)


def register_backend(backend: Backend) -> None:
    """
    Register a backend for another array library.

    A package that provides a backend declares it in the entry-point group ``ampscale.backends`` instead, under the name of
    the library's top-level module.

    Args:
        backend: Module or object with the members of `Backend`.

    Raises:
        TypeError: A function is missing or not callable, or NAME is not a str.
        ValueError: NAME is the name of another backend.

    Spec: BACKENDS-third-party.

    >>> from types import SimpleNamespace
    >>> from ampscale.backends import generic  # its functions accept the arrays of every Array API library
    >>> contents = vars(generic) | {"NAME": "mylib", "owns": lambda array: type(array).__module__ == "mylib"}
    >>> register_backend(SimpleNamespace(**contents))
    >>> "mylib" in list_backends()
    True
    """
    check_backend(backend, "backend")
    if backend.NAME in list_backends():
        raise ValueError(f"backend.NAME must not be one of {', '.join(list_backends())}, got {excerpt(backend.NAME)}")
    _loaded[backend.NAME] = backend
    _owners.clear()


def owner_of(array: Array) -> Backend:
    """
    Return the backend that owns *array*, or the generic backend if no other one does.

    If no other backend owns *array*, but a backend failed to load, raise its error, since it may be the owner.
    """
    cls = type(array)
    if cls not in _owners:
        _owners[cls] = next((backend for backend in _candidates() if backend.owns(array)), generic)
    return _owners[cls]


def network_of(value: Any) -> Any:
    """
    Return *value* if it has `params` and `vjp`, else the first network that a backend returns for *value* from `as_network`.

    Raises:
        TypeError: *value* is not a network of any library.
        RuntimeError: A backend whose library has been imported fails to load, and no other backend accepts *value*.
    """
    if hasattr(value, "params") and callable(getattr(value, "vjp", None)):
        return value
    for backend in _candidates():
        if (network := backend.as_network(value)) is not None:
            return network
    expected = "a Network (not its parameters), a torch.nn.Module that returns its loss, or an object with params and vjp"
    remedy = "; pass ampscale.Network(function, params)" if inspect.isroutine(value) else ""
    raise TypeError(f"network must be {expected}, got {excerpt(value, 200)} of type {type(value).__name__}{remedy}")


def load(name: str) -> Backend:
    """
    Return the backend called *name*, any of `list_backends()` except the generic one; import its library if necessary.

    A backend that fails to load or lacks members raises a RuntimeError, which names the package that provides it.
    """
    if name not in _loaded:
        try:
            _loaded[name] = _built_in(name) if name in BUILT_IN else _from_package(name)
        except Exception as error:
            _failures[name] = f"failed: {type(error).__name__}: {error}"
            raise RuntimeError(f"the backend {label(name)} {_failures[name]}") from error
    return _loaded[name]


def why_not(name: str) -> str | None:
    """Return the reason why the backend *name* cannot create arrays; None if it can, or if this is unknown before an import."""
    if name == generic.NAME:
        return "creates no arrays"
    if not is_installed(name):
        return "not installed"
    if name not in _loaded:
        return _failures.get(name)
    try:
        return None if _loaded[name].devices() else "finds no device"
    except Exception as error:  # noqa: BLE001 - drivers raise errors of any type
        return f"failed: {type(error).__name__}: {error}"


def is_known(name: str) -> bool:
    """Return True if a backend called *name* exists, other than the generic one."""
    return name in BUILT_IN or name in _loaded or name in _entry_points()


def is_imported(name: str) -> bool:
    """Return True if the library of the backend called *name* has been imported, or the backend has been loaded."""
    return name in _loaded or sys.modules.get(name) is not None


def is_installed(name: str) -> bool:
    """Return True if the library of the backend called *name* can be imported. This does not import the library."""
    return is_imported(name) or find_spec(name.partition(".")[0]) is not None  # `find_spec` would import the parent of a module


def label(name: str) -> str:
    """Return the backend's name in quotes, followed by the packages that provide the backend, if any."""
    packages = [] if name in RESERVED else packages_of(name)
    return f"{name!r} of {' and '.join(packages)}" if packages else repr(name)


def packages_of(name: str) -> list[str]:
    """Return the installed packages, with versions, that declare a backend called *name*, even if that name is reserved."""
    return [f"{point.dist.name} {point.dist.version}" for point in _entry_points().get(name, ()) if point.dist]


@cache
def _entry_points() -> dict[str, tuple[Any, ...]]:
    """Return the entry points in `GROUP` of all installed packages, by name."""
    from importlib.metadata import entry_points  # a slow import (10 ms), needed only for packages

    points = entry_points(group=GROUP)
    return {name: tuple(points.select(name=name)) for name in sorted(points.names)}


def _built_in(name: str) -> Backend:
    """Import a built-in backend with import statements, because torch.compile does not trace `import_module`."""
    if name == "cupy":
        from .cupy import backend as cupy

        return cupy
    if name == "torch":
        from .torch import backend as torch

        return torch
    from .jax import backend as jax

    return jax


def _from_package(name: str) -> Backend:
    point, *others = _entry_points()[name]
    if others:
        raise ValueError(f"exactly one installed package must declare a backend {name!r}, got {', '.join(packages_of(name))}")
    backend: Backend = point.load()
    check_backend(backend, point.value)
    if name != backend.NAME:
        raise ValueError(f"NAME of {point.value} must be {name!r}, like its entry point, got {backend.NAME!r}")
    return backend


def _candidates() -> Iterator[Backend]:
    """Yield the backends whose libraries have been imported. At the end, raise the error of the first one that failed to load."""
    failures = []
    for name in _candidate_names():
        try:
            backend = load(name)
        except RuntimeError as failure:
            failures.append(failure)
            continue
        yield backend
    if failures:
        raise failures[0]


def _candidate_names() -> Iterator[str]:
    """Yield the names of backends whose libraries have been imported; those of packages last, since entry points load slowly."""
    yield from list(_loaded)  # first, because torch.compile recompiles for every import after a lookup in sys.modules
    yield from (name for name in BUILT_IN if name not in _loaded and is_imported(name))
    yield from (name for name in _entry_points() if is_imported(name))


def _load_jax(container: Tree) -> None:  # noqa: ARG001
    """
    Load the JAX backend if JAX has been imported, and return None.

    The backend registers JAX's own containers. A program may pass such a container before it passes any JAX array.
    """
    if "jax" not in _loaded and is_imported("jax"):
        load("jax")


register_container(_load_jax)
