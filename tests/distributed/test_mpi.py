"""MPI ranks."""

from itertools import repeat


def mean(rank):
    import numpy as np

    from ampscale.distributed import MPI

    return [array.tolist() for array in MPI().mean([np.float16([1e4 * rank, 3.0]), np.complex64([1 + rank * 1j]).real])]


def test_a_mean_of_16_bit_arrays_is_added_in_float32(mpi):
    assert mpi.run(mean) == list(repeat([[15000.0, 3.0], [1.0]], 4))
