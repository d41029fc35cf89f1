"""
Transitions of a rule on sets of states.

An overflow that leaves the scale unchanged is invisible in the scales. A rule is therefore followed along all overflow traces at
once, as a set of states. A step depends on the count of good steps in one way only: whether the count is the last of its window.
All counts that occur with one `StateKey` (scale, overflow count, ...) are therefore stored as one Python integer, whose bit p
stands for the count p + lowest, where lowest is the smallest count. A step shifts this integer or resets it to a single bit;
`LossScaleRule.transition` computes the step once for each key.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np

from ...core.machine import LossScaleState
from ...core.rule import LossScaleRule

StateKey = tuple[float, int, int | None, float | None]  # state without good_steps: scale, bad_steps, window_steps, pending_scale
Frontier = dict[StateKey, int]  # possible states: the counts of good steps, as bits, for each key
RAISED: StateKey = (math.nan, 0, None, None)  # the published scaler has raised an error: it has no scale and no further step


class Transition(NamedTuple):
    """Step from a key, either for all counts of good steps below the last of the window, or for this last count."""

    finite: bool
    key: StateKey  # after the step
    shift: int  # added to each count, unless *reset* is not 0
    reset: int  # the count after the step, as a bit; 0 if the counts are shifted

    def image(self, counts: int) -> int:
        """Return the counts after the step, as bits, given *counts* before it."""
        return self.reset or counts << self.shift

    def preimage(self, counts: int, target: int) -> int:
        """Return those of *counts* from which the step leads to a count in *target*."""
        if self.reset:
            return counts if self.reset & target else 0
        return counts & target >> self.shift


class Transitions:
    """Transitions of a rule, computed when a key first occurs. A flag is 1 (finite), 0 (overflow) or -1 (either)."""

    def __init__(self, rule: LossScaleRule) -> None:
        self.rule = rule
        self.lowest = min(rule.initial_good_steps, 0)
        self.last = rule.growth_interval - 1 - self.lowest  # bit of the last count, at which the next finite step grows
        self.crowd = 0  # number of keys that first occurred together with others
        self._cached: dict[StateKey, tuple[list[Transition], list[Transition]]] = {RAISED: ([], [])}

    def start(self, *, resumed: bool) -> Frontier:
        """
        Return the possible states before the first step.

        With *resumed*, these are all states with the initial scale. A rule with an overflow tolerance has too many such states,
        and is assumed to start with zero counts.
        """
        first = self.rule.init(like=np.zeros(()))
        key = _keys(LossScaleState(*(None if array is None else array[None] for array in first)))[0]
        if not resumed or self.rule.overflow_tolerance is not None:
            return {key: self._bit(int(first.good_steps))}
        most = self.rule.hysteresis - ("backoff" in self.rule.reset_bad_steps_on)
        return {(key[0], bad_steps, *key[2:]): (2 << self.last) - 1 for bad_steps in range(most + 1)}

    def counts(self, key: StateKey, count: int) -> tuple[int, int]:
        """Return the counts of good steps and of overflows of a state. The bit *count* encodes its count of good steps."""
        return count.bit_length() - 1 + self.lowest, key[1]

    def forward(self, frontier: Frontier, flag: int) -> Frontier:
        """Return the possible states after a step."""
        reached: Frontier = {}
        for _, counts, transition in self.each(frontier, flag):
            reached[transition.key] = reached.get(transition.key, 0) | transition.image(counts)
        return reached

    def backward(self, frontier: Frontier, target: Frontier, flag: int) -> tuple[Frontier, bool]:
        """Return the states of *frontier* that lead into *target*, and True if a finite step and an overflow both do."""
        sources: Frontier = {}
        kinds = set()
        for key, counts, transition in self.each(frontier, flag):
            if transition.key in target and (preimage := transition.preimage(counts, target[transition.key])):
                sources[key] = sources.get(key, 0) | preimage
                kinds.add(transition.finite)
        return sources, len(kinds) == 2

    def leading(self, key: StateKey, count: int, target: Frontier, flag: int) -> Transition:
        """Return a transition from the state (*key*, *count*) into *target*; a finite step is preferred to an overflow."""
        transitions = (transition for _, _, transition in self.each({key: count}, flag))
        leading = [transition for transition in transitions if transition.image(count) & target.get(transition.key, 0)]
        return max(leading, key=lambda transition: transition.finite)

    def each(self, frontier: Frontier, flag: int) -> Iterator[tuple[StateKey, int, Transition]]:
        """Yield (key, counts, transition) for each transition from *frontier* with this flag: key and counts are its source."""
        self._compute([key for key in frontier if key not in self._cached])
        for key, counts in frontier.items():
            last = counts >> self.last << self.last
            for part, transitions in zip((counts ^ last, last), self._cached[key], strict=True):
                if part:
                    for transition in transitions:
                        if flag < 0 or flag == transition.finite:
                            yield key, part, transition

    def _compute(self, keys: list[StateKey]) -> None:
        """Compute a finite step and an overflow from each key: for the last count, and for a count below all possible ones."""
        if not keys:
            return
        self.crowd += len(keys) - 1
        size, goods = len(keys), (self.lowest - 1, self.rule.growth_interval - 1)
        good = np.repeat(np.array(goods * 2, np.int32), size)
        finite = np.repeat([True, True, False, False], size)
        new_state, raises = self.rule.transition(self._batch(keys * 4, good), finite)
        arrays = (good, finite, raises, new_state.good_steps)
        columns = zip(*(array.tolist() for array in arrays), _keys(new_state), strict=True)
        transitions = [self._transition(*column) for column in columns]
        for index, key in enumerate(keys):
            below, last, below_overflow, last_overflow = transitions[index::size]
            self._cached[key] = ([below, below_overflow], [last, last_overflow])

    def _transition(self, good: int, finite: bool, raises: bool, new_good: int, key: StateKey) -> Transition:
        if raises:
            return Transition(finite, RAISED, 0, 0)
        if good < self.lowest and (finite or new_good == good):
            return Transition(finite, key, new_good - good, 0)
        return Transition(finite, key, 0, self._bit(new_good))

    def _bit(self, good: int) -> int:
        """Return a count as a bit. Counts above the last of the window become the last, which has the same transitions."""
        return 1 << min(good - self.lowest, self.last)

    def _batch(self, keys: Sequence[StateKey], good: np.ndarray) -> LossScaleState:
        scale, bad, window_steps, pending = zip(*keys, strict=True)
        return LossScaleState(
            scale=np.array(scale, self.rule.dtype),
            good_steps=good,
            bad_steps=np.array(bad, np.int32),
            window_steps=None if self.rule.overflow_tolerance is None else np.array(window_steps, np.int32),
            pending_scale=np.array(pending, self.rule.dtype) if self.rule.delayed_update else None,
        )


def scales_of(frontier: Frontier) -> tuple[float, ...]:
    """Return the scales of all keys, ascending. The scale of `RAISED` is NaN and comes last."""
    return tuple(sorted({key[0] for key in frontier}, key=lambda scale: (math.isnan(scale), scale)))


def _keys(state: LossScaleState) -> list[StateKey]:
    columns = (repeat(None) if array is None else array.tolist() for array in (state.window_steps, state.pending_scale))
    return list(zip(state.scale.tolist(), state.bad_steps.tolist(), *columns, strict=False))
