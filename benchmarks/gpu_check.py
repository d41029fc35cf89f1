"""
Run the tests and benchmarks that require a GPU, and write one JSON file.

Each library has a process of its own, so that none occupies memory that another needs, and a share of the time. Failures, and
rows for which no time remained, are recorded with the results.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from gpu_bounds import bounds

from ampscale.files import write_atomically

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
SECONDS = {"cupy": 80, "torch": 80, "jax": 130}  # for the rows of each library
ANSWER, LAST_ROW = 30, 30  # seconds to report the device, and to finish a row that was started before the deadline
TESTS, ALL = 150, 470
NO_DEVICE = "gpu_check: neither CuPy nor torch nor JAX finds a CUDA device here; nothing was run or written"
RED, PLAIN = ("\033[31m", "\033[0m") if sys.stdout.isatty() else ("", "")

Row = dict[str, Any]


def main() -> int:
    """Run everything; return 0 if all tests pass and all bounds are measured and met, 2 without a GPU, and otherwise 1."""
    deadline, devices, failures = time.monotonic() + ALL, {}, []
    for library in SECONDS:
        answers, failed = asked(library, "device", ANSWER, deadline)
        devices[library] = answers[-1] if answers else None
        failures += failed
    libraries = [library for library in SECONDS if devices[library]]
    if not libraries:
        print(NO_DEVICE, *failures, file=sys.stderr, sep="\n")
        return 2
    print(f"{devices[libraries[0]]}, seen by {', '.join(libraries)}; the tests first", flush=True)
    tests, rows = run_tests(), []
    for library in libraries:
        answers, failed = asked(library, "rows", SECONDS[library], deadline)
        rows += [row for row in answers if "failure" not in row]
        failures += [row["failure"] for row in answers if "failure" in row] + failed
    failures += [f"{described(row)}: not replayed: {row['not_replayed']}" for row in rows if "not_replayed" in row]
    results = bounds(rows, tests)
    path = write({"device": devices[libraries[0]], "tests": tests, "bounds": results, "failures": failures, "rows": rows})
    print(table(rows), verdict(results), *failures, sep="\n")
    print(f"tests: { ({name: tests[name] for name in tests if name != 'outcomes'}) }; written: {path.relative_to(ROOT)}")
    passed = tests["exit status"] == 0 and tests["passed"]
    return 0 if passed and not failures and all(bound["met"] for bound in results) else 1


def asked(library: str, question: str, seconds: float, deadline: float) -> tuple[list[Any], list[str]]:
    """Run gpu_rows.py for a library in a new process; return its results, also those before a failure, and the failures."""
    seconds = max(1, min(seconds, deadline - LAST_ROW - time.monotonic()))
    command = [sys.executable, str(Path(__file__).with_name("gpu_rows.py")), library, question, str(seconds)]
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    failures, limit = [], seconds + LAST_ROW
    try:
        done = subprocess.run(command, env=environment, timeout=limit, stdout=subprocess.PIPE, check=False)
        output = done.stdout
        if done.returncode:
            failures.append(f"{library}: {question}: exit status {done.returncode}")
    except subprocess.TimeoutExpired as late:
        output = late.stdout or b""
        failures.append(f"{library}: {question}: stopped after {limit:.0f} seconds")
    complete = output[: output.rfind(b"\n") + 1]
    return [json.loads(line) for line in complete.splitlines()], failures


def run_tests() -> dict[str, Any]:
    """Run the tests marked `device`; return the counts and the outcome of each test."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ["-m", "device", "-q", "-p", "no:cacheprovider", "--continue-on-collection-errors", f"--junitxml={report}"]
        command = [sys.executable, "-m", "pytest", "tests", *options]
        try:
            status: int | str = subprocess.run(command, cwd=ROOT, timeout=TESTS, check=False).returncode
        except subprocess.TimeoutExpired:
            status = f"not done after {TESTS} seconds"
        return {**outcomes(report.read_text() if report.exists() else "<testsuites/>"), "exit status": status}


def outcomes(report: str) -> dict[str, Any]:
    """Return the counts of a JUnit report, and for each test name the worst outcome of its cases."""
    order = ("passed", "skipped", "failed", "error")
    kinds = {"skipped": "skipped", "failure": "failed", "error": "error"}
    worst: dict[str, str] = {}
    counts = dict.fromkeys(order, 0)
    for case in ElementTree.fromstring(report).iter("testcase"):
        outcome = max([kinds[child.tag] for child in case if child.tag in kinds], key=order.index, default="passed")
        name = case.get("name", "").partition("[")[0]
        counts[outcome] += 1
        worst[name] = max(worst.get(name, "passed"), outcome, key=order.index)
    return {**counts, "outcomes": worst}


def write(report: dict[str, Any]) -> Path:
    """Write the result file, which is named after the device."""
    when = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "versions": {"python": sys.version.split()[0], **versions()}}
    path = RESULTS / f"gpu-{re.sub(r'[^a-z0-9]+', '-', report['device'].lower()).strip('-')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps({**when, **report}, indent=1) + "\n")
    return path


def versions() -> dict[str, str]:
    """Return the versions of the measured packages, by name."""
    names = re.compile(r"ampscale|numpy|ml.dtypes|array.api.compat|cupy.*|torch|jax(lib)?|nvidia.cuda.(runtime|nvrtc).*")
    return {name: each.version for each in distributions() if names.fullmatch(name := each.metadata["Name"])}


def table(rows: list[Row]) -> str:
    """Return the rows as a text table, with the operations of a first and of a later call."""
    lines = [f"{'library':8}{'way':20}{'function':36}{'arrays':28}{'ms':>10}{'replayed':>10}{'over copy':>11}  operations"]
    for row in rows:
        arrays = f"{row['arrays']} {row['dtype']}"
        replayed = f"{row['replayed_ms']:10.4f}" if "replayed_ms" in row else " " * 10
        lines.append(
            f"{row['library']:8}{row['way']:20}{row['function']:36}{arrays:28}{row['ms']:10.4f}{replayed}"
            f"{row['over_copy']:11.2f}  {operations_text(row.get('operations'))}"
            f"{operations_text(row.get('first_call'), ', first call ')}"
        )
    return "\n".join(lines)


def described(row: Row) -> str:
    """Return a description of a row."""
    return ", ".join(row[key] for key in ("library", "way", "function", "arrays", "dtype"))


def operations_text(operations: dict[str, int] | int | None, before: str = "") -> str:
    """Return the counts of operations as text."""
    if operations is None:
        return ""
    many = operations if isinstance(operations, dict) else {"operations": operations}
    return before + ", ".join(f"{count} {name}" for name, count in many.items() if count)


def verdict(results: list[Row]) -> str:
    """Return the bounds that are not met, the most important last, and the number of those that are met."""
    missed = [bound for bound in reversed(results) if bound["met"] is False]
    lines = [f"{RED}NOT MET  {bound['id']}: {shown(bound['value'])}, {bound['bound']}{PLAIN}" for bound in missed]
    unknown = [bound["id"] for bound in results if bound["met"] is None]
    lines += [f"{len(unknown)} not measured: {', '.join(unknown[:8])}{' ...' if len(unknown) > 8 else ''}"] if unknown else []
    return "\n".join([*lines, f"{sum(bound['met'] is True for bound in results)} of {len(results)} bounds met"])


def shown(value: float | str) -> str:
    """Return a number with four significant digits."""
    return value if isinstance(value, str) else f"{value:.4g}"


if __name__ == "__main__":
    sys.exit(main())
