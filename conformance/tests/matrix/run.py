"""
Every adapter that ships beside every case: `make conform-matrix`.

What runs is the published package itself, in the environment of its family under .venv-oracles, which `make test-oracles`
makes and uses too, and ampscale in the environment of this script. The snippet of every failure is executed there once more,
and the result says whether it was reproduced. What came out is written to
conformance/docs/matrix.json, and as a page to conformance/docs/matrix.html.

A failure of a published package is what the matrix is for, and none of this script. The exit status is 1 where an adapter of
ampscale itself does not pass, or where a snippet does not reproduce its failure. A package that cannot be had is a row with
the reason.
"""

import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
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

# The environment of each, the slow ones first; whatever is not named here is ampscale's own.
ENVIRONMENTS = {
    "mindspore": ("mindspore", "mindspore-cell"),
    "jax": ("flax", "optax", "keras", "jmp"),
    "paddle": ("paddle", "paddle-as-it-is"),
    "torch": ("torch", "deepspeed", "megatron"),
}
OWN = tuple(name for name in SHIPPED if name.startswith("ampscale-") and (name != "ampscale-cupy" or find_spec("cupy")))
SECONDS, CASE_SECONDS = 1800.0, 300.0  # for all of an adapter's cases, and for one
AT_ONCE = 2
PATHS = os.pathsep.join(str(REPOSITORY / folder) for folder in ("src", "conformance/src"))


def main() -> int:
    """Make what is missing, run all, write both files. Returns the exit status."""
    started = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = [pool.submit(row, name, python, trouble) for name, python, trouble in asked()]
        rows = [job.result() for job in jobs]
    made = matrix.of(rows, spec="../../spec")
    write_atomically(REPOSITORY / "conformance" / "docs" / "matrix.json", made.to_json() + "\n")
    write_atomically(REPOSITORY / "conformance" / "docs" / "matrix.html", render.html_of(made))
    wrong = list(failures(rows))
    sys.stdout.write("".join(f"{line}\n" for line in [*map(total, rows), *wrong]))
    sys.stdout.write(f"{len(rows)} implementations in {time.perf_counter() - started:.0f} s\n")
    return 1 if wrong else 0


def asked() -> Iterator[tuple[str, str, str]]:
    """Each adapter's name, its interpreter, and why that cannot be had."""
    troubles = {name: environments.make(name) for name in ENVIRONMENTS}
    for environment, names in ENVIRONMENTS.items():
        for name in names:
            yield name, str(environments.python_of(environment)), troubles[environment]
    for name in OWN:
        yield name, sys.executable, ""


def row(name: str, python: str, trouble: str = "", seconds: float = SECONDS) -> dict[str, Any]:
    """The report of one adapter as a JSON object, its snippets executed; or one that only says why there is none."""
    if trouble:
        return absent(name, Verdict.UNSUPPORTED, f"its environment could not be made: {trouble}")
    command = [python, "-W", "ignore", "-m", "ampscale_conformance", name, "--json", "--seconds", str(CASE_SECONDS)]
    environment = {**os.environ, "PYTHONPATH": PATHS}
    with tempfile.TemporaryDirectory() as folder:  # MindSpore writes where it is what it cannot compile
        run = partial(subprocess.run, cwd=folder, env=environment)
        try:
            done = run(command, capture_output=True, text=True, check=False, timeout=seconds)
        except subprocess.TimeoutExpired:
            return absent(name, Verdict.TIMEOUT, f"not done after {seconds:g} s")
    if done.returncode not in (0, 1) or not done.stdout:
        return absent(name, Verdict.CRASH, environments.last_line(done.stderr) or f"exit status {done.returncode}")
    report: dict[str, Any] = json.loads(done.stdout)
    if not report["implementation"]["version"]:
        return absent(name, Verdict.UNSUPPORTED, "it is not installed in its environment")
    for result in report["results"]:
        if result["snippet"]:
            result["reproduced"] = reproduced(result["snippet"], python)
    return report


def absent(name: str, verdict: Verdict, message: str) -> dict[str, Any]:
    """A report without cases."""
    result = Result("", "can-be-run", verdict, message)
    said: dict[str, Any] = json.loads(Report(ImplementationInfo(name=name), (result,)).to_json())
    return said


def total(report: dict[str, Any]) -> str:
    """One line."""
    info = report["implementation"]
    counts = ", ".join(f"{count} {verdict}" for verdict, count in report["counts"].items())
    return f"{info['name']} {info['version']}: {counts}"


def failures(rows: list[dict[str, Any]]) -> Iterator[str]:
    """What makes the run fail, a line for each."""
    for report in rows:
        name = report["implementation"]["name"]
        if name.startswith("ampscale") and not report["ok"]:
            yield f"{name} does not pass"
        yield from (
            f"{name}: {result['case']} is not reproduced" for result in report["results"] if result["reproduced"] is False
        )


if __name__ == "__main__":
    sys.exit(main())
