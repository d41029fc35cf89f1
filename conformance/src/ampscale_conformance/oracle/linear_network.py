"""
A network that can be checked by hand, and the optimizer over it: loss = sum(parameter * data), and plain gradient descent.

The gradients of that loss are its data, so that a case chooses them.
"""

from collections.abc import Sequence

from ..model.bits import Bits
from ..model.floats import Number, format_of, rounded
from .arithmetic import difference, product, total
from .tensors import computed_in, from_numbers, numbers


def loss_of(parameters: Sequence[Bits], data: Sequence[Bits | None]) -> float:
    """sum(parameter * data) in float32: each product is rounded, and each sum, in their order. None adds nothing."""
    loss: Number = 0.0
    for parameter, leaf in zip(parameters, data, strict=True):
        if leaf is None:
            continue
        products = [_times(value, entry) for value, entry in zip(numbers(parameter), numbers(leaf), strict=True)]
        loss = total([loss, _added_up(products)], "float32")
    return float(loss)


def gradients_of(parameters: Sequence[Bits], data: Sequence[Bits | None], seed: float) -> list[Bits | None]:
    """The data times the seed in float32, rounded to the dtypes of the parameters; None is no gradient."""
    held = rounded(seed, "float32")
    return [
        None if leaf is None else from_numbers(parameter.dtype, parameter.shape, [_times(entry, held) for entry in numbers(leaf)])
        for parameter, leaf in zip(parameters, data, strict=True)
    ]


class Descent:
    """
    Gradient descent with momentum, v = momentum * v + gradient, and with float32 master weights for 16-bit parameters.

    Args:
        parameters: Floats.
        learning_rate: A number; or several, one for each applied step, and the last for ever after.
        momentum: From 0 up and below 1.

    Raises:
        ValueError: A parameter holds no floats.
    """

    def __init__(self, parameters: Sequence[Bits], learning_rate: float | Sequence[float] = 1.0, momentum: float = 0.0) -> None:
        for parameter in parameters:
            format_of(parameter.dtype)
        self.parameters = list(parameters)
        self.rates = [learning_rate] if isinstance(learning_rate, int | float) else list(learning_rate)
        self.momentum = momentum
        self.applied = 0
        self._masters = [numbers(parameter) for parameter in parameters]
        self._velocities: list[list[Number]] = [[0.0] * len(parameter.bits) for parameter in parameters]

    @property
    def learning_rate(self) -> float:
        """The rate of the coming step, in the dtype in which the parameters are added up."""
        wide = any(computed_in(parameter.dtype) == "float64" for parameter in self.parameters)
        return rounded(self.rates[min(self.applied, len(self.rates) - 1)], "float64" if wide else "float32")

    def apply(self, gradients: Sequence[Bits | None]) -> None:
        """Moves every parameter that has a gradient."""
        for at, (parameter, gradient) in enumerate(zip(self.parameters, gradients, strict=True)):
            if gradient is None:
                continue
            within = computed_in(parameter.dtype)
            rate = rounded(self.learning_rate, within)
            self._velocities[at] = self._faster(self._velocities[at], numbers(gradient), within)
            steps = [product(rate, velocity, within) for velocity in self._velocities[at]]
            moved = [difference(master, step, within) for master, step in zip(self._masters[at], steps, strict=True)]
            self._masters[at] = moved
            self.parameters[at] = from_numbers(parameter.dtype, parameter.shape, moved)
        self.applied += 1

    def _faster(self, velocities: Sequence[Number], gradient: Sequence[Number], within: str) -> list[Number]:
        kept = rounded(self.momentum, within)
        slower = [product(kept, velocity, within) for velocity in velocities]
        return [total([slow, rounded(value, within)], within) for slow, value in zip(slower, gradient, strict=True)]


def _times(value: Number, entry: Number) -> Number:
    return product(rounded(value, "float32"), rounded(entry, "float32"), "float32")


def _added_up(products: Sequence[Number]) -> Number:
    loss: Number = 0.0
    for one in products:
        loss = total([loss, one], "float32")
    return loss
