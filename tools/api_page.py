"""Write docs/api.md: the public names of each module with their signatures and docstrings. `make api` runs it."""

import importlib
import inspect
from collections.abc import Iterator
from enum import EnumType
from pathlib import Path
from types import ModuleType
from typing import Any

import ampscale

PAGE = Path(__file__).parent.parent / "docs" / "api.md"
SUBMODULES = (
    "mindspore", "mindformers", "paddle", "torch", "optimizers", "distributed",
    "presets", "simulation", "checkpoints", "diagnostics",
)  # fmt: skip
HEAD = """# API

Public names by module, with their docstrings. Examples may use `np` (NumPy), `anp` (autograd.numpy) and `ampscale`.
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), "utf-8")


def page() -> str:
    """Return the page as Markdown."""
    modules = [importlib.import_module(name) for name in ("ampscale", *(f"ampscale.{name}" for name in SUBMODULES))]
    contents = [f"- [{module.__name__}](#{module.__name__.replace('.', '')})" for module in modules]
    return "\n".join([HEAD, *contents, "", *(line for module in modules for line in _module_lines(module, modules))])


def _module_lines(module: ModuleType, modules: list[ModuleType]) -> Iterator[str]:
    yield from (f"## {module.__name__}", "", inspect.getdoc(module) or "", "")
    for name in sorted(module.__all__, key=str.lower):
        value = getattr(module, name)
        others = [other for other in modules[1:] if name in other.__all__ and getattr(other, name) is value]
        if module is modules[0] and others:
            yield from (f"- `{name}`: see [{others[0].__name__}](#{others[0].__name__.replace('.', '')})", "")
        elif inspect.isclass(value) or inspect.isfunction(value):
            yield from _object_lines(f"{module.__name__}.{name}", value, level=3)


def _object_lines(path: str, value: Any, level: int) -> Iterator[str]:
    is_error = inspect.isclass(value) and issubclass(value, Exception)
    signature = f"{path.rpartition('.')[2]}{'' if is_error else _signature(value)}"
    yield from (f"{'#' * level} {path}", "", "```text", signature, "", inspect.getdoc(value) or "", "```", "")
    if inspect.isclass(value):
        for name, member in sorted(_methods(value)):
            yield from _object_lines(f"{path}.{name}", member, level + 1)


def _methods(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of *cls*, without those of a base class that has its own entry on the page."""
    private = [
        base for base in cls.__mro__[1:] if base.__module__.startswith("ampscale.") and not hasattr(ampscale, base.__name__)
    ]
    names = {name for base in (cls, *private) for name in vars(base) if not name.startswith("_")}
    for name in names:
        member = inspect.getattr_static(cls, name)
        if inspect.isfunction(member) or isinstance(member, property | classmethod):
            yield name, member


def _signature(value: Any) -> str:
    """Return the parameters without types, which the docstring states; nothing for a property and an enumeration."""
    if isinstance(value, property | EnumType):
        return ""
    signature = inspect.signature(value.__func__ if isinstance(value, classmethod) else value)
    empty = inspect.Parameter.empty
    parameters = [parameter for name, parameter in signature.parameters.items() if name not in ("self", "cls")]
    untyped = [parameter.replace(annotation=empty) for parameter in parameters]
    return str(signature.replace(parameters=untyped, return_annotation=empty))


if __name__ == "__main__":
    main()
