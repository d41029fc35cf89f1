"""The oracle stands on its own feet."""

import ast
import sys
from pathlib import Path

import pytest
from ampscale_conformance import oracle

FILES = sorted(Path(oracle.__file__).parent.glob("*.py"))


def imported(path):
    """What a module imports: names of the standard library and others, and its relative imports with their dots."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            dots = "." * node.level
            yield from [f"{dots}{node.module}"] if node.module else [f"{dots}{alias.name}" for alias in node.names]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_oracle_imports_itself_the_bits_and_the_standard_library(path):
    """Nothing of the core or of a backend, so that a mistake there is not made here; and no NumPy."""
    own = {f".{file.stem}" for file in FILES}
    outside = {name for name in imported(path) if name not in own and name.partition(".")[0] not in sys.stdlib_module_names}
    assert outside <= {"..model.bits", "..model.floats"}


def test_the_bits_import_the_standard_library():
    """What the oracle shares with the suite brings nothing in."""
    model = Path(oracle.__file__).parents[1] / "model"
    names = {name for stem in ("bits", "floats") for name in imported(model / f"{stem}.py")} - {".floats"}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


def test_other_imports_would_be_seen(tmp_path):
    """Relative and absolute ones."""
    file = tmp_path / "module.py"
    file.write_text(
        "import numpy.linalg\nfrom ...core import machine\nfrom ... import presets\nfrom ..bits import Bits\nimport math\n"
    )
    assert list(imported(file)) == ["numpy.linalg", "...core", "...presets", "..bits", "math"]
