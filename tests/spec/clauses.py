"""Reads the specification, its clauses and its vectors, and finds where clauses are cited."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ampscale_conformance.model.clauses import Clause, chapter_files, clauses_in

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "spec"
LEVELS = ("must", "should", "may", "variant")

_SPEC_PARAGRAPH = re.compile(r"\bSpec:.*?(?=\n\s*\n|\Z)", re.DOTALL)


def prefix_of(file: Path) -> str:
    """``MACHINE`` for ``30-machine.md``, and for ``machine.json``."""
    return file.stem.split("-")[-1].upper()


def clauses() -> list[Clause]:
    """Every clause of every chapter and profile; an id that stands twice is there twice."""
    return [clause for file in chapter_files() for clause in clauses_in(file)]


def vector_files() -> list[Path]:
    """The files of vectors, without their schema."""
    return sorted(file for file in SPEC.glob("vectors/*.json") if file.name != "schema.json")


def load(file: Path) -> dict[str, Any]:
    """A file of vectors, as JSON has it."""
    return json.loads(file.read_text("utf-8"))


def ids_in(text: str) -> set[str]:
    """The clause ids in *text*; a citation of a whole family ends in ``-*``."""
    prefixes = "|".join(prefix_of(file) for file in chapter_files())
    return set(re.findall(rf"\b(?:{prefixes})(?:-[a-z0-9]+)*-(?:[a-z0-9]+|\*)", text))


def ids_in_docstrings(file: Path) -> set[str]:
    """The ids that the ``Spec:`` paragraphs of *file* cite."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = (ast.get_docstring(node) or "" for node in _nodes(file) if isinstance(node, documented))
    return {found for text in docstrings for paragraph in _SPEC_PARAGRAPH.findall(text) for found in ids_in(paragraph)}


def ids_in_marks(file: Path) -> set[str]:
    """The ids that ``@pytest.mark.clause("...")`` cites in *file*."""
    calls = (node for node in _nodes(file) if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.clause")
    return {node.value for call in calls for node in ast.walk(call) if isinstance(node, ast.Constant)}


def ids_in_vectors(file: Path) -> set[str]:
    """The ids that the cases of *file* cite."""
    return {cited for case in load(file)["cases"] for cited in case["clauses"]}


def _nodes(file: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(file.read_text("utf-8")))
