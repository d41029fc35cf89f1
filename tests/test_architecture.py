"""Tests that imports between packages go one way, and that no array is copied to the host below the frameworks."""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from imports import CODE_FROM_DATA, code_from_data, imported, modules_in_cycles

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "ampscale"

# Packages that each package may import, in the order of the layers; a package may always import itself.
BASE = {"files", "parsing"}
CORE = {"core"} | BASE
ARRAYS = CORE | {"presets", "backends"}
FUNCTIONS = ARRAYS | {"functional", "network", "optimizers"}
LIBRARY = FUNCTIONS | {"frameworks", "__init__", "simulation", "checkpoints", "diagnostics"}
MAY_IMPORT = {
    "files": set(),
    "parsing": set(),
    "core": BASE,
    "presets": CORE,
    "backends": CORE,
    "functional": CORE | {"backends"},
    "network": CORE | {"backends"},
    "optimizers": CORE | {"backends", "network"},
    "distributed": CORE | {"backends"},
    "frameworks": FUNCTIONS | {"distributed"},
    "simulation": CORE | {"presets"},
    "checkpoints": CORE | {"presets"},
    "diagnostics": ARRAYS | {"functional", "simulation"},
    **{name: {"frameworks"} for name in ("mindformers", "mindspore", "paddle", "torch")},
    "__init__": FUNCTIONS | {"frameworks"},
    "cli": LIBRARY,
    "__main__": {"cli"},
}
# Folders within a package that each folder may import; modules of the package that are in no folder may import every folder.
FOLDERS = {
    "backends": {"cpu": set(), "numpy": {"cpu"}, "torch": {"cpu", "cupy"}, "jax": set(), "cupy": {"cuda"}},
    "simulation": {"recordings": {"traces"}, "identification": {"traces"}},
    "checkpoints": {"formats": {"files"}, "files": set()},
    "frameworks": {
        "torch": {"_validation", "_arrays"},
        "paddle": {"_validation", "_arrays"},
        "mindspore": {"_validation", "_arrays", "torch"},
    },
}
# Packages that may read array values.
HOST = BASE | {"distributed", "frameworks", "simulation", "checkpoints", "diagnostics", "cli", "__main__"}


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def packages_in(modules: list[str]) -> set[str]:
    """Return the packages of ampscale among imported modules; "__init__" stands for a name imported from `ampscale` itself."""
    names = (module.split(".")[1:2] for module in modules if module.split(".")[0] == "ampscale")
    return {name[0] if name and name[0] in MAY_IMPORT else "__init__" for name in names}


