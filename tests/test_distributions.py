"""Tests that build both distributions, install them in new virtual environments, and use them from an empty folder."""

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from release import check

ROOT = Path(__file__).parent.parent
SUITE = "ampscale_conformance"

pytestmark = pytest.mark.slow


def run(*command, cwd):
    """Run a command without this process's Python paths."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env=variables, capture_output=True, text=True, check=False, timeout=600
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return the paths of the distributions of the working tree, after two builds have written the same bytes."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tree:
        for name in sorted(tracked(".")):
            if (ROOT / name).is_file():
                tree.add(ROOT / name, name)
    return check.build_twice(archive.getvalue(), tmp_path_factory.mktemp("builds"))


@pytest.fixture
def wheels(files):
    """Return a dict from the name of each distribution to the path of its wheel."""
    return {path.name.partition("-")[0]: path for path in files if path.suffix == ".whl"}


def test_names_and_metadata_are_those_of_a_release(files):
    """The remaining steps of `make release-check` are the tests below."""
    check.check_versions(files, ROOT, [])
    check.check_metadata(files)


def environment(folder, *packages):
    """Create a virtual environment with *packages* in *folder*, and return the path of its programs."""
    commands = [
        (sys.executable, "-m", "venv", folder / "env"),
        (folder / "env/bin/python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", *packages),
    ]
    for command in commands:
        done = run(*command, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder / "env/bin"


def files_of(wheel, package):
    """Return the names of all files of a wheel except its metadata, and the names of the files in the folder *package*."""
    names = zipfile.ZipFile(wheel).namelist()
    return {name for name in names if ".dist-info/" not in name}, {name for name in names if name.startswith(f"{package}/")}


def tracked(folder):
    """Return the paths, relative to *folder*, of the files in it that git tracks."""
    listed = run("git", "ls-files", ".", cwd=ROOT / folder)
    return set(listed.stdout.splitlines())


def test_library_wheel_holds_the_library_alone(wheels):
    """The wheel has every file of src/ampscale, the CUDA source among them, and nothing of the suite."""
    names, package_names = files_of(wheels["ampscale"], "ampscale")
    assert names == package_names == {f"ampscale/{name}" for name in tracked("src/ampscale")}


def test_suite_wheel_holds_the_suite_the_plugin_and_the_specification(wheels):
    """The wheel has neither the mutants nor the tools that recompute test vectors."""
    names, _ = files_of(wheels[SUITE], SUITE)
    spec = {f"{SUITE}/spec/{name}" for name in tracked("spec")}
    assert names == {*tracked("conformance/src"), *spec}


def test_library_works_without_the_suite(wheels, tmp_path):
    """The error of `ampscale conform` names the package to install."""
    programs = environment(tmp_path, f"{wheels['ampscale']}[cli]")
    empty = tmp_path / "empty"
    empty.mkdir()
    code = "import ampscale; rule = ampscale.LossScaleRule(); print(float(rule.update(rule.init(), False).scale))"
    assert run(programs / "python", "-c", code, cwd=empty).stdout == "32768.0\n"
    assert "torch.amp.GradScaler" in run(programs / "ampscale", "presets", "torch", cwd=empty).stdout
    assert "conform" not in run(programs / "ampscale", "--help", cwd=empty).stdout
    conform = run(programs / "ampscale", "conform", "--list", cwd=empty)
    assert (conform.returncode, conform.stderr) == (2, "ampscale: conform is not installed: pip install ampscale-conformance\n")


def test_suite_runs_as_a_command_as_a_module_and_under_pytest(files, tmp_path):
    """`install_and_test` runs `ampscale conform` and pytest. `python -m` and `ampscale-conformance` must succeed, too."""
    check.install_and_test(files, tmp_path)
    programs, empty = tmp_path / "env" / "bin", tmp_path / "empty"
    assert "conform" in run(programs / "ampscale", "--help", cwd=empty).stdout
    for command in (["python", "-m", SUITE], ["ampscale-conformance"]):
        done = run(programs / command[0], *command[1:], "ampscale-numpy", "--level", "1", cwd=empty)
        assert done.returncode == 0, done.stdout + done.stderr
