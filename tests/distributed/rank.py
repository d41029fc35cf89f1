"""
One rank of a pool: runs the jobs in a folder one after the other, until a job is None.

`python rank.py mpi FOLDER` is one rank of MPI. `python rank.py gloo FOLDER SIZE MODULE...` is SIZE ranks of torch.
"""

import json
import os
import sys
import time
import traceback
from functools import partial
from importlib import import_module
from pathlib import Path

import pool


def main(engine, folder, size=1, *modules):
    """Start the engine, and run jobs."""
    if engine == "gloo":
        fork(int(size), *modules)
    rank, end = start(engine)
    number, parent = 0, os.getppid()
    while True:
        number += 1
        path, pause = Path(folder) / f"job-{number}.json", 0.001
        while not path.exists():
            if os.getppid() != parent:  # the tests have ended
                return
            time.sleep(pause)
            pause = min(1.1 * pause, 0.05)  # after the last job, the ranks wait for the end of the whole session
        job = json.loads(path.read_text())
        if job is None:
            end()
            return
        pool.write(Path(folder) / f"result-{number}-{rank}.json", result_of(rank, *job))


def fork(size, *modules):
    """
    Continue in *size* processes, each with the environment of a rank. They share *modules*, whose import takes seconds.

    The original process ends as soon as a process fails, or else after the last one has ended.
    """
    for module in modules:
        import_module(module)
    for rank in range(size):
        if os.fork() == 0:
            os.environ["RANK"] = str(rank)
            return
    for _ in range(size):
        if os.wait()[1]:
            os._exit(1)
    os._exit(0)


def start(engine):
    """Start the engine, and return the number of this rank, and a function that ends the engine."""
    if engine == "mpi":
        from mpi4py import MPI

        return MPI.COMM_WORLD.Get_rank(), MPI.Finalize
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    return torch.distributed.get_rank(), partial(os._exit, 0)  # Python takes seconds to free groups and modules of torch


def result_of(rank, module, function, args):
    """Run a job, and return its result or traceback."""
    try:
        return {"value": getattr(import_module(module), function)(rank, *args)}
    except BaseException:  # noqa: BLE001 - reported by the test
        return {"error": f"rank {rank}: {traceback.format_exc()}"}


if __name__ == "__main__":
    main(*sys.argv[1:])
