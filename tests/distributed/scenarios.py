"""
Training steps of four or two ranks with overflows on some of them, and the decisions that all ranks must take.

Every rank and the test compute the gradients of all ranks from one seed, so that the test computes the expected flags
without a communicator. Values are float32; the gradients of a rank are lists of arrays and None.
"""

import numpy as np

INF, NAN = np.inf, np.nan
SHAPES = [(5,), (2, 3), (), (0,), (1, 4), (3,)]
LAYOUTS = ("replicated", "averaged", "sharded", "distinct")  # "averaged" is replicated with mean=False

LARGE = 2e38  # if scaled gradients have this value, each is finite in float32, but their sum is not

# Name of a fault: the affected ranks, and the value on each; "any" is a rank that the seed determines.
FAULTS = {
    "infinity on one rank": (["any"], [INF]),
    "negative infinity on one rank": (["any"], [-INF]),
    "NaN on one rank": (["any"], [NAN]),
    "infinity on the first rank": ([0], [INF]),
    "NaN on the last rank": ([-1], [NAN]),
    "opposite infinities on two ranks": ([0, 1], [INF, -INF]),
    "infinity and NaN on two ranks": ([-1, 0], [INF, NAN]),
    "infinity on all ranks": ([0, 1, 2, 3], [INF] * 4),
    "infinite only in the sum": ([0, 1, 2, 3], [LARGE] * 4),
}


def gradients(layout, step, scale, size, seed):
    """
    Return the unscaled gradients of each rank at a step, and the name of the fault or None.

    Of each 35 steps, the first 25 have two faults in five steps; the others let the scale return to its former value.
    """
    rng = np.random.default_rng([seed, step])
    fault_number = 2 * (step // 5) + step % 5  # the steps 0, 1, 5, 6, 10, ... have the faults 0, 1, 2, 3, 4, ...
    fault = [*FAULTS][fault_number % len(FAULTS)] if step % 5 < 2 and step % 35 < 25 else None
    whole = [rng.normal(size=shape).astype(np.float32) for shape in SHAPES]
    if layout == "replicated":
        per_rank = [[rng.normal(size=shape).astype(np.float32) for shape in SHAPES] for _ in range(size)]
    elif layout == "averaged":
        per_rank = [[array.copy() for array in whole] for _ in range(size)]
    elif layout == "sharded":
        per_rank = [[np.array_split(array.reshape(-1), size)[rank].copy() for array in whole] for rank in range(size)]
    else:
        per_rank = [[whole[rank].copy(), None if rng.random() < 0.5 else whole[rank + 2].copy()] for rank in range(size)]
        if rng.random() < 0.5:  # ranks without gradients
            per_rank[rng.integers(size)] = [None, None]
    if fault:
        affected, values = FAULTS[fault]
        for rank, value in zip(affected[:size], values, strict=False):
            arrays = per_rank[int(rng.integers(size)) if rank == "any" else rank]
            inject(arrays, np.float32(LARGE / scale) if value == LARGE else value)
    return per_rank, fault


def inject(arrays, value):
    """Write *value* into the first array that is not empty. A rank without gradients is unchanged."""
    for array in arrays:
        if array is not None and array.size:
            array.reshape(-1)[-1:] = value
            return


def mean_of(per_rank):
    """Return the mean of the gradients of all ranks, in float32."""
    with np.errstate(all="ignore"):
        return [sum(arrays[1:], start=arrays[0]) / np.float32(len(per_rank)) for arrays in zip(*per_rank, strict=True)]


def whole_of(layout, per_rank):
    """Return the gradients that all ranks together apply."""
    if layout == "replicated":
        return mean_of(per_rank)
    if layout == "averaged":
        return per_rank[0]
    if layout == "sharded":
        return [np.concatenate(arrays) for arrays in zip(*per_rank, strict=True)]
    return [array for arrays in per_rank for array in arrays if array is not None]


def is_finite(layout, per_rank, scale):
    """Return True if the step is to be applied. Gradients are averaged after a multiplication by *scale*."""
    if layout == "replicated":
        with np.errstate(all="ignore"):
            per_rank = [*per_rank, mean_of([[array * np.float32(scale) for array in arrays] for arrays in per_rank])]
    return all(np.isfinite(array).all() for arrays in per_rank for array in arrays if array is not None)
