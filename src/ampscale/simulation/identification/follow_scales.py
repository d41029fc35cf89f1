"""Consistency of a rule with observed scales. Steps are counted from 0."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...core.dtypes import FLOATS
from ...core.rule import LossScaleRule
from ..traces import Observed
from .possible_states import RAISED, Frontier, StateKey, Transition, Transitions, scales_of, with_scale

# A rule with more state keys than one of these limits is reported as undecided.
LIMIT = 2000  # keys at one step; a rule that halves and doubles has fewer, even if no scale is known
TOTAL, PER_STEP = 30_000, 100  # keys at all steps together: a constant, plus an allowance for each step
MOST_ADDITIONAL_KEYS = 30_000  # new keys beyond the first at each step, at all steps together
LISTED = 100  # maximum number of keys for which a contradiction lists the expected scales
TINY = 2.0**-100  # smaller scales can be near subnormal numbers, where rounding can change a scale by more than a growth does


@dataclass(frozen=True)
class Contradiction:
    """First step, or first of the reported overflows, at which a rule contradicts an observation."""

    # Step after which the scale is contradictory, counted from 0; -1 before the first step. Or the index of the overflow.
    step: int
    # Possible scales of the rule at this point, ascending; NaN if the published scaler could have raised an error. Empty if no
    # scale is possible, or if there are too many to list.
    expected: tuple[float, ...] = ()
    seen: float = math.nan  # observed scale; NaN if the scale is unknown but the rule has no further step
    undecided: bool = False  # True if more states were possible than are searched, so that this and later steps are not decided


@dataclass(frozen=True, eq=False)
class Followed:
    """Result of following a rule along an observation."""

    contradiction: Contradiction | None = None  # first contradiction; None if the rule is consistent
    finite: np.ndarray | None = None  # flags of a consistent trace, a bool array of shape (steps,)
    ambiguous: int | None = None  # number of steps at which a finite step and an overflow are both possible; None if unknown
    start: tuple[int, int] | None = None  # counts of good steps and of overflows before the first step of the trace


class Steps(NamedTuple):
    """Lists about the steps of an observation, for rules of one dtype."""

    flags: list[int]
    scales: list[float]  # the scale at each step and after the last step, rounded to the dtype; NaN if unknown
    next_known: list[int]  # for each of the scales: the index of the next known scale
    stride_end: list[int]  # for each step: the end of a stride that begins at this step
    finite_end: list[int]  # for each step: the next step that is not known to be finite


def steps_of(rule: LossScaleRule, observed: Observed) -> Steps:
    """Return the lists about an observation for all rules with the dtype of *rule*."""
    scales = rounded(rule, observed.scales)
    known = np.flatnonzero(~np.isnan(scales))
    unknown = np.flatnonzero(np.isnan(scales))
    next_known = _next(known, scales.size)
    differs_from_next = np.append(scales[known[1:]] != scales[known[:-1]], True)  # True for each known scale before a change
    before_change = known[differs_from_next[: known.size]]
    next_scale = np.append(scales[1:], math.nan)
    # A stride has only known or only unknown scales (`kind_end`), which do not change, and no known overflow between them.
    kind_end = np.where(np.isnan(next_scale), next_known, _next(unknown, scales.size) - 1)
    ends = [_next(before_change, scales.size), kind_end, _next(np.flatnonzero(observed.finite == 0), scales.size)]
    stride_end = np.minimum(np.minimum.reduce(ends), scales.size - 1)
    finite_end = _next(np.flatnonzero(observed.finite != 1), scales.size)
    return Steps(*(array.tolist() for array in (observed.finite, scales, next_known, stride_end, finite_end)))


def follow(rule: LossScaleRule, observed: Observed | Steps, rtol: float = 0.0, *, resumed: bool = False) -> Followed:
    """
    Return a trace along which *rule* has the observed scales up to a relative error of *rtol*, or the first contradiction.

    A resumed run starts at the initial scale of the rule with arbitrary counts; any other run starts with initial counts. For
    several rules, pass the result of `steps_of`, since preparing an observation takes more time than following most rules.
    """
    transitions = Transitions(rule)
    steps = steps_of(rule, observed) if isinstance(observed, Observed) else observed
    view = _View(transitions, steps, rtol)
    start = reached = transitions.start(resumed=resumed)
    strides = list[Stride]()
    index = total_keys = 0
    while True:
        frontier = view.consistent_states(reached, index)
        total_keys += len(frontier)
        if len(frontier) > LIMIT or total_keys > TOTAL + PER_STEP * index or transitions.additional_keys > MOST_ADDITIONAL_KEYS:
            return Followed(Contradiction(index - 1, undecided=True))
        if not frontier:
            return Followed(_contradiction(view, [Stride(start, 0, -1), *strides], reached, index))
        if index == len(view.flags):
            return _consistent(transitions, [*strides, Stride(frontier, 0, -1)])
        strides.append(Stride(frontier, view.stride(frontier, index), view.flags[index]))
        reached = strides[-1].forward(transitions)
        index += strides[-1].steps


def rounded(rule: LossScaleRule, scales: np.ndarray) -> np.ndarray:
    """Round *scales* to the dtype of the rule, because a float32 is often printed with just enough digits to identify it."""
    with np.errstate(over="ignore", under="ignore"):
        converted = scales.astype(rule.dtype).astype(np.float64)
    # Keep a number that is out of the range of the dtype: rounding would make it zero or infinite.
    return np.where((converted == 0) | np.isinf(converted), scales, converted)


class Stride(NamedTuple):
    """
    One step from a frontier, or several finite steps that only increase the counts. The flag is as in `Observed`.

    A stride of zero steps stands for a frontier from which no step is taken.
    """

    frontier: Frontier
    steps: int
    flag: int

    def forward(self, transitions: Transitions) -> Frontier:
        """Return the possible states after the stride."""
        if self.steps == 1:
            return transitions.forward(self.frontier, self.flag)
        return {key: counts << self.steps for key, counts in self.frontier.items()}

    def backward(self, transitions: Transitions, target: Frontier) -> tuple["Stride", bool]:
        """Return the stride with only the states that lead into *target*, and True if both kinds of step lead there."""
        if self.steps == 1:
            sources, ambiguous = transitions.backward(self.frontier, target, self.flag)
            return self._replace(frontier=sources), ambiguous
        sources = {key: counts & (target[key] >> self.steps) for key, counts in self.frontier.items()}
        return self._replace(frontier=sources), False


def _contradiction(view: "_View", strides: list[Stride], reached: Frontier, index: int) -> Contradiction:
    """Return the contradiction. At *index*, no state has the known scale, or none can reach the next known scale."""
    end = min(view.next_known[index], len(view.scales) - 1)
    if np.isnan(view.scales[max(0, index - 1) : index + 1]).any():
        # States that cannot reach the next known scale were left out, so follow all states again from the last known scale.
        first = index
        while strides and (first == index or math.isnan(view.scales[first])):
            reached, steps, _ = strides.pop()
            first -= steps
        for step in range(first, end):
            if len(reached) > LISTED:
                return Contradiction(end - 1, (), view.scales[end])
            reached = view.transitions.forward(reached, view.flags[step])
            if not reached:  # the published scaler raised an error in an earlier step
                return Contradiction(step, (), view.scales[step + 1])
    return Contradiction(end - 1, scales_of(reached), view.scales[end])


def _consistent(transitions: Transitions, strides: list[Stride]) -> Followed:
    """Return a trace through all *strides*, with a finite step wherever a finite step and an overflow are possible."""
    ambiguous = 0
    for index in reversed(range(len(strides) - 1)):
        strides[index], is_ambiguous = strides[index].backward(transitions, strides[index + 1].frontier)
        ambiguous += is_ambiguous
    key, counts = next(iter(strides[0].frontier.items()))
    counts &= -counts  # only the smallest count, which is the lowest bit
    start = transitions.counts(key, counts)
    finite = list[bool]()
    for stride, (target, *_) in pairwise(strides):
        if stride.steps == 1:
            transition = transitions.transition_into(target, key, counts, stride.flag)
        else:
            transition = Transition(True, key, stride.steps, 0)
        key, counts = transition.key, transition.image(counts)
        finite += [transition.finite] * stride.steps
    return Followed(finite=np.array(finite, bool), ambiguous=ambiguous, start=start)


class _View:
    """Observation of a run: selects the states that are consistent with it, and the finite steps to combine in a stride."""

    def __init__(self, transitions: Transitions, steps: Steps, rtol: float) -> None:
        self.transitions, self.rtol = transitions, rtol
        self.flags, self.scales, self.next_known, self.stride_end, self.finite_end = steps

    def consistent_states(self, reached: Frontier, index: int) -> Frontier:
        """
        Return those of the *reached* states that have the observed scale at *index*.

        If this scale is unknown, return the states that can reach the next known scale, or all if no further scale is known.
        """
        scale, next_known = self.scales[index], self.next_known[index]
        if not math.isnan(scale):
            return with_scale(reached, scale, self.rtol)
        if next_known == len(self.scales):
            return reached
        target, steps = self.scales[next_known], next_known - index
        return {key: counts for key, counts in reached.items() if self._can_reach(key, counts, steps, target)}

    def stride(self, frontier: Frontier, index: int) -> int:
        """Return the length of the stride at *index*: 1, or the number of steps that only increase the count of good steps."""
        (key, counts), *others = frontier.items()
        steps = min(self.stride_end[index] - index, self.transitions.last + 1 - counts.bit_length())
        if others or steps < 2 or key is RAISED:
            return 1
        # One transition has the flag finite=False, the other finite=True, and they are sorted by this flag.
        overflow, finite = sorted(transition for _, _, transition in self.transitions.outgoing(frontier, -1))
        after_overflow = {overflow.key: overflow.image(counts)}
        if self.transitions.rule.delayed_update or self.consistent_states(after_overflow, index + 1):
            steps = min(steps, self.finite_end[index] - index)  # an overflow could be invisible
        return steps if finite.key == key and steps > 1 else 1

    def _can_reach(self, key: StateKey, counts: int, steps: int, target: float) -> bool:
        """Return False if the scale is too small to reach *target* within *steps* steps, even if all of them are finite."""
        rule = self.transitions.rule
        head_start = max(rule.initial_good_steps, 0)  # count with which a window starts after an overflow
        to_growth = self.transitions.last + 1 - max(counts.bit_length() - 1, head_start)  # steps to the first growth
        growths = 1 + (steps - to_growth) // max(1, rule.growth_interval - head_start) if steps >= to_growth else 0
        scale = key[3]  # the pending scale
        lowest = min(target, FLOATS[rule.dtype].largest) * (1 - self.rtol)  # a larger number is infinite in this dtype
        if not growths or scale >= lowest:
            return scale >= lowest
        factor = max(rule.growth_factor, rule.warmup_growth_factor or 1.0)
        log_factor = math.log2(factor) + 1e-6  # more than the rounding of a growth adds
        return scale < TINY or math.log2(scale / lowest) + growths * log_factor >= 0


def _next(indices: np.ndarray, size: int) -> np.ndarray:
    """Return, for each integer from 0 to *size* - 1, the smallest of *indices* that is not less; *size* if all are less."""
    return np.append(indices, size)[np.searchsorted(indices, np.arange(size))]
