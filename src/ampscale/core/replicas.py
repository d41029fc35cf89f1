"""
Collective operations that a loss scaler requires, and their implementation for a single replica.

Spec: REPLICAS-mean-before-check, REPLICAS-one-flag, REPLICAS-same-decision, REPLICAS-single.
"""

from typing import Protocol

from .typing import Flag, Tree


class Communicator(Protocol):
    """
    Two collective operations. All replicas must call them in the same order.

    Subclassing is not required: every object with these two methods is a communicator.

    >>> class Doubling:  # stands for two replicas with equal gradients
    ...     def mean(self, tree):
    ...         return [(array + array) / 2 for array in tree]
    ...
    ...     def all_finite(self, flag):
    ...         return flag & flag
    >>> Doubling().mean([np.float32([1.0, 3.0])])
    [array([1., 3.], dtype=float32)]
    """

    def mean(self, tree: Tree) -> Tree:
        """Return the mean of each array over all replicas. An infinity or a NaN on one replica reaches the result of all."""

    def all_finite(self, flag: Flag) -> Flag:
        """Return a bool of shape (), equal on all replicas: True if *flag* is True on every replica."""


class SingleReplica:
    """
    Communicator of a run with one replica; both operations return their argument.

    >>> SingleReplica().all_finite(True)
    True
    """

    def __repr__(self) -> str:
        """Return "SingleReplica()", which signatures show as a default."""
        return "SingleReplica()"

    def mean(self, tree: Tree) -> Tree:
        """Return *tree* itself."""
        return tree

    def all_finite(self, flag: Flag) -> Flag:
        """Return *flag* itself."""
        return flag


SINGLE_REPLICA = SingleReplica()
