"""
Build both distributions as for a release, and test the built files: `make release-check`.

1. Both distributions are built twice from the last commit, in two folders, time zones and umasks, and must have the same bytes.
2. Their versions must be those of the source and of CITATION.cff; `twine check --strict` must accept their metadata.
3. The wheels are installed in a new environment; the conformance suite runs in an empty folder, as a command and under pytest.

The files are left in dist/release, and their SHA256SUMS in dist. The exit status is 1 if a step fails.
"""

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
OUT = ROOT / "dist" / "release"
BIN = "Scripts" if os.name == "nt" else "bin"
VERSIONS = {  # modules that define the versions
    "ampscale": "src/ampscale/__init__.py",
    "ampscale_conformance": "conformance/src/ampscale_conformance/__init__.py",
}


def main() -> int:
    """Run all steps and return the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            check(Path(folder))
        except CheckError as error:
            sys.stderr.write(f"release-check: {error}\n")
            return 1
    return 0


class CheckError(Exception):
    """Raised if a step of the check fails."""


def check(folder: Path) -> None:
    """Run all steps in an empty folder, and copy the distributions to OUT."""
    archive = run("git", "archive", "HEAD", cwd=ROOT, text=False).stdout
    built = build_twice(archive, folder)
    check_versions(built, ROOT, run("git", "tag", "--points-at", "HEAD", cwd=ROOT).stdout.split())
    check_metadata(built)
    install_and_test(built, folder)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    for file in built:
        shutil.copy(file, OUT)
    sums = "".join(f"{digest(file)}  {file.name}\n" for file in built)
    (OUT.parent / "SHA256SUMS").write_text(sums, "utf-8")  # not in OUT, which is uploaded as it is
    sys.stdout.write(sums)


def build_twice(archive: bytes, folder: Path) -> list[Path]:
    """Build both distributions twice from a tar archive of the source, and return the files of the first build."""
    builds = []
    for name, zone, umask in (("first", "UTC", 0o022), ("second/deeper", "Asia/Shanghai", 0o077)):
        source, out = folder / name / "source", folder / name / "dist"
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(source, filter="data")
        for project in (source, source / "conformance"):
            variables = {"TZ": zone, "SOURCE_DATE_EPOCH": ""}
            run(sys.executable, "-m", "build", "--outdir", out, project, cwd=folder, variables=variables, umask=umask)
        builds.append(sorted(out.iterdir()))
    check_same_bytes(*builds)
    return builds[0]


def check_same_bytes(first: Sequence[Path], second: Sequence[Path]) -> None:
    """Check that two builds consist of files with the same names and bytes."""
    different = {(file.name, digest(file)) for file in first} ^ {(file.name, digest(file)) for file in second}
    if different:
        names = sorted({name for name, _ in different})
        raise CheckError(f"two builds must have the same bytes, got different {', '.join(names)}")


def check_versions(files: Sequence[Path], root: Path, tags: Sequence[str]) -> None:
    """Check that the file names have the versions of the source, and that CITATION.cff and the tag have the library's version."""
    versions = {name: version(root / file) for name, file in VERSIONS.items()}
    endings = ("-py3-none-any.whl", ".tar.gz")
    expected = {f"{name}-{number}{ending}" for name, number in versions.items() for ending in endings}
    if {file.name for file in files} != expected:
        raise CheckError(f"the files must be {sorted(expected)}, got {sorted(file.name for file in files)}")
    citation = re.findall(r"^version: (.*)$", (root / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    if citation != [versions["ampscale"]]:
        raise CheckError(f"CITATION.cff must have version {versions['ampscale']}, got {', '.join(citation) or 'none'}")
    if any(tag != f"v{versions['ampscale']}" for tag in tags):
        raise CheckError(f"the tag must be v{versions['ampscale']}, got {', '.join(tags)}")


def version(file: Path) -> str:
    """Return the version that a module assigns to `__version__`."""
    match = re.search(r'^__version__ = "(.+)"$', file.read_text("utf-8"), re.MULTILINE)
    if match is None:
        raise CheckError(f"{file} must assign __version__")
    return match[1]


def check_metadata(files: Sequence[Path]) -> None:
    """Check the metadata as the package index does."""
    run(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=ROOT)


def install_and_test(files: Sequence[Path], folder: Path) -> None:
    """Install the wheels in a new environment, and run the suite in an empty folder, as a command and under pytest."""
    empty = folder / "empty"
    empty.mkdir()
    python = install(files, folder / "env")
    code = "import ampscale, ampscale_conformance as suite; print(ampscale.__file__, suite.__file__)"
    for imported in run(python, "-c", code, cwd=empty).stdout.split():
        if not Path(imported).is_relative_to(folder / "env"):
            raise CheckError(f"packages must be imported from {folder / 'env'}, got {imported}")
    run(python, "-m", "pip", "check", cwd=empty)
    run(python.with_name("ampscale"), "conform", "ampscale-numpy", cwd=empty)
    options = ("--pyargs", "ampscale_conformance.suite", "--ampscale-adapter", "ampscale-numpy", "--ampscale-level", "1")
    run(python, "-m", "pytest", "-q", *options, cwd=empty)


def install(files: Sequence[Path], environment: Path) -> Path:
    """Create an environment with both wheels, and return its interpreter."""
    wheels = {file.name.partition("-")[0]: file for file in files if file.suffix == ".whl"}
    packages = (f"{wheels['ampscale']}[cli]", f"{wheels['ampscale_conformance']}[pytest,random]")
    run(sys.executable, "-m", "venv", environment, cwd=environment.parent)
    python = environment / BIN / "python"
    run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", *packages, cwd=environment.parent)
    return python


def run(*command: Any, cwd: Path, variables: dict[str, str] | None = None, **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run a command; raise an error with its output if it fails. Variables PYTHON* and those with an empty value are removed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | (variables or {})
    environment = {name: value for name, value in environment.items() if value}
    options = {"text": True, "capture_output": True, "timeout": 600, **options}
    process = subprocess.run(list(map(str, command)), cwd=cwd, env=environment, check=False, **options)
    if process.returncode:
        raise CheckError(f"{' '.join(map(str, command))} failed:\n{process.stdout}{process.stderr}")
    return process


def digest(file: Path) -> str:
    """Return the SHA-256 checksum of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
