"""
Communicator of MPI processes, on mpi4py, for NumPy and CuPy arrays.

Spec: spec/60-replicas.md.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import array_api_compat
import numpy as np
from mpi4py import MPI as mpi

from ..core.replicas import RankError
from ..core.typing import Array
from .comparison import listed
from .ranks import WORDS, RankCommunicator

GRACE = 2.0  # seconds in which ranks that wait for others tell each other that they do


class MPI(RankCommunicator):
    """
    Ranks of an MPI communicator, for NumPy and CuPy arrays; start them with ``mpiexec -n 4 python train.py``.

    Args:
        comm: mpi4py communicator of all ranks that share the scale; by default COMM_WORLD. It is duplicated, so that messages
            of the program and of ampscale cannot be mixed up.
        gradients: "replicated" if all ranks have the same arrays, "sharded" if each has a part of every array, "distinct" if
            each has other arrays, such as the stages of a pipeline.
        mean: True to average replicated gradients, False if they have been averaged already.
        copies: Number of ranks that have the same values, for the norm of sharded and distinct gradients: one number, or one
            for each array.
        timeout: Seconds to wait for the other ranks.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
        RankError: Another rank did not create its communicator in time.

    Spec: REPLICAS-mean, REPLICAS-one-flag, REPLICAS-time-limit.

    >>> communicator = MPI()
    >>> communicator.mean([np.float32([1.0, 3.0])])
    [array([1., 3.], dtype=float32)]
    """

    def __init__(
        self,
        comm: mpi.Comm | None = None,
        *,
        gradients: str = "replicated",
        mean: bool | None = None,
        copies: int | Sequence[int] = 1,
        timeout: float = 60.0,
    ) -> None:
        super().__init__(gradients, mean, copies, timeout)
        comm = mpi.COMM_WORLD if comm is None else comm
        if not isinstance(comm, mpi.Comm):
            raise TypeError(f"comm must be an mpi4py communicator or None, got {type(comm).__name__}")
        self.rank, self.ranks = comm.Get_rank(), list(range(comm.Get_size()))
        self._comm, created = comm.Idup()
        self._await(created)

    def _sum(self, vector: Array) -> Array:
        if not (array_api_compat.is_numpy_array(vector) or array_api_compat.is_cupy_array(vector)):
            raise TypeError(f"MPI takes NumPy and CuPy arrays, got {type(vector).__module__}.{type(vector).__name__}")
        xp = array_api_compat.array_namespace(vector)
        if array_api_compat.is_cupy_array(vector):  # MPI reads the memory without waiting for the device
            xp.cuda.get_current_stream().synchronize()
        vector, total = xp.ascontiguousarray(vector), xp.empty_like(vector)
        self._await(self._comm.Iallreduce(vector, total))
        return total

    def _exchange(self, text: str) -> list[str]:
        data = np.frombuffer(text.encode(), np.uint8)
        sizes = np.empty(len(self.ranks), np.int64)
        self._await(self._comm.Iallgather(np.asarray([len(data)], np.int64), sizes))
        texts = np.empty(sizes.sum(), np.uint8)
        self._await(self._comm.Iallgatherv(data, [texts, sizes]))
        return [piece.tobytes().decode() for piece in np.split(texts, np.cumsum(sizes)[:-1])]

    def _words(self, scale: Array) -> Array:
        xp = array_api_compat.array_namespace(scale)
        return xp.asarray(scale, dtype=xp.float64).reshape(1).view(xp.int16).astype(xp.float64)[:WORDS]

    def _await(self, request: Any) -> None:
        """Wait for a collective. After the time limit, raise a RankError that names the ranks that do not wait for it."""
        if _done_within(request.Test, self._timeout):
            return
        silent = self._silent_ranks()
        self._failure = f"{listed(silent) if silent else 'a rank'} did not respond within {self._timeout:g} s"
        raise RankError(self._failure)

    def _silent_ranks(self) -> list[int]:
        """Tell all ranks that this one waits, and return those that do not tell so themselves."""
        others = [rank for rank in self.ranks if rank != self.rank]
        for rank in others:
            self._comm.Isend(np.empty(0, np.uint8), rank, tag=1).Free()
        silent = set(others)
        _done_within(lambda: self._received(silent), GRACE)
        return sorted(silent)

    def _received(self, silent: set[int]) -> bool:
        """Remove the ranks whose message has arrived from *silent*; return True if none is left."""
        silent -= {rank for rank in silent if self._comm.Iprobe(rank, tag=1)}
        return not silent


def _done_within(test: Callable[[], bool], seconds: float) -> bool:
    """Call *test* until it returns True, and return True; or False after the time limit."""
    end = time.monotonic() + seconds
    pause = 0.0
    while not test():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
        pause = min(pause + 1e-6, 1e-3)  # short waits spin, since the others are usually a few microseconds late
    return True
