"""Gradients of every kind on the ranks of a pool. Each function runs on every rank, and returns what the rank observes."""

import signal
import time

import ml_dtypes
import numpy as np
from distributed.training import bits, communicator_of, message_of
from linear import network

from ampscale.mindformers import MFTrainOneStepCell

NAMES = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
# Name: gradients of each rank, and copies. Rank 0 has none if the name ends in "without".
CASES = {
    "float32": ([np.float32([3.0]), np.float32([4.0])], 1),
    "float64": ([np.asarray([1.5e-200])], 1),
    "large": ([np.float32([3e38])], 1),
    "small": ([np.float32([1e-45])], 1),
    "complex": ([np.complex64([3 + 4j])], 1),
    "copies": ([np.float32([3.0]), np.float32([8.0])], [1, 4]),
    "all the same": ([np.float32([3.0]), np.float32([4.0])], 4),
    "a rank without": ([np.float32([3.0]), np.float32([4.0])], 1),
    "float64 and a rank without": ([np.asarray([3.0]), np.asarray([4.0])], 1),
    "no gradients": ([], 1),
}


def of_library(array, make):
    """Convert a NumPy array with *make*. For torch, convert bfloat16 through float32."""
    if array.dtype == ml_dtypes.bfloat16 and make is not np.asarray:
        return make(array.astype(np.float32)).bfloat16()
    return make(array)


def to_lists(array):
    """Return the dtype, the shape, and the real and imaginary parts of an array."""
    name = str(array.dtype).rpartition(".")[2]
    values = np.asarray(array.float() if name == "bfloat16" and hasattr(array, "float") else array)
    flat = values.astype(np.complex128).reshape(-1)
    return [name, list(array.shape), flat.real.tolist(), flat.imag.tolist()]


def means_of_dtypes(rank, engine):
    """Return the means of a tree of arrays of all dtypes and several shapes, some of them read-only or not contiguous."""
    communicator, _, make = communicator_of(engine, "replicated", timeout=10)
    base = np.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]) * (rank + 1)
    arrays = [(base * (1 + 1j) if "complex" in name else base).astype(np.dtype(name)) for name in NAMES]
    read_only = base.astype(np.float32)
    read_only.flags.writeable = make is not np.asarray  # torch warns about such arrays
    tree = {
        "dtypes": [of_library(array, make) for array in arrays],
        "views": (of_library(arrays[2], make)[:, ::2], of_library(arrays[0], make).T, make(read_only)),
        "shapes": [make(np.full((), rank, np.float32)), make(np.zeros((0, 2), np.float16)), None],
        "large": make(np.float16([60000.0])),
    }
    mean = communicator.mean(tree)
    assert mean["shapes"][2] is None
    return [to_lists(array) for array in [*mean["dtypes"], *mean["views"], *mean["shapes"][:2], mean["large"]]]


def mean_without_arrays(_, engine):
    """Return the means of two trees without arrays, and then of an array."""
    communicator, _, make = communicator_of(engine, "replicated", timeout=10)
    return communicator.mean([]), communicator.mean({"a": None}), communicator.mean([make(np.ones(1, np.float32))])[0].tolist()


def mean_of_integers(_, engine):
    """Average integers on all ranks, and then floats; return the error and the mean."""
    communicator, _, make = communicator_of(engine, "replicated", timeout=10)
    message = message_of(communicator.mean, [make(np.ones(2, np.int32))], error=TypeError)
    return message, communicator.mean([make(np.ones(2, np.float32))])[0].tolist()


def mean_of_many(rank, engine):
    """Average 300,000 values, so that the engine sends several messages; return the bits of two values, and the sum."""
    communicator, _, make = communicator_of(engine, "replicated", timeout=30)
    mean = np.asarray(communicator.mean([make(np.full(300_000, 2.0**rank, np.float32))])[0])
    return bits(mean[0]), bits(mean[-1]), float(mean.sum(dtype=np.float64))


def flags(rank, engine, bad):
    """Return the agreed flags: a row for each of five scales, and a column for each of three types of flags."""
    communicator, _, make = communicator_of(engine, "averaged", timeout=10)
    finite = rank != bad
    scales = [1024.0, np.float32(1024.0), make(np.ones(1, np.float32)), make(np.ones((), np.float64)), make(np.ones(1))]
    return [
        [bool(communicator.agree(flag, scale, []).finite) for flag in (finite, np.bool_(finite), make(np.asarray(finite)))]
        for scale in scales
    ]


