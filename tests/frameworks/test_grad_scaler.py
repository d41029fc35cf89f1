"""`OptimizerNumbers`: ranks number their optimizers in the order of their first use."""

from copy import deepcopy

from ampscale import SingleReplica
from ampscale.frameworks._grad_scaler import OptimizerNumbers


class Optimizer:
    """Optimizer that can be weakly referenced."""


class Slotted:
    """Optimizer that cannot be weakly referenced."""

    __slots__ = ()


def test_optimizers_are_numbered_in_the_order_of_their_first_use():
    """An optimizer that cannot be weakly referenced is kept alive, so that no other one has its id."""
    numbers, communicator = OptimizerNumbers(), SingleReplica()
    first, second = Optimizer(), Optimizer()
    assert [numbers.number(communicator, optimizer) for optimizer in (first, second, first)] == [(0, True), (1, True), (0, False)]
    results = [numbers.number(communicator, Slotted()) for _ in range(3)]
    assert results == [(2, True), (3, True), (4, True)]


def test_a_copy_numbers_its_optimizers_from_0():
    """The numbers are not copied, since they belong to the ids of the original optimizers."""
    numbers = OptimizerNumbers()
    communicator = SingleReplica()
    optimizer = Optimizer()
    numbers.number(communicator, Optimizer())
    numbers.number(communicator, optimizer)
    number, is_new = deepcopy(numbers).number(communicator, optimizer)
    assert (number, is_new) == (0, True)
