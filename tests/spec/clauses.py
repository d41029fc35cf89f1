"""Helpers that read the clauses and test vectors of the specification, and the citations of clauses."""

import ast
import json
import re
from pathlib import Path
from typing import Any

from ampscale_conformance.model.clauses import Clause, chapter_files, clauses_in
from website.clauses import marked_tests

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "spec"
LEVELS = ("must", "should", "may", "variant")

_SPEC_PARAGRAPH = re.compile(r"\bSpec:.*?(?=\n\s*\n|\Z)", re.DOTALL)


def prefix_of(file: Path) -> str:
    """Return the prefix of the clause ids of a file: "MACHINE" for 30-machine.md and for machine.json."""
    return file.stem.split("-")[-1].upper()


def clauses() -> list[Clause]:
    """Return the clauses of all chapters and profiles, including duplicates."""
    return [clause for file in chapter_files() for clause in clauses_in(file)]


def load(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file of test vectors."""
    return json.loads(file.read_text("utf-8"))


def ids_in(text: str) -> set[str]:
    """Return the clause ids in *text*. A citation of several clauses ends in "-*"."""
    prefixes = "|".join(prefix_of(file) for file in chapter_files())
    return set(re.findall(rf"\b(?:{prefixes})(?:-[a-z0-9]+)*-(?:[a-z0-9]+|\*)", text))


def ids_in_docstrings(file: Path) -> set[str]:
    """Return the ids that the "Spec:" paragraphs of the docstrings in *file* cite."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = (
        ast.get_docstring(node) or "" for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, documented)
    )
    return {id for text in docstrings for paragraph in _SPEC_PARAGRAPH.findall(text) for id in ids_in(paragraph)}


def ids_in_marks(file: Path) -> set[str]:
    """Return the ids that the tests of *file* cite by `pytest.mark.clause`."""
    return {cited for _, ids in marked_tests(file) for cited in ids}


def ids_in_vectors(file: Path) -> set[str]:
    """Return the ids that the test vectors of *file* cite."""
    return {cited for case in load(file)["cases"] for cited in case["clauses"]}
