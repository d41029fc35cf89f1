"""Where the suite expects something: lines of its modules, by which an expectation can be left out."""

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType, TracebackType

from ampscale_conformance import cases
from ampscale_conformance.model import subject

Place = tuple[str, int]  # a file and the line that a call begins on

SUBJECT = Path(subject.__file__)  # its own expectations are met by the suite as a whole


def files_of(chapters: Iterable[str] | None = None) -> list[Path]:
    """
    The modules in which something is expected.

    Args:
        chapters: Those of these modules of `cases` alone, and of what they import from beside them; None for all, and
            `subject.py` too.
    """
    modules = {file.stem: file for file in sorted(Path(cases.__path__[0]).glob("*.py"))}
    if chapters is None:
        return [*modules.values(), SUBJECT]
    found, ahead = list[str](), list(chapters)
    while ahead:
        found.append(ahead.pop())
        ahead += sorted(_beside(modules[found[-1]]) & set(modules) - {*found, *ahead})
    return [modules[name] for name in found]


def _beside(file: Path) -> set[str]:
    nodes = ast.walk(ast.parse(file.read_text("utf-8")))
    return {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module}


def written(files: Iterable[Path]) -> set[Place]:
    """Each call of `expect` and `expect_same`, and each `raise Failed`, but that in `expect`, through which the others go."""
    return {(str(file), node.lineno) for file in files for node in _expecting(ast.parse(file.read_text("utf-8")))}


def _expecting(node: ast.AST) -> Iterator[ast.Call | ast.Raise]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef) and child.name == "expect":
            continue
        if isinstance(child, ast.Call) and getattr(child.func, "attr", None) in ("expect", "expect_same"):
            yield child
        if isinstance(child, ast.Raise) and isinstance(child.exc, ast.Call) and getattr(child.exc.func, "id", None) == "Failed":
            yield child
        yield from _expecting(child)


def callers() -> set[Place]:
    """Where the caller's caller stands, and who called that, as far as that is not the caller's module again."""
    found: set[Place] = set()
    asking = sys._getframe(1).f_code.co_filename
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename != asking:
        found.add((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return found


def passed(traceback: TracebackType | None) -> set[Place]:
    """The lines that an exception came through."""
    found: set[Place] = set()
    while traceback is not None:
        found.add((traceback.tb_frame.f_code.co_filename, traceback.tb_lineno))
        traceback = traceback.tb_next
    return found
