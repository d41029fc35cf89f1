"""Every example runs as it is, and the one that is written for any library says the same on each."""

import ast
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
FILES = sorted(EXAMPLES.glob("*.py"))
UNSEEN = {"any_backend.py": ["autograd"]}  # what is needed that a file does not import itself


def imported(file):
    """The top-level modules that a file imports, and those of the examples that it imports."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in [*names, node.module] if isinstance(node, ast.ImportFrom) else names:
            beside = EXAMPLES / f"{name}.py"
            yield from imported(beside) if beside in FILES else [name.partition(".")[0]]


def skip_without(*libraries):
    """Skips the test where a library is not installed."""
    missing = sorted(library for library in set(libraries) if find_spec(library) is None)
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")


def run(file, *arguments):
    """What an example prints in an interpreter of its own, which takes every warning for an error."""
    command = [sys.executable, "-W", "error", str(file), *arguments]
    done = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_an_example_runs(file):
    """Without a warning; what prints anything is a run with steps that were skipped and steps that were not."""
    skip_without(*imported(file), *UNSEEN.get(file.name, []))
    printed = run(file)
    assert (printed == "") == file.name.startswith("paddle")
    assert printed == "" or {"skipped", "applied"} <= {word.strip(",") for word in printed.split()}


@pytest.mark.clause("BACKENDS-same-run")
@pytest.mark.parametrize("library", ["torch", "jax"])
def test_the_example_for_any_library_prints_the_same_lines(library):
    """To the last digit of what it shows."""
    skip_without(library, "autograd")
    lines = run(EXAMPLES / "any_backend.py", "numpy").splitlines()
    assert len(lines) == 12
    assert run(EXAMPLES / "any_backend.py", library).splitlines() == lines
