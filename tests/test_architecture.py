"""Imports between the packages go one way, and below the frameworks no array is read on the host."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "ampscale"

# Packages that each package may import, from the ground up; a package may always import itself.
BASE = {"files", "parsing"}
CORE = {"core"} | BASE
ARRAYS = CORE | {"presets", "backends"}
FUNCTIONS = ARRAYS | {"functional", "network", "optimizers"}
LIBRARY = FUNCTIONS | {"frameworks", "__init__", "simulation", "checkpoints"}
MAY_IMPORT = {
    "files": set(),
    "parsing": set(),
    "core": BASE,
    "presets": CORE,
    "backends": CORE,
    "functional": CORE | {"backends"},
    "network": CORE | {"backends"},
    "optimizers": CORE | {"backends", "network"},
    "frameworks": FUNCTIONS,
    "simulation": CORE | {"presets"},
    "checkpoints": CORE | {"presets"},
    **{name: {"frameworks"} for name in ("mindformers", "mindspore", "paddle", "torch")},
    "__init__": FUNCTIONS | {"frameworks"},
    "cli": LIBRARY,
    "__main__": {"cli"},
}
# Folders within a package that each folder may import; what stands beside the folders may import all of them.
FOLDERS = {
    "backends": {"numpy": set(), "torch": {"numpy"}, "jax": set(), "cupy": {"cuda"}},
    "simulation": {"recordings": {"traces"}, "identification": {"traces"}},
    "checkpoints": {"formats": {"files"}, "files": set()},
    "frameworks": {
        "torch": {"_validation", "_arrays"},
        "paddle": {"_validation", "_arrays"},
        "mindspore": {"_validation", "_arrays", "torch"},
    },
}
HOST = BASE | {"frameworks", "simulation", "checkpoints", "cli", "__main__"}  # packages that may read array values
# Whatever runs code that it reads, also in programs within strings.
CODE_FROM_DATA = re.compile(
    r"\b(from |import\b.*)(pickle|_pickle|cloudpickle|marshal|shelve|dill|joblib)\b"
    r"|(?<![.\w])(eval|exec)\(|allow_pickle=True|torch\.load\((?!.*weights_only=True)"
)


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """Every module or name that a file imports, absolute."""
    package = ("ampscale", *path.relative_to(SOURCE).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def imported_packages(path: Path) -> set[str]:
    """The packages of ours that a file imports; "__init__" for a name of the top level."""
    names = (module.split(".")[1:2] for module in imported(path) if module.split(".")[0] == "ampscale")
    return {name[0] if name and name[0] in MAY_IMPORT else "__init__" for name in names}


def cycles(files: list[Path]) -> list[list[str]]:
    """Every circle of modules that import each other, imports within functions included."""
    modules = {
        ".".join(("ampscale", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path for path in files
    }
    targets = {}
    for name, path in modules.items():
        found = {module if module in modules else module.rpartition(".")[0] for module in imported(path)}
        targets[name] = (found & set(modules)) - {name}
    circles, done = [], set()

    def visit(name: str, trail: list[str]) -> None:
        if name in trail:
            circles.append([*trail[trail.index(name) :], name])
        elif name not in done:
            for target in sorted(targets[name]):
                visit(target, [*trail, name])
            done.add(name)

    for name in sorted(modules):
        visit(name, [])
    return circles


def host_reads(path: Path) -> Iterator[str]:
    """Every place that may turn an array into a Python number, outside functions that say so in their name."""
    reading = {"bool", "float", "int", "complex"}
    tree = ast.parse(path.read_text())
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.endswith("_host"))
    allowed = {inner for node in functions for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if node in allowed or not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in reading:
            yield f"{path.name}:{node.lineno} calls {called.id}()"
        if isinstance(called, ast.Attribute) and called.attr in {"item", "tolist", "__bool__", "__float__"}:
            yield f"{path.name}:{node.lineno} calls .{called.attr}()"


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_only_packages_below_them(package):
    """`MAY_IMPORT` lists them."""
    files = [path for path in FILES if package_of(path) == package]
    assert files
    assert {path.name: found for path in files if (found := imported_packages(path) - {package} - MAY_IMPORT[package])} == {}


@pytest.mark.parametrize(("package", "folder"), [(package, folder) for package in FOLDERS for folder in FOLDERS[package]])
def test_folders_import_only_folders_below_them(package, folder):
    """A module beside the folders belongs to all of them; `FOLDERS` lists the folders that one may import."""
    others = (set(FOLDERS[package]) - {folder}) - FOLDERS[package][folder]
    files = (SOURCE / package / folder).rglob("*.py")
    wrong = {f"ampscale.{package}.{other}" for other in others}
    assert [(path.name, module) for path in files for module in imported(path) if ".".join(module.split(".")[:3]) in wrong] == []


def test_no_modules_import_each_other():
    """Neither at the top of a file nor within a function."""
    assert cycles([path for path in FILES if path.name != "__init__.py"]) == []


def test_core_imports_the_standard_library_and_array_api_compat():
    """The core knows no array library."""
    modules = {module.split(".")[0] for path in FILES if package_of(path) == "core" for module in imported(path)}
    assert modules - sys.stdlib_module_names - {"ampscale"} == {"array_api_compat"}


@pytest.mark.parametrize("library", ["torch", "jax", "cupy"])
def test_libraries_are_imported_only_in_files_or_folders_of_their_name(library):
    """A user who has not imported a library gets it only by its name."""
    importing = [path for path in FILES if library in {module.partition(".")[0] for module in imported(path)}]
    assert importing
    assert [path for path in importing if library not in f"{path.parent.name}/{path.stem}"] == []


def test_the_suite_is_imported_nowhere():
    """The suite tests the library, and the library does without it."""
    assert [path for path in FILES if any(module.startswith("ampscale_conformance") for module in imported(path))] == []


@pytest.mark.clause("STEP-two-modes")
def test_no_array_is_read_on_the_host_below_the_frameworks():
    """Except in functions whose name ends in _host."""
    assert [read for path in FILES if package_of(path) not in HOST for read in host_reads(path)] == []


def test_modules_have_at_most_400_lines():
    """Except presets.py, where all published scalers stand side by side."""
    sizes = {path.relative_to(SOURCE).as_posix(): len(path.read_text().splitlines()) for path in FILES}
    assert {name for name, lines in sizes.items() if lines > 400} == {"presets.py"}


def test_no_code_runs_from_data():
    """Nothing is unpickled, evaluated or executed; torch's files are read for weights only."""
    assert [(path.name, found[0]) for path in FILES for found in CODE_FROM_DATA.finditer(path.read_text("utf-8"))] == []


