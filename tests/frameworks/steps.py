"""Optimizers for Paddle's scaler, functions that create, run and read it, and a monitor for Paddle's and torch's scalers."""

from collections import namedtuple
from types import SimpleNamespace

import numpy as np
from frameworks.networks import array, input_of

from ampscale import GradScaler


class GradientDescent:
    """Gradient descent with rate 1, over one parameter of zeros for each gradient; None is a parameter without gradient."""

    def __init__(self, *gradients):
        zeros = [None if gradient is None else np.zeros_like(gradient) for gradient in gradients]
        self.parameters = [SimpleNamespace(value=value, grad=grad) for value, grad in zip(zeros, gradients, strict=True)]
        self.steps = 0

    def step(self):
        self.steps += 1
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.value = parameter.value - parameter.grad

    @property
    def gradients(self):
        return [parameter.grad for parameter in self.parameters]


Begin = namedtuple("Begin", "gradients scale owner stale modified change")
End = namedtuple("End", "scale next_scale finite applied gradients owner")


class RecordingMonitor:
    """Monitor that stores its arguments, with gradients as lists of numbers."""

    def __init__(self):
        self.losses, self.begins, self.ends, self.changes = [], [], [], []

    def observe_loss(self, loss):
        self.losses.append(loss)

    def begin(self, gradients, scale, owner, *, stale, modified, change=None):
        self.begins.append(Begin([gradient.tolist() for gradient in gradients], scale, owner, stale, modified, change))

    def end(self, scale, next_scale, finite, applied, gradients, owner, *, changed):
        self.changes.append(changed)
        self.ends.append(End(scale, next_scale, finite, applied, [gradient.tolist() for gradient in gradients], owner))


class Minimizing(GradientDescent):
    """Optimizer that also has Paddle's `minimize`, which returns its arguments."""

    def minimize(self, loss, startup_program=None, *, parameters=None):
        self.step()
        return loss, startup_program, parameters


def scaler_at(scale, **arguments):
    """Return a scaler whose scale grows at every finite step and backs off at every overflow."""
    return GradScaler(**{"init_loss_scaling": scale, "incr_every_n_steps": 1, "decr_every_n_nan_or_inf": 1, **arguments})


def run_step(scaler, letter):
    """Run a finite (F) or overflowing (O) step, and the update."""
    scaler.step(GradientDescent(array(input_of(letter))))
    scaler.update()


def state_of(scaler):
    """Return the scale, and the counts of finite steps and of overflows."""
    state = scaler.state_dict()
    return float(state["scale"][0]), state["incr_count"], state["decr_count"]
