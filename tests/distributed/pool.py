"""
Real processes, one for each rank, that run functions of the test modules and return their results.

Starting torch takes seconds. So a pool of four ranks stays alive for all tests of an engine, its ranks are forks of a process
that has imported the modules, and a test on two ranks uses a group of two. Jobs and results are files in a folder, since
`mpiexec` passes its input to one rank only.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).parent
TIME_LIMIT = 60  # seconds


class Pool:
    """Ranks of an engine: "gloo" or "mpi". The ranks of gloo are forks of a process that imports *modules*."""

    def __init__(self, engine, folder, size=4, modules=("torch.distributed", "ampscale")):
        self.engine, self.folder, self.size, self.job_count = engine, Path(folder), size, 0
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, str(HERE / "rank.py"), engine, str(self.folder)]
        paths = [str(HERE.parent), str(HERE), *sys.path]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        environment["AMPSCALE_KERNELS"] = "numpy"  # numba would take a second of each rank
        if engine == "mpi":
            launcher = [str(Path(sys.executable).with_name("mpiexec")), "-n", str(size)]
            command = [*launcher, *command]
        else:
            command = [*command, str(size), *modules]
            environment = environment | gloo_environment(size)
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)

    def run(self, function, *args, seconds=TIME_LIMIT):
        """
        Run ``function(rank, *args)`` on each rank, and return the results in order.

        Args:
            function: Function of a module beside this one. Its result and the arguments must be JSON values.
            args: Arguments after the rank.
            seconds: Time limit.
        """
        self.job_count += 1
        write(self.folder / f"job-{self.job_count}.json", [function.__module__.rpartition(".")[2], function.__name__, args])
        end, results = time.monotonic() + seconds, []
        for rank in range(self.size):
            path = self.folder / f"result-{self.job_count}-{rank}.json"
            while not path.exists():
                if time.monotonic() > end or self.process.poll() is not None:
                    raise TimeoutError(
                        f"rank {rank} of {self.engine} ended, or returned no result of {function.__name__} within {seconds} s"
                    )
                time.sleep(0.002)
            results.append(json.loads(path.read_text()))
        errors = [result["error"] for result in results if "error" in result]
        if errors:
            raise AssertionError("\n".join(errors))
        return [result["value"] for result in results]

    def close(self):
        """End the processes."""
        write(self.folder / f"job-{self.job_count + 1}.json", None)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        if self.engine == "gloo":  # a rank can outlive the process that forked it
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()


def write(path, value):
    """Write *value* as JSON; another process never reads a part of the file."""
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(value))
    temporary.rename(path)


def gloo_environment(size):
    """Return the environment variables that ranks of torch have in common."""
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo", "WORLD_SIZE": str(size)}


def free_port():
    """Return an unused port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
