"""
The scales of many rules along one trace: `simulate` for all of them at once, one NumPy operation where it has one a rule.

It equals `LossScaleRule.update` bit for bit, for the reason that core/machine_floats.py gives: all is computed in float64, and
what a rule of float32 computes is rounded once.
"""

from collections.abc import Sequence

import numpy as np

from ..core.machine_floats import RoundedConstants, rounded_constants
from ..core.rule import LossScaleRule
from ..core.rule_constants import EVENTS
from .simulate import check
from .traces import Trace


def sweep(rules: Sequence[LossScaleRule], trace: Trace | list[Trace] | tuple[Trace, ...]) -> np.ndarray:
    """
    The scales of many rules, all at once: one NumPy operation for all of them where `simulate` takes one rule after another.

    Args:
        rules: Any rules, of any axes and either dtype.
        trace: One trace for all rules, or a trace of the same length for each.

    Returns:
        float64, shape (rules, steps + 1): the scale in force at each step and after the last; NaN after the step at which the
        published scaler raises.

    Raises:
        TypeError: *rules* or *trace* is or contains something else.
        ValueError: There is no rule, there are not as many traces as rules, or the traces differ in length.
    """
    if len(rules) == 0:
        raise ValueError("rules must hold at least one rule, got none")
    for rule in rules:
        check(rule, "each rule", LossScaleRule)
    limits = _limits(trace, len(rules))
    fleet = Fleet(rules)
    scales = np.empty((len(limits) + 1, len(rules)))  # one step after another, as they are written
    scales[0] = fleet.in_force
    with np.errstate(all="ignore"):
        for step, limit in enumerate(limits, start=1):
            scales[step] = fleet.step(limit)
    return scales.T


class Fleet:
    """The state of many rules, one entry each, beside their constants. A scale that stopped is NaN, and stays it."""

    def __init__(self, rules: Sequence[LossScaleRule]) -> None:
        columns = zip(*map(rounded_constants, rules), strict=True)
        self.constants = RoundedConstants(*(np.array(column, float) for column in columns))
        self.interval, self.hysteresis, self.offset = (
            np.array([getattr(rule, name) for rule in rules]) for name in ("growth_interval", "hysteresis", "initial_good_steps")
        )
        self.guarded, self.delayed_update = (
            np.array([getattr(rule, name) for rule in rules]) for name in ("skip_infinite_growth", "delayed_update")
        )
        self.refills = {event: np.array([event in rule.reset_bad_steps_on for rule in rules]) for event in EVENTS}
        self.narrow = np.array([rule.dtype == "float32" for rule in rules])
        self.rated = ~np.isnan(self.constants.overflow_tolerance)
        self.spent = np.where(self.refills["backoff"], 0, self.hysteresis)
        self.scale = self.in_force = self.constants.init
        self.good, self.bad, self.since = self.offset.copy(), np.zeros_like(self.offset), np.zeros_like(self.offset)

    def step(self, limit: np.ndarray) -> np.ndarray:
        """The scales in force after a step that is finite up to *limit*: float64, of shape () or (rules,)."""
        finite, before = self.in_force <= limit, self.scale
        self.since += 1
        self.good += finite
        grows = finite & (self.good >= self.interval) & ~(self.scale >= self.constants.blocks_growth_at)
        if grows.any():
            self._grow(grows)
        self.bad *= ~(finite & self.refills["finite"])
        if not finite.all():
            self._overflow(~finite)
        self.in_force = np.where(self.delayed_update & ~np.isnan(self.scale), before, self.scale)
        return self.in_force

    def _grow(self, grows: np.ndarray) -> None:
        factor = np.where(self.bad == 0, self.constants.warmup_growth, self.constants.growth)
        larger = self._rounded(self.scale * factor)
        larger = np.where(self.guarded & np.isinf(larger), self.scale, larger)
        self.scale = np.where(grows, np.minimum(larger, self.constants.upper_clamp), self.scale)
        self.good *= ~grows
        self.since *= ~grows
        self.bad *= ~(grows & self.refills["growth"])

    def _overflow(self, overflow: np.ndarray) -> None:
        self.bad += overflow
        due, allowed = overflow & self._due(), self.scale > self.constants.blocks_backoff_at
        smaller = self._rounded(self.scale * self.constants.backoff / self.constants.divisor)
        moved = np.where(due & allowed, np.maximum(smaller, self.constants.lower_clamp), self.scale)
        at_floor = due & (self.scale <= self.constants.raises_at_min)
        self.scale = np.where(at_floor | (overflow & (moved <= self.constants.raise_at_or_below)), np.nan, moved)
        self.good = np.where(overflow & (allowed | ~due), self.offset, self.good)
        self.bad = np.where(due, self.spent, self.bad)
        self.since *= ~due

    def _due(self) -> np.ndarray:
        counted = self.bad >= self.hysteresis
        if not self.rated.any():
            return counted
        share = self._rounded(self._rounded(self.bad) / self._rounded(self.since))
        return np.where(self.rated, share >= self.constants.overflow_tolerance, counted)

    def _rounded(self, values: np.ndarray) -> np.ndarray:
        return np.where(self.narrow, values.astype(np.float32), values)


def _limits(trace: Trace | list[Trace] | tuple[Trace, ...], rules: int) -> np.ndarray:
    """One entry a step: a number for all rules, or an array of one number for each."""
    if not isinstance(trace, list | tuple):
        check(trace, "trace", Trace)
        return trace.limits
    for each in trace:
        check(each, "each trace", Trace)
    if len(trace) != rules:
        raise ValueError(f"trace must be one trace, or as many as there are rules, {rules}, got {len(trace)}")
    if len({each.limits.size for each in trace}) > 1:
        raise ValueError(f"the traces must have one length, got {sorted({each.limits.size for each in trace})}")
    return np.stack([each.limits for each in trace], axis=1)