def norm(_, engine, layout, case):
    """Return norm, lift and dtype, and True if any rank has gradients, for the gradients of a case in `CASES`."""
    arrays, copies = CASES[case]
    communicator, index, make = communicator_of(engine, layout, timeout=10, copies=copies)
    if case.endswith("without") and index == 0:
        arrays = []
    agreement = communicator.agree(True, np.float32(1.0), [make(array) for array in arrays], norm=True)
    value, lift = agreement.norm
    return float(value), float(lift), str(value.dtype).rpartition(".")[2], bool(agreement.has_gradients)


def norm_of_mixed_dtypes(rank):
    """Return the error of a norm if one rank has no gradients, one has float64 gradients, and two have float32 gradients."""
    communicator, _, _ = communicator_of("mpi", "distinct", timeout=10)
    arrays = [[], [np.ones(1)], [np.ones(1, np.float32)], [np.ones(1, np.float32)]][rank]
    return message_of(communicator.agree, True, np.float32(1.0), arrays, norm=True)


def state_with_another_count(rank):
    """Agree on states that have a further count on one rank, and then compute a mean; return the error and the mean."""
    communicator, _, _ = communicator_of("mpi", "replicated", timeout=10)
    state = {"scale": np.float32(1.0), "count": np.int32(0)}
    message = message_of(communicator.agree, True, state if rank == 2 else {"scale": state["scale"]}, [])
    return message, communicator.mean([np.float32([rank])])[0].tolist()


def freed(_):
    """Delete two communicators, of which one was interrupted; return True for each whose duplicate is freed."""
    communicators = [communicator_of("mpi", "replicated", timeout=10)[0] for _ in range(2)]
    duplicates = [communicator._comm for communicator in communicators]
    message_of(communicators[1]._run, int, "text", error=ValueError)
    communicators.clear()
    return [not duplicate for duplicate in duplicates]


def interrupted(_):
    """Interrupt the sum of one rank of each pair; return True on this rank, and the number of later values that MPI changes."""
    from mpi4py.MPI import COMM_WORLD

    communicator, index, _ = communicator_of("mpi", "replicated", size=2, timeout=10)
    if index == 0:
        time.sleep(0.3)
    else:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
    values = np.ones(1_000_000, np.float32)
    message = message_of(communicator._run, communicator._sum, values, error=KeyboardInterrupt)
    later = [np.zeros_like(values) for _ in range(4)]
    COMM_WORLD.Barrier()  # completes the sum
    return message is not None, int(sum(map(np.count_nonzero, later)))


def copies_of_another_length(_):
    """Agree on three arrays with numbers of copies for two, and then on two arrays; return the error and the norm."""
    communicator, _, _ = communicator_of("mpi", "sharded", timeout=10, copies=[1, 4])
    arrays = [np.ones(1, np.float32)] * 3
    message = message_of(communicator.agree, True, np.float32(1.0), arrays, norm=True, error=ValueError)
    return message, float(communicator.agree(True, np.float32(1.0), arrays[:2], norm=True).norm.value)


def step_on_float16(rank, max_norm):
    """Return True if a step is applied, and True if it changes a float16 parameter. One unscaled gradient exceeds float16."""
    import torch

    communicator, _, _ = communicator_of("gloo", "distinct", timeout=10)
    model = network([torch.zeros(1, dtype=torch.float16)])
    clipping = {} if max_norm is None else {"use_clip_grad": True, "max_grad_norm": max_norm}
    optimizer = torch.optim.SGD(model.params, 2.0**-14)
    train = MFTrainOneStepCell(model, optimizer, scale_sense=0.5, communicator=communicator, **clipping)
    train([torch.tensor([120000.0 if rank == 1 else 1.0])])
    return bool(train.last_step.applied), model.params[0].item() != 0.0


def errors_of_invalid_states(_):
    """Return the errors of states that `agree` cannot compare."""
    communicator, _, _ = communicator_of("mpi", "averaged", timeout=10)
    states = [{}, {"bad_steps": None}, np.ones(2, np.float32), {"scale": 4.0, "good_steps": "3"}]
    return [message_of(communicator.agree, True, state, [], error=(TypeError, ValueError)) for state in states]
