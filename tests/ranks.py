"""Replicas in threads: each rank runs the same function with its own communicator."""

from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import add, and_
from threading import Barrier

import array_api_compat

from ampscale.core.replicas import Agreement
from ampscale.core.trees import leaves, map_leaves


class Rank:
    """Communicator of one replica; its calls wait for all other replicas."""

    def __init__(self, index, barrier, slots):
        self.index, self._barrier, self._slots = index, barrier, slots

    def mean(self, tree):
        """Return the mean over the replicas, added in the order of their ranks."""
        return map_leaves(_mean, *self._gathered(tree))

    def agree(self, finite, scale, gradients, *, norm=False):
        """Combine the flags of all replicas. No norm is exchanged, since each replica has all gradients."""
        flags, counts = self._gathered(finite), self._gathered(len(leaves(gradients)))
        return Agreement(reduce(and_, flags), any(counts))

    def check_same(self, **settings):
        """Accept any settings, without comparing those of the replicas."""

    def _gathered(self, value):
        self._slots[self.index] = value
        self._barrier.wait()
        values = list(self._slots)
        self._barrier.wait()  # so that no replica writes its next value before all have read this one
        return values


def on_ranks(function, arguments):
    """Run ``function(communicator, argument)`` on one replica for each argument; return the results in order."""
    count = len(arguments)
    barrier, slots = Barrier(count, timeout=20), [None] * count
    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(function, Rank(index, barrier, slots), argument) for index, argument in enumerate(arguments)]
        return [future.result() for future in futures]


def _mean(*arrays):
    total = reduce(add, arrays)
    return total / array_api_compat.array_namespace(total).full_like(total, len(arrays))
