"""
Which backend is meant: the one that the arrays belong to; where none is passed, the one that was chosen.

Chosen is what the first of these says: `use_backend`, the environment's ``AMPSCALE_BACKEND``, ``backend`` in the nearest
ampscale.toml or in the table ``[tool.ampscale]`` of the nearest pyproject.toml, then NumPy.

Spec: BACKENDS-arrays-decide, BACKENDS-precedence, BACKENDS-context, BACKENDS-wrong-value.
"""

import os
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from ..core.namespaces import check_one_library, provide_default
from ..core.trees import leaves
from ..core.typing import Namespace, Tree
from ..files import read_bounded
from ..parsing import LONGEST_TOML, cut, excerpt, parse_toml
from .protocol import Backend
from .registry import is_known, label, list_backends, load, owner_of, why_not

VARIABLE = "AMPSCALE_BACKEND"


class Configured(NamedTuple):
    """A backend's name, and who says so: a function, a variable of the environment, a file, or "default"."""

    name: str
    source: str


class InContext(NamedTuple):
    """What a context has chosen, and the innermost ``with`` of its choices."""

    name: str | None
    block: "Choice | None"


_NOTHING = InContext(None, None)
_context: ContextVar[InContext] = ContextVar("ampscale_backend", default=_NOTHING)


class Choice:
    """What `use_backend` returns: made, it holds; as a context manager it takes back itself and what was chosen inside."""

    def __init__(self, backend: Backend) -> None:
        self._namespace = backend.namespace()
        self._before = _context.get()
        self._made = InContext(backend.NAME, self._before.block)
        _context.set(self._made)

    def __enter__(self) -> Namespace:
        """The Array API namespace of the backend."""
        if _context.get() is not self._made:
            raise RuntimeError("use_backend() must be entered where it is called, and once; call it anew")
        _context.set(InContext(self._made.name, self))
        return self._namespace

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if _context.get().block is not self:
            raise RuntimeError("use_backend() must be left in the thread or task that entered it, the inner one first")
        _context.set(self._before)


def get_backend(tree: Tree, **beside: Tree) -> Backend:
    """
    The backend that the arrays of *tree* belong to; the chosen one where there is none.

    Args:
        tree: Arrays in tuples, lists, dicts and NamedTuples.
        beside: Other trees that are to be used with it, under the names that an error gives them.

    Raises:
        TypeError: The arrays come from more than one library or device, or something in a tree is no array.
        RuntimeError: The backend that an installed package brings for these arrays does not load.
        ValueError: There is no array, and what was chosen cannot be used here.

    Spec: BACKENDS-arrays-decide, BACKENDS-failure-reported, SCALING-mixed-rejected.
    """
    check_one_library(tree=tree, **beside)
    arrays = leaves(tree)
    return owner_of(arrays[0]) if arrays else chosen()


def use_backend(name: str) -> Choice:
    """
    From now on, or within ``with``, new arrays are made by this backend where no array that is passed in tells.

    Args:
        name: One of `list_backends()`; its library is imported.

    The choice is the context's, as `contextvars` has it: threads and asyncio tasks beside this one do not see it.

    Raises:
        TypeError: *name* is no str.
        ValueError: No such backend can be used here; the message lists all, and why they cannot.

    Spec: BACKENDS-context, BACKENDS-wrong-value.
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, one of {', '.join(list_backends())}, got {excerpt(name)}")
    return Choice(_usable(name, "use_backend()"))


def get_namespace() -> Namespace:
    """
    The Array API namespace of the chosen backend, to make arrays with.

    Raises:
        TypeError: A configuration file names it by something other than a str.
        ValueError: The environment or a configuration file asks for what cannot be used here, or is no TOML.

    Spec: BACKENDS-precedence, BACKENDS-wrong-value.
    """
    return chosen().namespace()


def chosen() -> Backend:
    """The chosen backend, as `get_namespace` says."""
    return _usable(*configured())


def configured() -> Configured:
    """The name of the chosen backend, and where it was chosen; whether there is such a one has not been looked at."""
    if (name := _context.get().name) is not None:
        return Configured(name, "use_backend()")
    if name := os.environ.get(VARIABLE):
        return Configured(name, VARIABLE)
    return _in_files(_working_folder()) or Configured("numpy", "default")


@cache
def _usable(name: str, source: str) -> Backend:
    failure = None
    if is_known(name):
        try:
            backend = load(name)
            if why_not(name) is None:
                return backend
        except RuntimeError as error:
            failure = error
    listed = "; ".join(f"{label(each)}: {why_not(each) or 'can be used'}" for each in list_backends())
    raise ValueError(f"{source} must name a backend that can be used here, got {excerpt(name)}. There are {listed}") from failure


def _working_folder() -> Path | None:
    try:
        return Path.cwd()
    except FileNotFoundError:  # it was removed meanwhile, which is no concern of ours
        return None


@cache
def _in_files(folder: Path | None) -> Configured | None:
    """What the nearest file says; read once for each folder, so that an edit does not move a run to another library midway."""
    for path, table in _tables(folder):
        if unknown := sorted(set(table) - {"backend"}):
            raise ValueError(f"{path} must set nothing but backend for ampscale, got {cut(', '.join(unknown), 400)}")
        if "backend" in table:
            return Configured(_checked(table["backend"], path), str(path))
    return None


def _checked(name: Any, path: Path) -> str:
    if not isinstance(name, str):
        raise TypeError(f"backend in {path} must be a str, got {excerpt(name)}")
    return name


def _tables(folder: Path | None) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The tables that speak of us, from *folder* upwards; ampscale.toml before pyproject.toml."""
    for parent in (folder, *folder.parents) if folder else ():
        for file, keys in (("ampscale.toml", ()), ("pyproject.toml", ("tool", "ampscale"))):
            if os.path.isfile(path := parent / file):  # False where we may not look
                yield path, _table(path, keys)


def _table(path: Path, keys: tuple[str, ...]) -> dict[str, Any]:
    """The table of *path* under *keys*; empty where there is none."""
    table = _read(path)
    for key in keys:
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise TypeError(f"{key} in {path} must be a table, got {excerpt(table)}")
    return table


def _read(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(read_bounded(path, LONGEST_TOML).decode())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} must be readable TOML: {error}") from error


provide_default(get_namespace)
