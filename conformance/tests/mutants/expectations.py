"""Locations of the expectations in the suite's modules, by which the audit can disable each of them."""

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType, TracebackType

from ampscale_conformance import cases
from ampscale_conformance.model import subject

Location = tuple[str, int]  # a file, and the first line of a call

SUBJECT = Path(subject.__file__)  # its own expectations belong to the suite as a whole


def files_of(chapters: Iterable[str] | None = None) -> list[Path]:
    """
    Return the modules that contain expectations.

    Args:
        chapters: Return only these modules of `cases`, and the modules of `cases` that they import; None for all modules
            and `subject.py`.
    """
    modules = {file.stem: file for file in sorted(Path(cases.__path__[0]).glob("*.py"))}
    if chapters is None:
        return [*modules.values(), SUBJECT]
    visited, pending = list[str](), list(chapters)
    while pending:
        visited.append(pending.pop())
        pending += sorted(_siblings(modules[visited[-1]]) & set(modules) - {*visited, *pending})
    return [modules[name] for name in visited]


def _siblings(file: Path) -> set[str]:
    """Return the modules of the same package that a file imports from."""
    nodes = ast.walk(ast.parse(file.read_text("utf-8")))
    return {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module}


def expectations_in(files: Iterable[Path]) -> set[Location]:
    """Return the locations of `expect`, `expect_same` and `raise Failed`, except the `raise Failed` in `expect` itself."""
    return {(str(file), node.lineno) for file in files for node in _expectations(ast.parse(file.read_text("utf-8")))}


def _expectations(node: ast.AST) -> Iterator[ast.Call | ast.Raise]:
    """Yield the calls of `expect` and `expect_same` and the `raise Failed` below a node, except those in a function `expect`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef) and child.name == "expect":
            continue
        if isinstance(child, ast.Call) and getattr(child.func, "attr", None) in ("expect", "expect_same"):
            yield child
        if isinstance(child, ast.Raise) and isinstance(child.exc, ast.Call) and getattr(child.exc.func, "id", None) == "Failed":
            yield child
        yield from _expectations(child)


def callers() -> set[Location]:
    """Return the locations of the calls that led to the calling function, up to the last call from the file of this function."""
    locations: set[Location] = set()
    own_file = sys._getframe(1).f_code.co_filename
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename != own_file:
        locations.add((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return locations


def traceback_locations(traceback: TracebackType | None) -> set[Location]:
    """Return the lines of a traceback."""
    locations: set[Location] = set()
    while traceback is not None:
        locations.add((traceback.tb_frame.f_code.co_filename, traceback.tb_lineno))
        traceback = traceback.tb_next
    return locations
