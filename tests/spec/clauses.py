"""Reads the specification, its clauses and its vectors, and finds where clauses are cited."""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "spec"
LEVELS = ("must", "should", "may", "dialect")

_CLAUSE = re.compile(r"^### (?P<id>.+?) · (?P<level>.+?)\n(?P<body>.*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL)
_SOURCE = re.compile(r"^> Source: (.+)$", re.MULTILINE)
_SPEC_PARAGRAPH = re.compile(r"\bSpec:.*?(?=\n\s*\n|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Clause:
    """One clause, as its chapter has it."""

    id: str
    level: str
    text: str
    sources: tuple[str, ...]
    file: Path


def chapter_files() -> list[Path]:
    """The chapters and the profiles, in the order of reading."""
    return [*sorted(SPEC.glob("[0-9]*.md")), *sorted(SPEC.glob("profiles/*.md"))]


def prefix_of(file: Path) -> str:
    """``MACHINE`` for ``30-machine.md``, and for ``machine.json``."""
    return file.stem.split("-")[-1].upper()


def clauses() -> list[Clause]:
    """Every clause of every chapter and profile."""
    return [_clause(match, file) for file in chapter_files() for match in _CLAUSE.finditer(file.read_text("utf-8"))]


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
    return {ast.literal_eval(argument) for call in calls for argument in call.args}


def ids_in_vectors(file: Path) -> set[str]:
    """The ids that the cases of *file* cite."""
    return {cited for case in load(file)["cases"] for cited in case["clauses"]}


def _clause(match: re.Match[str], file: Path) -> Clause:
    text = "\n".join(line for line in match["body"].splitlines() if not line.startswith(">"))
    return Clause(match["id"], match["level"], text.strip(), tuple(_SOURCE.findall(match["body"])), file)


def _nodes(file: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(file.read_text("utf-8")))
