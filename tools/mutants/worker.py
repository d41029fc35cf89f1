"""
Worker process that tests one mutant after the other, each in a fork of itself.

The array libraries are imported before the fork, since this takes ten times longer than most tests that kill a mutant; ampscale
and the tests are imported after the fork. The worker must not compute anything: a process with threads cannot be forked safely.
"""

import importlib
import json
import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

LIBRARIES = """
    array_api_compat.numpy array_api_compat.torch array_api_strict autograd autograd.numpy click.testing hypothesis.extra.numpy
    jax.numpy ml_dtypes numba numpy optax pytest rich.console rich.table safetensors.numpy _hypothesis_pytestplugin xdist.plugin
    concurrent.futures.thread multiprocessing.pool
"""
OPTIONS = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "--no-header", "--tb=line", "-n", "0"]
OPTIONS += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # since the plug-ins are imported before the fork


def run_stages(stages: list[list[str]], log: Path) -> int:
    """Run the stages of tests until one fails, and return pytest's exit code."""
    import pytest

    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    for files in stages:
        if code := int(pytest.main([*OPTIONS, *files])):
            return code
    return 0


def run_in_fork(stages: list[list[str]], log: Path, limit: float) -> int | None:
    """Return the exit code of `run_stages` in a fork; None if it takes longer than *limit* seconds."""
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        raise RuntimeError(f"the worker must have one thread to be forked, got {threads}")
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        code = 70
        try:
            code = run_stages(stages, log)
        except BaseException:  # noqa: BLE001 - a mutant can raise any exception, and the fork must not continue as a worker
            traceback.print_exc()
        os._exit(code)
    end = time.monotonic() + limit
    status = None
    while status is None and time.monotonic() < end:
        time.sleep(0.02)
        ended, wait_status = os.waitpid(child, os.WNOHANG)
        status = wait_status if ended else None
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # also the processes that the tests started
    if status is None:
        os.waitpid(child, 0)
        return None
    return os.waitstatus_to_exitcode(status)


def test(task: dict[str, Any]) -> dict[str, Any]:
    """Run the tests with the mutated source of *task*, or without a mutation if it is None, and return the result."""
    path = Path(task["file"])
    log = Path("mutant.log")
    original, times = path.read_bytes(), path.stat()
    started = time.monotonic()
    try:
        if task["source"] is not None:
            path.write_text(task["source"])
        code = run_in_fork(task["stages"], log, task["limit"])
    finally:
        path.write_bytes(original)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # so that its compiled file stays valid
    tail = log.read_text(errors="replace")[-2000:] if log.exists() else ""
    return {"code": code, "seconds": round(time.monotonic() - started, 2), "tail": tail}


def main() -> None:
    """Read a task, a JSON object, from each line of standard input, and print its result as one line of JSON."""
    sys.path[:0] = [os.path.abspath(folder) for folder in ("src", "conformance/src", "tests", "conformance/tests", "tools")]
    for name in LIBRARIES.split():
        importlib.import_module(name)
    # Keep standard output for the results: print everything else that is written to it on standard error.
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(test(json.loads(line))), file=results, flush=True)


if __name__ == "__main__":
    main()
