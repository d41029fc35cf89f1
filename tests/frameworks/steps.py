"""An optimizer as Paddle's scaler sees one, and one step with it."""

from types import SimpleNamespace

import numpy as np
from frameworks.networks import array, data

from ampscale import GradScaler


class Plain:
    """Descent at a rate of 1, over one parameter of zeros for each gradient; None is a parameter without one."""

    def __init__(self, *gradients):
        zeros = [None if gradient is None else np.zeros_like(gradient) for gradient in gradients]
        self.parameters = [SimpleNamespace(value=value, grad=grad) for value, grad in zip(zeros, gradients, strict=True)]
        self.steps = 0

    def step(self):
        """Moves what has a gradient."""
        self.steps += 1
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.value = parameter.value - parameter.grad

    @property
    def gradients(self):
        """Of all parameters, as they are now."""
        return [parameter.grad for parameter in self.parameters]


class Minimizing(Plain):
    """One that also has Paddle's `minimize`, and returns what it was given."""

    def minimize(self, loss, startup_program=None, *, parameters=None):
        """A step."""
        self.step()
        return loss, startup_program, parameters


def scaler_at(scale, **arguments):
    """A scaler whose scale grows at every finite step and shrinks at every overflow."""
    return GradScaler(**{"init_loss_scaling": scale, "incr_every_n_steps": 1, "decr_every_n_nan_or_inf": 1, **arguments})


def take(scaler, letter):
    """One step, finite (F) or with an overflow (O), and the update."""
    scaler.step(Plain(array(data(letter))))
    scaler.update()


def stands(scaler):
    """All that the next steps depend on."""
    state = scaler.state_dict()
    return float(state["scale"][0]), state["incr_count"], state["decr_count"]