def test_violations_are_found(tmp_path, monkeypatch):
    """Imports upward, relative or absolute, circles and host reads."""
    monkeypatch.setattr(f"{__name__}.SOURCE", tmp_path)
    file, other = tmp_path / "core" / "machine.py", tmp_path / "core" / "rule.py"
    file.parent.mkdir()
    file.write_text("from .. import backends\nfrom ..frameworks.paddle import GradScaler\nimport ampscale.cli\n")
    assert list(imported(file)) == ["ampscale.backends", "ampscale.frameworks.paddle.GradScaler", "ampscale.cli"]
    assert imported_packages(file) == {"backends", "frameworks", "cli"}
    file.write_text("from .rule import Rule\n")
    other.write_text("def f():\n    from . import machine\n")
    assert cycles([file, other]) == [["ampscale.core.machine", "ampscale.core.rule", "ampscale.core.machine"]]
    file.write_text("def f(x):\n    return bool(x) and x.item()\ndef g_host(x):\n    return float(x)\n")
    assert len(list(host_reads(file))) == 2


def test_contributing_answers_its_twenty_questions():
    """Each file is there and has the name that answers."""
    root = SOURCE.parent.parent
    answers = re.findall(r"^\| .*\?.* \| `(\S+)` \| `(.+)` \|$", (root / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE)
    assert len(answers) == 20
    assert [name for file, name in answers if name not in (root / file).read_text("utf-8")] == []
