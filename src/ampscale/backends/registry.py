"""
Which backends there are, and whose an array is.

Ours, then those that were registered and those that installed packages bring in the entry-point group
``ampscale.backends``; what none of them owns is the generic one's. A backend's name is also that of its library's
top-level module: a backend is loaded only once that has been imported.

Spec: BACKENDS-never-unasked, BACKENDS-third-party, BACKENDS-failure-reported.
"""

import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any

from ..core.typing import Array
from ..parsing import excerpt
from . import generic
from .numpy import backend as numpy
from .protocol import Backend, check_backend

GROUP = "ampscale.backends"
OURS = ("numpy", "cupy", "torch", "jax")
TAKEN = (*OURS, generic.NAME)

_loaded: dict[str, Backend] = {numpy.NAME: numpy}
_failures: dict[str, str] = {}  # why a backend did not load when it was last tried
_owners: dict[type, Backend] = {}


def list_backends() -> tuple[str, ...]:
    """The names of all backends, installed or not; the generic one last."""
    others = {*_loaded, *_brought()} - {*TAKEN}
    return (*OURS, *sorted(others), generic.NAME)


def register_backend(backend: Backend) -> None:
    """
    Adds a backend for another array library. A package that brings one names it in the entry-point group
    ``ampscale.backends`` instead, under the name of the library's top-level module.

    Args:
        backend: A module or an object with the contents of `Backend`.

    Raises:
        TypeError: Something is missing from it.
        ValueError: Its NAME is taken.

    Spec: BACKENDS-third-party.
    """
    check_backend(backend, "backend")
    if backend.NAME in list_backends():
        raise ValueError(f"a backend's NAME must be new, got {excerpt(backend.NAME)}; there are {', '.join(list_backends())}")
    _loaded[backend.NAME] = backend
    _owners.clear()


def owner_of(array: Array) -> Backend:
    """
    The backend that *array* belongs to.

    Raises:
        RuntimeError: No other backend owns it, and one whose library has been imported does not load.
    """
    kind = type(array)
    if kind not in _owners:
        _owners[kind] = _first(lambda backend: backend if backend.owns(array) else None) or generic
    return _owners[kind]


def network_of(value: Any) -> Any:
    """
    *value* as something with `params` and `vjp`: itself where it has them, or as its library's backend sees it.

    Raises:
        TypeError: It is none.
        RuntimeError: No other backend takes it, and one whose library has been imported does not load.
    """
    if hasattr(value, "params") and callable(getattr(value, "vjp", None)):
        return value
    network = _first(lambda backend: backend.as_network(value))
    if network is None:
        wanted = "a Network, a torch.nn.Module that returns its loss, or anything with params and vjp(params, *inputs)"
        raise TypeError(f"network must be {wanted}, got {excerpt(value, 200)} of type {type(value).__name__}")
    return network


def load(name: str) -> Backend:
    """
    The backend called *name*, one of `list_backends()` but the generic; its library is imported if need be.

    Raises:
        RuntimeError: It does not load, or is no backend; the message says whose it is, and why.
    """
    if name not in _loaded:
        try:
            _loaded[name] = _ours(name) if name in OURS else _from_package(name)
        except Exception as error:
            _failures[name] = f"failed: {type(error).__name__}: {error}"
            raise RuntimeError(f"the backend {label(name)} {_failures[name]}") from error
    return _loaded[name]


def why_not(name: str) -> str | None:
    """Why arrays cannot be made with the backend called *name*, as far as is known without an import; None where they can."""
    if name == generic.NAME:
        return "makes no arrays of its own"
    if not is_installed(name):
        return "not installed"
    if name not in _loaded:
        return _failures.get(name)
    try:
        return None if _loaded[name].devices() else "finds no device"
    except Exception as error:  # noqa: BLE001 - a driver may say no in any way
        return f"failed: {type(error).__name__}: {error}"


def is_known(name: str) -> bool:
    """Whether there is a backend called *name* that may make arrays."""
    return name in OURS or name in _loaded or name in _brought()


def is_imported(name: str) -> bool:
    """Whether the library of the backend called *name* has been imported, or the backend itself been loaded."""
    return name in _loaded or sys.modules.get(name) is not None


def is_installed(name: str) -> bool:
    """Whether the library of the backend called *name* can be imported; it is not."""
    return is_imported(name) or find_spec(name.partition(".")[0]) is not None


def label(name: str) -> str:
    """The backend's name, and the package that brings it, if one does."""
    packages = [] if name in TAKEN else claimed_by(name)
    return f"{name!r} of {' and '.join(packages)}" if packages else repr(name)


def claimed_by(name: str) -> list[str]:
    """The installed packages that bring a backend called *name*, also where that is taken; with their versions."""
    return [f"{point.dist.name} {point.dist.version}" for point in _brought().get(name, ()) if point.dist]


@cache
def _brought() -> dict[str, tuple[Any, ...]]:
    """The entry points of installed packages, by name."""
    from importlib.metadata import entry_points  # some ten milliseconds, which the arrays of our own backends never need

    points = entry_points(group=GROUP)
    return {name: tuple(points.select(name=name)) for name in sorted(points.names)}


def _ours(name: str) -> Backend:
    """Statements, not `import_module`: torch.compile follows the first only."""
    if name == "cupy":
        from .cupy import backend as cupy

        return cupy
    if name == "torch":
        from .torch import backend as torch

        return torch
    from .jax import backend as jax

    return jax


def _from_package(name: str) -> Backend:
    point, *others = _brought()[name]
    if others:
        raise ValueError(f"one package must bring it, got {', '.join(claimed_by(name))}")
    backend: Backend = point.load()
    check_backend(backend, point.value)
    if name != backend.NAME:
        raise ValueError(f"the NAME of {point.value} must be that of its entry point, {name!r}, got {backend.NAME!r}")
    return backend


def _first(ask: Callable[[Backend], Any]) -> Any:
    """What the first backend answers that knows; None where none does. One that does not load hurts no other's arrays."""
    failures = []
    for name in _imported():
        try:
            backend = load(name)
        except RuntimeError as failure:
            failures.append(failure)
            continue
        if (answer := ask(backend)) is not None:
            return answer
    if failures:
        raise failures[0]
    return None


def _imported() -> Iterator[str]:
    """The backends to ask; those of packages last, since looking for them takes time."""
    yield from list(_loaded)  # first, since torch.compile compiles anew for what is imported after a look at sys.modules
    yield from (name for name in OURS if name not in _loaded and is_imported(name))
    yield from (name for name in _brought() if is_imported(name))
