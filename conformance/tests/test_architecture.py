"""Imports between the suite's packages go one way, and the suite imports three names and two modules of the library."""

import sys
from pathlib import Path

import ampscale_conformance
import pytest
from imports import code_from_data, imported, modules_in_cycles, name_of

SOURCE = Path(ampscale_conformance.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
IMPORTED = {path: [*imported(path, SOURCE)] for path in FILES}
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


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_lower_packages_only(package):
    """`MAY_IMPORT` lists the packages that each package may import."""
    files = [path for path in FILES if path.relative_to(SOURCE).parts[0] == package]
    forbidden = set(MAY_IMPORT) - MAY_IMPORT[package] - {package} | {"cli", "suite"}
    imports = [(path.name, module.split(".")[1]) for path in files for module in IMPORTED[path] if module.startswith(SOURCE.name)]
    assert files
    assert [item for item in imports if item[1] in forbidden] == []


def test_the_suite_imports_three_names_and_two_modules_of_the_library():
    """The adapters of ampscale may import more."""
    files = [path for path in FILES if OUR_ADAPTERS not in path.parents]
    names = {module for path in files for module in IMPORTED[path] if module.partition(".")[0] == "ampscale"}
    assert [module for module in names if not module.startswith(LIBRARY)] == []


def test_the_oracle_imports_only_bits_floats_and_the_standard_library():
    """The oracle imports neither the library nor NumPy, so that it does not share their bugs."""
    shared = [SOURCE / "model" / "bits.py", SOURCE / "model" / "floats.py"]
    files = [*(SOURCE / "oracle").glob("*.py"), *shared]
    names = tuple(name_of(path, SOURCE) for path in files)
    outside = {module for path in files for module in IMPORTED[path] if not module.startswith(names)}
    assert {module.partition(".")[0] for module in outside} <= sys.stdlib_module_names


def test_there_are_no_import_cycles():
    """Imports within functions count."""
    assert modules_in_cycles([path for path in FILES if path.name != "__init__.py"], SOURCE) == []


def test_modules_have_at_most_400_lines():
    """Each module can be read in one sitting."""
    assert [path.name for path in FILES if len(path.read_text("utf-8").splitlines()) > 400] == []


def test_no_code_runs_from_data():
    """Nothing is unpickled, evaluated or executed. torch loads weights only."""
    assert code_from_data(FILES) == []
