"""
Which backend is meant: the one that the arrays belong to; where none is passed, the one that was chosen.

Chosen is what the first of these says: `use_backend`, the environment's ``AMPSCALE_BACKEND``, ``backend`` in the nearest
ampscale.toml or in the table ``[tool.ampscale]`` of the nearest pyproject.toml, then NumPy.
"""

import os
import tomllib
from collections.abc import Iterator
from contextvars import ContextVar, Token
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from ..core.namespaces import check_one_library, provide_default
from ..core.trees import leaves
from ..core.typing import Namespace, Tree
from . import _registry, generic
from ._protocol import Backend

VARIABLE = "AMPSCALE_BACKEND"

_context: ContextVar[str | None] = ContextVar("ampscale_backend", default=None)


class Configured(NamedTuple):
    """A backend's name, and who says so."""

    name: str
    source: str


class Choice:
    """What `use_backend` returns; leaving it as a context manager takes the choice back."""

    def __init__(self, token: Token[str | None], namespace: Namespace) -> None:
        self._token = token
        self._namespace = namespace

    def __enter__(self) -> Namespace:
        """The Array API namespace of the backend."""
        return self._namespace

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _context.reset(self._token)


def backend_of(tree: Tree, **beside: Tree) -> Backend:
    """
    The backend that the arrays of *tree* belong to; the chosen one where there is none.

    Args:
        tree: Arrays in tuples, lists, dicts and NamedTuples.
        beside: Other trees that are to be used with it, under the names that an error gives them.

    Raises:
        TypeError: The arrays come from more than one library or device, or something in a tree is no array.
        RuntimeError: The backend that an installed package brings for these arrays does not load.
    """
    check_one_library(tree=tree, **beside)
    arrays = leaves(tree)
    return _registry.owner_of(arrays[0]) if arrays else chosen()


def use_backend(name: str) -> Choice:
    """
    From now on, or within ``with``, new arrays are made by this backend where no array that is passed in tells.

    Args:
        name: One of `backends()`; its library is imported.

    The choice is the context's: other threads and other asyncio tasks do not see it, and a new thread begins without.

    Raises:
        TypeError: *name* is no str.
        ValueError: No such backend can be used here; the message lists all, and why they cannot.
    """
    chosen = _usable(name, "name")
    return Choice(_context.set(name), chosen.namespace())


def namespace() -> Namespace:
    """
    The Array API namespace of the chosen backend, to make arrays with.

    Raises:
        ValueError: The environment or a configuration file asks for what cannot be used here.
    """
    return chosen().namespace()


def chosen() -> Backend:
    """The chosen backend, as `namespace` says."""
    name, source = configured()
    return _usable(name, source)


def configured() -> Configured:
    """The name of the chosen backend, and where it was chosen; not checked yet."""
    if (name := _context.get()) is not None:
        return Configured(name, "use_backend()")
    if name := os.environ.get(VARIABLE):
        return Configured(name, VARIABLE)
    return _in_files(Path.cwd()) or Configured("numpy", "default")


def why_not(name: str) -> str | None:
    """Why the backend called *name* cannot be chosen here, as far as can be told without an import; None where it can."""
    if name == generic.NAME:
        return "makes no arrays of its own"
    if name in _registry.OURS and find_spec(name) is None:
        return "not installed"
    return None


def _usable(name: Any, source: str) -> Backend:
    if not isinstance(name, str):
        raise TypeError(f"{source} must be a str, one of {', '.join(_registry.backends())}, got {name!r}")
    try:
        if name in _registry.backends() and why_not(name) is None:
            return _registry.load(name)
        error = None
    except (ImportError, RuntimeError) as failure:
        error = failure
    listed = "; ".join(f"{each}: {why_not(each) or 'installed'}" for each in _registry.backends())
    failed = f", which failed: {error}" if error else ""
    raise ValueError(f"{source} must be a backend that can be used here, got {name!r}{failed}. There are {listed}") from error


@cache
def _in_files(folder: Path) -> Configured | None:
    """What the nearest configuration file says; read once for each folder."""
    for path, table in _tables(folder):
        if unknown := sorted(set(table) - {"backend"}):
            raise ValueError(f"{path} must set nothing but backend, got {unknown}")
        if "backend" in table:
            return Configured(table["backend"], str(path))
    return None


def _tables(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The tables that speak of us, from *folder* upwards; ampscale.toml before pyproject.toml."""
    for parent in (folder, *folder.parents):
        if (path := parent / "ampscale.toml").is_file():
            yield path, _read(path)
        if (path := parent / "pyproject.toml").is_file():
            yield path, _read(path).get("tool", {}).get("ampscale", {})


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} must be readable TOML: {error}") from error


provide_default(namespace)
