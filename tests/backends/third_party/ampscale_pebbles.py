"""Backend for pebbles, as a third party would write it: the generic functions, except those that need arithmetic on arrays."""

# ruff: noqa: F401, F811, ARG001 - imported functions are contents of the backend, and parameters have the names of functions

import math

import pebbles

from ampscale.backends.generic import (
    all_finite,
    as_network,
    clip_by_global_norm,
    exponent_histogram,
    local_norms,
    measure,
    scale,
    unscale_check_and_measure,
    unscale_check_and_norm,
    vjp,
)
from ampscale.core.trees import leaves, map_leaves

NAME = "pebbles"


def owns(array):
    return isinstance(array, pebbles.Array)


def namespace():
    return pebbles


def devices():
    return (pebbles.Array.device,)


def unscale(tree, scale, dtype=None):
    return map_leaves(lambda leaf: pebbles.asarray([value / scale for value in leaf.values], dtype=dtype or leaf.dtype), tree)


def unscale_and_check(tree, scale, out=None, dtype=None):
    unscaled = unscale(tree, scale, dtype)
    return unscaled, all(math.isfinite(value) for leaf in leaves(unscaled) for value in leaf.values)


def global_norm(tree):
    return pebbles.asarray(math.hypot(*(value for leaf in leaves(tree) for value in leaf.values)))
