"""All traces, one step after another: what two scalers do is asked of `LossScaleRule.update`, and nothing is skipped."""

from functools import lru_cache

import numpy as np

from ampscale.core.machine import LossScaleState


def start(checkpoint):
    """The state of a checkpoint, in Python numbers."""
    return tuple(None if value is None else value.item() for value in checkpoint.state)


@lru_cache(None)
def after(rule, state, finite):
    """The state after a step; None where the scaler raises, and after that."""
    if state is None:
        return None
    dtypes = zip(state, (rule.dtype, "int32", "int32", "int32", rule.dtype), strict=True)
    arrays = LossScaleState(*(None if value is None else np.asarray(value, dtype) for value, dtype in dtypes))
    if rule.would_raise(arrays, finite):
        return None
    return tuple(None if value is None else value.item() for value in rule.update(arrays, finite))


def differ(pair):
    """Whether the scales in force differ, or one of the two has raised."""
    one, other = pair
    return (one is None) != (other is None) or (one is not None and one[0] != other[0])


def stepped(rules, pair, finite):
    """The pair after a step; one that has parted at a stop stays parted."""
    if (pair[0] is None) != (pair[1] is None):
        return pair
    return tuple(after(rule, state, finite) for rule, state in zip(rules, pair, strict=True))


def follow(rules, pair, trace):
    """The pair after a trace."""
    for symbol, steps in trace:
        for _ in range(steps):
            pair = stepped(rules, pair, symbol == ".")
    return pair


def earliest(rules, pair, steps):
    """The length of the shortest trace of at most *steps* steps after which the scales differ; None for none."""
    reached = {pair}
    for length in range(steps + 1):
        if any(map(differ, reached)):
            return length
        reached = {stepped(rules, each, finite) for each in reached for finite in (True, False)}
    return None


def most_differing(rules, pair, steps):
    """In how many of *steps* steps the scales differ, on the trace on which they do so most often."""
    layers = [{pair}]
    for _ in range(steps):
        layers.append({stepped(rules, each, finite) for each in layers[-1] for finite in (True, False)})
    best = dict.fromkeys(layers.pop(), 0)
    while layers:
        best = {each: differ(each) + max(best[stepped(rules, each, finite)] for finite in (True, False)) for each in layers.pop()}
    return best[pair]


def next_growth(checkpoint, steps):
    """The first of so many finite steps after which the scale in force is larger; None for none."""
    state = first = start(checkpoint)
    for step in range(1, steps + 1):
        state = after(checkpoint.rule, state, True)
        if state[0] > first[0]:
            return step
    return None


def length(trace):
    """The steps of a trace; None for none."""
    return None if trace is None else sum(steps for _, steps in trace)
