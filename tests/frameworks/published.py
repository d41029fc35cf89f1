"""
The documented dynamic scalers as plain loops, with the deviations of ampscale.

A pattern has one letter per step: F for finite gradients, O for an overflow. A loop returns the state after every step.
"""

import copy

import numpy as np

# Start, factor, window, pattern, and the scale before the first step and after each: equal for scaler, cell and manager.
TRACES = [
    (8, 2, 1, "FFFOFO", [8, 16, 32, 64, 32, 64, 32]),
    (8, 2, 2, "FFFFOFFFF", [8, 8, 16, 16, 32, 16, 16, 32, 32, 64]),
    (8, 2, 3, "FFFFFFFOFFFFOFFF", [8, 8, 8, 16, 16, 16, 32, 32, 16, 16, 16, 32, 32, 16, 16, 16, 32]),
    (8, 2, 3, "FFOFFOFFFFFF", [8, 8, 8, 4, 4, 4, 2, 2, 2, 4, 4, 4, 8]),
    (8, 2, 3, "OFFFFFF", [8, 4, 4, 4, 8, 8, 8, 16]),
    (8, 2, 2, "OOOOOO", [8, 4, 2, 1, 1, 1, 1]),
    (8, 4, 2, "OOO", [8, 2, 1, 1]),
    (8, 1, 2, "FFFFO", [8, 8, 8, 8, 8, 8]),
    (3, 2, 2, "OOFF", [3, 1.5, 1, 1, 2]),
]

# Start, factor, window: powers of two and not, at the floor of 1, and where another growth exceeds float32.
SETTINGS = [(8, 2, 1), (8, 2, 3), (10, 3, 2), (1.5, 7, 4), (2.0**127, 2, 1), (float(np.float32(3e38)), 3, 2)]


@np.errstate(over="ignore")
def dynamic_loss_scaler(scale, factor, window, pattern):
    """Run MindSpore's `DynamicLossScaler`, and return (scale, counter) after each step."""
    scale, counter, states = np.float32(scale), 0, []
    for step in pattern:
        if step == "F":
            if counter == window - 1:
                grown = scale * np.float32(factor)
                if np.isfinite(grown):
                    scale = grown
            counter = (counter + 1) % window
        else:
            scale = max(np.float32(1), scale / np.float32(factor))
            counter = 0
        states.append((float(scale), counter))
    return states


@np.errstate(over="ignore")
def dynamic_update_cell(scale, factor, window, pattern, dtype=np.float32):
    """Run MindSpore's `nn.DynamicLossScaleUpdateCell`, and return (scale, cur_iter, last_overflow_iter) after each step."""
    scale, cur_iter, last_overflow_iter, states = dtype(scale), 1, 0, []
    for step in pattern:
        due = cur_iter - last_overflow_iter >= window
        if step == "O":
            scale = max(scale * dtype(1 / factor), dtype(1))
        elif due:
            grown = scale * dtype(factor)
            if np.isfinite(grown):
                scale = grown
        if step == "O" or due:
            last_overflow_iter = cur_iter
        cur_iter += 1
        states.append((float(scale), cur_iter, last_overflow_iter))
    return states


def dynamic_manager(scale, factor, window, pattern):
    """Run MindSpore's `DynamicLossScaleManager` in Python numbers, and return the scale after each step."""
    scale, cur_iter, last_overflow_iter, states = float(scale), 1, 0, []
    for step in pattern:
        if step == "O":
            scale = max(scale * (1 / factor), 1.0)
            last_overflow_iter = cur_iter
        elif (cur_iter - last_overflow_iter) % window == 0 and scale * factor != float("inf"):
            scale = scale * factor
        cur_iter += 1
        states.append(scale)
    return states


@np.errstate(over="ignore", under="ignore")
def grad_scaler(scale, incr_ratio, decr_ratio, incr_every, decr_every, pattern, decr_count):
    """Run Paddle's `GradScaler`, and return (scale, finite steps, overflows) after each step."""
    scale, good, bad, states = np.float32(scale), 0, 0, []
    for step in pattern:
        if step == "O":
            good = 0
            bad += 1
            if bad == decr_every:
                scale = max(scale * np.float32(decr_ratio), np.float32(2.0**-126))
                bad = 0
        else:
            good += 1
            if decr_count == "consecutive":
                bad = 0
            if good == incr_every:
                grown = scale * np.float32(incr_ratio)
                if np.isfinite(grown):
                    scale = grown
                good = bad = 0
        states.append((float(scale), good, bad))
    return states


def every_pattern(scaler, step, read, length=9):
    """
    Yield each of the 2**length patterns with the results of *read* after each of its steps.

    Patterns with a common prefix share its steps: *scaler* is copied after it.
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
