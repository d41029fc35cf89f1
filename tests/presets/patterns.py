"""
All overflow traces at once, as a tree: its root is the initial state, and level k has 2**k nodes.

Node i has two children: node 2i after a finite step, and node 2i + 1 after an overflow. A path from the root is a trace, and the
beginnings of the path are the prefixes of the trace.
"""

from typing import NamedTuple

import numpy as np
from presets.loop import ScalerError

from ampscale.core.trees import map_leaves

STEPS = 10


class Level(NamedTuple):
    """Results of one step of every trace: arrays of shape (2**k,)."""

    scale: np.ndarray  # float32 or float64: scale after the step; unchanged if the scaler raised
    raised: np.ndarray  # bool: the scaler raised an error in this step
    ended: np.ndarray  # bool: the scaler raised in an earlier step, and `scale` has no meaning


@np.errstate(over="ignore")
def tree_of_loop(loop, start):
    """Return the tree of a loop as a list of levels without the root. *start* is the scale before the first step."""
    nodes, levels = [(loop, start)], []
    for _ in range(STEPS):
        children = list(_children(nodes))
        nodes = [(loop, scale) for loop, scale, _ in children]
        dtype = np.float32 if all(isinstance(scale, np.float32) for _, scale in nodes) else np.float64
        raised = np.array([raised for _, _, raised in children])
        ended = np.array([loop is None for loop, _ in nodes]) & ~raised
        levels.append(Level(np.array([scale for _, scale in nodes], dtype), raised, ended))
    return levels


def _children(nodes):
    """Yield the results of both steps from each node. Nodes whose loops have the same state share them, which saves time."""
    results = {}
    for loop, scale in nodes:
        state = scale, None if loop is None else tuple(vars(loop).values())
        if state not in results:
            results[state] = [_after(loop, scale, finite) for finite in (True, False)]
        yield from results[state]


def _after(loop, scale, finite):
    """Return the loop (None after an error) and its scale after one step, and True if it raised an error in this step."""
    if loop is None:
        return None, scale, False
    try:
        return *loop.after(finite), False
    except ScalerError:
        return None, scale, True


def tree_of_rule(rule):
    """Return the tree of a rule as a list of levels without the root. Every level is one update of a batch."""
    state = map_leaves(lambda array: array.reshape(1), rule.init())
    levels = []
    ended = np.zeros(1, bool)
    for level in range(STEPS):
        state = map_leaves(lambda array: np.repeat(array, 2), state)
        ended = np.repeat(ended, 2)
        finite = np.tile([True, False], 2**level)
        raised = rule.would_raise(state, finite) & ~ended
        state = rule.update(state, finite)
        levels.append(Level(state.scale, raised, ended))
        ended = ended | raised
    return levels


def differing(levels, others):
    """Return the number of nodes, except ended ones, of two trees that differ in a bit of the scale or in `raised`."""
    count = 0
    for level, other in zip(levels, others, strict=True):
        bits, other_bits = (scale.astype(np.float64).view(np.uint64) for scale in (level.scale, other.scale))
        count += int(np.sum(((bits != other_bits) | (level.raised != other.raised)) & ~level.ended))
    return count
