"""
Functions that run a scaler on every pattern, and a plain loop of `tests/presets` with the deviations of ampscale.

A pattern has one letter per step: F for finite gradients, O for an overflow.
"""

import copy

import numpy as np

# Initial scale, factor and window. One scale is near the lower bound of 1, and the growth of the last two scales exceeds float32.
SETTINGS = [(8, 2, 1), (8, 2, 3), (10, 3, 2), (1.5, 7, 4), (2.0**127, 2, 1), (float(np.float32(3e38)), 3, 2)]


@np.errstate(over="ignore", under="ignore")
def states_of(loop, pattern, scale_name, *names, min_scale=0.0):
    """
    Return the scale and other attributes of a loop after each step.

    The deviations of ampscale apply: a growth to infinity is skipped, and the scale is at least *min_scale*.
    """
    states = []
    for letter in pattern:
        old_scale = getattr(loop, scale_name)
        loop, scale = loop.after(letter == "F")
        setattr(loop, scale_name, old_scale if np.isinf(scale) else max(scale, type(scale)(min_scale)))
        states.append((float(getattr(loop, scale_name)), *(getattr(loop, name) for name in names)))
    return states


def every_pattern(scaler, step, read, length=8):
    """
    Yield each of the 2**length patterns with the results of *read* after each of its steps.

    Patterns with a common prefix share the steps of the prefix: *scaler* is copied before each step.
    """

    def extended(scaler, pattern, states):
        if len(pattern) == length:
            yield pattern, states
            return
        for letter in "FO":
            new_scaler = copy.deepcopy(scaler)
            step(new_scaler, letter)
            yield from extended(new_scaler, pattern + letter, [*states, read(new_scaler)])

    yield from extended(scaler, "", [])
