"""
Virtual environments for the published scalers, one for each group of packages, and folders with unpacked sources.

Each environment or folder is created if it is missing, or if its list of requirements has changed.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from .published import VERSION

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements"
NEWEST = "AMPSCALE_NEWEST" in os.environ  # install the newest releases instead of the listed ones
ROOT = HERE.parents[1] / (".venv-newest" if NEWEST else ".venv-oracles")
SOURCES = ROOT / "sources"
# Packages whose wheels for another Python version are unpacked, not installed: a class is extracted from a file.
OTHER_PYTHON = {"tensorflow": ("--only-binary=:all:", "--python-version=37", "--platform=manylinux2010_x86_64")}
# Commit and date of the repositories whose code is not, or not completely, on the package index.
BY_HAND = {"apex": "e13873de, 2025-04-11", "oneflow": "25c8978c, 2025-08-20"}
# The setup.py of older packages requires pkg_resources.
BUILD = {"PIP_CONSTRAINT": str(REQUIREMENTS / "build.txt"), "PIP_BUILD_CONSTRAINT": str(REQUIREMENTS / "build.txt")}
QUIET = ("--quiet", "--disable-pip-version-check")


def python_of(name: str) -> Path:
    """Return the interpreter of an environment."""
    return ROOT / name / "bin" / "python"


def make(name: str) -> str:
    """Create an environment from its list of requirements, unless it is current; return an error message, or an empty string."""
    requirements = (REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8")
    if NEWEST:
        requirements = without_pins(requirements)
    stamp = ROOT / name / "requirements.made"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == requirements:
        return ""
    _create_ignored_root()
    shutil.rmtree(ROOT / name, ignore_errors=True)
    list_file = ROOT / f"{name}.txt"
    list_file.write_text(requirements, encoding="utf-8")
    error = _run([sys.executable, "-m", "venv", str(ROOT / name)])
    if not error:
        error = _pip(str(python_of(name)), "install", *QUIET, "-r", str(list_file))
    if not error:
        list_file.replace(stamp)
    return error


def without_pins(requirements: str) -> str:
    """Return a list of requirements without version numbers, except numbers that a comment explains."""
    return "".join(line if "#" in line else re.sub("==.*", "", line) for line in requirements.splitlines(keepends=True))


def unpack_sources() -> dict[str, str]:
    """Unpack all packages of sources.txt below SOURCES; return error messages by package."""
    lines = (REQUIREMENTS / "sources.txt").read_text(encoding="utf-8").splitlines()
    packages = [line.split("==") for line in lines if "==" in line]
    errors = {package: _unpack(package, version) for package, version in packages}
    return {package: text for package, text in errors.items() if text}


def by_hand(package: str) -> str:
    """Return instructions for a package that is missing and cannot be downloaded; an empty string for all others."""
    if package not in BY_HAND or (SOURCES / package / VERSION).exists():
        return ""
    folder = SOURCES.relative_to(HERE.parents[1]) / package
    return (
        f"not on the package index; put its repository at {BY_HAND[package]} into {folder}, and this commit into {VERSION} there"
    )


def _unpack(package: str, version: str) -> str:
    """Download and unpack a package; return an error message, or an empty string."""
    folder = SOURCES / package
    stamp = folder / VERSION
    if stamp.exists() and stamp.read_text(encoding="utf-8") == version:
        return ""
    _create_ignored_root()
    shutil.rmtree(folder, ignore_errors=True)
    archives = folder / "archive"
    options = ("--no-deps", "--dest", str(archives), *OTHER_PYTHON.get(package, ()))
    error = _pip(sys.executable, "download", *QUIET, *options, f"{package}=={version}")
    if error:
        return error
    for archive in archives.iterdir():
        _extract_python(archive, folder)
    shutil.rmtree(archives)
    stamp.write_text(version, encoding="utf-8")
    return ""


def _extract_python(archive: Path, folder: Path) -> None:
    """Extract the Python files of an archive; of a source distribution, leave out the top-level folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(folder, [name for name in packed.namelist() if name.endswith(".py")])
        return
    with tarfile.open(archive) as packed:
        for member in packed.getmembers():
            member.name = member.name.partition("/")[2]
            if member.isfile() and member.name.endswith(".py"):
                packed.extract(member, folder, filter="data")


def _create_ignored_root() -> None:
    ROOT.mkdir(exist_ok=True)
    (ROOT / ".gitignore").write_text("*\n", encoding="utf-8")


def _pip(python: str, *arguments: str) -> str:
    return _run([python, "-m", "pip", *arguments], env={**os.environ, **BUILD})


def _run(command: list[str], **options: dict[str, str]) -> str:
    """Run a command; if it fails, return the last line of its output or, without output, the exit status; otherwise ""."""
    process = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    return "" if process.returncode == 0 else last_line(process.stderr or process.stdout) or f"exit status {process.returncode}"


def last_line(text: str) -> str:
    """Return the last line that is not blank; an empty string if all lines of *text* are blank."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
