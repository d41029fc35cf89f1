"""
What a rule's steps do to all states that it can be in at once.

An overflow that does not move the scale cannot be seen in it. So a rule is followed along every pattern of finite and
overflow steps at once. What a step does depends on the count of good steps in one way alone: whether it has come to the last
of its window. All counts that go with one *place* (scale, overflows, ...) are therefore kept as one Python integer, whose bit
p stands for the count p + lowest, and a step shifts them all or starts them again. What it does is asked of
`LossScaleRule.update`, once for each place.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np

from ...core.machine import LossScaleState
from ...core.rule import LossScaleRule

Place = tuple[float, int, int | None, float | None]  # a state without its good steps: scale, bad_steps, steps, next_scale
Frontier = dict[Place, int]  # the counts of good steps that each place can be reached with, as bits
STOPPED: Place = (math.nan, 0, None, None)  # the published scaler has raised: no scale, and no step leads on


class Move(NamedTuple):
    """What a step does at a place: to all counts of good steps below the last of the window, or to that last one."""

    finite: bool
    place: Place
    shift: int  # is added to each count,
    restart: int  # unless this is not 0: then all counts become this one, as a bit

    def image(self, counts: int) -> int:
        """What *counts* become."""
        return self.restart or counts << self.shift

    def source(self, counts: int, goal: int) -> int:
        """Those of *counts* that become one of *goal*."""
        if self.restart:
            return counts if self.restart & goal else 0
        return counts & goal >> self.shift


class Moves:
    """The moves of a rule, asked of its `update` when a place is first met. A flag is 1, 0 or -1, as in `Observed`."""

    def __init__(self, rule: LossScaleRule) -> None:
        self.rule = rule
        self.lowest = min(rule.initial_good_steps, 0)
        self.last = rule.growth_interval - 1 - self.lowest  # the bit of every count that lets the next finite step grow
        self.crowd = 0  # places that were met together with others
        self._known: dict[Place, tuple[list[Move], list[Move]]] = {STOPPED: ([], [])}

    def start(self, *, resumed: bool = False) -> Frontier:
        """
        The state before the first step.

        With *resumed*, every state in which a run may have been taken up at this scale; with a rate there are too many, and it
        is taken to begin anew.
        """
        first = self.rule.init(like=np.zeros(()))
        place = _places(LossScaleState(*(None if array is None else array[None] for array in first)))[0]
        if not resumed or self.rule.overflow_tolerance is not None:
            return {place: self._bit(int(first.good_steps))}
        most = self.rule.hysteresis - ("backoff" in self.rule.reset_bad_steps_on)
        return {(place[0], bad, *place[2:]): (2 << self.last) - 1 for bad in range(most + 1)}

    def counts(self, place: Place, count: int) -> tuple[int, int]:
        """The good steps and the overflows that a state has counted; *count* is a bit."""
        return count.bit_length() - 1 + self.lowest, place[1]

    def forward(self, frontier: Frontier, flag: int) -> Frontier:
        """Where a step leads."""
        reached: Frontier = {}
        for _, counts, move in self.each(frontier, flag):
            reached[move.place] = reached.get(move.place, 0) | move.image(counts)
        return reached

    def backward(self, frontier: Frontier, goal: Frontier, flag: int) -> tuple[Frontier, bool]:
        """The part of *frontier* from which a step leads into *goal*; and whether a step of either kind does."""
        kept: Frontier = {}
        kinds = set()
        for place, counts, move in self.each(frontier, flag):
            if move.place in goal and (source := move.source(counts, goal[move.place])):
                kept[place] = kept.get(place, 0) | source
                kinds.add(move.finite)
        return kept, len(kinds) == 2

    def leading(self, place: Place, count: int, goal: Frontier, flag: int) -> Move:
        """A move from one state into *goal*: a finite step if there is one, else an overflow."""
        moves = [move for _, _, move in self.each({place: count}, flag) if move.image(count) & goal.get(move.place, 0)]
        return max(moves, key=lambda move: move.finite)

    def each(self, frontier: Frontier, flag: int) -> Iterator[tuple[Place, int, Move]]:
        """Each move that a step makes from *frontier*: the place that it leaves, the counts there, and the move."""
        self._learn([place for place in frontier if place not in self._known])
        for place, counts in frontier.items():
            last = counts >> self.last << self.last
            for some, moves in zip((counts ^ last, last), self._known[place], strict=True):
                if some:
                    for move in moves:
                        if flag < 0 or flag == move.finite:
                            yield place, some, move

    def _learn(self, places: list[Place]) -> None:
        """Tries both kinds of step at each of *places*, from a count of good steps below all that occur and from the last."""
        if not places:
            return
        self.crowd += len(places) - 1
        size, goods = len(places), (self.lowest - 1, self.rule.growth_interval - 1)
        good = np.repeat(np.array(goods * 2, np.int32), size)
        finite = np.repeat([True, True, False, False], size)
        before = self._batch(places * 4, good)
        after, stops = self.rule.transition(before, finite)
        columns = zip(good.tolist(), finite.tolist(), stops.tolist(), after.good_steps.tolist(), _places(after), strict=True)
        moves = [self._move(*column) for column in columns]
        for index, place in enumerate(places):
            below, last, below_overflow, last_overflow = moves[index::size]
            self._known[place] = ([below, below_overflow], [last, last_overflow])

    def _move(self, before: int, finite: bool, stops: bool, after: int, place: Place) -> Move:
        if stops:
            return Move(finite, STOPPED, 0, 0)
        if before < self.lowest and (finite or after == before):
            return Move(finite, place, after - before, 0)
        return Move(finite, place, 0, self._bit(after))

    def _bit(self, good: int) -> int:
        """A count as a bit. All counts from the last of the window on do the same."""
        return 1 << min(good - self.lowest, self.last)

    def _batch(self, places: Sequence[Place], good: np.ndarray) -> LossScaleState:
        scale, bad, steps, following = zip(*places, strict=True)
        return LossScaleState(
            scale=np.array(scale, self.rule.dtype),
            good_steps=good,
            bad_steps=np.array(bad, np.int32),
            window_steps=None if self.rule.overflow_tolerance is None else np.array(steps, np.int32),
            pending_scale=np.array(following, self.rule.dtype) if self.rule.delayed_update else None,
        )


def scales_of(frontier: Frontier) -> tuple[float, ...]:
    """The scales of all places, ascending; a stop is a NaN, and the last."""
    return tuple(sorted({place[0] for place in frontier}, key=lambda scale: (math.isnan(scale), scale)))


def _places(state: LossScaleState) -> list[Place]:
    columns = (repeat(None) if array is None else array.tolist() for array in (state.window_steps, state.pending_scale))
    return list(zip(state.scale.tolist(), state.bad_steps.tolist(), *columns, strict=False))
