"""
What a rule can have done where only the overflows were reported, and not how many finite steps lie between them.

The overflow that was reported next finds the rule in a state that some number of finite steps leads to, be it none.

Overflows are counted from 0.
"""

import math
from collections.abc import Sequence

import numpy as np

from ...core.rule import LossScaleRule
from ..traces import Overflow
from .follow_scales import LIMIT, TINY, Contradiction, Followed, rounded
from .possible_states import STOPPED, Frontier, Moves, Place, scales_of


def follow_overflows(rule: LossScaleRule, overflows: Sequence[Overflow], rtol: float = 0.0, *, resumed: bool = False) -> Followed:
    """
    How far *rule* explains a list of overflows: whether some numbers of finite steps between them make it take their scales.

    Args:
        rule: The rule, from its own first scale.
        overflows: All overflows of a run, in order, with the scales before and after each; NaN where one is not known.
        rtol: The relative error of these scales, where they were printed with few digits.
        resumed: The run was taken up at its first scale, with any counts; else it began there, with none.

    Returns:
        One pattern of steps up to the last overflow, or the first overflow that contradicts: with the scales that the rule
        could have had after it, or before it where it cannot have come to the one that was seen.
    """
    moves, arrived, leaving = Moves(rule), list[Frontier](), list[Frontier]()
    arrived.append(moves.start(resumed=resumed))
    for index, overflow in enumerate(overflows):
        before, after = rounded(rule, np.array([overflow.before, overflow.after])).tolist()
        onwards = _onwards(moves, arrived[-1], _top(rule, before, after, rtol))
        if len(onwards) > LIMIT:
            return Followed(Contradiction(index, undecided=True))
        leaving.append(_with_scale(onwards, before, rtol))
        if not leaving[-1]:
            return Followed(Contradiction(index, scales_of(onwards), overflow.before))
        reached = moves.forward(leaving[-1], 0)
        arrived.append(_with_scale(reached, after, rtol))
        if not arrived[-1]:
            return Followed(Contradiction(index, scales_of(reached), overflow.after))
    return _explained(moves, arrived, leaving)


def _top(rule: LossScaleRule, before: float, after: float, rtol: float) -> float:
    """What the scale cannot have been above before an overflow; NaN where nothing tells it."""
    if math.isnan(before) and after > TINY and not rule.delayed_update:
        return 2 * after / rule.backoff_factor  # a backoff makes it no smaller; twice, for rounding
    return before * (1 + 2 * rtol)


def _with_scale(frontier: Frontier, scale: float, rtol: float) -> Frontier:
    if math.isnan(scale):
        return frontier
    return {place: counts for place, counts in frontier.items() if math.isclose(place[0], scale, rel_tol=rtol)}


def _onwards(moves: Moves, frontier: Frontier, top: float) -> Frontier:
    """Where any number of finite steps leads, without scales above *top*: no finite step leads down again."""
    reached, fresh = dict(frontier), frontier
    while fresh and len(reached) <= LIMIT:
        ahead: Frontier = {}
        for place, counts, move in moves.each(fresh, 1):
            stays = move.place == place and move.shift  # and then so does every further step, up to the last of the window
            landing = -(counts & -counts) << 1 & (2 << moves.last) - 1 if stays else move.image(counts)
            ahead[move.place] = ahead.get(move.place, 0) | landing
        fresh = {place: new for place, counts in ahead.items() if not place[0] > top and (new := counts & ~reached.get(place, 0))}
        reached |= {place: reached.get(place, 0) | new for place, new in fresh.items()}
    return reached


def _explained(moves: Moves, arrived: list[Frontier], leaving: list[Frontier]) -> Followed:
    """A pattern that leads through all these states, with as few finite steps before each overflow as it can have."""
    for index in reversed(range(len(leaving))):
        leaving[index], _ = moves.backward(leaving[index], arrived[index + 1], 0)
        arrived[index] = _able(moves, arrived[index], leaving[index])
    place, counts = next(iter(arrived[0].items()))
    at = {place: counts & -counts}
    start, finite = moves.counts(place, at[place]), list[bool]()
    for index, goal in enumerate(leaving):
        gap, at = _walk(moves, at, goal, set())
        ((place, count),) = at.items()
        move = moves.leading(place, count, arrived[index + 1], 0)
        at = {move.place: move.image(count)}
        finite += [True] * gap + [False]
    return Followed(finite=np.array(finite, bool), start=start)


def _able(moves: Moves, frontier: Frontier, goal: Frontier) -> Frontier:
    """The part of *frontier* from which finite steps lead into *goal*."""
    able: Frontier = {}
    lost = set[tuple[Place, int]]()
    for place, counts in frontier.items():
        while counts and place is not STOPPED:
            lowest = counts & -counts
            counts ^= lowest
            if _walk(moves, {place: lowest}, goal, lost)[1]:
                able[place] = able.get(place, 0) | lowest
    return able


def _walk(moves: Moves, at: Frontier, goal: Frontier, lost: set[tuple[Place, int]]) -> tuple[int, Frontier]:
    """
    The fewest finite steps that lead from one state into *goal*, and the state there: empty where none do.

    From the states in *lost* none do; those that are found to be so are put in.
    """
    steps, passed = 0, set[tuple[Place, int]]()
    while True:
        ((place, count, move),) = moves.each(at, 1)
        if count & goal.get(place, 0):
            return steps, at
        if (place, count) in passed or (place, count) in lost:
            lost |= passed
            return steps, {}
        passed.add((place, count))
        if move.place == place and move.shift and place not in goal:  # to the last of the window in one stride
            at = {place: 1 << moves.last}
            steps += moves.last + 1 - count.bit_length()
        else:
            at = {move.place: move.image(count)}
            steps += 1
