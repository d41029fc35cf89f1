"""
Seven training loops, written as a user writes them.

A loop takes a network, an optimizer and batches, and yields a `Step` for each batch. ``pullback(seed)`` returns the gradients.
With a seed of 16384, all values of the backward pass are 16384 times larger than with a seed of 1: this is loss scaling.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

import ampscale
from ampscale import Network
from ampscale.optimizers import Optimizer


class Step(NamedTuple):
    """Result of one training step."""

    loss: float
    scale: float  # scale that this step used
    overflow: bool
    applied: bool


Batches = Iterable[tuple[Any, Any]]  # images and answers
Loop = Callable[[Network, Optimizer, Batches], Iterator[Step]]


def no_scaling(network: Network, optimizer: Optimizer, batches: Batches) -> Iterator[Step]:
    """Train without a scaler. The gradients are not checked, and every step is applied."""
    for images, answers in batches:
        loss, pullback = network.vjp(network.params, images, answers)
        gradients = pullback(np.float32(1))
        optimizer(gradients)
        overflow = not ampscale.all_finite(gradients)
        yield Step(float(loss), 1.0, overflow, applied=True)


def by_hand(scaler: ampscale.LossScaler, network: Network, optimizer: Optimizer, batches: Batches) -> Iterator[Step]:
    """Train with MindSpore's functions: scale, unscale, all_finite, adjust."""
    for images, answers in batches:
        scale = scaler.scale(np.float32(1))
        loss, pullback = network.vjp(network.params, images, answers)
        gradients = scaler.unscale(pullback(scale))
        finite = ampscale.all_finite(gradients)
        if finite:
            optimizer(gradients)
        scaler.adjust(finite)
        yield Step(float(loss), float(scale), not finite, applied=bool(finite))


def static_scaler(network: Network, optimizer: Optimizer, batches: Batches) -> Iterator[Step]:
    """Train with a constant scale."""
    return by_hand(ampscale.StaticLossScaler(2.0**12), network, optimizer, batches)


def dynamic_scaler(network: Network, optimizer: Optimizer, batches: Batches) -> Iterator[Step]:
    """Train with a scale that starts too high, is halved at each overflow, and is doubled after 50 finite steps."""
    scaler = ampscale.DynamicLossScaler(scale_value=2.0**24, scale_factor=2, scale_window=50)
    return by_hand(scaler, network, optimizer, batches)


def grad_scaler(network: Network, optimizer: Optimizer, batches: Batches) -> Iterator[Step]:
    """Train with Paddle's methods: scale, backward, minimize. Two overflows without a growth between them halve the scale."""
    scaler = ampscale.GradScaler(init_loss_scaling=2.0**15, incr_every_n_steps=20, decr_every_n_nan_or_inf=2)
    for images, answers in batches:
        scale = scaler.scale(np.float32(1))
        loss = network.backward(images, answers, seed=scale)  # fills parameter.grad
        finite = ampscale.all_finite([parameter.grad for parameter in optimizer.parameters])
        scaler.minimize(optimizer, scaler.scale(loss))
        yield Step(float(loss), float(scale), not finite, applied=bool(finite))


def by_cell(cell: Callable[..., Any], scale: float, batches: Batches) -> Iterator[Step]:
    """Train with a cell of MindSpore, which runs a whole step in one call."""
    for images, answers in batches:
        loss, overflow, next_scale, *_ = cell(images, answers)
        yield Step(float(loss), scale, bool(overflow), applied=not overflow)
        scale = float(next_scale)


def step_cell(network: Network, optimizer: Optimizer, batches: Batches) -> Iterator[Step]:
    """Train with a scale that starts too low and grows."""
    update_cell = ampscale.DynamicLossScaleUpdateCell(loss_scale_value=2.0**8, scale_factor=2, scale_window=10)
    cell = ampscale.TrainOneStepWithLossScaleCell(network, optimizer, update_cell)
    return by_cell(cell, update_cell.get_loss_scale(), batches)


def clipping_cell(network: Network, optimizer: Optimizer, batches: Batches) -> Iterator[Step]:
    """Train with the cell of MindFormers, which also clips the unscaled gradients by their global norm."""
    update_cell = ampscale.DynamicLossScaleUpdateCell(loss_scale_value=2.0**20, scale_factor=4, scale_window=60)
    cell = ampscale.MFTrainOneStepCell(network, optimizer, use_clip_grad=True, max_grad_norm=0.5, scale_sense=update_cell)
    return by_cell(cell, update_cell.get_loss_scale(), batches)


class Run(NamedTuple):
    """Training loop and dtype of one row of the table."""

    name: str
    dtype: str
    loop: Loop


RUNS = (
    Run("float32", "float32", no_scaling),
    Run("float16 without scaling", "float16", no_scaling),
    Run("StaticLossScaler", "float16", static_scaler),
    Run("DynamicLossScaler", "float16", dynamic_scaler),
    Run("GradScaler", "float16", grad_scaler),
    Run("TrainOneStepWithLossScaleCell", "float16", step_cell),
    Run("MFTrainOneStepCell", "float16", clipping_cell),
)
