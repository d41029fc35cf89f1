"""
Every pattern of finite steps and overflows at once, as a tree: its root is the start, and level k has 2**k nodes.

Node i of a level is followed by nodes 2i, after a finite step, and 2i + 1, after an overflow. A path is a pattern, and all
of its prefixes lie on it.
"""

from typing import NamedTuple

import numpy as np
from presets.loop import Stop

STEPS = 10


class Level(NamedTuple):
    """Results of one step of every pattern: arrays of shape (2**k,)."""

    scale: np.ndarray  # float32 or float64: in force after the step; unchanged where the scaler stopped
    stopped: np.ndarray  # bool: the scaler ended the run in this step
    over: np.ndarray  # bool: it had ended before; what stands in `scale` then says nothing


@np.errstate(over="ignore")
def of_loop(loop, start, steps=STEPS):
    """The tree of a loop: a list of levels. *start* is the scale before the first step."""
    nodes, levels = [(loop, start)], []
    for _ in range(steps):
        seen = [_after(loop, scale, finite) for loop, scale in nodes for finite in (True, False)]
        nodes = [(loop, scale) for loop, scale, _ in seen]
        dtype = np.float32 if all(isinstance(scale, np.float32) for _, scale in nodes) else np.float64
        stopped = np.array([stopped for _, _, stopped in seen])
        over = np.array([loop is None for loop, _ in nodes]) & ~stopped
        levels.append(Level(np.array([scale for _, scale in nodes], dtype), stopped, over))
    return levels


def _after(loop, scale, finite):
    if loop is None:
        return None, scale, False
    try:
        return *loop.after(finite), False
    except Stop:
        return None, scale, True


def of_rule(rule, steps=STEPS):
    """The tree of a rule: every level is one update of a batch."""
    state, levels, over = _map(rule.init(), lambda array: array.reshape(1)), [], np.zeros(1, bool)
    for level in range(steps):
        state, over = _map(state, lambda array: np.repeat(array, 2)), np.repeat(over, 2)
        finite = np.tile([True, False], 2**level)
        stopped = rule.would_raise(state, finite) & ~over
        state = rule.update(state, finite)
        levels.append(Level(state.scale, stopped, over))
        over = over | stopped
    return levels


def _map(state, function):
    return type(state)(*(None if array is None else function(array) for array in state))


def differing(levels, others):
    """How many nodes of two trees differ, in a bit of the scale or in whether the run ended."""
    count = 0
    for one, other in zip(levels, others, strict=True):
        bits, other_bits = (level.scale.astype(np.float64).view(np.uint64) for level in (one, other))
        count += int(np.sum(((bits != other_bits) | (one.stopped != other.stopped)) & ~one.over))
    return count
