"""
Run the tests with the oldest or the newest supported packages: `make test-oldest`, `make test-newest`.

    python tools/release/supported.py oldest|newest [--libraries NAME...] [--record] [PYTEST OPTIONS...]

The interpreter is the one that runs this script. The oldest versions are the lower bounds in pyproject.toml; the newest are what
pip installs without constraints. With --record, the result replaces the row of the same packages, Python and libraries in
supported.json, from which `supported_page.py` writes docs/supported.md.
"""

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULT = Path(__file__).with_name("supported.json")
EXTRAS = ("numpy", "torch", "jax", "numba", "cli")  # extras for users, except mpi, whose oldest version has no wheels
LISTED = ("numpy", "array-api-compat", "torch", "jax", "optax", "ml_dtypes", "autograd", "numba", "mpi4py")
RAISED = {"jax": {"numpy": "2.0.0", "matplotlib": "3.9.0"}}  # JAX requires NumPy 2, which requires Matplotlib 3.9
TAG = f"{sys.version_info.major}.{sys.version_info.minor}" + ("t" if sysconfig.get_config_var("Py_GIL_DISABLED") else "")
BIN = "Scripts" if os.name == "nt" else "bin"


def main() -> int:
    """Run the tests in each environment, and return 1 if some fail."""
    parser = argparse.ArgumentParser(description="Run the tests with the oldest or the newest supported packages.")
    parser.add_argument("packages", choices=("oldest", "newest"))
    parser.add_argument("--libraries", nargs="+", default=["numpy", "torch", "jax"], choices=("numpy", "torch", "jax"))
    parser.add_argument("--record", action="store_true", help="store the result in supported.json")
    arguments, options = parser.parse_known_args()
    groups = [arguments.libraries]
    if arguments.packages == "oldest" and "jax" in arguments.libraries:  # JAX requires newer packages than the others
        groups = [[name for name in arguments.libraries if name != "jax"], ["jax"]]
    statuses = [test(arguments.packages, libraries, options, recorded=arguments.record) for libraries in groups if libraries]
    return int(any(statuses))


def test(packages: str, libraries: list[str], options: list[str], *, recorded: bool) -> int:
    """Run the tests in one environment, and return their exit status."""
    folder = ROOT / ".venv-supported" / "-".join([packages, TAG, *libraries])
    install(folder, packages, libraries)
    if packages == "oldest":  # old packages use features that newer packages deprecate
        options = ["-W", "ignore::DeprecationWarning", *options]
    # The tests of tools compare committed results, among them the one that this run replaces.
    command = [str(folder / BIN / "python"), "-m", "pytest", "-m", "not slow", "--ignore", "tests/tools", *options]
    environment = {**os.environ, "AMPSCALE_TEST_LIBRARIES": " ".join(libraries), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["TF_CPP_MIN_LOG_LEVEL"] = "3"  # JAX 0.8 logs on stderr, which tests read
    lines = []
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            lines.append(line)
            sys.stdout.write(line)
    if recorded and process.returncode in (0, 1):  # other statuses mean an interruption or a usage error
        record(row(packages, libraries, versions(folder / BIN / "python"), "".join(lines)))
    return process.returncode


def oldest(libraries: list[str]) -> dict[str, str]:
    """Return the lower bounds of the required packages and of those in `EXTRAS`, by name. *libraries* raise some: `RAISED`."""
    requirements = []
    for file in (ROOT / "pyproject.toml", ROOT / "conformance" / "pyproject.toml"):
        project = tomllib.loads(file.read_text("utf-8"))["project"]
        requirements += project["dependencies"]
        for extra in EXTRAS:
            requirements += project["optional-dependencies"].get(extra, ())
    matches = (re.match(r"([\w-]+)>=([\d.]+)", requirement) for requirement in requirements)
    bounds = {match[1]: match[2] for match in matches if match}
    return bounds | {name: bound for library in libraries for name, bound in RAISED.get(library, {}).items()}


def install(folder: Path, packages: str, libraries: list[str]) -> None:
    """Create the environment if it is missing, and install the chosen versions."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    constraints = folder / "constraints.txt"
    bounds = oldest(libraries) if packages == "oldest" else {}
    constraints.write_text("".join(f"{name}=={bound}\n" for name, bound in bounds.items()), "utf-8")
    extras = ",".join(["test", "numba", *libraries])
    projects = ["--editable", f".[{extras}]", "--editable", "./conformance[pytest,random]"]
    command = [str(folder / BIN / "python"), "-m", "pip", "install", "--quiet", "--upgrade", "--upgrade-strategy", "eager"]
    subprocess.run([*command, "--constraint", str(constraints), *projects], cwd=ROOT, check=True)


def versions(python: Path) -> dict[str, str]:
    """Return the versions of the listed packages that an environment contains."""
    output = subprocess.run([python, "-m", "pip", "list", "--format", "json"], check=True, capture_output=True, text=True)
    installed = {package["name"].lower(): package["version"] for package in json.loads(output.stdout)}
    return {name: installed[name] for name in LISTED if name in installed}


def row(packages: str, libraries: list[str], installed: dict[str, str], output: str) -> dict[str, Any]:
    """Return the result of one run, with the counts of pytest's last line and the ids of the tests that failed."""
    counts = {kind: int(count) for count, kind in re.findall(r"(\d+) (passed|failed|skipped|errors?)", output.splitlines()[-1])}
    return {
        "packages": packages,
        "python": platform.python_version() + TAG.lstrip("0123456789."),
        "system": f"{platform.system()} {platform.machine()}",
        "libraries": libraries,
        "versions": installed,
        "counts": counts,
        "failures": re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE),
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
    }


def record(result: dict[str, Any]) -> None:
    """Store a result. It replaces the result with the same packages, minor version of Python and libraries."""
    stored = json.loads(RESULT.read_text("utf-8")) if RESULT.exists() else {"runs": [], "not_run": {}}
    rows = {key(run): run for run in [*stored["runs"], result]}
    stored["runs"] = [rows[name] for name in sorted(rows)]
    RESULT.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", "utf-8")


def key(result: dict[str, Any]) -> tuple[str, int, bool, str]:
    """Return the key that identifies a result, and sorts the table."""
    minor = int(result["python"].split(".")[1])
    return result["packages"], minor, result["python"].endswith("t"), " ".join(result["libraries"])


if __name__ == "__main__":
    sys.exit(main())
