"""The arrows of the house point down, and below the frameworks nothing is read on the host."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "ampscale"

# What each room may import of ours; a room may always import itself. The order is from the ground up.
MAY_IMPORT = {
    "core": set(),
    "presets": {"core"},
    "backends": {"core"},
    "verbs": {"core", "backends"},
    "detectors": {"core", "verbs"},
    "network": {"core", "backends"},
    "optimizers": {"core", "backends", "network"},
    "frameworks": {"core", "presets", "backends", "verbs", "detectors", "network", "optimizers"},
    "__init__": {"core", "presets", "backends", "verbs", "detectors", "network", "optimizers", "frameworks"},
    "simulation": {"core", "presets"},
    "checkpoints": {"core", "presets"},
    "conformance": {"__init__", "core", "presets"},
    "cli": {
        "__init__",
        "core",
        "presets",
        "backends",
        "verbs",
        "detectors",
        "network",
        "optimizers",
        "frameworks",
        "simulation",
        "checkpoints",
        "conformance",
    },
    "__main__": {"cli"},
}
# What speaks for this package in its own suite, and so may know all of it; the suite itself knows none of it.
OWN_ADAPTERS = {"ampscale", "ampscale_cells", "ampscale_scalers", "ampscale_torch"}
OUTSIDE_CORE = {"array_api_compat"}
HOST_ROOMS = {"frameworks", "simulation", "checkpoints", "conformance", "cli", "__main__"}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, absolute."""
    package = ("ampscale", *path.relative_to(SOURCE).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def host_reads(path: Path) -> Iterator[str]:
    """Every place that may turn an array into a Python number, outside functions that say so in their name."""
    reading = {"bool", "float", "int", "complex"}
    tree = ast.parse(path.read_text())
    allowed = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.endswith("_host")
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in allowed or not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in reading:
            yield f"{path.name}:{node.lineno} calls {called.id}()"
        if isinstance(called, ast.Attribute) and called.attr in {"item", "tolist", "__bool__", "__float__"}:
            yield f"{path.name}:{node.lineno} calls .{called.attr}()"


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_arrows_point_down(path):
    """A room imports itself, rooms below it, and nothing else of ours."""
    room = room_of(path)
    speaks_for_us = path.parent.name == "adapters" and path.stem in OWN_ADAPTERS
    may_import = MAY_IMPORT["cli"] if speaks_for_us else MAY_IMPORT[room]
    for module in imported(path):
        first, *rest = module.split(".")
        if first == "ampscale":
            target = rest[0] if rest and rest[0] in MAY_IMPORT else "__init__"
            assert target == room or target in may_import, f"{path} imports {module}"


@pytest.mark.parametrize("path", [path for path in FILES if room_of(path) == "core"], ids=lambda path: path.name)
def test_core_imports_the_standard_library_and_array_api_compat(path):
    """The core knows no array library."""
    outside = {module.split(".")[0] for module in imported(path)} - sys.stdlib_module_names - {"ampscale"}
    assert outside <= OUTSIDE_CORE


@pytest.mark.parametrize("library", ["torch", "jax", "cupy"])
def test_a_library_is_imported_in_modules_of_its_name_alone(library):
    """
    Whoever has not imported it gets it by asking for it by name, and in no other way.

    An adapter is imported when it is named, and imports what its project needs.
    """
    files = (path for path in FILES if path.parent.name != "adapters")
    importing = {path.stem for path in files if library in {module.partition(".")[0] for module in imported(path)}}
    assert importing
    assert all(library in stem for stem in importing)


@pytest.mark.clause("STEP-two-modes")
@pytest.mark.parametrize(
    "path", [path for path in FILES if room_of(path) not in HOST_ROOMS], ids=lambda path: str(path.relative_to(SOURCE))
)
def test_nothing_is_read_on_the_host_below_the_frameworks(path):
    """No array becomes a Python number, except in functions whose name ends in _host."""
    assert list(host_reads(path)) == []


def test_an_upward_import_would_be_seen(tmp_path, monkeypatch):
    """The reader of imports resolves relative and absolute ones."""
    monkeypatch.setattr(f"{__name__}.SOURCE", tmp_path)
    file = tmp_path / "core" / "machine.py"
    file.parent.mkdir()
    file.write_text("from .. import backends\nfrom ..frameworks.paddle import GradScaler\nimport ampscale.cli\n")
    assert list(imported(file)) == ["ampscale.backends", "ampscale.frameworks.paddle.GradScaler", "ampscale.cli"]


def test_a_host_read_would_be_seen(tmp_path):
    """Conversions and .item() are found, and those in a function that says so are not."""
    file = tmp_path / "module.py"
    file.write_text("def f(x):\n    return bool(x) and x.item()\ndef g_host(x):\n    return float(x)\n")
    assert len(list(host_reads(file))) == 2


def test_modules_are_small():
    """No module has more than 400 lines, but for the one page on which all published scalers stand side by side."""
    sizes = {path.name: len(path.read_text().splitlines()) for path in FILES}
    assert {name: lines for name, lines in sizes.items() if lines > 400} == {"presets.py": sizes["presets.py"]}
