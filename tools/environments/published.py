"""Published files whose package cannot be imported as a whole: one class is cut out and run as it is written."""

import ast
import importlib.metadata
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

SOURCES = Path(os.environ.get("AMPSCALE_ORACLE_SOURCES", "."))
VERSION = "VERSION.unpacked"


def file_of(distribution: str, path: str) -> Path:
    """A file of a package that was downloaded and unpacked, but not installed."""
    return SOURCES / distribution / path


def cut(distribution: str, path: str, *names: str, **given: Any) -> SimpleNamespace:
    """
    Classes and functions of a file, compiled where they stand in it.

    Args:
        distribution: The package.
        path: The file, inside the unpacked package.
        names: The classes and functions of the file's top level, and the names it assigns there.
        given: What these look up in their module: the imports of the file that they need.

    Returns:
        An object that has them as attributes.

    Raises:
        LookupError: The file has no such class, function or name.
    """
    file = file_of(distribution, path)
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    body = [node for node in tree.body if _named(node) & set(names)]
    missing = set(names) - set().union(*(_named(node) for node in body))
    if missing:
        raise LookupError(f"{distribution}: {path} has no {', '.join(sorted(missing))}")
    # Annotations are not evaluated, so that only what the rule needs has to be given.
    future = ast.ImportFrom("__future__", [ast.alias("annotations")], 0)
    code = compile(ast.fix_missing_locations(ast.Module([future, *body], [])), str(file), "exec")
    module = ModuleType(f"published.{distribution}.{file.stem}")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    vars(module).update(given)
    exec(code, vars(module))
    return SimpleNamespace(**{name: getattr(module, name) for name in names})


def version_of(distribution: str, unpacked: bool) -> str:
    """The version that is installed, or the one that was unpacked, which stands beside the files."""
    if unpacked:
        return file_of(distribution, VERSION).read_text(encoding="utf-8").strip()
    return importlib.metadata.version(distribution)


def _named(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return set()
