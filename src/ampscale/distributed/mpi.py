"""
Communicator of MPI processes, on mpi4py, for NumPy and CuPy arrays.

Spec: spec/60-replicas.md.
"""

import ctypes
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import array_api_compat
import numpy as np
from mpi4py import MPI as mpi  # noqa: N811 - a module

from ..core.replicas import RankError, rank_names
from ..core.typing import Array
from .communicator import RankCommunicator

GRACE = 2.0  # seconds in which ranks that waited without success report this to each other
LATE = 0.1  # seconds; a rank that stops after having waited less than this was late itself, so the error names it too
STOPPED = 27183  # first tag of messages of ranks that stop waiting; an unusual one, since *comm* is also the program's at first
CREATIONS = mpi.Comm.Create_keyval()  # attribute of a `comm`: number of communicators that were created for it
# Messages of ranks that stop waiting, by `is_late`. They are kept, since MPI may still read them.
_ANSWERS = {False: np.zeros(1, np.uint8), True: np.ones(1, np.uint8)}
_unfinished: dict[int, Any] = {}  # requests and their buffers by the ids of the requests; MPI may still write to the buffers


class MPI(RankCommunicator):
    """
    Ranks of an MPI communicator, for NumPy and CuPy arrays; start them with ``mpiexec -n 4 python -m mpi4py train.py``.

    CuPy arrays stay on the device if the MPI library supports CUDA; otherwise they are reduced in host memory.

    With ``-m mpi4py``, an error on one rank ends all ranks; without this option, MPI waits for the other ranks when one ends.
    Error messages use the rank numbers of *comm*.

    Args:
        comm: mpi4py communicator of all ranks that share the scale; by default COMM_WORLD. The communicator is duplicated, so
            that messages of the program and of ampscale cannot be mixed up.
        gradients: "replicated" if all ranks have the same arrays, "sharded" if each has a part of every array, "distinct" if
            each has its own arrays, such as the stages of a pipeline.
        mean: True to average replicated gradients; False if they have been averaged already. Default: True if *gradients* is
            "replicated".
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

    _is_connected = False  # True after the constructor

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
        if not isinstance(comm, mpi.Intracomm):
            raise TypeError(f"comm must be an mpi4py Intracomm or None, got {type(comm).__name__}")
        if comm == mpi.COMM_NULL:
            raise ValueError("comm must contain this rank, got COMM_NULL")
        self.rank, self.ranks = comm.Get_rank(), list(range(comm.Get_size()))
        self._ended = time.monotonic()  # time at which the last collective ended
        # A rank that creates its communicator too late leaves messages on *comm*, which must not stop the next constructor.
        count = (comm.Get_attr(CREATIONS) or 0) + 1
        comm.Set_attr(CREATIONS, count)
        self._tag = STOPPED + count
        duplicate, request = comm.Idup()
        self._comm = comm  # until the duplicate can send messages
        self._await(request)
        self._comm, self._is_connected = duplicate, True

    # As a default value, the function is still there when Python exits and clears the names of the module.
    def __del__(self, is_finalized: Callable[[], bool] = mpi.Is_finalized) -> None:
        """
        Free the duplicate, since MPICH supports only 2,048 communicators at a time.

        MPI's standard expects that this operation does not wait for the other ranks. After an error, the duplicate is kept: its
        messages that are still on their way could be taken for those of a new communicator.
        """
        if self._is_connected and self._failure is None and not is_finalized():
            self._comm.Free()

    def _check(self, arrays: list[Array]) -> None:
        for array in arrays:
            if isinstance(array, np.ma.MaskedArray):
                raise TypeError(
                    "gradients to be averaged must not be masked, got a numpy.ma.MaskedArray: pass gradient.filled(0.0), "
                    "which averages the masked values as zeros"
                )
            if not (array_api_compat.is_numpy_array(array) or array_api_compat.is_cupy_array(array)):
                raise TypeError(f"MPI requires NumPy or CuPy arrays, got {type(array).__module__}.{type(array).__name__}")

    def _shards(self, arrays: list[Array]) -> tuple[list[Array], list[int]]:
        return arrays, [1] * len(arrays)

    def _zeros(self, length: int) -> Array:
        return np.zeros(length)

    def _sum(self, vector: Array) -> Array:
        xp = array_api_compat.array_namespace(vector)
        if array_api_compat.is_cupy_array(vector):
            if not _supports_cuda():
                return xp.asarray(self._sum(vector.get()))
            xp.cuda.get_current_stream().synchronize()  # MPI reads the memory without waiting for the device
        vector, total = xp.ascontiguousarray(vector), xp.empty_like(vector)
        self._await(self._comm.Iallreduce(vector, total), vector, total)
        return total

    def _gather(self, array: np.ndarray) -> np.ndarray:
        rows = np.empty((len(self.ranks), *array.shape), array.dtype)
        self._await(self._comm.Iallgather(array, rows), array, rows)
        return rows

    def _words(self, number: Array | float) -> Array:
        xp = array_api_compat.array_namespace(number) if array_api_compat.is_cupy_array(number) else np
        return xp.asarray(number, dtype=xp.float64).reshape(1).view(xp.int16).astype(xp.float64)

    def _await(self, request: Any, *buffers: Array) -> None:
        """
        Wait for a collective with *buffers*. After the time limit, raise a RankError that names the ranks that do not take part.

        A rank that exceeds the limit sends a message to all others. Ranks that still wait then stop too, so that all ranks raise
        the error at the same time, even if some began to wait later.
        """
        start = time.monotonic()
        # Keep the buffers until MPI no longer uses them, even if an interrupt ends the wait: mpi4py's Iallreduce does not.
        _unfinished[id(request)] = request, buffers
        _done_within(lambda: request.Test() or self._comm.Iprobe(tag=self._tag), self._timeout)
        # If another rank has stopped, this one must not continue. The message can arrive later than the values of the collective.
        grace = LATE if start - self._ended >= self._timeout else 0.0  # in seconds
        if request.Test() and not _done_within(lambda: self._comm.Iprobe(tag=self._tag), grace):
            self._ended = time.monotonic()
            del _unfinished[id(request)]
            return
        unresponsive = self._unresponsive_ranks(is_late=time.monotonic() - start < LATE)
        names = rank_names(unresponsive) if unresponsive else "a rank"
        raise RankError(f"{names} did not respond within {self._timeout:g} s")

    def _unresponsive_ranks(self, *, is_late: bool) -> list[int]:
        """Send *is_late* to all ranks, since this rank stops waiting; return the ranks that were late or sent no message."""
        unresponsive = set(self.ranks) - {self.rank}
        late = {self.rank} if is_late else set()
        for rank in unresponsive:
            self._comm.Isend(_ANSWERS[is_late], rank, tag=self._tag).Free()

        def have_all_answered() -> bool:
            answer = np.empty(1, np.uint8)
            for rank in [rank for rank in unresponsive if self._comm.Iprobe(rank, tag=self._tag)]:
                self._comm.Recv(answer, rank, tag=self._tag)
                unresponsive.remove(rank)
                if answer.item():
                    late.add(rank)
            return not unresponsive

        _done_within(have_all_answered, GRACE)
        return sorted(unresponsive | late)


@cache
def _supports_cuda() -> bool:
    """Return True if the MPI library reports that it can read the memory of CUDA devices."""
    query = getattr(ctypes.CDLL(mpi.__file__), "MPIX_Query_cuda_support", None)  # mpi4py has no function for this
    return query is not None and query() == 1


def _done_within(test: Callable[[], bool], seconds: float) -> bool:
    """Call *test* until it returns True, and return True; return False if *seconds* pass before."""
    end = time.monotonic() + seconds
    pause = 0.0
    while not test():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
        pause = min(pause + 1e-6, 1e-3)  # short waits spin, since the other ranks are usually a few microseconds late
    return True
