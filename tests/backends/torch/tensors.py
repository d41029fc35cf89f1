"""Comparison of torch trees."""

from libraries import load
from strategies import same

LIBRARY = load("torch")


def equal(left, right):
    """Return True if two trees contain the same tensors, bit for bit."""
    return same(LIBRARY.to_numpy(left), LIBRARY.to_numpy(right))
