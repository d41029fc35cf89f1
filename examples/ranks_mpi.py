"""
Training of the demo's digits in float16 on several MPI ranks: `mpiexec -n 4 python examples/ranks_mpi.py`.

Each batch of 256 images consists of four micro-batches, which 1, 2 or 4 ranks share. The number of ranks therefore changes
neither the scales nor the applied steps, and a saved run can be resumed on fewer or more ranks. Requires ampscale[demo,mpi]
and an MPI library, such as the one of `pip install mpich`.
"""

import argparse
from itertools import islice
from pathlib import Path

import numpy as np
from mpi4py.MPI import COMM_WORLD

import ampscale
from ampscale.cli.demo.digits import accuracy, batches_of, first_params, load, network_of
from ampscale.distributed import MPI

MICRO_BATCHES, SEED = 4, 0
RULE = ampscale.LossScaleRule(init_scale=2.0**24, growth_interval=50)


class InMicroBatches:
    """Network whose loss and gradients are means over this rank's micro-batches."""

    def __init__(self, network, rank, ranks):
        self.network, self.params = network, network.params
        self.own = slice(rank * MICRO_BATCHES // ranks, (rank + 1) * MICRO_BATCHES // ranks)

    def vjp(self, params, images, answers):
        """Return the loss, and a function that maps the scale to the gradients of the scaled loss."""
        parts = zip(np.split(images, MICRO_BATCHES)[self.own], np.split(answers, MICRO_BATCHES)[self.own], strict=True)
        losses, pullbacks = zip(*(self.network.vjp(params, *part) for part in parts), strict=True)
        return np.mean(losses), lambda scale: mean([pullback(scale) for pullback in pullbacks])


def mean(gradients):
    """Return the mean of several lists of arrays, array by array."""
    with np.errstate(all="ignore"):
        return [sum(arrays[1:], start=arrays[0]) / np.float32(len(arrays)) for arrays in zip(*gradients, strict=True)]


def main():
    """Train, and print every tenth step and each skipped one on rank 0."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--save", type=Path, help="write the state after the last step to this .npz file")
    parser.add_argument("--resume", type=Path, help="continue from a file that --save wrote")
    options = parser.parse_args()

    rank, ranks = COMM_WORLD.Get_rank(), COMM_WORLD.Get_size()
    if MICRO_BATCHES % ranks:
        parser.error(f"1, 2 or 4 ranks are required, got {ranks}")
    data, params = load(SEED), first_params(SEED)
    network = InMicroBatches(network_of(params, "float16"), rank, ranks)
    optimizer = ampscale.optimizers.SGD(network.network, 0.5)
    state = ampscale.init_train_state(params, optimizer, RULE)
    if options.resume:
        state = loaded(options.resume, state)
    communicator = MPI(timeout=30)

    start = int(state.attempted)
    for images, answers in islice(batches_of(data, start + options.steps, SEED), start, None):
        state, report = ampscale.train_step(
            network, optimizer, RULE, state, images, answers, max_norm=1.0, communicator=communicator
        )
        step, loss = int(state.attempted) - 1, COMM_WORLD.allreduce(float(report.loss)) / ranks
        if rank == 0 and (not report.applied or step % 10 == 9):
            outcome = "applied" if report.applied else "skipped"
            print(f"step {step:3}  loss {loss:.4f}  {outcome}, next scale {report.next_scale:.0f}")
    if rank == 0:
        correct = accuracy(state.params, "float16", data.test)
        print(f"{state.applied} of {state.attempted} steps applied, accuracy {correct:.3f}")
        if options.save:
            saved = {f"param{index}": param for index, param in enumerate(state.params)}
            counts = {name: value for name, value in state.scaler._asdict().items() if value is not None}
            np.savez(options.save, **saved, **counts, attempted=state.attempted, applied=state.applied)


def loaded(path, state):
    """Return *state* with the values of a saved file."""
    with np.load(path) as file:
        params = [file[f"param{index}"] for index in range(len(state.params))]
        scaler = state.scaler._replace(**{name: file[name] for name in state.scaler._fields if name in file})
        return state._replace(params=params, scaler=scaler, attempted=file["attempted"], applied=file["applied"])


if __name__ == "__main__":
    main()
