"""Imports between the suite's packages go one way, and it imports three names and two modules of the library."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import ampscale_conformance
import pytest

SOURCE = Path(ampscale_conformance.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
OUR_ADAPTERS = SOURCE / "adapters" / "ampscale"  # may import more of the library
LIBRARY = ("ampscale.LossScaleRule", "ampscale.presets", "ampscale.__version__", "ampscale.files.", "ampscale.parsing.")
# Packages that each package may import, from the ground up; a package may always import itself.
MAY_IMPORT = {
    "model": set(),
    "oracle": {"model"},
    "adapters": {"model"},
    "remote": {"adapters", "model"},
    "reports": {"model"},
    "cases": {"remote", "oracle", "model"},
    "run": {"cases", "reports", "remote", "adapters", "oracle", "model"},
}
# Whatever runs code that it reads, also in programs within strings.
CODE_FROM_DATA = re.compile(
    r"\b(from |import\b.*)(pickle|_pickle|cloudpickle|marshal|shelve|dill|joblib)\b"
    r"|(?<![.\w])(eval|exec)\(|allow_pickle=True|torch\.load\((?!.*weights_only=True)"
)


def name_of(path: Path) -> str:
    return ".".join((SOURCE.name, *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


def imported(path: Path) -> Iterator[str]:
    """Every module or name that a file imports, absolute, imports within functions included."""
    package = (SOURCE.name, *path.relative_to(SOURCE).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *filter(None, [node.module])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def circle_of(files: list[Path]) -> list[str]:
    """Modules that import each other, in a circle; empty if there are none."""
    modules = {name_of(path): path for path in files}
    targets = {
        name: {module if module in modules else module.rpartition(".")[0] for module in imported(path)} & set(modules) - {name}
        for name, path in modules.items()
    }
    while ends := [name for name, found in targets.items() if not found & set(targets)]:
        for name in ends:
            del targets[name]
    return sorted(targets)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_only_packages_below_them(package):
    """`MAY_IMPORT` lists them."""
    files = [path for path in FILES if path.relative_to(SOURCE).parts[0] == package]
    wrong = set(MAY_IMPORT) - MAY_IMPORT[package] - {package} | {"cli", "suite"}
    found = [(path.name, module.split(".")[1]) for path in files for module in imported(path) if module.startswith(SOURCE.name)]
    assert files
    assert [each for each in found if each[1] in wrong] == []


def test_three_names_and_two_modules_of_the_library_are_imported():
    """Except in ampscale's own adapters."""
    files = [path for path in FILES if OUR_ADAPTERS not in path.parents]
    found = {module for path in files for module in imported(path) if module.partition(".")[0] == "ampscale"}
    assert [module for module in found if not module.startswith(LIBRARY)] == []


def test_the_oracle_imports_bits_floats_and_the_standard_library():
    """Neither the library nor NumPy, so that a mistake there is not made here too."""
    shared = [SOURCE / "model" / "bits.py", SOURCE / "model" / "floats.py"]
    ours = [name_of(path) for path in (SOURCE / "oracle").glob("*.py")] + [name_of(path) for path in shared]
    files = [*(SOURCE / "oracle").glob("*.py"), *shared]
    outside = {module for path in files for module in imported(path) if not module.startswith(tuple(ours))}
    assert {module.partition(".")[0] for module in outside} <= sys.stdlib_module_names


def test_no_modules_import_each_other():
    """Neither at the top of a file nor within a function."""
    assert circle_of([path for path in FILES if path.name != "__init__.py"]) == []


def test_modules_have_at_most_400_lines():
    """Each can be read in one go."""
    assert [path.name for path in FILES if len(path.read_text("utf-8").splitlines()) > 400] == []


def test_no_code_runs_from_data():
    """Nothing is unpickled, evaluated or executed; torch's files are read for weights only."""
    assert [(path.name, found[0]) for path in FILES for found in CODE_FROM_DATA.finditer(path.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    "line", ["import os, pickle", 'X = """import dill', "eval(x)", "torch.load(f)", "np.load(f, allow_pickle=True)"]
)
def test_code_from_data_is_found(line):
    """Wherever it is, by any of its names."""
    assert CODE_FROM_DATA.search(f"def f():\n    {line}\n")


def test_violations_are_found(tmp_path, monkeypatch):
    """Imports upward, relative or absolute, and circles."""
    monkeypatch.setattr(f"{__name__}.SOURCE", tmp_path / "suite")
    file, other = tmp_path / "suite" / "oracle" / "machine.py", tmp_path / "suite" / "oracle" / "calls.py"
    file.parent.mkdir(parents=True)
    file.write_text("import numpy.linalg\nfrom ...core import machine\nfrom ..cases import norms\nfrom . import calls\n")
    other.write_text("def f():\n    from .machine import Machine\n")
    assert list(imported(file)) == ["numpy.linalg", "core.machine", "suite.cases.norms", "suite.oracle.calls"]
    assert circle_of([file, other]) == ["suite.oracle.calls", "suite.oracle.machine"]
    assert circle_of([file]) == []
