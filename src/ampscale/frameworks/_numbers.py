"""
Numbers of optimizers, by which ranks detect that they step their optimizers in different orders.

Spec: REPLICAS-settings-compared.
"""

from collections import Counter
from typing import Any
from weakref import finalize

from ..core.replicas import Communicator


class OptimizerNumbers:
    """Numbers of the optimizers of each communicator, from 0, in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], int] = {}  # by the ids of communicator and optimizer
        self._counts = Counter[int]()  # of numbered optimizers, by the id of the communicator

    def number(self, communicator: Communicator, optimizer: Any) -> tuple[int, bool]:
        """Return the number of *optimizer*, and True if *communicator* has no number for it yet."""
        key = id(communicator), id(optimizer)
        is_new = key not in self._numbers
        if is_new:
            finalize(optimizer, self._numbers.pop, key, None)  # remove the key before another optimizer can have this id
            self._numbers[key] = self._counts[id(communicator)]
            self._counts[id(communicator)] += 1
        return self._numbers[key], is_new
