"""
Choice of the backend: the backend of the arrays or, if there are no arrays, the configured backend.

In order of precedence, the backend is configured by `use_backend`, by the environment variable ``AMPSCALE_BACKEND``, or by
``backend`` in the nearest file, an ampscale.toml or the table ``[tool.ampscale]`` of a pyproject.toml. The default is NumPy.

Spec: BACKENDS-arrays-decide, BACKENDS-precedence, BACKENDS-context, BACKENDS-wrong-value.
"""

import os
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from ..core.namespaces import check_one_library, provide_arithmetic, provide_default
from ..core.trees import leaves
from ..core.typing import Array, Namespace, Tree
from ..files import read_bounded
from ..parsing import LONGEST_TOML, excerpt, parse_toml
from .protocol import Backend
from .registry import is_known, label, list_backends, load, owner_of, why_not

VARIABLE = "AMPSCALE_BACKEND"


class Configured(NamedTuple):
    """Name of the configured backend, and where it is set: a function, an environment variable, a file, or "default"."""

    name: str
    source: str


class ContextChoice(NamedTuple):
    """Backend that `use_backend` selected in a context, and the innermost ``with`` block of the context."""

    name: str | None
    block: "Choice | None"


_UNSET = ContextChoice(None, None)
_context: ContextVar[ContextChoice] = ContextVar("ampscale_backend", default=_UNSET)


