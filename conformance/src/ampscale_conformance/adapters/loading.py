"""
Loading of adapters by name: the name of an installed adapter, which is shipped or provided by another package, or "pkg.mod:NAME".

A package provides an adapter by an entry point in the group `GROUP`, with "pkg.mod:NAME" as its value.
"""

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from pathlib import Path
from traceback import extract_tb
from typing import Any

from ..model.adapter import Adapter, ImplementationInfo
from . import SHIPPED

GROUP = "ampscale.conformance"
_SUITE = (__file__, str(Path(__file__).parents[1] / "model"))  # code of the suite that raises errors of an adapter
_loaded: dict[str, Adapter] = {}  # by the names that `find` was called with


class NotFound(ValueError):  # noqa: N818 - part of the interface of find
    """Raised if an adapter does not exist or cannot be loaded."""


def find(name: str, folder: Path | None = None) -> Adapter:
    """
    Return the adapter with this name; raise NotFound if it does not exist or cannot be loaded.

    The name is that of an installed adapter, or "pkg.mod:NAME", where NAME is an adapter, or a class or function without
    parameters that returns one. Modules are first searched in *folder*, by default the current directory.
    """
    module, colon, path = name.partition(":")
    if not colon:
        return _adapter(_installed(name), name)
    if not module or not path:
        raise NotFound(f"expected an adapter as pkg.mod:NAME, got {name!r}")
    if (path_entry := str(folder or Path.cwd())) not in sys.path:
        sys.path.insert(0, path_entry)
    return _adapter(_attribute(_imported(module, name), path, name), name)


def name_of(adapter: Adapter) -> str:
    """Return a name for which `find` returns this adapter; if it has none, the name of its class."""
    cls = type(adapter)
    module = getattr(sys.modules.get(cls.__module__), "__dict__", {})
    known = {f"{cls.__module__}:{name}": value for name, value in module.items()} | _loaded
    return next((name for name, value in known.items() if value is adapter), f"{cls.__module__}:{cls.__qualname__}")


def installed() -> Sequence[EntryPoint]:
    """Return the entry points of the shipped adapters, and then those of other packages, sorted by name."""
    shipped = [EntryPoint(name, value, GROUP) for name, value in SHIPPED.items()]
    others = {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in SHIPPED}
    return [*shipped, *(others[name] for name in sorted(others))]


def _installed(name: str) -> Any:
    entries = {entry.name: entry for entry in installed()}
    if name in entries:
        return _attribute(_imported(entries[name].module, name), entries[name].attr, name)
    near = get_close_matches(name, entries, n=1)
    remedy = f"did you mean {near[0]}? " if near else ""
    raise NotFound(
        f"no installed adapter is named {name!r}; {remedy}an adapter in a module is written pkg.mod:NAME"
        f" (installed: {', '.join(entries)})"
    )


def _imported(module: str, name: str) -> Any:
    try:
        return import_module(module)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            remedy = "; write the module without .py" if module.endswith(".py") else ""
            raise NotFound(f"{name}: no module {error.name} in {Path.cwd()} or in the installed packages{remedy}") from None
        raise NotFound(f"{name}: importing {module} raised {_error_text(error)}") from error


def _attribute(module: Any, path: str, name: str) -> Any:
    try:
        return attrgetter(path)(module)
    except AttributeError:
        names = [public for public in vars(module) if not public.startswith("_")]
        raise NotFound(f"{name}: module {module.__name__} has no {path}; it has {', '.join(names) or 'no public name'}") from None


def _adapter(value: Any, name: str) -> Adapter:
    """Return *value*, or its result if it is a class or a function, as an adapter; store its name for `name_of`."""
    adapter = value
    if callable(value) and (isinstance(value, type) or not hasattr(value, "info")):
        try:
            adapter = value()
        except (Exception, SystemExit) as error:
            raise NotFound(f"{name}: a call without arguments raised {_error_text(error)}") from error
    info = getattr(adapter, "info", None)
    if not isinstance(info, ImplementationInfo):
        raise NotFound(f"{name}: expected an adapter with an ImplementationInfo as info, got {adapter!r} with the info {info!r}")
    _loaded[name] = adapter
    return adapter  # type: ignore[no-any-return]  # any object with an info counts as an adapter


def _error_text(error: BaseException) -> str:
    """Return the type and message of an error, with the last line of its traceback outside of Python's imports and this suite."""
    frames = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    outside = [frame for frame in frames if not frame.filename.startswith(_SUITE) and "importlib" not in frame.filename]
    location = f" ({outside[-1].filename}, line {outside[-1].lineno})" if outside else ""
    return f"{type(error).__name__}: {error}{location}"
