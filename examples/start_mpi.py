"""
A float16 training loop on MPI ranks with NumPy: `mpiexec -n 2 python -m mpi4py examples/start_mpi.py`.

All ranks average their gradients, and skip the same steps: the first ones, since the first scale is too large on purpose.
Requires ampscale[mpi].
"""

import numpy as np
from mpi4py.MPI import COMM_WORLD

import ampscale
from ampscale.distributed import MPI

x = np.random.default_rng(COMM_WORLD.rank).standard_normal((64, 4)).astype(np.float16)  # each rank has its own data
y = x.sum(1, dtype=np.float32)


def vjp(w, x, y):
    """Return the loss, and the function that computes the gradients of the scaled loss."""
    error = (x @ w.astype(np.float16)).astype(np.float32) - y  # forward pass in float16

    def pullback(scale):  # an array of the loss's shape
        return x.T @ (scale * 2 * error / len(y)).astype(np.float16)  # backward pass in float16

    return np.mean(error**2), pullback


network = ampscale.Network(lambda *inputs: vjp(*inputs)[0], np.zeros(4, np.float32), vjp=vjp)
optimizer = ampscale.optimizers.SGD(network, learning_rate=0.1)
rule = ampscale.LossScaleRule(init_scale=2.0**20, growth_interval=100)  # too large on purpose
state = ampscale.init_train_state(network.params, optimizer, rule)
communicator = MPI()

with np.errstate(over="ignore", invalid="ignore"):  # NumPy warns of an overflow, which the step handles
    for _ in range(50):
        state, report = ampscale.train_step(network, optimizer, rule, state, x, y, max_norm=1.0, communicator=communicator)

print(f"{state.applied} applied, {state.attempted - state.applied} skipped, loss {report.loss:.4f}, scale {report.next_scale}")
