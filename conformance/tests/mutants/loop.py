"""
A right implementation of levels 2 to 4, on the rule and the arrays of `plain.Plain`: the root of the mutants of loops.

Each method takes one decision, so that a mutant differs from it in one method.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .plain import EVERY_SETTING, EVERYTHING, Plain

EVERY_LOOP = (
    *EVERYTHING,
    *(
        "groups",
        "applied",
        "loss",
        "norm",
        "clip",
        "momentum",
        "schedule",
        "counters",
        "replicas",
        "no-host-reads",
        "jit",
        "process",
    ),
)


class OutOfOrderError(RuntimeError):
    """What this implementation raises for a call that comes at the wrong time."""


@dataclass(eq=False)
class Optimizer:
    """Plain SGD with a learning rate of 1, and what lies on its parameters."""

    parameters: list[Any]
    gradients: list[Any]


@dataclass
class Progress:
    """How far one optimizer has come since the last update of the scale."""

    finite: bool | None  # None where none of its parameters had a gradient
    stepped: bool = False


@dataclass
class Cell:
    """A training step of the linear network, whose gradients are its data: momentum SGD."""

    scaler: Any
    parameters: list[Any]
    rates: Sequence[float]
    max_norm: float | None
    momentum: float
    velocities: list[Any]
    attempted: int = 0
    applied: int = 0


class Loop(Plain):
    """The adapter; its arguments are those of `Plain`."""

    def __init__(self, preset=EVERY_SETTING, level=4, capabilities=EVERY_LOOP):
        super().__init__(preset, level, capabilities)

    # --- level 2: the adapter's methods ---

    def create(self, rule, **options):
        """A scaler that also knows how far each optimizer has come."""
        handle = super().create(rule, **options)
        handle.progress = {}
        return handle

    def add_optimizer(self, handle, parameters):
        """An optimizer over copies."""
        return Optimizer([np.array(parameter) for parameter in parameters], [None] * len(parameters))

    def set_gradients(self, handle, optimizer, gradients):
        """Copies of them."""
        optimizer.gradients = [None if gradient is None else np.array(gradient) for gradient in gradients]

    def get_gradients(self, handle, optimizer):
        """As they lie there."""
        return optimizer.gradients

    def get_parameters(self, handle, optimizer):
        """As they are."""
        return optimizer.parameters

    def unscale_(self, handle, optimizer):
        """Once for each optimizer, and before its step."""
        self.check_unscale(handle, optimizer)
        self.unscale_first(handle, optimizer)

    def step(self, handle, optimizer):
        """Once for each optimizer; whether it stepped."""
        self.check_step(handle, optimizer)
        if self.must_unscale(handle, optimizer):
            self.unscale_late(handle, optimizer)
        applied = self.decision(handle, optimizer)
        if applied:
            self.move(optimizer, self.gradients_of_step(handle, optimizer))
        self.close(handle, optimizer, applied)
        return self.answer(handle, applied)

    def update_scale(self, handle):
        """Moves the scale where anything was checked, and closes the iteration."""
        self.check_update(handle)
        for flag in self.flags_of_update(handle):
            self.update(handle, flag)
        self.forget(handle)

    # --- level 2: the decisions ---

    def progress_of(self, handle, optimizer):
        """How far this optimizer is; None for one that has not begun."""
        return handle.progress.get(optimizer)

    def check_unscale(self, handle, optimizer):
        """Whether `unscale_` may come now."""
        if self.progress_of(handle, optimizer) is not None:
            raise OutOfOrderError("unscale_ has to come once, and before step")

    def check_step(self, handle, optimizer):
        """Whether `step` may come now."""
        progress = self.progress_of(handle, optimizer)
        if progress is not None and progress.stepped:
            raise OutOfOrderError("step has to come once")

    def check_update(self, handle):
        """Whether `update_scale` may come now."""
        if not handle.progress:
            raise OutOfOrderError("update_scale has to follow unscale_ or step")

    def must_unscale(self, handle, optimizer):
        """Whether a step has to unscale first."""
        return self.progress_of(handle, optimizer) is None

    def unscale_first(self, handle, optimizer):
        """What `unscale_` does."""
        self.unscale_now(handle, optimizer)

    def unscale_late(self, handle, optimizer):
        """What `step` does where `unscale_` has not been called."""
        self.unscale_now(handle, optimizer)

    def unscale_now(self, handle, optimizer):
        """Divides the gradients by the scale, and looks at them before and after."""
        scaled = optimizer.gradients
        optimizer.gradients = [self.unscaled_gradient(handle, gradient) for gradient in scaled]
        handle.progress[optimizer] = Progress(self.flag_of(scaled, optimizer.gradients))

    def unscaled_gradient(self, handle, gradient):
        """One gradient, divided; None stays None."""
        return None if gradient is None else self.unscaled_leaf(gradient, self.unscaling_scale(handle))

    def unscaling_scale(self, handle):
        """What gradients are divided by."""
        return handle.shown

    def flag_of(self, scaled, unscaled):
        """Whether all are finite on both sides; None where there is none."""
        if all(gradient is None for gradient in scaled):
            return None
        return bool(self.all_finite(list(scaled)) and self.all_finite(list(unscaled)))

    def decision(self, handle, optimizer):
        """Whether the optimizer is to step: what was found when its gradients were unscaled."""
        return bool(self.progress_of(handle, optimizer).finite)

    def gradients_of_step(self, handle, optimizer):
        """What the optimizer gets: what lies there now."""
        return optimizer.gradients

    def move(self, optimizer, gradients):
        """Subtracts the gradients."""
        pairs = zip(optimizer.parameters, gradients, strict=True)
        optimizer.parameters = [parameter if gradient is None else parameter - gradient for parameter, gradient in pairs]

    def close(self, handle, optimizer, applied):
        """The optimizer has had its step, also where it was skipped."""
        self.progress_of(handle, optimizer).stepped = True

    def answer(self, handle, applied):
        """What `step` returns."""
        return applied

    def flags_of_update(self, handle):
        """The flags by which the scale moves: one for all optimizers that had gradients, and none without any."""
        found = [progress.finite for progress in handle.progress.values() if progress.finite is not None]
        return [all(found)] if found else []

    def forget(self, handle):
        """Everything may come again."""
        handle.progress = {}

    # --- level 3: the adapter's methods ---

    def create_cell(self, rule, parameters, **options):
        """A cell over copies."""
        rate = options.get("learning_rate", 1.0)
        rates = list(rate) if isinstance(rate, list | tuple) else [rate]
        own = [np.array(parameter) for parameter in parameters]
        rest = [np.zeros_like(parameter) for parameter in own]
        return Cell(self.create(rule), own, rates, options.get("max_norm"), options.get("momentum", 0.0), rest)

    def train_step(self, cell, data):
        """Backward, unscale, check, clip, apply or skip, update."""
        scale, rate, before = cell.scaler.shown, self.rate(cell), list(cell.parameters)
        scaled = [self.backward(value, scale) for value in data]
        gradients = [self.unscaled_in_cell(cell, gradient) for gradient in scaled]
        norm = self.norm_of(scaled, gradients)
        finite = self.finite_in_cell(scaled, gradients, norm)
        clipped = self.clip(cell, gradients, norm)
        (self.apply if finite else self.skip)(cell, clipped, rate)
        self.count(cell, finite)
        self.update(cell.scaler, finite)
        return self.outputs(
            cell,
            loss=self.loss(before, cell, data, finite),
            finite=finite,
            scale=float(scale),
            next_scale=self.read_scale(cell.scaler),
            global_norm=self.told_norm(norm, clipped),
            learning_rate=self.told_rate(cell, rate),
            attempted=cell.attempted,
            applied=cell.applied,
        )

    # --- level 3: the decisions ---

    def backward(self, data, scale):
        """The scaled gradient of the parameter that this is the data of."""
        return self.scaled_leaf(data, scale)

    def unscaled_in_cell(self, cell, gradient):
        """One gradient, divided by the scale that it was multiplied by."""
        return self.unscaled_leaf(gradient, cell.scaler.shown)

    def finite_in_cell(self, scaled, gradients, norm):
        """Whether the step is finite: what the norm is does not matter."""
        return bool(self.all_finite(list(scaled)) and self.all_finite(list(gradients)))

    def norm_of(self, scaled, gradients):
        """The global norm of the unscaled gradients."""
        return self.euclidean(gradients)

    def euclidean(self, arrays):
        """The norm of all elements together."""
        with np.errstate(all="ignore"):
            return float(np.sqrt(sum(float(np.sum(array.astype(np.float64) ** 2)) for array in arrays)))

    def clip(self, cell, gradients, norm):
        """Gradients times one coefficient, where there is a limit."""
        if cell.max_norm is None:
            return list(gradients)
        with np.errstate(all="ignore"):
            coefficient = self.coefficient(cell.max_norm, norm)
            return [(gradient * coefficient).astype(gradient.dtype) for gradient in gradients]

    def coefficient(self, max_norm, norm):
        """What clipping multiplies by."""
        return np.float32(max_norm / (max(norm, max_norm) + 1e-6))

    def rate(self, cell):
        """The learning rate of this step."""
        return float(cell.rates[min(self.place(cell), len(cell.rates) - 1)])

    def place(self, cell):
        """How far the schedule is: at the applied steps before this one."""
        return int(cell.applied)

    def apply(self, cell, gradients, rate):
        """Moves velocities and parameters."""
        with np.errstate(all="ignore"):
            cell.velocities = [
                (cell.momentum * velocity + gradient).astype(velocity.dtype)
                for velocity, gradient in zip(cell.velocities, gradients, strict=True)
            ]
            cell.parameters = [
                (parameter - rate * velocity).astype(parameter.dtype)
                for parameter, velocity in zip(cell.parameters, cell.velocities, strict=True)
            ]

    def skip(self, cell, gradients, rate):
        """Leaves everything as it is."""

    def count(self, cell, finite):
        """Counts every step, and those that were applied."""
        cell.attempted += 1
        cell.applied += finite

    def loss(self, before, cell, data, finite):
        """The unscaled loss of the parameters before the step."""
        with np.errstate(all="ignore"):
            return float(sum(np.sum(parameter * value) for parameter, value in zip(before, data, strict=True)))

    def told_norm(self, norm, clipped):
        """The norm that is told: before clipping."""
        return norm

    def told_rate(self, cell, rate):
        """The learning rate that is told: this step's."""
        return rate

    def outputs(self, cell, **numbers):
        """The outputs, as a snapshot."""
        return {"parameters": copy.deepcopy(cell.parameters), **numbers}

    # --- level 4: the adapter's methods ---

    def update_replicas(self, handles, finite):
        """Each rank moves by the one flag of all."""
        for rank, handle in enumerate(handles):
            self.update(handle, self.agreed(finite, rank))
        return list(handles)

    def agreed(self, finite, rank):
        """What a rank takes for the flag of all."""
        return all(finite)

    def step_on_arrays(self, handle, tree):
        """Unscales, looks on both sides, and moves the scale."""
        unscaled = self.unscale(handle, tree)
        self.update(handle, self.all_finite(tree) and self.all_finite(unscaled))
        return handle, unscaled

    def compiled(self):
        """NumPy is compiled already."""
        return self
