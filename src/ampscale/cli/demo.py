"""
Seven ways to train, each as the loop that a user writes.

Every loop is given a network, an optimizer and batches, and yields what it saw at each step. The gradients come from
``pullback(seed)``: a seed of 1 gives them as they are; a seed of 65536 gives them 65536 times larger, which is what
"scale the loss" means.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

import ampscale
from ampscale.optimizers import Optimizer


class Step(NamedTuple):
    """What a loop saw at one step."""

    loss: float
    scale: float  # the one that this step used
    overflow: bool


Batches = Iterable[tuple[Any, Any]]
Loop = Callable[[ampscale.Network, Optimizer, Batches], Iterator[Step]]


def no_scaling(network: ampscale.Network, optimizer: Optimizer, batches: Batches) -> Iterator[Step]:
    """Training as it is without a scaler."""
    for images, answers in batches:
        loss, pullback = network.vjp(network.params, images, answers)
        gradients = pullback(np.ones_like(loss))
        optimizer(gradients)
        yield Step(float(loss), 1.0, not ampscale.all_finite(gradients))


def by_hand(scaler: ampscale.LossScaler, network: ampscale.Network, optimizer: Optimizer, batches: Batches) -> Iterator[Step]:
    """MindSpore's functional way: scale, unscale, all_finite, adjust."""
    for images, answers in batches:
        scale = scaler.scale(np.float32(1))
        loss, pullback = network.vjp(network.params, images, answers)
        gradients = scaler.unscale(pullback(scale))
        finite = ampscale.all_finite(gradients)
        if finite:
            optimizer(gradients)
        scaler.adjust(finite)
        yield Step(float(loss), float(scale), not finite)


def static_scaler(network: ampscale.Network, optimizer: Optimizer, batches: Batches) -> Iterator[Step]:
    """A scale that stays."""
    yield from by_hand(ampscale.StaticLossScaler(2.0**14), network, optimizer, batches)


def dynamic_scaler(network: ampscale.Network, optimizer: Optimizer, batches: Batches) -> Iterator[Step]:
    """A scale that halves at an overflow and doubles after 50 good steps; it starts too high, and comes down."""
    scaler = ampscale.DynamicLossScaler(scale_value=2.0**30, scale_factor=2, scale_window=50)
    yield from by_hand(scaler, network, optimizer, batches)


def grad_scaler(network: ampscale.Network, optimizer: Optimizer, batches: Batches) -> Iterator[Step]:
    """Paddle's way: scale the loss, backward, minimize. Two overflows halve the scale."""
    scaler = ampscale.GradScaler(init_loss_scaling=2.0**20, incr_every_n_steps=30, decr_every_n_nan_or_inf=2)
    for images, answers in batches:
        scale = scaler.scale(np.float32(1))
        loss = network.backward(images, answers, seed=scale)  # fills parameter.grad
        overflow = not ampscale.all_finite([parameter.grad for parameter in network.parameters])
        scaler.minimize(optimizer, scaler.scale(loss))
        yield Step(float(loss), float(scale), overflow)


def one_step_cell(network: ampscale.Network, optimizer: Optimizer, batches: Batches) -> Iterator[Step]:
    """MindSpore's cell: a whole step in one call."""
    manager = ampscale.DynamicLossScaleUpdateCell(loss_scale_value=2.0**12, scale_factor=2, scale_window=20)
    cell = ampscale.TrainOneStepWithLossScaleCell(network, optimizer, scale_sense=manager)
    scale = float(cell.scale_sense)
    for images, answers in batches:
        loss, overflow, next_scale = cell(images, answers)
        yield Step(float(loss), scale, bool(overflow))
        scale = float(next_scale)


def clipping_cell(network: ampscale.Network, optimizer: Optimizer, batches: Batches) -> Iterator[Step]:
    """MindFormers' cell, which clips the gradients by their global norm, after unscaling."""
    manager = ampscale.DynamicLossScaleUpdateCell(loss_scale_value=2.0**26, scale_factor=4, scale_window=40)
    cell = ampscale.MFTrainOneStepCell(network, optimizer, use_clip_grad=True, max_grad_norm=1e-5, scale_sense=manager)
    scale = float(cell.scale_sense)
    for images, answers in batches:
        loss, overflow, next_scale, _, _ = cell(images, answers)
        yield Step(float(loss), scale, bool(overflow))
        scale = float(next_scale)


class Run(NamedTuple):
    """One line of the table."""

    name: str
    dtype: str
    loop: Loop


RUNS = (
    Run("float32", "float32", no_scaling),
    Run("float16, no scaling", "float16", no_scaling),
    Run("StaticLossScaler", "float16", static_scaler),
    Run("DynamicLossScaler", "float16", dynamic_scaler),
    Run("GradScaler", "float16", grad_scaler),
    Run("TrainOneStepWithLossScaleCell", "float16", one_step_cell),
    Run("MFTrainOneStepCell", "float16", clipping_cell),
)
