"""
Run the tests and benchmarks that require a GPU: `python gpu_check.py [FOLDER]` writes one JSON file into the folder.

Each library has a share of the time and a separate process, so that no library occupies memory that another needs. Failures,
and rows for which no time remained, are recorded with the results.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from threading import Timer

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
REQUIRED = ("numpy", "array_api_compat", "ml_dtypes")
REQUIRED_BY_TESTS = ("pytest", "hypothesis", "xdist", "array_api_strict", "autograd", "jsonschema")
ALL_SECONDS = 470  # for everything
DEVICE_SECONDS = 30  # for reporting the device
TEST_SECONDS = 150
ROW_SECONDS = {"cupy": 80, "torch": 80, "jax": 130}  # for the rows of each library
LAST_ROW_SECONDS = 30  # for finishing a row that was started before the deadline
TESTED = (
    "tests/backends",
    "tests/frameworks/torch",
    "tests/distributed/test_devices.py",
    "conformance/tests/model/test_arrays.py",
)
NO_DEVICE = "gpu_check: neither CuPy nor torch nor JAX finds a CUDA device here; nothing was run or written"


def main(folder: Path = RESULTS) -> int:
    """Run everything; return 0 if all that can be run succeeds, 2 without a GPU or a required package, and otherwise 1."""
    deadline = time.monotonic() + ALL_SECONDS
    missing = [name for name in (*REQUIRED, *REQUIRED_BY_TESTS) if find_spec(name) is None]
    if missing:
        print(f"gpu_check: packages that are not installed: {', '.join(missing)}", file=sys.stderr, flush=True)
    if set(missing) & set(REQUIRED):
        return 2
    from gpu_report import Report, parsed, table, verdict  # requires the packages in REQUIRED

    devices: dict[str, str] = {}
    failures: list[str] = []
    for library in ROW_SECONDS:
        answers: list[str] = []
        failures += run(f"{library}: device", rows_command(library, "device"), DEVICE_SECONDS, answers.append)
        names = [name for name in map(parsed, answers) if isinstance(name, str)]
        if names:
            devices[library] = names[-1]
    if not devices:
        print(NO_DEVICE, *failures, file=sys.stderr, sep="\n")
        return 2
    report = Report(next(iter(devices.values())), failures, folder)
    print(f"{', '.join(devices)}: {report.path}", flush=True)
    failures += run("tests", tests_command(missing), TEST_SECONDS, report.add_test)
    if not report.tests["passed"]:
        failures.append("tests: none passed")
    report.write()
    for library in devices:
        seconds = max(1, min(ROW_SECONDS[library], deadline - LAST_ROW_SECONDS - time.monotonic()))
        command = rows_command(library, "rows", str(seconds))
        failures += run(f"{library}: rows", command, seconds + LAST_ROW_SECONDS, report.add_row)
        report.write()
    print(table(report.rows), verdict(report), sep="\n")
    return 1 if report.failed() else 0


def rows_command(*arguments: str) -> list[str]:
    """Return the command that runs gpu_rows.py."""
    return [sys.executable, str(Path(__file__).with_name("gpu_rows.py")), *arguments]


def tests_command(missing: list[str]) -> list[str]:
    """Return the command that runs the tests marked `device`, in eight processes if pytest-xdist is installed."""
    options = ["-m", "device", "-v", "-rN", "--tb=short", "--continue-on-collection-errors"]
    options += ["-p", "no:cacheprovider", "-p", "no:benchmark"]  # pytest-benchmark warns if there are several processes
    if "xdist" not in missing:
        options += ["-n", "8"]
    return [sys.executable, "-m", "pytest", *TESTED, *options]


def run(part: str, command: list[str], seconds: float, use: Callable[[str], None]) -> list[str]:
    """Run a command, pass each line that it prints to *use* at once, and return its failure, if any."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    pipe = {"stdout": subprocess.PIPE, "encoding": "utf-8", "errors": "replace"}
    start = time.monotonic()
    with subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **pipe) as process:
        timer = Timer(seconds, os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        try:
            for line in process.stdout:
                if line.endswith("\n"):
                    use(line.rstrip("\n"))
        finally:
            timer.cancel()
    if time.monotonic() - start >= seconds:
        return [f"{part}: stopped after {seconds:.0f} seconds"]
    return [f"{part}: exit status {process.returncode}"] if process.returncode else []


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
