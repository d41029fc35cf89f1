"""Paddle's `GradScaler` on MPI ranks."""

import numpy as np
import pytest
from distributed.training import message_of

import ampscale


def paddle_step(rank, case):
    """Run two steps of scalers that average, and return the error of the second step, in which rank 1 differs."""
    params = [np.ones(2, np.float32), np.ones(2, np.float32)]
    models = [ampscale.Network(sum, [param], vjp=len) for param in params]  # neither `sum` nor `len` is called
    optimizers = [ampscale.optimizers.SGD(model, 1.0) for model in models]
    joint_optimizer = ampscale.optimizers.SGD(ampscale.Network(sum, params, vjp=len), 1.0)
    communicator = ampscale.distributed.MPI(mean=case != "missing, averaged before", timeout=20)
    scalers = [ampscale.paddle.GradScaler(init_loss_scaling=4.0, communicator=communicator) for _ in optimizers]

    def step(stepped, missing):
        for optimizer in stepped:
            scaler = scalers[case == "scalers" and optimizer is optimizers[1]]
            for index, parameter in enumerate(optimizer.parameters):
                parameter.grad = None if index == missing else scaler.scale(np.ones(2, np.float32))
            scaler.step(optimizer)
        for scaler in scalers[: 1 + (case == "scalers")]:
            scaler.update()

    other = rank == 1
    if case.startswith("missing"):
        step([joint_optimizer], 0)
        return message_of(step, [joint_optimizer], int(other))
    step(optimizers, 0)
    return message_of(step, optimizers[:: -1 if other else 1], None)


@pytest.mark.clause("REPLICAS-sizes-compared", "REPLICAS-settings-compared")
@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("missing", "gradients structure differs: [0] on rank 1; [1] on ranks 0, 2, 3"),
        ("missing, averaged before", "gradients structure differs: [0] on rank 1; [1] on ranks 0, 2, 3"),
        ("swapped", "optimizer differs: 1 on rank 1; 0 on ranks 0, 2, 3"),
        ("scalers", "optimizer differs: 1 on rank 1; 0 on ranks 0, 2, 3"),
    ],
)
def test_paddles_scaler_rejects_ranks_whose_gradients_or_optimizer_order_differ(mpi, case, message):
    """
    All ranks raise the same error if rank 1 lacks a different gradient, or its optimizers step in a different order.

    In the last case, each optimizer has its own scaler, and the scalers share a communicator.
    """
    assert mpi.run(paddle_step, case) == 4 * [message]
