"""
Consistency of a rule with overflows that a log reports without the number of finite steps between them.

Before each overflow, the rule can be in any state that zero or more finite steps lead to. Overflows are counted from 0.
A frontier is a set of possible states: `arrived` is the one before these finite steps, `leaving` the one at the overflow.
"""

import math
from collections.abc import Sequence

import numpy as np

from ...core.rule import LossScaleRule
from ..traces import Overflow
from .follow_scales import LIMIT, TINY, Contradiction, Followed, rounded
from .possible_states import RAISED, Frontier, StateKey, Transitions, scales_of, with_scale


def follow_overflows(rule: LossScaleRule, overflows: Sequence[Overflow], rtol: float = 0.0, *, resumed: bool = False) -> Followed:
    """
    Return a trace up to the last overflow along which *rule* has the scales of all *overflows*, or the first contradiction.

    If the observed scale before an overflow is impossible, the contradiction lists the possible scales before the overflow;
    otherwise, it lists the possible scales after the overflow. For *rtol* and *resumed* see `follow`.
    """
    transitions = Transitions(rule)
    arrived = [transitions.start(resumed=resumed)]
    leaving = list[Frontier]()
    for index, overflow in enumerate(overflows):
        old_scale, new_scale = rounded(rule, np.array([overflow.before, overflow.after])).tolist()
        reachable = _after_finite_steps(transitions, arrived[-1], _upper_bound(rule, old_scale, new_scale, rtol))
        if len(reachable) > LIMIT:
            return Followed(Contradiction(index, undecided=True))
        leaving.append(with_scale(reachable, old_scale, rtol))
        if not leaving[-1]:
            return Followed(Contradiction(index, scales_of(reachable), overflow.before))
        after_overflow = transitions.forward(leaving[-1], 0)
        arrived.append(with_scale(after_overflow, new_scale, rtol))
        if not arrived[-1]:
            return Followed(Contradiction(index, scales_of(after_overflow), overflow.after))
    return _consistent(transitions, arrived, leaving)


def _upper_bound(rule: LossScaleRule, old_scale: float, new_scale: float, rtol: float) -> float:
    """Return an upper bound of the scale before an overflow; NaN if there is no bound."""
    if math.isnan(old_scale) and new_scale > TINY and not rule.delayed_update:
        return 2 * new_scale / rule.backoff_factor  # the factor 2 allows for rounding
    return old_scale * (1 + 2 * rtol)


def _after_finite_steps(transitions: Transitions, frontier: Frontier, bound: float) -> Frontier:
    """
    Return the states that zero or more finite steps from *frontier* can reach.

    States with a scale above *bound* are left out, since finite steps never lower the scale. The search ends as soon as it has
    reached more than `LIMIT` state keys.
    """
    reached = dict(frontier)
    new = frontier
    while new and len(reached) <= LIMIT:
        following: Frontier = {}
        for key, counts, transition in transitions.outgoing(new, 1):
            new_counts = transition.image(counts)
            if transition.key == key and transition.shift:
                # Finite steps that only increase the count reach every larger count of the window: all bits above the lowest.
                lowest = counts & -counts
                new_counts = (-lowest << 1) & transitions.all_counts
            following[transition.key] = following.get(transition.key, 0) | new_counts
        # A bound of NaN stands for no bound, and no scale exceeds it.
        unseen = ((key, counts & ~reached.get(key, 0)) for key, counts in following.items() if not key[0] > bound)
        new = {key: counts for key, counts in unseen if counts}
        reached |= {key: reached.get(key, 0) | counts for key, counts in new.items()}
    return reached


def _consistent(transitions: Transitions, arrived: list[Frontier], leaving: list[Frontier]) -> Followed:
    """Return a trace through the frontiers *arrived* and *leaving*, with as few finite steps as possible before each overflow."""
    for index in reversed(range(len(leaving))):
        leaving[index], _ = transitions.backward(leaving[index], arrived[index + 1], 0)
        arrived[index] = _leading_to(transitions, arrived[index], leaving[index])
    key, counts = next(iter(arrived[0].items()))
    state = {key: counts & -counts}  # with the smallest count only, which is the lowest bit
    start = transitions.counts(key, state[key])
    finite = list[bool]()
    for index, target in enumerate(leaving):
        gap, state = _shortest_gap(transitions, state, target, set())
        ((key, count),) = state.items()
        transition = transitions.transition_into(arrived[index + 1], key, count, 0)
        state = {transition.key: transition.image(count)}
        finite += [True] * gap + [False]
    return Followed(finite=np.array(finite, bool), start=start)


def _leading_to(transitions: Transitions, frontier: Frontier, target: Frontier) -> Frontier:
    """Return the states of *frontier* from which finite steps lead into *target*."""
    sources: Frontier = {}
    dead_ends = set[tuple[StateKey, int]]()
    for key, counts in frontier.items():
        while counts and key is not RAISED:
            lowest = counts & -counts
            counts ^= lowest
            if _shortest_gap(transitions, {key: lowest}, target, dead_ends)[1]:
                sources[key] = sources.get(key, 0) | lowest
    return sources


def _shortest_gap(
    transitions: Transitions, state: Frontier, target: Frontier, dead_ends: set[tuple[StateKey, int]]
) -> tuple[int, Frontier]:
    """
    Return the smallest number of finite steps from *state* to a state of *target*, and this state.

    If no number of finite steps suffices, the returned state is {}, and the number has no meaning. *state* has one key and one
    count. *dead_ends* has states from which no finite steps lead to *target*; this function adds those that it visits.
    """
    steps = 0
    visited = set[tuple[StateKey, int]]()
    while True:
        ((key, count, transition),) = transitions.outgoing(state, 1)
        if count & target.get(key, 0):
            return steps, state
        if (key, count) in visited or (key, count) in dead_ends:
            dead_ends |= visited
            return steps, {}
        visited.add((key, count))
        if transition.key == key and transition.shift and key not in target:  # skip to the last count of the window
            state = {key: 1 << transitions.last}
            steps += transitions.last + 1 - count.bit_length()
        else:
            state = {transition.key: transition.image(count)}
            steps += 1
