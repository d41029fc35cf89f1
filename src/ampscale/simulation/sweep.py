"""
Simulation of many rules at once, with NumPy operations on arrays that have one element for each rule.

The scales equal those of `LossScaleRule.update` bit for bit, for the reason given in core/machine_floats.py: all numbers are
computed in float64, and the results of a float32 rule are rounded once.
"""

from collections.abc import Sequence

import numpy as np

from ..core.machine_floats import RoundedConstants, rounded_constants
from ..core.rule import LossScaleRule
from ..core.rule_constants import EVENTS
from ..core.validation import check_type
from .traces import Trace


def sweep(rules: Sequence[LossScaleRule], trace: Trace | list[Trace] | tuple[Trace, ...]) -> np.ndarray:
    """
    Compute the scales of many rules at once. For many rules this is faster than `simulate`.

    Args:
        rules: Rules with any constants, of either dtype.
        trace: One overflow trace for all rules, or a list or tuple with one trace for each rule, all of the same length.

    Returns:
        A float64 array of shape (rules, steps + 1): the scale at each step and after the last step; NaN after a step at which
        the published scaler raises an error.

    Raises:
        TypeError: A rule is not a `LossScaleRule`, or a trace is not a `Trace`.
        ValueError: *rules* is empty, there is not one trace for each rule, or the traces differ in length.

    >>> from ampscale import presets
    >>> from ampscale.simulation import from_string
    >>> rules = [presets.torch(8.0, growth_interval=interval) for interval in (1, 2, 3)]
    >>> sweep(rules, from_string("..x"))[:, -1].tolist()
    [16.0, 8.0, 4.0]
    """
    if len(rules) == 0:
        raise ValueError("rules must contain at least one rule, got none")
    for rule in rules:
        check_type(rule, "each rule", LossScaleRule)
    limits = _limits(trace, len(rules))
    states = BatchedStates(rules)
    scales = np.empty((len(limits) + 1, len(rules)))  # transposed, so that a step writes contiguous memory
    scales[0] = states.current_scale
    with np.errstate(all="ignore"):
        for step, limit in enumerate(limits, start=1):
            scales[step] = states.step(limit)
    return scales.T


class BatchedStates:
    """
    States of many rules, with their constants.

    `current_scale` has the scales of the next step. It differs from `scale` for a rule whose updates are delayed. After an error
    of the published scaler, both scales are NaN.
    """

    def __init__(self, rules: Sequence[LossScaleRule]) -> None:
        columns = zip(*map(rounded_constants, rules), strict=True)
        self.constants = RoundedConstants(*(np.array(column, float) for column in columns))
        names = ("growth_interval", "hysteresis", "initial_good_steps", "skip_infinite_growth", "delayed_update")
        fields = (np.array([getattr(rule, name) for rule in rules]) for name in names)
        self.interval, self.hysteresis, self.initial_good, self.skips_infinite, self.delayed_update = fields
        self.resets = {event: np.array([event in rule.reset_bad_steps_on for rule in rules]) for event in EVENTS}
        self.is_float32 = np.array([rule.dtype == "float32" for rule in rules])
        self.has_tolerance = ~np.isnan(self.constants.overflow_tolerance)
        self.bad_after_backoff = np.where(self.resets["backoff"], 0, self.hysteresis)
        self.scale = self.current_scale = self.constants.init
        self.good = self.initial_good.copy()
        self.bad, self.window_steps = np.zeros_like(self.initial_good), np.zeros_like(self.initial_good)

    def step(self, limit: np.ndarray) -> np.ndarray:
        """Run a step that is finite at scales up to *limit*, float64 of shape () or (rules,), and return the next scales."""
        finite = self.current_scale <= limit
        old_scale = self.scale
        self.window_steps += 1
        self.good += finite
        grows = finite & (self.good >= self.interval) & ~(self.scale >= self.constants.blocks_growth_at)
        if grows.any():
            self._grow(grows)
        self.bad *= ~(finite & self.resets["finite"])
        if not finite.all():
            self._overflow(~finite)
        self.current_scale = np.where(self.delayed_update & ~np.isnan(self.scale), old_scale, self.scale)
        return self.current_scale

    def _grow(self, grows: np.ndarray) -> None:
        factor = np.where(self.bad == 0, self.constants.warmup_growth, self.constants.growth)
        larger = self._rounded(self.scale * factor)
        larger = np.where(self.skips_infinite & np.isinf(larger), self.scale, larger)
        self.scale = np.where(grows, np.minimum(larger, self.constants.upper_clamp), self.scale)
        self.good *= ~grows
        self.window_steps *= ~grows
        self.bad *= ~(grows & self.resets["growth"])

    def _overflow(self, overflow: np.ndarray) -> None:
        self.bad += overflow
        due = overflow & self._due()
        may_back_off = self.scale > self.constants.blocks_backoff_at
        smaller = self._rounded(self.scale * self.constants.backoff / self.constants.divisor)
        new_scale = np.where(due & may_back_off, np.maximum(smaller, self.constants.lower_clamp), self.scale)
        raises = due & (self.scale <= self.constants.raises_at_min)
        self.scale = np.where(raises | (overflow & (new_scale <= self.constants.raise_at_or_below)), np.nan, new_scale)
        self.good = np.where(overflow & (may_back_off | ~due), self.initial_good, self.good)
        self.bad = np.where(due, self.bad_after_backoff, self.bad)
        self.window_steps *= ~due

    def _due(self) -> np.ndarray:
        """Return True for each rule whose overflow count, or share of overflows, makes a backoff due."""
        counted = self.bad >= self.hysteresis
        if not self.has_tolerance.any():
            return counted
        share = self._rounded(self._rounded(self.bad) / self._rounded(self.window_steps))
        return np.where(self.has_tolerance, share >= self.constants.overflow_tolerance, counted)

    def _rounded(self, values: np.ndarray) -> np.ndarray:
        """Return *values* rounded to the dtype of each rule."""
        return np.where(self.is_float32, values.astype(np.float32), values)


def _limits(trace: Trace | list[Trace] | tuple[Trace, ...], rules: int) -> np.ndarray:
    """Return the limits, float64: shape (steps,) for one trace, or (steps, rules) for one trace per rule."""
    if not isinstance(trace, list | tuple):
        check_type(trace, "trace", Trace)
        return trace.limits
    for item in trace:
        check_type(item, "each trace", Trace)
    if len(trace) != rules:
        raise ValueError(f"trace must be one trace, or one for each of the {rules} rules, got {len(trace)} traces")
    if len({item.limits.size for item in trace}) > 1:
        raise ValueError(f"the traces must have the same length, got {sorted({item.limits.size for item in trace})}")
    return np.stack([item.limits for item in trace], axis=1)
