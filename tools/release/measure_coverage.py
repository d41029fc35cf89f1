"""
Measure which lines and branches of both distributions the tests run: `make coverage`.

    python tools/release/measure_coverage.py [--packages] [--record] [PYTEST OPTIONS...]

Processes that the tests start are measured, too. With --packages, so is the conformance suite on the published packages, in the
environments of `make conform-matrix`, because the adapters of these packages run nowhere else. The script prints the lines and
branches that no test reaches, and exits with 1 if a folder is below its bound. With --record, it stores the result in
coverage.json.
"""

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "conformance" / "tests")]

matrix = import_module("matrix.run")

RESULT = Path(__file__).with_name("coverage.json")
DATA = ROOT / "build" / "coverage"
COMPLETE = ("ampscale/core", "ampscale/frameworks", "ampscale/presets.py", "ampscale/checkpoints")  # their bound is 100 %
LISTED = ("numpy", "torch", "jax", "numba", "coverage")
COUNTS = ("lines", "missed_lines", "branches", "missed_branches")
Files = dict[str, dict[str, Any]]  # the "files" of a report of coverage.py


def main() -> int:
    """Run the tests, print the report, and return the exit status."""
    parser = argparse.ArgumentParser(description="Measure which lines and branches the tests run.")
    parser.add_argument("--packages", action="store_true", help="also run the suite on the published packages; takes minutes")
    parser.add_argument("--record", action="store_true", help="store the result in coverage.json")
    arguments, options = parser.parse_known_args()
    for file in DATA.glob("data*"):
        file.unlink()
    output = run("run", "-m", "pytest", *options)
    if arguments.packages:
        measure_packages()
    run("combine", "--quiet")
    run("json", "--quiet")
    files = json.loads((DATA / "report.json").read_text("utf-8"))["files"]
    measured = folders(files)
    sys.stdout.writelines(f"{line}\n" for line in [*unreached(files), *summary(measured)])
    if arguments.record:
        RESULT.write_text(json.dumps(result(measured, output), indent=1) + "\n", "utf-8")
    return int(any(percent(counts) < bound(folder) for folder, counts in measured.items()))


def run(*arguments: str) -> str:
    """Run a command of coverage.py, and return its output, which is also printed."""
    lines = []
    command = [sys.executable, "-m", "coverage", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            lines.append(line)
            sys.stdout.write(line)
    return "".join(lines)


def measure_packages() -> None:
    """Run the conformance suite on every published package, with the installation of coverage.py that runs this script."""
    import coverage

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(matrix.AT_ONCE) as pool:
        Path(folder, "coverage").symlink_to(Path(coverage.__file__).parent)
        # Python imports sitecustomize when it starts: as in this environment, processes that a package starts are measured.
        Path(folder, "sitecustomize.py").write_text("import coverage\ncoverage.process_startup()\n", "utf-8")
        packages = [adapter for adapter in matrix.adapters() if adapter[0] not in matrix.OWN]
        sys.stdout.writelines(f"{name}: {problem}\n" for name, _, problem in packages if problem)
        jobs = [pool.submit(measure_package, name, python, folder) for name, python, problem in packages if not problem]
        for job in jobs:
            job.result()


def measure_package(name: str, python: str, folder: str) -> None:
    """Run the conformance suite on one package, and print the exit status, which is 1 if cases fail."""
    command = [python, "-W", "ignore", "-m", "coverage", "run", "-m", "ampscale_conformance", name]
    command += ["--seconds", str(matrix.CASE_SECONDS)]
    variables = {"COVERAGE_FILE": str(DATA / "data"), "COVERAGE_RCFILE": str(ROOT / "pyproject.toml")}
    variables["PYTHONPATH"] = os.pathsep.join([folder, matrix.PATHS])
    process = subprocess.run(command, cwd=folder, env={**os.environ, **variables}, capture_output=True, check=False)
    sys.stdout.write(f"{name}: exit status {process.returncode}\n")


def folders(files: Files) -> dict[str, dict[str, int]]:
    """Return the counts of each folder of a distribution; `presets.py` is counted like a folder."""
    totals: dict[str, dict[str, int]] = {}
    for file, report in sorted(files.items()):
        parts = PurePath(file).parts
        distribution, *inner = parts[parts.index("src") + 1 :]
        folder = inner[0] if len(inner) > 1 or inner == ["presets.py"] else ""
        counts = totals.setdefault(f"{distribution.removesuffix('_pytest.py')}/{folder}".rstrip("/"), dict.fromkeys(COUNTS, 0))
        for name, key in zip(COUNTS, ("num_statements", "missing_lines", "num_branches", "missing_branches"), strict=True):
            counts[name] += report["summary"][key]
    return totals


def unreached(files: Files) -> list[str]:
    """Return a line for each file with lines or branches that no test reaches."""
    reports = []
    for file, report in sorted(files.items()):
        lines = [str(line) for line in report["missing_lines"]]
        branches = [f"{start}->{end}" for start, end in report["missing_branches"] if start not in report["missing_lines"]]
        if lines or branches:
            reports.append(f"{file}: {' '.join([*lines, *branches])}")
    return reports


def summary(measured: dict[str, dict[str, int]]) -> list[str]:
    """Return a line with the share and the bound of each folder."""
    return [f"{folder}: {percent(counts):.2f} %, bound {bound(folder)} %" for folder, counts in measured.items()]


def percent(counts: dict[str, int]) -> float:
    """Return the share of lines and branches that the tests reach, in percent."""
    total = counts["lines"] + counts["branches"]
    return 100 - 100 * (counts["missed_lines"] + counts["missed_branches"]) / total if total else 100.0


def bound(folder: str) -> int:
    """Return the lower bound of a folder in percent."""
    return 100 if folder in COMPLETE else 95


def result(measured: dict[str, dict[str, int]], output: str) -> dict[str, Any]:
    """Return the contents of coverage.json."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True)
    return {
        "command": "make coverage",
        "commit": commit.stdout.strip(),
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in LISTED},
        "tests": {kind: int(count) for count, kind in re.findall(r"(\d+) (passed|skipped|failed|errors?)", output)},
        "folders": {folder: {**counts, "percent": round(percent(counts), 2)} for folder, counts in measured.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
