"""
Finds an adapter by its name: "pkg.mod:NAME" in a module, one that ships with ampscale, or one that another package brings.

A package brings an adapter with an entry point of the group `GROUP`: its name, and "pkg.mod:NAME" as its value.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from pathlib import Path
from traceback import extract_tb
from typing import Any

from ..model.adapter import Adapter, ImplementationInfo
from . import SHIPPED

GROUP = "ampscale.conformance"
_found: dict[str, Adapter] = {}  # by the names that they were found by


class NotFound(ValueError):  # noqa: N818 - the name says it
    """There is no such adapter, or it cannot be loaded: what was wanted, and what came."""


def find(name: str, folder: Path | None = None) -> Adapter:
    """
    The adapter of this name.

    Args:
        name: "pkg.mod:NAME", where NAME is an adapter, or a class or function that makes one and takes nothing; or the name
            of an installed adapter.
        folder: Where modules are looked for first; by default the current directory.

    Raises:
        NotFound: There is none.
    """
    module, colon, path = name.partition(":")
    if not colon:
        return _adapter(_installed(name), name)
    if not module or not path:
        raise NotFound(f"wanted an adapter as pkg.mod:NAME, got {name!r}")
    _make_importable(folder or Path.cwd())
    return _adapter(_attribute(_imported(module, name), path, name), name)


def name_of(adapter: Adapter) -> str:
    """The name under which `find` finds this adapter: that by which it was found, or its class's."""
    kind = type(adapter)
    module = getattr(sys.modules.get(kind.__module__), "__dict__", {})
    own = {f"{kind.__module__}:{name}": value for name, value in module.items()}
    names = (name for name, value in (own | _found).items() if value is adapter)
    return next(names, f"{kind.__module__}:{kind.__qualname__}")


def installed() -> Sequence[EntryPoint]:
    """The adapters that ship with ampscale, and those of other packages in the order of their names."""
    shipped = [EntryPoint(name, value, GROUP) for name, value in SHIPPED.items()]
    others = {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in SHIPPED}
    return [*shipped, *(others[name] for name in sorted(others))]


def _installed(name: str) -> Any:
    for entry in installed():
        if entry.name == name:
            return _attribute(_imported(entry.module, name), entry.attr, name)
    known = ", ".join(entry.name for entry in installed()) or "none"
    raise NotFound(f"no installed adapter is called {name!r} (installed: {known}), and one in a module is written pkg.mod:NAME")


def _make_importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _imported(module: str, name: str) -> Any:
    try:
        return import_module(module)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise NotFound(f"{name}: there is no module {error.name} in {Path.cwd()} or among what is installed") from None
        raise NotFound(f"{name}: importing {module} raised {_told(error)}") from error


def _attribute(module: Any, path: str, name: str) -> Any:
    try:
        return attrgetter(path)(module)
    except AttributeError:
        has = [each for each in vars(module) if not each.startswith("_")]
        raise NotFound(f"{name}: {module.__name__} has no {path}; it has {', '.join(has) or 'no public name'}") from None


def _adapter(found: Any, name: str) -> Adapter:
    """*found*, or what it makes; `name_of` has its name from then on."""
    made = found
    if callable(found) and (isinstance(found, type) or not hasattr(found, "info")):
        try:
            made = found()
        except (Exception, SystemExit) as error:
            raise NotFound(f"{name}: calling it without arguments raised {_told(error)}") from error
    info = getattr(made, "info", None)
    if not isinstance(info, ImplementationInfo):
        raise NotFound(f"{name}: wanted an adapter, whose info is an ImplementationInfo, got {made!r} with the info {info!r}")
    _found[name] = made  # any object with an info is taken for an adapter
    return _found[name]


def _told(error: BaseException) -> str:
    """The error, and the last line of somebody's file that it passed."""
    frames = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    outside = [frame for frame in frames if frame.filename != __file__ and "importlib" not in frame.filename]
    place = f" ({outside[-1].filename}, line {outside[-1].lineno})" if outside else ""
    return f"{type(error).__name__}: {error}{place}"
