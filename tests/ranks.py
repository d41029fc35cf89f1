"""Replicas as threads: each rank runs the same function with its own communicator."""

from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import add
from threading import Barrier

import array_api_compat

from ampscale.core.trees import map_leaves


class Rank:
    """One of several ranks that wait for one another at every call."""

    def __init__(self, index, barrier, slots):
        self.index, self._barrier, self._slots = index, barrier, slots

    def mean(self, tree):
        """The mean over the ranks, added in their order."""
        trees = self._gathered(tree)
        return map_leaves(_mean, *trees)

    def all_finite(self, flag):
        """True where it is on every rank."""
        flags = self._gathered(flag)
        return reduce(lambda one, other: one & other, flags)

    def _gathered(self, mine):
        self._slots[self.index] = mine
        self._barrier.wait()
        everyone = list(self._slots)
        self._barrier.wait()
        return everyone


def on_ranks(function, arguments):
    """``function(communicator, argument)`` on one rank for each argument; the results in order."""
    count = len(arguments)
    barrier, slots = Barrier(count, timeout=20), [None] * count
    with ThreadPoolExecutor(count) as pool:
        ranks = [pool.submit(function, Rank(index, barrier, slots), arguments[index]) for index in range(count)]
        return [rank.result() for rank in ranks]


def _mean(*leaves):
    total = reduce(add, leaves)
    return total / array_api_compat.array_namespace(total).full_like(total, len(leaves))
