"""
Every preset beside the published object that it claims to be: `make test-oracles`.

    python tools/oracles/compare.py [FAMILY...]

What runs is the published code itself: installed in a virtual environment of its own, or, where a package cannot be
installed here as a whole, the class cut out of its published file and executed as it is written, or a kernel compiled for
the host. Each object takes all 2**10 patterns of ten finite or overflow steps under several settings: well inside the
bounds, near float32's largest number, near the floor or near zero, and with factors like 1.1 and 3. After every step the
scale in force is compared by its bits, and the counters where the object has them; a step in which the object raises must be
one in which the rule `would_raise`. Where a class has defaults of its own, one window of its default length is run as well.

Environments are made once under .venv-oracles, some gigabytes in all. What came out is written to oracles.json there, and, where
no FAMILY was named, as a page to docs/oracles.md. A mismatch is shown as one, with its reason where it is known. The exit status
is 1 when there is a mismatch without a reason, a reason without a mismatch, an object that fails in a step, or a preset that
nothing compares. A package that cannot be had or imported is a line of the page, and no failure. Apex and OneFlow are such where
their sources are not at hand: the package index does not have them, and the page then says where to put them.
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

# Longest first: they run side by side, one to a core.
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
NOT_COMPARED = {"paddle_document": "a page of a manual, of which there is no code"}


def main() -> int:
    """Make what is missing, compare, and write what came out. Return the exit status."""
    parser = argparse.ArgumentParser(description="Compare each preset with the published object that it claims to be.")
    parser.add_argument("family", nargs="*", help=f"compare only these, and leave the page as it is: {', '.join(DRIVERS)}")
    families = parser.parse_args().family
    started = time.perf_counter()
    troubles = environments.unpack_sources()
    jobs = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name in families or DRIVERS:
            trouble = environments.make(name)
            jobs += [pool.submit(run, name, driver, trouble) for driver in DRIVERS[name]]
    result = {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "seconds": round(time.perf_counter() - started),
        "unpacking": troubles,
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


def run(name: str, driver: str, trouble: str) -> list[dict[str, Any]]:
    """What one driver's objects did, in the environment of that name."""
    trouble = trouble or environments.by_hand(driver)
    if trouble:
        return [{"driver": driver, "error": trouble}]
    out = Path(tempfile.mkdtemp()) / "rows.json"
    variables = {"PYTHONPATH": PATHS, "AMPSCALE_ORACLE_SOURCES": str(environments.SOURCES)}
    command = [str(environments.python_of(name)), "-W", "ignore", str(HERE / "runner.py"), str(out), driver]
    try:
        environment = os.environ | variables
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return [{"driver": driver, "error": f"not done after {SECONDS} s"}]
    sys.stdout.write(f"{driver}\n")
    if out.exists():
        return json.loads(out.read_text(encoding="utf-8"))
    return [{"driver": driver, "error": environments.last_line(done.stderr)}]


def failures(rows: list[dict[str, Any]], presets: Iterable[str]) -> list[str]:
    """What makes the run fail, a line for each; all of *presets* must have been compared."""
    lines = []
    for row in rows:
        said = f"{row.get('preset', row['driver'])} {page.settings(row.get('settings', {}))}"
        wrong = row.get("mismatching", 0) + row.get("window", {}).get("mismatching", 0)
        if "error" in row and "preset" in row:
            lines.append(f"{said}: {row['error']}")
        elif wrong and not row["reason"]:
            lines.append(f"{said}: a mismatch without a reason")
        elif not wrong and row.get("reason"):
            lines.append(f"{said}: a reason without a mismatch")
    if all("preset" in row for row in rows):  # else it may be one of those that could not run
        absent = set(presets) - {row["preset"] for row in rows} - set(NOT_COMPARED)
        lines += [f"{name}: nothing compares it" for name in sorted(absent)]
    return lines


if __name__ == "__main__":
    sys.exit(main())