class Choice:
    """Result of `use_backend`. Leaving its ``with`` block restores the previous choice, even if the block made another choice."""

    def __init__(self, backend: Backend) -> None:
        self._namespace = backend.namespace()
        self._previous = _context.get()
        self._selected = ContextChoice(backend.NAME, self._previous.block)
        _context.set(self._selected)

    def __enter__(self) -> Namespace:
        """Return the Array API namespace of the backend."""
        if _context.get() is not self._selected:
            raise RuntimeError(
                "the result of use_backend() can be entered only once, before another call of use_backend(), and in the context "
                "that called it; call use_backend() again"
            )
        _context.set(ContextChoice(self._selected.name, self))
        return self._namespace

    def __exit__(self, cls: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if _context.get().block is not self:
            raise RuntimeError("use_backend() must be exited in the thread or task that entered it, inner blocks first")
        _context.set(self._previous)


def get_backend(tree: Tree, **others: Tree) -> Backend:
    """
    Return the backend that the arrays of *tree* belong to; without arrays in *tree*, that of *others*, or the configured backend.

    Args:
        tree: Arrays in tuples, lists, dicts and NamedTuples.
        others: Trees that are used together with *tree*; errors refer to each by its keyword.

    Raises:
        TypeError: The arrays come from more than one library or device, or a leaf is not an array.
        RuntimeError: Only the generic backend owns the arrays, and a backend whose library has been imported fails to load.
        ValueError: No argument contains an array, and the configured backend cannot be used.

    Spec: BACKENDS-arrays-decide, BACKENDS-failure-reported, SCALING-mixed-rejected.

    >>> get_backend({"w": np.float32([1.0, 2.0])}).NAME
    'numpy'
    """
    check_one_library(tree=tree, **others)
    arrays = leaves(tree) or [leaf for other in others.values() for leaf in leaves(other)]
    return owner_of(arrays[0]) if arrays else configured_backend()


def use_backend(name: str) -> Choice:
    """
    Select the backend that creates arrays when no argument is an array, from now on or within a ``with`` block.

    The choice belongs to the current context of `contextvars`: other threads and asyncio tasks are not affected.

    Args:
        name: One of `list_backends()`. The library of this backend is imported.

    Returns:
        A context manager that returns the Array API namespace of the backend, and restores the previous choice on exit.

    Raises:
        TypeError: *name* is not a str.
        ValueError: *name* is not a backend that can be used; the message lists all backends, with the reasons.

    Spec: BACKENDS-context, BACKENDS-wrong-value.

    >>> with use_backend("numpy") as xp:
    ...     state = ampscale.LossScaleRule(init_scale=8.0).init()
    >>> state.scale, xp.zeros(2)
    (array(8., dtype=float32), array([0., 0.]))
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, one of {', '.join(list_backends())}, got {excerpt(name)}")
    return Choice(_usable(name, "use_backend()"))


def get_namespace() -> Namespace:
    """
    Return the Array API namespace of the configured backend, to create arrays with.

    Raises:
        TypeError: ``backend`` in a configuration file is not a str, or ``tool.ampscale`` is not a table.
        ValueError: The configured backend cannot be used, or a configuration file is not valid TOML or sets other keys.

    Spec: BACKENDS-precedence, BACKENDS-wrong-value.

    >>> with use_backend("numpy"):
    ...     get_namespace().asarray([1.0, 2.0])
    array([1., 2.])
    """
    return configured_backend().namespace()


def configured_backend() -> Backend:
    """Return the configured backend; see `get_namespace` for the errors."""
    return _usable(*configured())


def configured() -> Configured:
    """Return the name of the configured backend and where it is set. This does not check that the backend exists."""
    if (name := _context.get().name) is not None:
        return Configured(name, "use_backend()")
    if name := os.environ.get(VARIABLE):
        return Configured(name, VARIABLE)
    return _in_files(_working_folder()) or Configured("numpy", "default")


@cache
def _usable(name: str, source: str) -> Backend:
    """Return the backend *name*. If it cannot be used, raise a ValueError that names *source*, where *name* was set."""
    failure = None
    if is_known(name):
        try:
            backend = load(name)
            if why_not(name) is None:
                return backend
        except RuntimeError as error:
            failure = error
    backends = "; ".join(f"{label(other)}: {why_not(other) or 'can be used'}" for other in list_backends())
    raise ValueError(f"{source} must name a backend that can be used, got {excerpt(name)}. Backends: {backends}") from failure


def _working_folder() -> Path | None:
    try:
        return Path.cwd()
    except FileNotFoundError:  # the folder was removed, which must not break a run that needs no configuration file
        return None


@cache
def _in_files(folder: Path | None) -> Configured | None:
    """Return the backend that the nearest file sets, or None. The result is cached, so edits do not affect a running program."""
    for path, table in _tables(folder):
        if other_keys := sorted(table.keys() - {"backend"}):
            raise ValueError(f"{path} must set only 'backend' for ampscale, got {excerpt(other_keys, 400)}")
        if "backend" in table:
            if not isinstance(table["backend"], str):
                raise TypeError(f"backend in {path} must be a str, got {excerpt(table['backend'])}")
            return Configured(table["backend"], str(path))
    return None


def _tables(folder: Path | None) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield each file and its table for ampscale, from *folder* upwards; in each folder ampscale.toml before pyproject.toml."""
    folders = (folder, *folder.parents) if folder else ()
    for parent in folders:
        for file, keys in (("ampscale.toml", ()), ("pyproject.toml", ("tool", "ampscale"))):
            path = parent / file
            if os.path.isfile(path):  # Path.is_file would raise PermissionError
                yield path, _table(path, keys)


def _table(path: Path, keys: tuple[str, ...]) -> dict[str, Any]:
    """Return the table under *keys* in the TOML file *path*; an empty table if the file has none."""
    try:
        table: dict[str, Any] = parse_toml(read_bounded(path, LONGEST_TOML).decode())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} must be readable TOML: {error}") from error
    for key in keys:
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise TypeError(f"{key} in {path} must be a table, got {excerpt(table)}")
    return table


def _multiply_on_jax(left: Array, right: Array) -> Array:
    """Return *left* times *right*, rounded once. The module is imported only for JAX arrays."""
    from .jax.ieee754 import multiply

    return multiply(left, right)


def _divide_on_jax(left: Array, right: Array) -> Array:
    """Return *left* divided by *right*, rounded once. The module is imported only for JAX arrays."""
    from .jax.ieee754 import divide

    return divide(left, right)


provide_default(get_namespace)
provide_arithmetic("jax.numpy", _multiply_on_jax, _divide_on_jax)
