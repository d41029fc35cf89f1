"""
How far a rule explains the scales that were seen.

Steps are counted from 0.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...core.dtypes import FLOATS
from ...core.rule import LossScaleRule
from ..traces import Observed
from .possible_states import STOPPED, Frontier, Move, Moves, Place, scales_of

LIMIT = 2000  # places at one step; a rule that halves and doubles has fewer, however little was seen
ROOM, USUAL = 30_000, 100  # places at all steps together: so many, and so many more for each step
CROWD = 30_000  # different places, but for those met alone
LISTED = 100  # places where nothing was seen, from which it is told what else could have come
TINY = 2.0**-100  # scales below this are held so coarsely that rounding can move them by more than their factor


@dataclass(frozen=True)
class Contradiction:
    """
    Where a rule and what was seen part.

    Args:
        step: The step after which they do, counted from 0; -1 before the first. Where only overflows were reported, the
            overflow at which they do, counted likewise.
        expected: The scales that the rule could have had there, ascending; NaN if it could have stopped. Empty if there are
            none, or too many to tell.
        seen: The scale that was seen, as the rule holds it; NaN where none was, but the rule cannot have gone on.
        undecided: More states were possible than are followed, so that nothing is said of this step and the later ones.
    """

    step: int
    expected: tuple[float, ...] = ()
    seen: float = math.nan
    undecided: bool = False


@dataclass(frozen=True, eq=False)
class Followed:
    """
    What came of following a rule along what was seen.

    Args:
        contradiction: Where that ends; None where the rule explains all.
        finite: Bool, of shape (steps,): one pattern of finite steps with which it does; None where there is none.
        ambiguous: How many steps can have been finite as well as an overflow; None where the steps themselves are not known.
        start: The good steps and the overflows that the rule had counted before this pattern; None where there is none.
    """

    contradiction: Contradiction | None = None
    finite: np.ndarray | None = None
    ambiguous: int | None = None
    start: tuple[int, int] | None = None


def follow(rule: LossScaleRule, observed: Observed, rtol: float = 0.0, *, resumed: bool = False) -> Followed:
    """
    How far *rule* explains *observed*: whether some pattern of overflows makes it take the scales that were seen.

    Args:
        rule: The rule, from its own first scale.
        observed: The scales, and what is known of the overflows.
        rtol: The relative error of the scales that were seen, where they were printed with few digits.
        resumed: The run was taken up at its first scale, with any counts; else it began there, with none.

    Returns:
        A pattern, or the first contradiction.
    """
    moves = Moves(rule)
    view = _View(moves, observed, rtol)
    start, strides = moves.start(resumed=resumed), list[Stride]()
    reached = start
    index = places = 0
    while True:
        frontier = view.fitting(reached, index)
        places += len(frontier)
        if len(frontier) > LIMIT or places > ROOM + USUAL * index or moves.crowd > CROWD:
            return Followed(Contradiction(index - 1, undecided=True))
        if not frontier:
            return Followed(_contradiction(view, [Stride(start, 0, -1), *strides], reached, index))  # no step, from the start
        if index == len(view.flags):
            return _explained(moves, [*strides, Stride(frontier, 0, -1)])
        strides.append(Stride(frontier, view.stride(frontier, index), view.flags[index]))
        reached = strides[-1].forward(moves)
        index += strides[-1].steps


class Stride(NamedTuple):
    """One step from a frontier; or several, all finite, that do no more than to count on."""

    frontier: Frontier
    steps: int
    flag: int

    def forward(self, moves: Moves) -> Frontier:
        """Where it leads."""
        if self.steps == 1:
            return moves.forward(self.frontier, self.flag)
        return {place: counts << self.steps for place, counts in self.frontier.items()}

    def backward(self, moves: Moves, goal: Frontier) -> tuple["Stride", bool]:
        """The part of it that leads into *goal*; and whether its step can be of either kind."""
        if self.steps == 1:
            kept, either = moves.backward(self.frontier, goal, self.flag)
            return self._replace(frontier=kept), either
        kept = {place: counts & goal[place] >> self.steps for place, counts in self.frontier.items()}
        return self._replace(frontier=kept), False


def _contradiction(view: "_View", strides: list[Stride], reached: Frontier, index: int) -> Contradiction:
    """What the rule could have done where no state is left at *index*, or will be left when the next scale is seen."""
    end = min(view.next_seen[index], len(view.scales) - 1)
    if np.isnan(view.scales[max(0, index - 1) : index + 1]).any():  # what cannot come to the next scale was left out
        at = index
        while strides and (at == index or math.isnan(view.scales[at])):
            reached, steps, _ = strides.pop()
            at -= steps
        for step in range(at, end):
            if len(reached) > LISTED:
                return Contradiction(end - 1, (), view.scales[end])
            reached = view.moves.forward(reached, view.flags[step])
            if not reached:  # it had stopped
                return Contradiction(step, (), view.scales[step + 1])
    return Contradiction(end - 1, scales_of(reached), view.scales[end])


def _explained(moves: Moves, strides: list[Stride]) -> Followed:
    """A pattern that leads through all *strides*: finite steps where there is a choice."""
    ambiguous = 0
    for at in reversed(range(len(strides) - 1)):
        strides[at], either = strides[at].backward(moves, strides[at + 1].frontier)
        ambiguous += either
    place, counts = next(iter(strides[0].frontier.items()))
    counts &= -counts
    start, finite = moves.counts(place, counts), list[bool]()
    for stride, (goal, *_) in pairwise(strides):
        move = moves.leading(place, counts, goal, stride.flag) if stride.steps == 1 else Move(True, place, stride.steps, 0)
        place, counts = move.place, move.image(counts)
        finite += [move.finite] * stride.steps
    return Followed(finite=np.array(finite, bool), ambiguous=ambiguous, start=start)


def rounded(rule: LossScaleRule, scales: np.ndarray) -> np.ndarray:
    """Scales as the rule holds them: a float32 is often printed with just the digits that tell it from others."""
    with np.errstate(over="ignore", under="ignore"):
        held = scales.astype(rule.dtype).astype(np.float64)
    return np.where((held == 0) | np.isinf(held), scales, held)  # a number that it cannot hold is not zero or infinite


class _View:
    """Which states agree with what was seen, and how long nothing new is to be seen."""

    def __init__(self, moves: Moves, observed: Observed, rtol: float) -> None:
        self.moves, self.rtol, self.flags = moves, rtol, observed.finite.tolist()
        scales = rounded(moves.rule, observed.scales)
        seen, unseen = np.flatnonzero(~np.isnan(scales)), np.flatnonzero(np.isnan(scales))
        self.scales, self.next_seen = scales.tolist(), _next(seen, scales.size).tolist()
        last_of_run = np.append(seen[:-1][scales[seen[1:]] != scales[seen[:-1]]], seen[-1:])  # of sights of one scale
        following = np.append(scales[1:], math.nan)
        alike = np.where(np.isnan(following), self.next_seen, _next(unseen, scales.size) - 1)
        calm = [_next(last_of_run, scales.size), alike, _next(np.flatnonzero(observed.finite == 0), scales.size)]
        self.calm = np.minimum(np.minimum.reduce(calm), scales.size - 1).tolist()
        self.finite = _next(np.flatnonzero(observed.finite != 1), scales.size).tolist()

    def fitting(self, reached: Frontier, index: int) -> Frontier:
        """The part of *reached* that has the scale seen at *index*; where none was seen, what can still come to the next."""
        seen, following = self.scales[index], self.next_seen[index]
        if not math.isnan(seen):
            return {place: counts for place, counts in reached.items() if math.isclose(place[0], seen, rel_tol=self.rtol)}
        if following == len(self.scales):
            return reached
        goal = self.scales[following]
        return {place: counts for place, counts in reached.items() if self._can_come(place, counts, following - index, goal)}

    def stride(self, frontier: Frontier, index: int) -> int:
        """For how many steps from *index* on nothing can happen but that finite steps are counted; at least 1."""
        (place, counts), *others = frontier.items()
        steps = min(self.calm[index] - index, self.moves.last + 1 - counts.bit_length())
        if others or steps < 2 or place is STOPPED:
            return 1
        overflow, finite = sorted(move for _, _, move in self.moves.each(frontier, -1))
        if self.moves.rule.delayed_update or self.fitting(
            {overflow.place: overflow.image(counts)}, index + 1
        ):  # it could go unseen
            steps = min(steps, self.finite[index] - index)
        return steps if finite.place == place and steps > 1 else 1

    def _can_come(self, place: Place, counts: int, steps: int, goal: float) -> bool:
        """Whether so many steps can bring a place up to *goal*: its growths are as many as there are windows."""
        rule, head_start = self.moves.rule, max(self.moves.rule.initial_good_steps, 0)
        first = self.moves.last + 1 - max(counts.bit_length() - 1, head_start)
        growths = 1 + (steps - first) // max(1, rule.growth_interval - head_start) if steps >= first else 0
        scale = place[0] if place[3] is None else place[3]
        wanted = min(goal, FLOATS[rule.dtype].largest) * (1 - self.rtol)  # what is larger is infinite
        if not growths or scale >= wanted:
            return scale >= wanted
        factor = max(rule.growth_factor, rule.warmup_growth_factor or 1.0)
        return scale < TINY or math.log2(scale / wanted) + growths * (math.log2(factor) + 1e-6) >= 0


def _next(places: np.ndarray, size: int) -> np.ndarray:
    """For each index below *size*, the first of *places* that is not below it; *size* where there is none."""
    return np.append(places, size)[np.searchsorted(places, np.arange(size))]
