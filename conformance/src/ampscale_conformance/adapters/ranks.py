"""
Runs of an adapter's function in real processes, one for each rank.

Importing a library takes seconds. Therefore the processes wait for the next call, until a call requires other processes or
fails, or this process ends. Jobs and results are JSON files.
"""

import atexit
import inspect
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

from ..model.subject import TimedOut

SECONDS = 100.0  # below the time limit of a case
GRACE = 3.0  # seconds in which all ranks can report an error, and in which they can end
LOOPBACK = "lo" if sys.platform == "linux" else "lo0"
_running: "list[Ranks]" = []  # at most one


def on_ranks(function: Callable[..., Any], size: int, *arguments: Any, launcher: Sequence[str] = ()) -> list[Any]:
    """
    Run ``function(rank, size, *arguments)`` in one process for each rank, and return the results in the order of the ranks.

    Each process has the variables RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and is reused by later calls for the same
    number of ranks: the function must initialize its library only once.

    Args:
        function: Function at the top level of a module. Its result must be a JSON value.
        size: Number of ranks.
        arguments: Further arguments of the function: JSON values.
        launcher: Command that starts one process for each rank, such as ["mpiexec", "-n", "2"].

    Raises:
        RuntimeError: The function raised an error on a rank, or a process ended.
        TimedOut: A rank returned no result within 100 seconds.
    """
    key = (function.__module__, inspect.getfile(function), size, tuple(launcher))
    try:
        if not _running or _running[0].key != key:
            end_ranks()
            _running.append(Ranks(*key))
            atexit.register(end_ranks)
        return _running[0].run(function.__name__, arguments)
    except BaseException:  # an interrupted collective leaves ranks that wait for each other
        end_ranks()
        raise


def end_ranks() -> None:
    """End the processes that wait for another call."""
    while _running:
        _running.pop().end()


class Ranks:
    """Processes, one for each rank, that read jobs from a folder. A job calls a function of *module*, whose source is *file*."""

    def __init__(self, module: str, file: str, size: int, launcher: Sequence[str]) -> None:
        self.key, self.size = (module, file, size, launcher), size
        self.job_number = 0
        self.folder = Path(tempfile.mkdtemp(prefix="ranks-"))
        command = [*launcher, sys.executable, "-W", "ignore", "-c", rank_program(), str(self.folder), module, file]
        path = os.pathsep.join([os.getcwd(), *filter(None, sys.path)])
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": LOOPBACK}
        shared = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **address}
        variables = [{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)} for rank in range(size)]
        environments = [shared] if launcher else [shared | rank_variables for rank_variables in variables]
        with (self.folder / "output").open("wb") as output:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
            self.processes = [subprocess.Popen(command, env=environment, **streams) for environment in environments]

    def run(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        """Run one job, and return the result of each rank."""
        self.job_number += 1
        unfinished = self.folder / "job"  # renamed when it is complete
        unfinished.write_text(json.dumps([name, self.size, arguments]))
        unfinished.rename(self.folder / f"job-{self.job_number}")
        results = self.wait_for_results()
        if errors := [f"rank {rank}: {result['error']}" for rank, result in results.items() if "error" in result]:
            raise RuntimeError("; ".join(errors))
        if missing := ", ".join(str(rank) for rank in range(self.size) if rank not in results):
            if not self.has_ended():
                raise TimedOut(f"no result of rank {missing} within {SECONDS:g} s")
            lines = filter(str.strip, (self.folder / "output").read_text(errors="replace").splitlines())
            raise RuntimeError(f"no result of rank {missing}: a process ended; the last output: {' | '.join([*lines][-3:])}")
        return [results[rank]["value"] for rank in range(self.size)]

    def wait_for_results(self) -> dict[int, Any]:
        """Return the results of the ranks that finish in time. After an error or the end of a process, wait only for `GRACE`."""
        files = [self.folder / f"result-{self.job_number}-{rank}" for rank in range(self.size)]
        results, deadline = dict[int, Any](), time.monotonic() + SECONDS
        while len(results) < self.size and time.monotonic() < deadline:
            time.sleep(0.005)
            ended = self.has_ended()  # before the results are read, since a process can end after its last result
            results = {rank: json.loads(file.read_text()) for rank, file in enumerate(files) if file.exists()}
            if ended or any("error" in result for result in results.values()):
                deadline = min(deadline, time.monotonic() + GRACE)
        return results

    def has_ended(self) -> bool:
        return any(process.poll() is not None for process in self.processes)

    def end(self) -> None:
        """End all processes, and delete their files."""
        for process in self.processes:
            process.terminate()  # a launcher then ends its ranks
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def free_port() -> int:
    """Return a port on which no process listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def rank_program() -> str:
    """Return the program of a rank, which calls `run_rank` of this module, or of the script that includes it."""
    module, file = run_rank.__module__, inspect.getsourcefile(run_rank)
    names = f"runpy.run_path({file!r})" if module == "__main__" else f"vars(importlib.import_module({module!r}))"
    return f"import importlib, os, runpy, sys; parent = os.getppid(); {names}['run_rank'](parent, *sys.argv[1:])"


def run_rank(parent: int, folder: str, module: str, file: str) -> None:
    """Run the jobs in a folder until the process with the id *parent* ends."""

    def end_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    def loaded() -> Any:
        if module != "__main__" and find_spec(module.partition(".")[0]):
            return import_module(module)
        loader = SourceFileLoader("script", file)
        script = module_from_spec(ModuleSpec("script", loader))
        loader.exec_module(script)
        return script

    threading.Thread(target=end_with_parent, daemon=True).start()
    functions, job_number = None, 0
    rank = int(next(os.environ[name] for name in ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK") if name in os.environ))
    while True:
        job_number += 1
        while not (job := Path(folder, f"job-{job_number}")).exists():
            time.sleep(0.005)
        name, size, arguments = json.loads(job.read_text())
        try:
            functions = functions or loaded()
            result = {"value": getattr(functions, name)(rank, size, *arguments)}
        except Exception as error:  # noqa: BLE001 - any error of the implementation is a result
            result = {"error": f"{type(error).__name__}: {error}"}
        unfinished = Path(folder, f"unfinished-{rank}")
        unfinished.write_text(json.dumps(result))
        unfinished.rename(Path(folder, f"result-{job_number}-{rank}"))
