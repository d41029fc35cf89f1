"""What a rule does along every pattern of a few steps, and which of them agree with what was seen: the slow way to know."""

import functools

import numpy as np

from ampscale.simulation.identification.follow_scales import rounded

STEPS = 9
PATTERNS = (np.arange(2**STEPS)[:, None] >> np.arange(STEPS) & 1).astype(bool)  # one row a pattern; True is a finite step


@functools.cache
def all_scales(rule):
    """What `rule.update` makes of each pattern: float64 scales of shape (patterns, steps + 1), and the step that stops it."""
    first = rule.init()
    state = type(first)(*(array if array is None else np.full(len(PATTERNS), array) for array in first))
    scales, stopped = [state.scale], np.full(len(PATTERNS), STEPS)
    for step, finite in enumerate(PATTERNS.T):
        stops = rule.would_raise(state, finite) & (stopped == STEPS)
        stopped[stops] = step
        state = rule.update(state, finite)
        scales.append(state.scale)
    return np.stack(scales, axis=1).astype(np.float64), stopped


def fitting(rule, observed, length):
    """The patterns that agree with the first *length* steps: a stop with none but an unseen scale after the last of them."""
    scales, stopped = all_scales(rule)
    seen = rounded(rule, observed.scales[: length + 1])
    agrees = (np.isnan(seen) | (scales[:, : length + 1] == seen)).all(axis=1)
    flags = observed.finite[:length]
    told = ((flags == -1) | (PATTERNS[:, :length] == flags)).all(axis=1)
    ends = stopped >= length if length == 0 or not np.isnan(seen[-1]) else stopped >= length - 1
    return agrees & told & ends


def possible(rule, observed, step):
    """The scales after *step*, over all patterns that agree with what was seen before it and do not stop before it."""
    scales, stopped = all_scales(rule)
    flags = observed.finite[step]
    before = fitting(rule, observed, step) & (stopped >= step) & ((flags == -1) | (PATTERNS[:, step] == flags))
    return np.unique(np.where(stopped[before] == step, np.nan, scales[before, step + 1]))
