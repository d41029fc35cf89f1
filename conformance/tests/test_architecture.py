"""Imports between the suite's packages go one way, and the suite imports three names and two modules of the library."""

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
# Packages that each package may import, lowest first; a package may always import itself.
MAY_IMPORT = {
    "model": set(),
    "oracle": {"model"},
    "adapters": {"model"},
    "remote": {"adapters", "model"},
    "reports": {"model"},
    "cases": {"remote", "oracle", "model"},
    "run": {"cases", "reports", "remote", "adapters", "oracle", "model"},
}
# Calls and imports that run code from data, including in programs within strings.
CODE_FROM_DATA = re.compile(
    r"\b(from |import\b.*)(pickle|_pickle|cloudpickle|marshal|shelve|dill|joblib)\b"
    r"|(?<![.\w])(eval|exec)\(|allow_pickle=True|torch\.load\((?!.*weights_only=True)"
)


def name_of(path: Path) -> str:
    """Return the name of the module in a file."""
    return ".".join((SOURCE.name, *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


def imported(path: Path) -> Iterator[str]:
    """Yield the absolute name of every module or object that a file imports, also within functions."""
    package = (SOURCE.name, *path.relative_to(SOURCE).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *filter(None, [node.module])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def modules_in_cycles(files: list[Path]) -> list[str]:
    """Return the modules that are in a cycle of imports, or import such a module, directly or not."""
    modules = {name_of(path): path for path in files}
    targets = {
        name: {module if module in modules else module.rpartition(".")[0] for module in imported(path)} & set(modules) - {name}
        for name, path in modules.items()
    }
    while removable := [name for name, names in targets.items() if not names & set(targets)]:
        for name in removable:
            del targets[name]
    return sorted(targets)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_lower_packages_only(package):
    """`MAY_IMPORT` lists the packages that each package may import."""
    files = [path for path in FILES if path.relative_to(SOURCE).parts[0] == package]
    forbidden = set(MAY_IMPORT) - MAY_IMPORT[package] - {package} | {"cli", "suite"}
    imports = [(path.name, module.split(".")[1]) for path in files for module in imported(path) if module.startswith(SOURCE.name)]
    assert files
    assert [item for item in imports if item[1] in forbidden] == []


def test_the_suite_imports_three_names_and_two_modules_of_the_library():
    """The adapters of ampscale may import more."""
    files = [path for path in FILES if OUR_ADAPTERS not in path.parents]
    names = {module for path in files for module in imported(path) if module.partition(".")[0] == "ampscale"}
    assert [module for module in names if not module.startswith(LIBRARY)] == []


def test_the_oracle_imports_only_bits_floats_and_the_standard_library():
    """The oracle imports neither the library nor NumPy, so that it does not share their bugs."""
    shared = [SOURCE / "model" / "bits.py", SOURCE / "model" / "floats.py"]
    files = [*(SOURCE / "oracle").glob("*.py"), *shared]
    names = tuple(map(name_of, files))
    outside = {module for path in files for module in imported(path) if not module.startswith(names)}
    assert {module.partition(".")[0] for module in outside} <= sys.stdlib_module_names


def test_there_are_no_import_cycles():
    """Imports within functions count."""
    assert modules_in_cycles([path for path in FILES if path.name != "__init__.py"]) == []


def test_modules_have_at_most_400_lines():
    """Each module can be read in one sitting."""
    assert [path.name for path in FILES if len(path.read_text("utf-8").splitlines()) > 400] == []


def test_no_code_runs_from_data():
    """Nothing is unpickled, evaluated or executed. torch loads weights only."""
    assert [(path.name, match[0]) for path in FILES for match in CODE_FROM_DATA.finditer(path.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    "line", ["import os, pickle", 'X = """import dill', "eval(x)", "torch.load(f)", "np.load(f, allow_pickle=True)"]
)
def test_code_from_data_is_detected(line):
    """The pattern also matches indented code, and programs within strings."""
    assert CODE_FROM_DATA.search(f"def f():\n    {line}\n")


def test_imports_and_cycles_are_detected(tmp_path, monkeypatch):
    """Imports may be relative or absolute."""
    monkeypatch.setattr(f"{__name__}.SOURCE", tmp_path / "suite")
    file, other = tmp_path / "suite" / "oracle" / "machine.py", tmp_path / "suite" / "oracle" / "calls.py"
    file.parent.mkdir(parents=True)
    file.write_text("import numpy.linalg\nfrom ...core import machine\nfrom ..cases import norms\nfrom . import calls\n")
    other.write_text("def f():\n    from .machine import Machine\n")
    assert list(imported(file)) == ["numpy.linalg", "core.machine", "suite.cases.norms", "suite.oracle.calls"]
    assert modules_in_cycles([file, other]) == ["suite.oracle.calls", "suite.oracle.machine"]
    assert modules_in_cycles([file]) == []
