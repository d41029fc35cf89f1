"""One rank of a pool: run the jobs of its folder one after the other, until a job is None."""

import json
import os
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path

import pool


def main(engine, folder):
    """Start the engine, and run jobs."""
    rank, end = started(engine)
    number = 0
    while True:
        number += 1
        path = Path(folder) / f"job-{number}.json"
        while not path.exists():
            if os.getppid() == 1:  # the tests have ended
                return
            time.sleep(0.005)
        job = json.loads(path.read_text())
        if job is None:
            end()
            return
        pool.write(Path(folder) / f"result-{number}-{rank}.json", done(rank, *job))


def started(engine):
    """Return the number of this rank, and a function that ends the engine."""
    if engine == "mpi":
        from mpi4py import MPI

        return MPI.COMM_WORLD.Get_rank(), MPI.Finalize
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    return torch.distributed.get_rank(), torch.distributed.destroy_process_group


def done(rank, module, function, args):
    """Return the result of a job or its traceback."""
    try:
        return {"value": getattr(import_module(module), function)(rank, *args)}
    except BaseException:  # noqa: BLE001 - reported by the test
        return {"error": f"rank {rank}: {traceback.format_exc()}"}


if __name__ == "__main__":
    main(*sys.argv[1:])
