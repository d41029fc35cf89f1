"""
Transitions of a rule on sets of states.

An overflow that leaves the scale unchanged is invisible in the scales. A rule is therefore followed along all overflow traces at
once, as a set of states. A step depends on the count of good steps in one way only: whether the count is the last of its window.
All counts that occur with one `StateKey` (scale, overflow count, ...) are therefore stored as one Python integer, whose bit p
stands for the count p + lowest, where lowest is the smallest count. A step shifts this integer or resets it to a single bit;
each step is computed once for each key.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from ...core.machine_floats import rounded_constants, step_of
from ...core.rule import LossScaleRule

StateKey = tuple[float, int, int, float]  # a `HostState` without good_steps: scale, bad_steps, window_steps, pending_scale
Frontier = dict[StateKey, int]  # possible states: the counts of good steps, as bits, for each key
RAISED: StateKey = (math.nan, 0, 0, math.nan)  # state after an error of the published scaler: no scale, and no further step


class Transition(NamedTuple):
    """Step from a key, either for all counts of good steps below the last of the window, or for this last count."""

    finite: bool
    key: StateKey  # key after the step
    shift: int  # number that is added to each count if *reset* is 0
    reset: int  # the count after the step, as a bit; 0 if the counts are shifted

    def image(self, counts: int) -> int:
        """Return the counts after the step, as bits, given *counts* before it."""
        return self.reset or counts << self.shift

    def preimage(self, counts: int, target: int) -> int:
        """Return those of *counts* from which the step leads to a count in *target*."""
        if self.reset:
            return counts if self.reset & target else 0
        return counts & (target >> self.shift)


class Transitions:
    """Transitions of a rule, computed when a key first occurs. A flag is 1 (finite), 0 (overflow) or -1 (either)."""

    def __init__(self, rule: LossScaleRule) -> None:
        self.rule, self._step = rule, step_of(rule)
        self.lowest = min(rule.initial_good_steps, 0)
        self.last = rule.growth_interval - 1 - self.lowest  # position of the bit of the last count of a window
        self.all_counts = (2 << self.last) - 1  # all counts of a window, as bits
        self.additional_keys = 0  # new keys beyond the first at each step, at all steps so far
        self._cached: dict[StateKey, list[list[Transition]]] = {RAISED: [[], []]}

    def start(self, *, resumed: bool) -> Frontier:
        """
        Return the possible states before the first step.

        If *resumed* is True, these are all states with the initial scale. A rule with an overflow tolerance has too many such
        states, and is assumed to start with its initial counts.
        """
        scale = rounded_constants(self.rule).init
        if not resumed or self.rule.overflow_tolerance is not None:
            return {(scale, 0, 0, scale): self._bit(self.rule.initial_good_steps)}
        resets = "backoff" in self.rule.reset_bad_steps_on  # then no count of overflows remains at `hysteresis`
        most_bad_steps = self.rule.hysteresis - 1 if resets else self.rule.hysteresis
        return {(scale, bad_steps, 0, scale): self.all_counts for bad_steps in range(most_bad_steps + 1)}

    def counts(self, key: StateKey, count: int) -> tuple[int, int]:
        """Return the counts of good steps and of overflows of a state. The bit *count* encodes its count of good steps."""
        return count.bit_length() - 1 + self.lowest, key[1]

    def forward(self, frontier: Frontier, flag: int) -> Frontier:
        """Return the possible states after a step."""
        reached: Frontier = {}
        for _, counts, transition in self.outgoing(frontier, flag):
            reached[transition.key] = reached.get(transition.key, 0) | transition.image(counts)
        return reached

    def backward(self, frontier: Frontier, target: Frontier, flag: int) -> tuple[Frontier, bool]:
        """Return the states of *frontier* that lead into *target*, and True if both kinds of step lead there."""
        sources: Frontier = {}
        finite_flags = set()
        for key, counts, transition in self.outgoing(frontier, flag):
            if transition.key in target and (preimage := transition.preimage(counts, target[transition.key])):
                sources[key] = sources.get(key, 0) | preimage
                finite_flags.add(transition.finite)
        return sources, len(finite_flags) == 2

    def transition_into(self, target: Frontier, key: StateKey, count: int, flag: int) -> Transition:
        """Return a transition from the state (*key*, *count*) into *target*; a finite step is preferred to an overflow."""
        transitions = (transition for _, _, transition in self.outgoing({key: count}, flag))
        matches = [transition for transition in transitions if transition.image(count) & target.get(transition.key, 0)]
        return max(matches, key=lambda transition: transition.finite)

    def outgoing(self, frontier: Frontier, flag: int) -> Iterator[tuple[StateKey, int, Transition]]:
        """
        Yield the key and the counts of the source, and the transition itself, for each transition from *frontier*.

        A *flag* of 1 selects transitions of finite steps, 0 those of overflows, and -1 both. Counts are stored as bits.
        """
        self._cache_transitions(frontier)
        for key, counts in frontier.items():
            last = (counts >> self.last) << self.last  # the bit of the last count of the window, without those of smaller counts
            for subset, transitions in zip((counts ^ last, last), self._cached[key], strict=True):
                for transition in transitions:
                    if subset and flag in (-1, int(transition.finite)):
                        yield key, subset, transition

    def _cache_transitions(self, frontier: Frontier) -> None:
        """Compute the transitions from the keys that occur for the first time."""
        new_keys = [key for key in frontier if key not in self._cached]
        self.additional_keys += max(len(new_keys) - 1, 0)
        for key in new_keys:
            good_steps = (self.lowest - 1, self.rule.growth_interval - 1)  # a count before the last of the window, and the last
            self._cached[key] = [[self._transition(key, good, finite) for finite in (True, False)] for good in good_steps]

    def _transition(self, key: StateKey, good: int, finite: bool) -> Transition:
        """Return the transition from *key* at the count *good*. A count below `lowest` stands for all counts before the last."""
        state = self._step((key[0], good, *key[1:]), finite)
        if state is None:
            return Transition(finite, RAISED, 0, 0)
        scale, new_good, bad, window, pending = state
        key = (scale, bad, 0 if self.rule.overflow_tolerance is None else window, pending)
        if good < self.lowest and (finite or new_good == good):
            return Transition(finite, key, new_good - good, 0)
        return Transition(finite, key, 0, self._bit(new_good))

    def _bit(self, good: int) -> int:
        """Return a count as a bit. Counts above the last of the window become the last, which has the same transitions."""
        return 1 << min(good - self.lowest, self.last)


def with_scale(frontier: Frontier, scale: float, rtol: float) -> Frontier:
    """Return the states with *scale*, up to a relative error of *rtol*; all states if *scale* is NaN."""
    if math.isnan(scale):
        return frontier
    return {key: counts for key, counts in frontier.items() if math.isclose(key[0], scale, rel_tol=rtol)}


def scales_of(frontier: Frontier) -> tuple[float, ...]:
    """Return the scales of all keys, ascending. The scale of `RAISED` is NaN and comes last."""
    return tuple(sorted({key[0] for key in frontier}, key=lambda scale: (math.isnan(scale), scale)))
