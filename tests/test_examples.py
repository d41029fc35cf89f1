"""Every example runs as it is, and the one that is written for any library says the same on each."""

import ast
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
# Paddle's page needs no interpreter of its own: it is run by tests/frameworks/paddle/test_grad_scaler_torch.py.
FILES = sorted(file for file in EXAMPLES.glob("*.py") if not file.name.startswith("paddle"))
UNSEEN = {"any_backend.py": ["autograd"]}  # what is needed that a file does not import itself


def imported(file):
    """The top-level modules that a file imports."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in [*names, node.module] if isinstance(node, ast.ImportFrom) else names:
            yield name.partition(".")[0]


def skip_without(*libraries):
    """Skips the test where a library is not installed."""
    missing = sorted(library for library in set(libraries) if find_spec(library) is None)
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_an_example_runs(file):
    """In an interpreter of its own, without a warning; it prints steps that were skipped and steps that were not."""
    skip_without(*imported(file), *UNSEEN.get(file.name, []))
    command = [sys.executable, "-W", "error", str(file)]
    done = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert {"skipped", "applied"} <= {word.strip(",") for word in done.stdout.split()}


@pytest.mark.clause("BACKENDS-same-run")
@pytest.mark.parametrize("library", ["torch", "jax"])
def test_the_example_for_any_library_prints_the_same_lines(library, monkeypatch, capsys):
    """To the last digit of what it shows."""
    skip_without(library, "autograd")

    def printed(name):
        monkeypatch.setattr(sys, "argv", ["any_backend.py", name])
        runpy.run_path(str(EXAMPLES / "any_backend.py"), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    lines = printed("numpy")
    assert len(lines) == 12
    assert printed(library) == lines
