"""
What a scaler needs of the other replicas, and the communicator of one that has none.

Spec: REPLICAS-mean-before-check, REPLICAS-one-flag, REPLICAS-same-decision, REPLICAS-single.
"""

from typing import Protocol

from .typing import Flag, Tree


class Communicator(Protocol):
    """Two verbs, the same on every replica and called by all of them in the same order."""

    def mean(self, tree: Tree) -> Tree:
        """The mean over the replicas of each array; an infinity or a NaN anywhere is in the result everywhere."""

    def all_finite(self, flag: Flag) -> Flag:
        """True where the flag is True on every replica: bool, shape (), the same everywhere."""


class SingleReplica:
    """One replica: nothing to agree on."""

    def mean(self, tree: Tree) -> Tree:
        """*tree* itself."""
        return tree

    def all_finite(self, flag: Flag) -> Flag:
        """*flag* itself."""
        return flag


SINGLE_REPLICA = SingleReplica()
