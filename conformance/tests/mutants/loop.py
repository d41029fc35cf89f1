"""
Conforming implementation of levels 2 to 5, based on `plain.Plain`: the base class of the mutants of training loops.

Each method takes one decision, so that a mutant overrides one method.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .loop_ranks import Ranks
from .plain import EVERY_SETTING, EVERYTHING, Plain

EVERY_LOOP = (
    *EVERYTHING,
    *("groups", "applied", "loss", "norm", "clip", "momentum", "schedule", "counters"),
    *("replicas", "stays-on-device", "jit", "process"),
    *("ranks", "sharded", "mixed-placements", "mixed-meshes", "distinct", "rank-errors"),
)


class OutOfOrderError(RuntimeError):
    """Error that is raised for a call in the wrong order."""


@dataclass(eq=False)
class Optimizer:
    """Plain SGD with a learning rate of 1: its parameters and their gradients."""

    parameters: list[Any]
    gradients: list[Any]


@dataclass
class Progress:
    """Progress of one optimizer since the last update of the scale."""

    finite: bool | None  # None if no parameter of the optimizer had a gradient
    stepped: bool = False


@dataclass
class Cell:
    """Training cell of the linear network, whose gradients are its data, with momentum SGD."""

    scaler: Any
    parameters: list[Any]
    rates: Sequence[float]
    max_norm: float | None
    momentum: float
    velocities: list[Any]
    attempted: int = 0
    applied: int = 0


class Loop(Ranks, Plain):
    """Adapter of a conforming implementation. Its arguments are those of `Plain`."""

    def __init__(self, preset=EVERY_SETTING, level=5, capabilities=EVERY_LOOP):
        super().__init__(preset, level, capabilities)

    # --- level 2: the adapter's methods ---

    def create(self, rule, **options):
        """Return a scaler that also stores the progress of each optimizer."""
        handle = super().create(rule, **options)
        handle.progress = {}
        return handle

    def add_optimizer(self, handle, parameters):
        """Return an optimizer for copies of the parameters."""
        return Optimizer([np.array(parameter) for parameter in parameters], [None] * len(parameters))

    def set_gradients(self, handle, optimizer, gradients):
        """Store copies of the gradients."""
        optimizer.gradients = [None if gradient is None else np.array(gradient) for gradient in gradients]

    def get_gradients(self, handle, optimizer):
        """Return the current gradients."""
        return optimizer.gradients

    def get_parameters(self, handle, optimizer):
        """Return the current parameters."""
        return optimizer.parameters

    def unscale_(self, handle, optimizer):
        """Unscale the gradients of an optimizer: at most once, and before its step."""
        self.check_unscale(handle, optimizer)
        self.unscale_in_unscale(handle, optimizer)

    def step(self, handle, optimizer):
        """Step an optimizer at most once, and return whether it stepped."""
        self.check_step(handle, optimizer)
        if self.must_unscale(handle, optimizer):
            self.unscale_in_step(handle, optimizer)
        applied = self.decision(handle, optimizer)
        if applied:
            self.apply_gradients(optimizer, self.gradients_of_step(handle, optimizer))
        self.mark_stepped(handle, optimizer, applied)
        return self.step_result(handle, applied)

    def update_scale(self, handle):
        """Update the scale if anything was checked, and end the iteration."""
        self.check_update(handle)
        for flag in self.flags_of_update(handle):
            self.update(handle, flag)
        self.end_iteration(handle)

    # --- level 2: the decisions ---

    def progress_of(self, handle, optimizer):
        """Return the progress of an optimizer, or None if it was neither unscaled nor stepped."""
        return handle.progress.get(optimizer)

    def check_unscale(self, handle, optimizer):
        """Raise an error if `unscale_` must not be called now."""
        if self.progress_of(handle, optimizer) is not None:
            raise OutOfOrderError("unscale_ must be called at most once between updates, and before step")

    def check_step(self, handle, optimizer):
        """Raise an error if `step` must not be called now."""
        progress = self.progress_of(handle, optimizer)
        if progress is not None and progress.stepped:
            raise OutOfOrderError("step must be called at most once between updates")

    def check_update(self, handle):
        """Raise an error if `update_scale` must not be called now."""
        if not handle.progress:
            raise OutOfOrderError("update_scale requires unscale_ or step since the last update")

    def must_unscale(self, handle, optimizer):
        """Return True if a step has to unscale first."""
        return self.progress_of(handle, optimizer) is None

    def unscale_in_unscale(self, handle, optimizer):
        """Unscale the gradients in `unscale_`."""
        self.unscale_now(handle, optimizer)

    def unscale_in_step(self, handle, optimizer):
        """Unscale the gradients in `step`, if `unscale_` has not been called."""
        self.unscale_now(handle, optimizer)

    def unscale_now(self, handle, optimizer):
        """Divide the gradients by the scale, and check them before and after."""
        scaled = optimizer.gradients
        optimizer.gradients = [self.unscaled_gradient(handle, gradient) for gradient in scaled]
        handle.progress[optimizer] = Progress(self.flag_of(scaled, optimizer.gradients))

    def unscaled_gradient(self, handle, gradient):
        """Divide one gradient; None stays None."""
        return None if gradient is None else self.unscaled_leaf(gradient, self.unscaling_scale(handle))

    def unscaling_scale(self, handle):
        """Return the divisor of the gradients."""
        return handle.shown

    def flag_of(self, scaled, unscaled):
        """Return True if all gradients are finite before and after unscaling, or None if there are none."""
        if all(gradient is None for gradient in scaled):
            return None
        return bool(self.all_finite(list(scaled)) and self.all_finite(list(unscaled)))

    def decision(self, handle, optimizer):
        """Return True if the optimizer steps: the flag from the time when its gradients were unscaled."""
        return bool(self.progress_of(handle, optimizer).finite)

    def gradients_of_step(self, handle, optimizer):
        """Return the gradients that the optimizer receives, which are those of the current step."""
        return optimizer.gradients

    def apply_gradients(self, optimizer, gradients):
        """Subtract the gradients from the parameters."""
        pairs = zip(optimizer.parameters, gradients, strict=True)
        with np.errstate(all="ignore"):
            optimizer.parameters = [parameter if gradient is None else parameter - gradient for parameter, gradient in pairs]

    def mark_stepped(self, handle, optimizer, applied):
        """Mark the optimizer as stepped, even if the step was skipped."""
        self.progress_of(handle, optimizer).stepped = True

    def step_result(self, handle, applied):
        """Return the result of `step`."""
        return applied

    def flags_of_update(self, handle):
        """Return the flags for `update`: one for all optimizers with gradients, or none if there are no such optimizers."""
        flags = [progress.finite for progress in handle.progress.values() if progress.finite is not None]
        return [all(flags)] if flags else []

    def end_iteration(self, handle):
        """End the iteration, so that all calls are permitted again."""
        handle.progress = {}

    # --- level 3: the adapter's methods ---

    def create_cell(self, rule, parameters, **options):
        """Return a cell for copies of the parameters."""
        rate = options.get("learning_rate", 1.0)
        rates = list(rate) if isinstance(rate, list | tuple) else [rate]
        copies = [np.array(parameter) for parameter in parameters]
        velocities = [np.zeros_like(parameter) for parameter in copies]
        return Cell(self.create(rule), copies, rates, options.get("max_norm"), options.get("momentum", 0.0), velocities)

    def train_step(self, cell, data):
        """Run the backward pass, unscale, check, clip, apply or skip, and update the scale."""
        scale, rate, old_parameters = cell.scaler.shown, self.rate(cell), list(cell.parameters)
        scaled = [None if value is None else self.backward(value, scale) for value in data]
        gradients = [None if gradient is None else self.unscaled_in_cell(cell, gradient) for gradient in scaled]
        norm = self.norm_of(scaled, gradients)
        finite = self.finite_in_cell(scaled, gradients, norm)
        clipped = self.clip(cell, gradients, norm)
        if finite:
            self.apply(cell, clipped, rate)
        else:
            self.skip(cell, clipped, rate)
        self.count(cell, finite)
        self.update(cell.scaler, finite)
        return self.outputs(
            cell,
            loss=self.loss(old_parameters, cell, data, finite),
            finite=finite,
            scale=float(scale),
            next_scale=self.read_scale(cell.scaler),
            global_norm=self.reported_norm(norm, clipped),
            learning_rate=self.reported_rate(cell, rate),
            attempted=cell.attempted,
            applied=cell.applied,
        )

    # --- level 3: the decisions ---

    def backward(self, data, scale):
        """Return the scaled gradient of the parameter that belongs to *data*."""
        return self.scaled_leaf(data, scale)

    def unscaled_in_cell(self, cell, gradient):
        """Divide one gradient by the scale that it was multiplied by."""
        return self.unscaled_leaf(gradient, cell.scaler.shown)

    def finite_in_cell(self, scaled, gradients, norm):
        """Return True if the step is finite. The norm is not used."""
        return bool(self.all_finite(list(scaled)) and self.all_finite(list(gradients)))

    def norm_of(self, scaled, gradients):
        """Return the global norm of the unscaled gradients."""
        return self.euclidean(gradients)

    def euclidean(self, arrays):
        """Return the norm of all elements together."""
        with np.errstate(all="ignore"):
            return float(np.sqrt(sum(float(np.sum(array.astype(np.float64) ** 2)) for array in arrays if array is not None)))

    def clip(self, cell, gradients, norm):
        """Multiply the gradients by one coefficient if there is a limit."""
        if cell.max_norm is None:
            return list(gradients)
        with np.errstate(all="ignore"):
            coefficient = self.coefficient(cell.max_norm, norm)
            return [leaf if leaf is None else (leaf * coefficient).astype(leaf.dtype) for leaf in gradients]

    def coefficient(self, max_norm, norm):
        """Return the coefficient of clipping."""
        return np.float32(max_norm / (max(norm, max_norm) + 1e-6))

    def rate(self, cell):
        """Return the learning rate of this step."""
        return float(cell.rates[min(self.schedule_index(cell), len(cell.rates) - 1)])

    def schedule_index(self, cell):
        """Return the index into the schedule: the number of steps applied before this one."""
        return int(cell.applied)

    def apply(self, cell, gradients, rate):
        """Update the velocities and parameters that have a gradient."""
        with np.errstate(all="ignore"):
            cell.velocities = [
                velocity if gradient is None else (cell.momentum * velocity + gradient).astype(velocity.dtype)
                for velocity, gradient in zip(cell.velocities, gradients, strict=True)
            ]
            cell.parameters = [
                parameter if gradient is None else (parameter - rate * velocity).astype(parameter.dtype)
                for parameter, velocity, gradient in zip(cell.parameters, cell.velocities, gradients, strict=True)
            ]

    def skip(self, cell, gradients, rate):
        """Leave everything unchanged."""

    def count(self, cell, finite):
        """Count the step as attempted and, if it is finite, as applied."""
        cell.attempted += 1
        cell.applied += finite

    def loss(self, old_parameters, cell, data, finite):
        """Return the unscaled loss of the parameters before the step."""
        with np.errstate(all="ignore"):
            pairs = zip(old_parameters, data, strict=True)
            return float(sum(np.sum(parameter * value) for parameter, value in pairs if value is not None))

    def reported_norm(self, norm, clipped):
        """Return the norm that is reported, which is that before clipping."""
        return norm

    def reported_rate(self, cell, rate):
        """Return the learning rate that is reported: this step's."""
        return rate

    def outputs(self, cell, **numbers):
        """Return the outputs, as a snapshot."""
        return {"parameters": copy.deepcopy(cell.parameters), **numbers}

    # --- level 4: the adapter's methods ---

    def update_replicas(self, handles, finite):
        """Update each replica with the common flag."""
        for rank, handle in enumerate(handles):
            self.update(handle, self.agreed_flag(finite, rank))
        return list(handles)

    def agreed_flag(self, finite, rank):
        """Return the common flag, as one replica computes it."""
        return all(finite)

    def step_on_arrays(self, handle, tree):
        """Unscale, check before and after, and update the scale."""
        unscaled = self.unscale(handle, tree)
        self.update(handle, self.all_finite(tree) and self.all_finite(unscaled))
        return handle, unscaled

    def compiled(self):
        """Return this adapter, since NumPy needs no compilation."""
        return self
