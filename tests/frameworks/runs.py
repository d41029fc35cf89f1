"""A run of each class that carries something from step to step: made, stepped, saved and loaded."""

from collections.abc import Mapping

import numpy as np
from frameworks.networks import array, bits, data, linear

from ampscale import GradScaler, optimizers
from ampscale.frameworks.mindformers import MFTrainOneStepCell
from ampscale.frameworks.mindspore import DynamicLossScaler, DynamicLossScaleUpdateCell, TrainOneStepWithLossScaleCell

TRACE = "FFFOFFFOOFFFFFOFOOOFFFFFFFOFOF"


class Scaler:
    """A `DynamicLossScaler` in a loop; loading brings its factor and window too."""

    def __init__(self, factor=4, window=9):
        self.saved = DynamicLossScaler(8, factor, window)

    def step(self, letter):
        """What can be seen of a step."""
        self.saved.adjust(letter == "F")
        return self.saved.state_dict()


class UpdateCell:
    """A `DynamicLossScaleUpdateCell`, which does not hold the scale."""

    def __init__(self):
        self.saved, self.scale = DynamicLossScaleUpdateCell(8, 3, 3), array([8])

    def step(self, letter):
        """The scale and both counters."""
        self.saved(self.scale, letter == "O")
        return self.scale.tolist(), self.saved.state_dict()

    def beside(self):
        """The scale."""
        return self.scale

    def put(self, beside):
        """The scale back."""
        self.scale = beside


class Paddle:
    """A `GradScaler` in a loop; loading brings its ratios and intervals too."""

    def __init__(self, decr_count, **arguments):
        self.saved = GradScaler(decr_count=decr_count, **arguments)
        self.network = linear([1, 2])
        self.optimizer = optimizers.Momentum(self.network, 0.5)

    def step(self, letter):
        """The whole state of the scaler, and of the optimizer."""
        self.network.parameters[0].grad = data(letter) * array(self.saved.get_loss_scaling())
        self.saved.minimize(self.optimizer, None)
        return frozen((self.saved.state_dict(), self.beside()))

    def beside(self):
        """Parameters and optimizer."""
        return self.network.params, self.optimizer.state

    def put(self, beside):
        """Them back."""
        self.network.params, self.optimizer.state = beside


class Cell(Paddle):
    """A step cell; *make* makes it from a network and an optimizer."""

    def __init__(self, make):
        self.network = linear([1, 2], dtype="float16")
        self.optimizer = optimizers.AdamW(self.network, [2.0**-index for index in range(9)])
        self.saved = make(self.network, self.optimizer)

    def step(self, letter):
        """All outputs, and the parameters after the step."""
        return bits([*self.saved(data(letter)), *self.network.params])


def one_step(network, optimizer):
    """The base cell."""
    return TrainOneStepWithLossScaleCell(network, optimizer, DynamicLossScaleUpdateCell(8, 2, 3))


def mindformers(network, optimizer):
    """MindFormers' cell with everything on; a trace of thirty calls ends ten steps, and saves in the midst of others."""
    moving = DynamicLossScaleUpdateCell(8, 2, 3)
    return MFTrainOneStepCell(network, optimizer, True, 1.0, moving, True, gradient_accumulation_steps=3, ema_decay=0.75)


RUNS = {
    "scaler": (lambda: Scaler(2, 3), Scaler),
    "update cell": (UpdateCell, UpdateCell),
    "accumulated": (lambda: Paddle("accumulated", incr_every_n_steps=3), lambda: Paddle("accumulated", init_loss_scaling=2)),
    "consecutive": (lambda: Paddle("consecutive", incr_every_n_steps=3), lambda: Paddle("consecutive", incr_ratio=7)),
    "step cell": (lambda: Cell(one_step), lambda: Cell(one_step)),
    "MindFormers": (lambda: Cell(mindformers), lambda: Cell(mindformers)),
}


def frozen(value):
    """A saved state in a form that can be compared, bit for bit."""
    if isinstance(value, Mapping):
        return {key: frozen(child) for key, child in value.items()}
    if isinstance(value, tuple | list):
        return [frozen(child) for child in value]
    return bits([value]) if isinstance(value, np.ndarray | np.generic) else (type(value), value)
