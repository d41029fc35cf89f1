"""Small rules, and a brute-force search over all overflow traces, which calls `LossScaleRule.update` for every single step."""

from functools import lru_cache

import numpy as np
from hypothesis import strategies as st

from ampscale import LossScaleRule
from ampscale.core.machine import LossScaleState


@st.composite
def small_rules(draw):
    """Draw rules with few scales and short growth intervals."""
    min_scale, max_scale = draw(st.sampled_from([(1.0, 2.0), (1.0, 4.0), (2.0, 8.0)]))
    return LossScaleRule(
        init_scale=draw(st.sampled_from([min_scale, 2 * min_scale, max_scale])),
        growth_factor=draw(st.sampled_from([2.0, 2.0, 4.0, 1.0])),
        backoff_factor=draw(st.sampled_from([0.5, 0.5, 0.25, 1.0])),
        growth_interval=draw(st.integers(1, 3)),
        hysteresis=draw(st.integers(1, 3)),
        min_scale=min_scale,
        max_scale=max_scale,
        reset_bad_steps_on=tuple(sorted(draw(st.sets(st.sampled_from(["finite", "growth", "backoff"]))))),
        initial_good_steps=draw(st.integers(-2, 0)),
        warmup_growth_factor=draw(st.sampled_from([None, None, 1.0, 4.0])),
        block_at_bounds=draw(st.sampled_from([False, False, True])),
        raise_at_min_scale=draw(st.sampled_from([False, False, False, True])),
        raise_at_or_below=draw(st.sampled_from([None, None, None, min_scale])),
        delayed_update=draw(st.sampled_from([False, False, True])),
    )


def state_of(checkpoint):
    """Return the state of a checkpoint as Python numbers."""
    return tuple(None if value is None else value.item() for value in checkpoint.state)


@lru_cache(None)
def after(rule, state, finite):
    """Return the state after a step; None from the step on in which the published scaler raises an error."""
    if state is None:
        return None
    dtypes = zip(state, (rule.dtype, "int32", "int32", "int32", rule.dtype), strict=True)
    arrays = LossScaleState(*(None if value is None else np.asarray(value, dtype) for value, dtype in dtypes))
    if rule.would_raise(arrays, finite):
        return None
    return tuple(None if value is None else value.item() for value in rule.update(arrays, finite))


def differ(pair):
    """Return True if the scales differ, or if only one scaler has raised an error."""
    source, target = pair
    return (source is None) != (target is None) or (source is not None and source[0] != target[0])


def stepped(rules, pair, finite):
    """Return the pair of states after a step. A pair in which only one scaler has raised an error is left unchanged."""
    if (pair[0] is None) != (pair[1] is None):
        return pair
    return tuple(after(rule, state, finite) for rule, state in zip(rules, pair, strict=True))


def follow(rules, pair, trace):
    """Return the pair of states after a trace of pairs (symbol, number of steps)."""
    for symbol, steps in trace:
        for _ in range(steps):
            pair = stepped(rules, pair, symbol == ".")
    return pair


def earliest(rules, pair, steps):
    """Return the length of the shortest trace of up to *steps* steps after which the scales differ; None if there is none."""
    reached = {pair}
    for length in range(steps + 1):
        if any(map(differ, reached)):
            return length
        reached = {stepped(rules, pair, finite) for pair in reached for finite in (True, False)}
    return None


def most_differing(rules, pair, steps):
    """Return the largest number of steps in which the scales differ, over all traces of *steps* steps."""
    layers = [{pair}]
    for _ in range(steps):
        layers.append({stepped(rules, node, finite) for node in layers[-1] for finite in (True, False)})
    best = dict.fromkeys(layers.pop(), 0)
    while layers:
        best = {node: differ(node) + max(best[stepped(rules, node, finite)] for finite in (True, False)) for node in layers.pop()}
    return best[pair]


def next_growth(checkpoint, steps):
    """Return the number of finite steps, up to *steps*, after which the scale is first larger; None if it never is."""
    state = first = state_of(checkpoint)
    for step in range(1, steps + 1):
        state = after(checkpoint.rule, state, True)
        if state[0] > first[0]:
            return step
    return None


def length(trace):
    """Return the number of steps of a trace; None for no trace."""
    return None if trace is None else sum(steps for _, steps in trace)
