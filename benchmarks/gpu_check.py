"""
What a machine with a GPU has to say: the tests that need one, and what the fused passes cost, in one JSON file.

The floor of a row is the time in which the device copies as many bytes as the row must move, measured in the same process.
Each library has a process of its own, so that none holds memory that another needs; one that fails is noted beside the others.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
LIBRARIES = ("cupy", "torch", "jax")
BUDGET, TESTS_BUDGET = 450, 270  # seconds
NO_DEVICE = "gpu_check: neither CuPy nor torch nor JAX finds a CUDA device here: nothing was run, and nothing was written"

Row = dict[str, Any]


def main() -> int:
    """Runs everything. 0 where all tests passed and every library with a device was measured, 1 where not, 2 without a GPU."""
    deadline = time.monotonic() + BUDGET
    devices, failures = asked(LIBRARIES, "device", deadline)
    if not any(devices.values()):
        print(NO_DEVICE, *failures.values(), file=sys.stderr, sep="\n")
        return 2
    found = [library for library in LIBRARIES if devices.get(library)]
    device = devices[found[0]]
    print(f"{device}, seen by {', '.join(found)}; the tests first", flush=True)
    tests = run_tests()
    answers, unmeasured = asked(found, "rows", deadline)
    rows = [row for library in answers for row in answers[library]]
    failures |= unmeasured
    path = write(device, tests, rows, failures)
    print(table(rows))
    print(f"tests: {tests}; not measured: {failures or 'nothing'}; written: {path.relative_to(ROOT)}")
    return 0 if tests["exit status"] == 0 and tests["passed"] and not failures else 1


def asked(libraries: Iterable[str], question: str, deadline: float) -> tuple[dict[str, Any], dict[str, str]]:
    """What gpu_rows.py answers for each library, in a process of its own, so that none holds memory; and what went wrong."""
    answers, failures = {}, {}
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    for library in libraries:
        command = [sys.executable, str(Path(__file__).with_name("gpu_rows.py")), library, question]
        left = max(deadline - time.monotonic(), 1)
        try:
            done = subprocess.run(command, env=environment, timeout=left, stdout=subprocess.PIPE, check=True, text=True)
            answers[library] = json.loads(done.stdout.splitlines()[-1])
        except subprocess.SubprocessError as error:
            failures[library] = str(error)
    return answers, failures


def run_tests() -> dict[str, Any]:
    """How many of the tests marked `device` passed, and how many did not."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "tests", "-m", "device", "-q", f"--junitxml={report}"]
        try:
            status: int | str = subprocess.run(command, cwd=ROOT, timeout=TESTS_BUDGET, check=False).returncode
        except subprocess.TimeoutExpired:
            status = f"not done after {TESTS_BUDGET} seconds"
        return {**counts(report.read_text() if report.exists() else "<testsuites/>"), "exit status": status}


def counts(report: str) -> dict[str, int]:
    """The numbers of a JUnit report."""
    suites = list(ElementTree.fromstring(report).iter("testsuite"))
    total, failed, errors, skipped = (
        sum(int(suite.get(kind, 0)) for suite in suites) for kind in ("tests", "failures", "errors", "skipped")
    )
    return {"passed": total - failed - errors - skipped, "failed": failed, "errors": errors, "skipped": skipped}


def write(device: str, tests: dict[str, Any], rows: list[Row], failures: dict[str, str]) -> Path:
    """The one file, under the device's name."""
    report = {
        "device": device,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": sys.version.split()[0], **versions()},
        "tests": tests,
        "rows": rows,
        "failures": failures,
    }
    path = RESULTS / f"gpu-{re.sub(r'[^a-z0-9]+', '-', device.lower()).strip('-')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
    return path


def versions() -> dict[str, str]:
    """The versions of the packages that matter, by name."""
    wanted = re.compile(r"ampscale|numpy|ml.dtypes|array.api.compat|cupy.*|torch|jax(lib)?|nvidia.cuda.(runtime|nvrtc).*")
    return {name: found.version for found in distributions() if wanted.fullmatch(name := found.metadata["Name"])}


def table(rows: list[Row]) -> str:
    """The rows to be read."""
    lines = [f"{'library':8}{'verb':44}{'arrays':34}{'ms':>10}{'over the floor':>16}"]
    for row in rows:
        ratio = f"{row['ratio']:16.2f}" if row["ratio"] else " " * 16
        lines.append(f"{row['library']:8}{row['verb']:44}{row['arrays']:34}{row['ms']:10.3f}{ratio}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