def host_reads(path: Path) -> Iterator[str]:
    """Yield each call that may convert an array to a Python number, except in functions whose name ends in _host."""
    conversions = {"bool", "float", "int", "complex"}
    tree = ast.parse(path.read_text())
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.endswith("_host"))
    allowed = {inner for node in functions for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if node in allowed or not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in conversions:
            yield f"{path.name}:{node.lineno} calls {called.id}()"
        if isinstance(called, ast.Attribute) and called.attr in {"item", "tolist", "__bool__", "__float__"}:
            yield f"{path.name}:{node.lineno} calls .{called.attr}()"


FILES = sorted(SOURCE.rglob("*.py"))


@cache
def imports(path: Path) -> list[str]:
    """Return the names that a file imports."""
    return [*imported(path, SOURCE)]


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_only_packages_below_them(package):
    """`MAY_IMPORT` lists the packages that each package may import."""
    assert set(map(package_of, FILES)) == set(MAY_IMPORT)
    files = [path for path in FILES if package_of(path) == package]
    wrong = {path: packages_in(imports(path)) - {package} - MAY_IMPORT[package] for path in files}
    assert {path: packages for path, packages in wrong.items() if packages} == {}


@pytest.mark.parametrize(("package", "folder"), [(package, folder) for package in FOLDERS for folder in FOLDERS[package]])
def test_folders_import_only_folders_below_them(package, folder):
    """`FOLDERS` lists the folders that each folder may import."""
    assert {path.parent.name for path in (SOURCE / package).glob("*/__init__.py")} == set(FOLDERS[package])
    others = (set(FOLDERS[package]) - {folder}) - FOLDERS[package][folder]
    files = (SOURCE / package / folder).rglob("*.py")
    wrong = {f"ampscale.{package}.{other}" for other in others}
    assert [(path.name, module) for path in files for module in imports(path) if ".".join(module.split(".")[:3]) in wrong] == []


def test_no_modules_import_each_other():
    """A cycle of any length is an error, even if one of its imports is within a function."""
    assert modules_in_cycles([path for path in FILES if path.name != "__init__.py"], SOURCE) == []


def test_core_imports_only_the_standard_library_and_array_api_compat():
    """The core imports no array library."""
    modules = {module.split(".")[0] for path in FILES if package_of(path) == "core" for module in imports(path)}
    assert modules - sys.stdlib_module_names - {"ampscale"} == {"array_api_compat"}


@pytest.mark.parametrize("library", ["torch", "jax", "cupy"])
def test_libraries_are_imported_only_in_files_or_folders_of_their_name(library):
    """Other modules work without the library."""
    importing = [path for path in FILES if library in {module.partition(".")[0] for module in imports(path)}]
    assert importing
    assert [path for path in importing if library not in f"{path.parent.name}/{path.stem}"] == []


def test_numba_is_imported_by_the_kernels_only():
    """Other modules work without numba."""
    importing = [path for path in FILES if {"numba", "llvmlite"} & {module.partition(".")[0] for module in imports(path)}]
    assert importing == [SOURCE / "backends/cpu/kernels.py", SOURCE / "backends/cpu/measuring.py"]


def test_the_library_does_not_import_the_suite():
    """The suite is another distribution, which may not be installed."""
    assert [path for path in FILES if any(module.startswith("ampscale_conformance") for module in imports(path))] == []


@pytest.mark.clause("STEP-two-modes")
def test_no_array_is_read_on_the_host_below_the_frameworks():
    """Functions whose name ends in _host are exempt."""
    assert [read for path in FILES if package_of(path) not in HOST for read in host_reads(path)] == []


def test_modules_have_at_most_400_lines():
    """Only presets.py is longer, since it has all published scalers."""
    sizes = {path.relative_to(SOURCE).as_posix(): len(path.read_text().splitlines()) for path in FILES}
    assert {name for name, lines in sizes.items() if lines > 400} == {"presets.py"}


def test_no_code_runs_from_data():
    """Nothing is unpickled, evaluated or executed; torch files are read with the weights-only loader."""
    assert code_from_data(FILES) == []


@pytest.mark.parametrize(
    "line", ["import os, pickle", 'X = """import dill', "eval(x)", "torch.load(f)", "np.load(f, allow_pickle=True)"]
)
def test_code_from_data_is_detected(line):
    """The pattern also matches indented code, and programs within strings."""
    assert CODE_FROM_DATA.search(f"def f():\n    {line}\n")


def test_violations_are_detected(tmp_path):
    """The violations are relative and absolute imports of a package above, import cycles, and host reads."""
    source = tmp_path / "ampscale"
    file, other = source / "core" / "machine.py", source / "core" / "rule.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "from .. import backends\nfrom ..frameworks.paddle import GradScaler\nimport ampscale.cli\nfrom . import rule\n"
    )
    other.write_text("def f():\n    from .machine import Machine\n")
    modules = [*imported(file, source)]
    assert modules == ["ampscale.backends", "ampscale.frameworks.paddle.GradScaler", "ampscale.cli", "ampscale.core.rule"]
    assert packages_in(modules) == {"backends", "frameworks", "cli", "core"}
    assert modules_in_cycles([file, other], source) == ["ampscale.core.machine", "ampscale.core.rule"]
    assert modules_in_cycles([file], source) == []
    file.write_text("def f(x):\n    return bool(x) and x.item()\ndef g_host(x):\n    return float(x)\n")
    assert len(list(host_reads(file))) == 2


def test_contributing_answers_its_twenty_questions():
    """Each row of the table names a file, and in the last column a text that this file contains."""
    answers = re.findall(r"^\| .*\?.* \| `(\S+)` \| `(.+)` \|$", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE)
    assert len(answers) == 20
    assert [name for file, name in answers if name not in (ROOT / file).read_text("utf-8")] == []


def test_contributing_shows_the_tree():
    """Each path of the tree exists, and each package and module at the top of both distributions has a line."""
    (tree,) = re.findall(r"^## Layout.*?^```\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    paths, folders = set(), []
    for indent, names in re.findall(r"^([│├└─ ]{0,12})(\w\S*(?:, \S+)*)(?:  |$)", tree, re.MULTILINE):
        del folders[len(indent) // 4 :]
        paths |= {ROOT.joinpath(*folders, name) for name in names.split(", ")}
        folders.append(names)
    assert [path for path in paths if not path.exists()] == []
    tops = [SOURCE, ROOT / "conformance/src/ampscale_conformance"]
    present = {path for top in tops for path in (*top.glob("[!_]*.py"), *(file.parent for file in top.glob("*/__init__.py")))}
    assert present - paths == set()
