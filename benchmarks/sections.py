"""
Sections of rows. Each runs in a separate process, which prints its results as JSON lines.

Each process has one core and one thread, except in the section that measures two threads. Sections share no memory.
"""

import gc
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TextIO

import measure
import numpy as np
import targets
from rows import counts, first_call, functional, growth, memory, simulation, statistics, steps
from specs import Spec

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("numpy", "numba", "ml_dtypes", "torch", "jax", "jaxlib", "jmp", "flax", "optax", "paddlepaddle")
# Environment of `make test-oracles`, since Paddle requires an older NumPy.
PADDLE = ROOT / ".venv-oracles" / "paddle" / "bin" / "python"
SECONDS = 1.5  # approximate duration of the measurements of a row
# Instructions of numba's kernels in the section avx2. With NUMBA_CPU_NAME alone, numba would use all of the processor's.
AVX2 = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma,+f16c,+bmi,+bmi2"}
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "AMPSCALE_THREADS")

Row = dict[str, Any]


@cache
def all_specs() -> tuple[Spec, ...]:
    """Return all rows in the order of the table."""
    sources = (functional, statistics, first_call, steps, growth, memory, counts, simulation)
    return tuple(spec for source in sources for spec in source.specs())


def groups(specs: list[Spec], quick: bool) -> list[list[Spec]]:
    """Return the rows of each process. A process runs one section, or in a quick run either JAX and simulations, or the rest."""
    rows: dict[str | bool, list[Spec]] = {}
    for spec in specs:
        is_jax_or_simulation = "jax" in spec.section or spec.section == "simulation"
        rows.setdefault(is_jax_or_simulation if quick else spec.section, []).append(spec)
    return list(rows.values())


def interpreter(section: str, quick: bool) -> str:
    """Return the Python interpreter of a section: this one, or the one with Paddle, which a quick run does not use."""
    uses_paddle = section == "paddle" and not quick and not importlib.util.find_spec("paddle") and PADDLE.exists()
    return str(PADDLE) if uses_paddle else sys.executable


def start_worker(specs: list[Spec], quick: bool) -> "subprocess.Popen[str]":
    """Start a process that measures these rows and prints each as a line of JSON."""
    section = specs[0].section
    threads = "2" if section == "two-threads" else "1"
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "benchmarks")])
    environment = {**os.environ, **dict.fromkeys(ONE_THREAD, threads), "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    if section == "avx2":
        environment |= AVX2
    command = [interpreter(section, quick), str(Path(__file__).with_name("bench.py")), "--work"]
    if quick:
        command.append("--quick")
    worker = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    worker.stdin.write(json.dumps([spec.id for spec in specs]))
    worker.stdin.close()
    return worker


def read_reports(worker: "subprocess.Popen[str]") -> Iterator[dict[str, Any]]:
    """
    Yield the results that a process prints: its rows, and then its package versions.

    Raises:
        RuntimeError: The process failed.
    """
    with worker:
        yield from map(json.loads, worker.stdout)
    if worker.returncode:
        raise RuntimeError(f"the process of a section ended with status {worker.returncode}")


def work(ids: list[str], quick: bool, output: TextIO) -> None:
    """Measure rows in this process, and print each of them and then the package versions as JSON lines."""
    specs = [spec for spec in all_specs() if spec.id in ids]
    if specs[0].section != "two-threads" and not quick:
        measure.pin()
    with np.errstate(all="ignore"):  # scaled gradients overflow
        for spec in specs:
            set_threads(spec)
            print(json.dumps({"row": row(spec, quick)}), file=output, flush=True)
            gc.collect()
            gc.freeze()  # the remaining objects belong to libraries; exclude them from the collection before each row
    print(json.dumps({"versions": {specs[0].section: versions()}}), file=output, flush=True)


def set_threads(spec: Spec) -> None:
    """Set the number of torch's threads, if torch is installed."""
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(spec.notes.get("threads", 1))


def row(spec: Spec, quick: bool) -> Row:
    """Measure a row, and return its entry in the result file."""
    head = {name: getattr(spec, name) for name in ("id", "section", "label", "shape", "dtype", "unit")}
    start = time.monotonic()
    try:
        contents = list(spec.build(quick))
    except ModuleNotFoundError as missing:
        return {**head, **spec.notes, "cells": [{"name": "ampscale", "absent": f"{missing.name} is not installed"}]}
    seconds = None if quick else SECONDS
    cells = contents if isinstance(contents[0], dict) else measure.cells(contents, seconds, targets.compared_contenders(spec.id))
    return {**head, **spec.notes, "seconds": time.monotonic() - start, "cells": cells}


def versions() -> dict[str, str]:
    """Return the versions of the measured packages that this process has imported."""
    versions = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        if name.removesuffix("paddle") in sys.modules:
            with suppress(PackageNotFoundError):
                versions[name] = version(name)
    return versions
