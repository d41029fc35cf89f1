"""Training loops of a rank on the scenarios, one for each API. Each yields flag, scale, norm and a hash of the parameters."""

from functools import partial
from hashlib import sha256

import numpy as np
from distributed.scenarios import SHAPES, gradients
from linear import network

import ampscale
from ampscale.distributed import RankError
from ampscale.mindformers import MFTrainOneStepCell
from ampscale.mindspore import DynamicLossScaleUpdateCell, TrainOneStepWithLossScaleCell

RULE = ampscale.LossScaleRule(init_scale=2.0**10, growth_interval=2)


def communicator_of(engine, layout, size=4, **keywords):
    """Return a communicator, the index of this rank in it, and a function that converts NumPy arrays to the engine's library."""
    options = {"gradients": "replicated", "mean": False} if layout == "averaged" else {"gradients": layout}
    if engine == "mpi":
        from mpi4py.MPI import COMM_WORLD

        from ampscale.distributed import MPI

        comm = COMM_WORLD if size == 4 else COMM_WORLD.Split(COMM_WORLD.Get_rank() // size)
        communicator = MPI(comm, **options, **keywords)
        return communicator, comm.Get_rank(), np.asarray
    import torch
    import torch.distributed as dist

    from ampscale.distributed import TorchDistributed

    groups = [None] if size == 4 else [dist.new_group([*range(start, start + size)]) for start in range(0, 4, size)]
    communicator = TorchDistributed(groups[dist.get_rank() // size], **options, **keywords)
    return communicator, dist.get_rank() % size, torch.from_numpy


def message_of(function, *args, error=RankError, **keywords):
    """Return the message of the error that a call raises, or None."""
    try:
        function(*args, **keywords)
    except error as raised:
        return str(raised)
    return None


def bits(value):
    """Return the bits of a float32 number."""
    return np.asarray(value, np.float32).tobytes().hex()


def digest(arrays):
    """Return a hash of the bits of all arrays."""
    return sha256(b"".join(np.asarray(array).tobytes() for array in arrays)).hexdigest()[:16]


def params_of(layout, index, make, scenario):
    """Return parameters with the shapes of the gradients of a rank."""
    arrays = scenario(layout, 0, 1.0)[0][index]
    shapes = [SHAPES[index], SHAPES[index + 2]] if layout == "distinct" else [array.shape for array in arrays]
    return [make(np.ones(shape, np.float32)) for shape in shapes]


def converted(arrays, make):
    """Return NumPy arrays converted by *make*; None stays None."""
    return [None if array is None else make(array) for array in arrays]


def run(rank, engine, api, layout, max_norm, steps, seed, size=4):
    """Return, for each step, the flag, the next scale, the bits of the norm or None, and a hash of the parameters."""
    communicator, index, make = communicator_of(engine, layout, size, timeout=10)
    seed += rank // size  # groups of two ranks are independent of each other
    return list(APIS[api](communicator, layout, max_norm, steps, make, index, partial(gradients, size=size, seed=seed)))


def train_step(communicator, layout, max_norm, steps, make, index, scenario):
    """Run `ampscale.train_step`."""
    model = network(params_of(layout, index, make, scenario))
    optimizer = ampscale.optimizers.SGD(model, 0.125)
    state = ampscale.init_train_state(model.params, optimizer, RULE)
    for step in range(steps):
        inputs = converted(scenario(layout, step, float(state.scaler.scale))[0][index], make)
        with np.errstate(all="ignore"):
            state, report = ampscale.train_step(
                model, optimizer, RULE, state, inputs, max_norm=max_norm, communicator=communicator
            )
        norm = None if report.global_norm is None else bits(report.global_norm)
        yield bool(report.finite), float(report.next_scale), norm, digest(state.params)


def cell(communicator, layout, max_norm, steps, make, index, scenario):
    """Run `TrainOneStepWithLossScaleCell`; if *max_norm* is given, `MFTrainOneStepCell`, which accumulates two micro-batches."""
    model = network(params_of(layout, index, make, scenario))
    arguments = [model, ampscale.optimizers.SGD(model, 0.125)]
    scale = DynamicLossScaleUpdateCell(2.0**10, 2, 2)
    if max_norm is None:
        train = TrainOneStepWithLossScaleCell(*arguments, scale, communicator=communicator)
    else:
        clipping = {"use_clip_grad": True, "max_grad_norm": max_norm, "gradient_accumulation_steps": 2}
        train = MFTrainOneStepCell(*arguments, scale_sense=scale, communicator=communicator, **clipping)
    for step in range(steps):
        inputs = converted(scenario(layout, step, float(train.scale_sense))[0][index], make)
        with np.errstate(all="ignore"):
            if max_norm is not None:
                train([None if array is None else make(np.ones(array.shape, np.float32)) for array in inputs])
            train(inputs)
        norm = None if train.last_step.global_norm is None else bits(train.last_step.global_norm)
        yield bool(train.last_step.finite), float(train.scale_sense), norm, digest(model.params)


def paddle(communicator, layout, max_norm, steps, make, index, scenario):  # noqa: ARG001 - signature of all loops
    """Run Paddle's `GradScaler`, which does not average."""
    model = network(params_of(layout, index, make, scenario))
    optimizer = ampscale.optimizers.SGD(model, 0.125)
    scaler = ampscale.paddle.GradScaler(
        init_loss_scaling=2.0**10, incr_every_n_steps=2, decr_every_n_nan_or_inf=1, communicator=communicator
    )
    for step in range(steps):
        arrays = converted(scenario(layout, step, scaler.get_loss_scaling())[0][index], make)
        with np.errstate(all="ignore"):
            for parameter, array in zip(optimizer.parameters, arrays, strict=True):
                parameter.grad = None if array is None else scaler.scale(array)
            applied = scaler.step(optimizer)
            scaler.update()
        yield applied, scaler.get_loss_scaling(), None, digest(model.params)


def torch_scaler(communicator, layout, max_norm, steps, make, index, scenario):  # noqa: ARG001 - signature of all loops
    """Run `ampscale.torch.GradScaler`, which does not average."""
    import torch

    parameters = [torch.nn.Parameter(param) for param in params_of(layout, index, make, scenario)]
    optimizer = torch.optim.SGD(parameters, 0.125)
    scaler = ampscale.torch.GradScaler("cpu", 2.0**10, growth_interval=2, communicator=communicator)
    scaler.scale(torch.ones(()))
    for step in range(steps):
        arrays = converted(scenario(layout, step, scaler.get_scale())[0][index], make)
        for parameter, array in zip(parameters, arrays, strict=True):
            parameter.grad = None if array is None else array * scaler.get_scale()
        applied = scaler.step(optimizer)
        scaler.update()
        yield bool(applied), scaler.get_scale(), None, digest([parameter.detach() for parameter in parameters])


APIS = {"train_step": train_step, "cell": cell, "paddle": paddle, "torch": torch_scaler}
