"""
Run all cases against all shipped adapters: `make conform-matrix`.

The published packages run in the environments under .venv-oracles, which `make test-oracles` also creates and uses; ampscale
runs in the environment of this script. The snippet of every failure is executed in the same environment, up to three times,
and the result records whether it reproduced the failure. The results are written to conformance/docs/matrix.json, and as a
page to conformance/docs/matrix.html.

Failures of published packages are expected results. The exit status is 1 if an adapter of ampscale itself fails a case, or if a
snippet does not reproduce its failure. A package that cannot be installed has a row with the reason.
"""

import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
sys.path.insert(0, str(REPOSITORY / "tools"))

from ampscale_conformance import ImplementationInfo, Report, Result, Verdict  # noqa: E402
from ampscale_conformance.adapters import SHIPPED  # noqa: E402
from ampscale_conformance.reports import matrix  # noqa: E402
from ampscale_conformance.reports.page import render  # noqa: E402
from ampscale_conformance.reports.snippet import reproduced  # noqa: E402
from environments import environments  # noqa: E402

from ampscale.files import write_atomically  # noqa: E402

# Adapters by environment, slow ones first. All other adapters are ampscale's own.
ENVIRONMENTS = {
    "mindspore": ("mindspore", "mindspore-cell"),
    "jax": ("flax", "optax", "keras", "jmp"),
    "paddle": ("paddle", "paddle-as-it-is"),
    "torch": ("torch", "torch-fsdp1", "lightning", "accelerate", "deepspeed", "megatron"),
}
OWN = tuple(name for name in SHIPPED if name.startswith("ampscale-") and (name != "ampscale-cupy" or find_spec("cupy")))
SECONDS, CASE_SECONDS = 1800.0, 300.0  # time limits of all cases of an adapter, and of one case
AT_ONCE = 2
ATTEMPTS = 3  # runs of a snippet: a fault of MindSpore depends on where deleted objects were in memory
PATHS = os.pathsep.join(str(REPOSITORY / folder) for folder in ("src", "conformance/src"))


def main() -> int:
    """Create missing environments, run all adapters, write matrix.json and matrix.html, and return the exit status."""
    started = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = [pool.submit(row, name, python, problem) for name, python, problem in adapters()]
        rows = [job.result() for job in jobs]
    result = matrix.of(rows, spec="../../spec")
    write_atomically(REPOSITORY / "conformance" / "docs" / "matrix.json", result.to_json() + "\n")
    write_atomically(REPOSITORY / "conformance" / "docs" / "matrix.html", render.html_of(result))
    problems = list(failures(rows))
    sys.stdout.write("".join(f"{line}\n" for line in [*map(summary, rows), *problems]))
    sys.stdout.write(f"{len(rows)} implementations in {time.perf_counter() - started:.0f} s\n")
    return 1 if problems else 0


def adapters() -> Iterator[tuple[str, str, str]]:
    """Yield the name of each adapter, the path of its interpreter, and the reason why the interpreter is missing, or ""."""
    problems = {name: environments.make(name) for name in ENVIRONMENTS}
    for environment, names in ENVIRONMENTS.items():
        for name in names:
            yield name, str(environments.python_of(environment)), problems[environment]
    for name in OWN:
        yield name, sys.executable, ""


def row(name: str, python: str, problem: str = "", seconds: float = SECONDS) -> dict[str, Any]:
    """Run one adapter and its snippets, and return the report as a JSON object; if the adapter cannot run, see `not_run`."""
    if problem:
        return not_run(name, Verdict.UNSUPPORTED, f"the environment of this adapter could not be created: {problem}")
    command = [python, "-W", "ignore", "-m", "ampscale_conformance", name, "--json", "--seconds", str(CASE_SECONDS)]
    environment = {**os.environ, "PYTHONPATH": PATHS}
    with tempfile.TemporaryDirectory() as folder:  # MindSpore writes files to the working directory if a compilation fails
        options: dict[str, Any] = {"cwd": folder, "env": environment, "timeout": seconds}
        try:
            process = subprocess.run(command, capture_output=True, text=True, check=False, **options)
        except subprocess.TimeoutExpired:
            return not_run(name, Verdict.TIMEOUT, f"no report after {seconds:g} s")
    if process.returncode not in (0, 1) or not process.stdout:
        verdict = Verdict.UNSUPPORTED if process.returncode == 2 else Verdict.CRASH  # 2: the adapter or its package is missing
        return not_run(name, verdict, environments.last_line(process.stderr) or f"exit status {process.returncode}")
    # Errors of call orders name files below the repository, whose own path differs between machines.
    report: dict[str, Any] = json.loads(process.stdout.replace(f"{REPOSITORY}/", ""))
    for result in report["results"]:
        if result["snippet"]:
            result["reproduced"] = any(reproduced(result["snippet"], python) for _ in range(ATTEMPTS))
    return report


def not_run(name: str, verdict: Verdict, message: str) -> dict[str, Any]:
    """Return the report of an adapter that could not be run: its only result has the reason."""
    result = Result("", "can-be-run", verdict, message)
    report: dict[str, Any] = json.loads(Report(ImplementationInfo(name=name), (result,)).to_json())
    return report


def summary(report: dict[str, Any]) -> str:
    """Return one line with the counts of a report."""
    info = report["implementation"]
    counts = ", ".join(f"{count} {verdict}" for verdict, count in report["counts"].items())
    return f"{info['name']} {info['version']}: {counts}"


def failures(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each problem that makes the run fail."""
    for report in rows:
        name = report["implementation"]["name"]
        if name.startswith("ampscale") and not report["ok"]:
            yield f"{name} fails cases"
        yield from (
            f"{name}: {result['case']} is not reproduced" for result in report["results"] if result["reproduced"] is False
        )


if __name__ == "__main__":
    sys.exit(main())
