"""A backend for pebbles, as its authors would write it."""

# ruff: noqa: ARG001 - what a backend is asked is not its choice

import math

import pebbles

from ampscale.core.trees import leaves, map_leaves

NAME = "pebbles"


def owns(array):
    return isinstance(array, pebbles.Array)


def namespace():
    return pebbles


def devices():
    return (pebbles.Array.device,)


def as_network(value):
    return None


def vjp(loss_fn, params, *inputs):
    raise TypeError("pebbles do not differentiate")


def scale(tree, scale):
    return map_leaves(lambda leaf: pebbles.asarray([value * scale for value in leaf.values], dtype=leaf.dtype), tree)


def unscale(tree, scale, dtype=None):
    return map_leaves(lambda leaf: pebbles.asarray([value / scale for value in leaf.values], dtype=leaf.dtype), tree)


def all_finite(tree):
    return all(math.isfinite(value) for leaf in leaves(tree) for value in leaf.values)


def unscale_and_check(tree, scale, out=None, dtype=None):
    unscaled = unscale(tree, scale, dtype)
    return unscaled, all_finite(unscaled)


def unscale_check_and_norm(tree, scale, out=None, dtype=None):
    return *unscale_and_check(tree, scale, out, dtype), global_norm(unscale(tree, scale))


def global_norm(tree):
    return pebbles.asarray(math.hypot(*(value for leaf in leaves(tree) for value in leaf.values)))


def local_norms(tree):
    return pebbles.asarray([math.hypot(*leaf.values) for leaf in leaves(tree)])


def clip_by_global_norm(tree, max_norm):
    norm = global_norm(tree)
    return scale(tree, max_norm / (max(norm.values, max_norm) + 1e-6)), norm
