"""
Comparison of each preset with the published scaler that it describes: `make test-oracles`.

    python tools/oracles/compare.py [FAMILY...]

The published code itself is run: installed in a virtual environment of its own; or, if the package cannot be installed, the
class extracted from its published file and executed unchanged, or a kernel compiled for the host. Each object runs all 2**10
traces of ten steps under several settings: well inside the bounds, near the largest float32, near `min_scale` or zero, and
with factors such as 1.1 and 3. After every step the scale is compared bit by bit, and so are the counters that the object has. If
the object raises an error, the rule must return True from `would_raise`. For a class with defaults, one window of its default
length is run as well.

The environments are created once under .venv-oracles and take some gigabytes. The result is written to oracles.json there,
and to docs/oracles.md if no FAMILY is named. The page lists each mismatch, with its reason if one is known. The exit status
is 1 if there is a mismatch without a reason, a reason without a mismatch, an object that fails in a step, or a preset without
a comparison. A package that cannot be installed or imported is listed on the page and is not a failure. Apex and OneFlow are
not on the package index; if their sources are missing, the page states where to put them.
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
sys.path.insert(0, str(REPOSITORY / "tools"))

import page  # noqa: E402
from environments import environments  # noqa: E402

from ampscale.files import write_atomically  # noqa: E402
from ampscale.presets import PRESETS  # noqa: E402

# Drivers by family; each family has an environment of the same name. Slow drivers come first, since one runs on each core.
DRIVERS = {
    "mindspore": ("mindspore",),
    "paddle": ("paddle", "paddle_static", "paddle_static_old"),
    "tensorflow": ("tensorflow", "tensorflow_contrib"),
    "jax": ("flax", "jmp", "mpx", "keras"),
    "torch": (
        *("torch", "megatron", "deepspeed", "nemo", "colossalai", "fairseq", "fairseq2", "bmtrain"),
        *("keras_torch", "apex", "oneflow", "mxnet", "chainer", "onnxruntime"),
    ),
}
SECONDS = 1800
PATHS = os.pathsep.join(str(REPOSITORY / folder) for folder in ("src", "tools"))
NOT_COMPARED = {"paddle_document": "documentation without code"}


def main() -> int:
    """Create missing environments, compare, and write the results. Return the exit status."""
    parser = argparse.ArgumentParser(description="Compare each preset with the published scaler that it describes.")
    parser.add_argument("family", nargs="*", help=f"compare only these and do not write the page: {', '.join(DRIVERS)}")
    families = parser.parse_args().family
    started = time.perf_counter()
    unpack_errors = environments.unpack_sources()
    jobs = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name in families or DRIVERS:
            error = environments.make(name)
            jobs += [pool.submit(run, name, driver, error) for driver in DRIVERS[name]]
    result = {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "seconds": round(time.perf_counter() - started),
        "unpacking": unpack_errors,
        "not_compared": NOT_COMPARED,
        "rows": [row for job in jobs for row in job.result()],
    }
    result["failures"] = failures(result["rows"], () if families else PRESETS)
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    write_atomically(environments.ROOT / "oracles.json", text)
    if not families:
        write_atomically(REPOSITORY / "docs" / "oracles.md", page.of(result))
    sys.stdout.write(page.totals(result) + "\n" + "".join(f"  {line}\n" for line in result["failures"]))
    return 1 if result["failures"] else 0


def run(name: str, driver: str, error: str) -> list[dict[str, Any]]:
    """Run one driver in an environment, and return its rows; if *error* is not empty, return a row with this error instead."""
    error = error or environments.by_hand(driver)
    if error:
        return [{"driver": driver, "error": error}]
    variables = {"PYTHONPATH": PATHS, "AMPSCALE_ORACLE_SOURCES": str(environments.SOURCES)}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "rows.json")
        command = [str(environments.python_of(name)), "-W", "ignore", str(HERE / "runner.py"), str(out), driver]
        try:
            environment = os.environ | variables | {"TMPDIR": folder}  # so that what drivers compile is removed, too
            process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return [{"driver": driver, "error": f"not done after {SECONDS} s"}]
        sys.stdout.write(f"{driver}\n")
        if out.exists():
            return json.loads(out.read_text(encoding="utf-8"))
    return [{"driver": driver, "error": environments.last_line(process.stderr)}]


def failures(rows: list[dict[str, Any]], presets: Iterable[str]) -> list[str]:
    """Return one line for each failure of the run; each of *presets* must be compared."""
    lines = []
    for row in rows:
        label = f"{row.get('preset', row['driver'])} {page.settings(row.get('settings', {}))}"
        mismatches = row.get("mismatching", 0) + row.get("window", {}).get("mismatching", 0)
        if "error" in row and "preset" in row:
            lines.append(f"{label}: {row['error']}")
        elif mismatches and not row["reason"]:
            lines.append(f"{label}: a mismatch without a reason")
        elif not mismatches and row.get("reason"):
            lines.append(f"{label}: a reason without a mismatch")
    if all("preset" in row for row in rows):  # otherwise the missing preset may belong to a driver that could not run
        absent = set(presets) - {row["preset"] for row in rows} - set(NOT_COMPARED)
        lines += [f"{name}: no comparison" for name in sorted(absent)]
    return lines


if __name__ == "__main__":
    sys.exit(main())
