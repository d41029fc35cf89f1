"""Functions that run in the processes of `on_ranks`. Each process imports this module, so it imports little."""

import os
import time


def describe(rank, size, *arguments):
    """Return the rank, the size, the process id, the variable WORLD_SIZE and the arguments."""
    return [rank, size, os.getpid(), int(os.environ["WORLD_SIZE"]), list(arguments)]


def fail_on_one(rank, _size, way):
    """Raise an error on rank 1, exit there or return there, as *way* states, and let rank 0 wait for a minute."""
    if rank == 1 and way == "raise":
        raise ValueError("no such rank")
    if rank == 1 and way == "exit":
        os.write(2, b"out of memory\n")
        os._exit(3)
    if rank == 0:
        time.sleep(60)
