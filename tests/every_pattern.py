"""Scales of a rule for all overflow traces of a few steps, and the traces that agree with observed scales, by brute force."""

import functools

import numpy as np

from ampscale.core.trees import map_leaves
from ampscale.simulation.identification.follow_scales import rounded

STEPS = 9
PATTERNS = (np.arange(2**STEPS)[:, None] >> np.arange(STEPS) & 1).astype(bool)  # one row for each trace; True is a finite step


@functools.cache
def all_scales(rule):
    """
    Run *rule* on every pattern.

    Returns:
        The float64 scales, of shape (patterns, steps + 1), and the first step of each pattern in which the scaler would raise
        (STEPS if there is none).
    """
    state = map_leaves(lambda array: np.full(len(PATTERNS), array), rule.init())
    scales, raised_at = [state.scale], np.full(len(PATTERNS), STEPS)
    for step, finite in enumerate(PATTERNS.T):
        raised_at[rule.would_raise(state, finite) & (raised_at == STEPS)] = step
        state = rule.update(state, finite)
        scales.append(state.scale)
    return np.stack(scales, axis=1).astype(np.float64), raised_at


def matching_patterns(rule, observed, length):
    """
    Return a mask of the patterns whose flags and scales agree with *observed* in the first *length* steps.

    A pattern in which the scaler raises within these steps does not match, except in the last of them if the observed scale after
    it is unknown.
    """
    scales, raised_at = all_scales(rule)
    expected = rounded(rule, observed.scales[: length + 1])
    same_scales = (np.isnan(expected) | (scales[:, : length + 1] == expected)).all(axis=1)
    flags = observed.finite[:length]
    same_flags = ((flags == -1) | (PATTERNS[:, :length] == flags)).all(axis=1)
    last_may_raise = length > 0 and np.isnan(expected[-1])
    return same_scales & same_flags & (raised_at >= (length - 1 if last_may_raise else length))


def possible_scales(rule, observed, step):
    """
    Return the scales after *step* of all patterns that agree with the earlier observations and with the flag of *step*.

    The scale is NaN if the scaler raises in *step*. Patterns in which it raises earlier are left out.
    """
    scales, raised_at = all_scales(rule)
    flag = observed.finite[step]
    matches = matching_patterns(rule, observed, step) & (raised_at >= step) & ((flag == -1) | (PATTERNS[:, step] == flag))
    return np.unique(np.where(raised_at[matches] == step, np.nan, scales[matches, step + 1]))
