"""Extraction of classes from files of published packages that cannot be imported; the code is executed unchanged."""

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
    """Return the path of a file in a package that was unpacked, but not installed."""
    return SOURCES / distribution / path


def extract(distribution: str, path: str, *names: str, **namespace: Any) -> SimpleNamespace:
    """
    Return classes and functions of a file, compiled with their line numbers.

    Args:
        distribution: Name of the package.
        path: Path of the file in the unpacked package.
        names: Classes, functions and assigned names at the top level of the file.
        namespace: Values of the global names that this code uses, such as the file's imports.

    Returns:
        An object with these classes, functions and names as attributes.

    Raises:
        LookupError: The file has no such class, function or name.
    """
    file = file_of(distribution, path)
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    body = [node for node in tree.body if _named(node) & set(names)]
    missing = set(names) - set().union(*(_named(node) for node in body))
    if missing:
        raise LookupError(f"{distribution}: {path} has no {', '.join(sorted(missing))}")
    # Do not evaluate annotations, so that *namespace* need not contain the names in them.
    future = ast.ImportFrom("__future__", [ast.alias("annotations")], 0)
    code = compile(ast.fix_missing_locations(ast.Module([future, *body], [])), str(file), "exec")
    module = ModuleType(f"published.{distribution}.{file.stem}")
    sys.modules[module.__name__] = module  # dataclasses look up their module
    vars(module).update(namespace)
    exec(code, vars(module))
    return SimpleNamespace(**{name: getattr(module, name) for name in names})


def version_of(distribution: str, unpacked: bool) -> str:
    """Return the version of an installed package, or of an unpacked one if *unpacked* is True."""
    if unpacked:
        return file_of(distribution, VERSION).read_text(encoding="utf-8").strip()
    return importlib.metadata.version(distribution)


def _named(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return set()
