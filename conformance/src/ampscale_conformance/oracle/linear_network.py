"""
Network whose results can be checked by hand, loss = sum(parameter * data), and gradient descent.

The gradients of the loss are the data, so that a case can choose them.
"""

from collections.abc import Sequence
from functools import lru_cache

from ..model.bits import Bits
from ..model.floats import Number, decode, encode, rounded
from .arithmetic import difference, product, total
from .tensors import computed_in, from_numbers, numbers


def loss_of(parameters: Sequence[Bits], data: Sequence[Bits | None]) -> float:
    """Return sum(parameter * data) in float32. Each product and each partial sum is rounded, in order; None is skipped."""
    loss: Number = 0.0
    for parameter, leaf in zip(parameters, data, strict=True):
        if leaf is not None:
            loss = total([loss, _loss_of(parameter, leaf)], "float32")
    return float(loss)


def gradients_of(parameters: Sequence[Bits], data: Sequence[Bits | None], seed: float) -> list[Bits | None]:
    """Return the data times the seed in float32, rounded to the dtypes of the parameters; None stays None."""
    pairs = zip(parameters, data, strict=True)
    return [None if leaf is None else _gradient_of(parameter.dtype, leaf, seed) for parameter, leaf in pairs]


class Descent:
    """
    Gradient descent with momentum, v = momentum * v + gradient, and float32 master weights for 16-bit parameters.

    Args:
        parameters: Floating-point arrays.
        learning_rate: A number; or one for each applied step, the last of which also applies to further steps.
        momentum: In [0, 1).
    """

    def __init__(self, parameters: Sequence[Bits], learning_rate: float | Sequence[float] = 1.0, momentum: float = 0.0) -> None:
        self.parameters = list(parameters)
        self.rates = [learning_rate] if isinstance(learning_rate, int | float) else list(learning_rate)
        self.momentum = momentum
        self.rate_first = False  # True for v = momentum * v + rate * gradient, which differs if the rate changes
        self.applied = 0
        # Bit patterns of the compute dtype, in which 0 is 0.0.
        self._masters = [_patterns(parameter, computed_in(parameter.dtype)) for parameter in parameters]
        self._velocities = [[0] * len(parameter.bits) for parameter in parameters]

    @property
    def learning_rate(self) -> float:
        """Return the learning rate of the next step, in the widest compute dtype of the parameters."""
        dtypes = {computed_in(parameter.dtype) for parameter in self.parameters}
        return rounded(self.rates[min(self.applied, len(self.rates) - 1)], "float64" if "float64" in dtypes else "float32")

    def apply(self, gradients: Sequence[Bits | None]) -> None:
        """Update all parameters that have a gradient."""
        learning_rate = self.learning_rate
        for index, (parameter, gradient) in enumerate(zip(self.parameters, gradients, strict=True)):
            if gradient is None:
                continue
            dtype = computed_in(parameter.dtype)
            rate, momentum = rounded(learning_rate, dtype), rounded(self.momentum, dtype)
            factors = (rate, momentum, 1.0) if self.rate_first else (1.0, momentum, rate)
            rows = zip(_patterns(gradient, dtype), self._velocities[index], self._masters[index], strict=True)
            updated = [_velocity_and_master(dtype, factors, row) for row in rows]
            self._velocities[index] = [velocity for velocity, _ in updated]
            self._masters[index] = [master for _, master in updated]
            masters = [decode(master, dtype) for master in self._masters[index]]
            self.parameters[index] = from_numbers(parameter.dtype, parameter.shape, masters)
        self.applied += 1


def _patterns(leaf: Bits, dtype: str) -> list[int]:
    return [encode(value, dtype) for value in numbers(leaf)]


@lru_cache(4096)  # arrays have few distinct elements
def _velocity_and_master(dtype: str, factors: tuple[float, float, float], patterns: tuple[int, int, int]) -> tuple[int, int]:
    """Return the patterns of the next velocity and master weight. *factors* are those of gradient, velocity and step."""
    gradient, velocity, master = (decode(pattern, dtype) for pattern in patterns)
    terms = [product(factor, value, dtype) for factor, value in zip(factors[:2], (gradient, velocity), strict=True)]
    new_velocity = total(terms, dtype)
    new_master = difference(master, product(factors[2], new_velocity, dtype), dtype)
    return encode(new_velocity, dtype), encode(new_master, dtype)


@lru_cache(4096)  # cells take the same steps
def _loss_of(parameter: Bits, leaf: Bits) -> Number:
    loss: Number = 0.0
    for value, entry in zip(numbers(parameter), numbers(leaf), strict=True):
        loss = total([loss, _times(value, entry)], "float32")
    return loss


@lru_cache(1024)
def _gradient_of(dtype: str, leaf: Bits, seed: float) -> Bits:
    return from_numbers(dtype, leaf.shape, [_times(value, seed) for value in numbers(leaf)])


def _times(value: Number, entry: Number) -> Number:
    return product(rounded(value, "float32"), rounded(entry, "float32"), "float32")
