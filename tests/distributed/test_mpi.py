"""Paddle's `GradScaler` on MPI ranks."""

import math

import numpy as np
import pytest
from distributed.training import message_of
from linear import network

import ampscale


def optimizer_of(count):
    """Return an optimizer of *count* parameters."""
    return ampscale.optimizers.SGD(network([np.ones(2, np.float32) for _ in range(count)]), 1.0)


def scaler_of(communicator):
    return ampscale.paddle.GradScaler(init_loss_scaling=4.0, communicator=communicator)


def step(scaler, optimizer, missing=None):
    """Step an optimizer with gradients of ones, except the one with the index *missing*, which is None."""
    for index, parameter in enumerate(optimizer.parameters):
        parameter.grad = None if index == missing else scaler.scale(np.ones(2, np.float32))
    scaler.step(optimizer)


def missing_gradient(rank, mean):
    """Step twice without the first of two gradients; rank 1 lacks the other one in the second step. Return the error."""
    optimizer = optimizer_of(2)
    scaler = scaler_of(ampscale.distributed.MPI(mean=mean, timeout=20))
    step(scaler, optimizer, missing=0)
    scaler.update()
    return message_of(step, scaler, optimizer, missing=1 if rank == 1 else 0)


def another_order(rank, scaler_count):
    """Step two optimizers with one or two scalers, twice; rank 1 reverses the order the second time. Return the error."""
    communicator = ampscale.distributed.MPI(timeout=20)
    scalers = [scaler_of(communicator) for _ in range(scaler_count)]
    pairs = [(scalers[0], optimizer_of(1)), (scalers[-1], optimizer_of(1))]

    def step_all(pairs):
        for scaler, optimizer in pairs:
            step(scaler, optimizer)
        for scaler in scalers:
            scaler.update()

    step_all(pairs)
    return message_of(step_all, pairs[::-1] if rank == 1 else pairs)


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_mpi_agrees_on_arrays_that_it_cannot_average(library):
    """The norm of the second step is NaN."""
    xp = pytest.importorskip(library)
    communicator = ampscale.distributed.MPI(pytest.importorskip("mpi4py.MPI").COMM_SELF, gradients="distinct")
    for value, applied, norm in [(0.5, True, "0.5"), (math.nan, False, "nan")]:
        model = network([xp.ones(1)])
        train = ampscale.mindformers.MFTrainOneStepCell(
            model, ampscale.optimizers.SGD(model, 0.5), use_clip_grad=True, communicator=communicator
        )
        train([xp.asarray([value])])
        assert (bool(train.last_step.applied), str(float(train.last_step.global_norm))) == (applied, norm)
        assert model.params[0].item() == pytest.approx(0.75 if applied else 1.0)


STRUCTURE = "gradients structure differs: [0] on rank 1; [1] on ranks 0, 2, 3"
ORDER = "optimizer differs: 1 on rank 1; 0 on ranks 0, 2, 3"


@pytest.mark.clause("REPLICAS-sizes-compared", "REPLICAS-settings-compared")
@pytest.mark.parametrize(
    ("function", "argument", "message"),
    [
        (missing_gradient, True, STRUCTURE),
        (missing_gradient, False, STRUCTURE),
        (another_order, 1, ORDER),
        (another_order, 2, ORDER),
    ],
)
def test_paddles_scaler_rejects_ranks_whose_gradients_or_optimizer_order_differ(mpi, function, argument, message):
    """
    One rank lacks a gradient, with and without averaging, or steps two optimizers, with one or two scalers, in another order.

    All ranks raise the same error.
    """
    assert mpi.run(function, argument) == 4 * [message]
