"""
A right implementation of levels 0 and 1, in plain Python and NumPy: the root of all mutants.

Each method takes one decision, so that a mutant differs from it in one method. It is its own words on the specification: no
more than a rule's numbers comes from elsewhere.
"""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from ampscale_conformance.model.adapter import ImplementationInfo
from ampscale_conformance.model.bits import leaves, map_tree

from ampscale import LossScaleRule

EVERYTHING = ("resume", "rounding", "division", "bfloat16", "complex", "integers", "none", "empty")
EVERY_SETTING = LossScaleRule(
    init_scale=1024.0, hysteresis=2, min_scale=2.0**-20, max_scale=2.0**40, reset_bad_steps_on=("finite", "backoff")
)


class GivesUpError(ArithmeticError):
    """What this implementation raises where the published scaler gives up."""


@dataclass
class Scaler:
    """The handle, which each step changes: where a scaler stands, and its constants."""

    rule: LossScaleRule
    scale: Any  # a NumPy scalar of the rule's dtype
    shown: Any  # the scale in force: with a lag, the one before the last step
    good: int  # finite steps toward a growth
    bad: int = 0  # overflows toward a backoff
    since: int = 0  # steps since the scale last moved, or was to move


class Plain:
    """
    The adapter.

    Args:
        preset: What it claims to be: a preset's name, or a rule.
        level: The level that it claims.
        capabilities: What else it claims.
    """

    def __init__(self, preset=EVERY_SETTING, level=1, capabilities=EVERYTHING):
        self.info = ImplementationInfo(name=type(self).__name__, level=level, capabilities=capabilities, preset=preset)

    # --- level 0: the adapter's methods ---

    def create(self, rule, **options):
        """A scaler before its first step."""
        rule = self.constants(rule)
        start = self.held(rule, rule.init_scale)
        return Scaler(rule, start, start, self.first_count(rule))

    def update(self, handle, finite):
        """Changes the handle, and returns None."""
        before = handle.scale
        if self.was_finite(handle, finite):
            self.finite_step(handle)
        else:
            self.overflow_step(handle)
        handle.shown = before if self.lags(handle) else handle.scale

    def read_scale(self, handle):
        """The scale in force."""
        return float(handle.shown)

    def save(self, handle):
        """Its numbers, by name; the constants are given again."""
        return {name: copy.copy(value) for name, value in vars(handle).items() if name in self.saved_fields(handle)}

    def load(self, rule, saved):
        """A scaler that goes on."""
        handle = self.create(rule)
        for name, value in saved.items():
            setattr(handle, name, value)
        return handle

    # --- level 0: the decisions ---

    def constants(self, rule):
        """The constants that it goes by."""
        return rule

    def held(self, rule, scale):
        """A scale as it is kept: rounded to the rule's dtype."""
        with np.errstate(all="ignore"):
            return np.dtype(rule.dtype).type(scale)

    def first_count(self, rule):
        """Finite steps before the first step."""
        return rule.initial_good_steps

    def count_after_overflow(self, handle):
        """Finite steps after an overflow."""
        return int(handle.rule.initial_good_steps)

    def count_after_growth(self, handle):
        """Finite steps after a growth."""
        return 0

    def was_finite(self, handle, finite):
        """What it takes the flag for."""
        return finite

    def lags(self, handle):
        """Whether a change comes into force one step late."""
        return bool(handle.rule.delayed_update)

    def finite_step(self, handle):
        """A step without an overflow."""
        handle.good, handle.since = handle.good + 1, handle.since + 1
        grows = self.growth_due(handle) and self.may_grow(handle)
        if grows:
            handle.scale = self.grown(handle)
            handle.good, handle.since = self.count_after_growth(handle), 0
        if self.forgives(handle, "growth" if grows else "finite"):
            handle.bad = 0

    def overflow_step(self, handle):
        """A step with an overflow; it gives up before anything has changed."""
        due = self.backoff_due(handle, handle.bad + 1, handle.since + 1)
        moves = due and self.may_back_off(handle)
        scale = self.backed_off(handle) if moves else handle.scale
        if self.gives_up(handle, due, scale):
            raise GivesUpError(f"an overflow at a scale of {float(handle.scale)!r}")
        if moves or not due:
            handle.good = self.count_after_overflow(handle)
        handle.scale = scale
        handle.since = 0 if due else handle.since + 1
        handle.bad = self.bad_after_backoff(handle) if due else self.bad_counted(handle)

    def window(self, handle):
        """Finite steps that make it grow."""
        return int(handle.rule.growth_interval)

    def growth_due(self, handle):
        """Whether the finite step that was just counted is the last of its window."""
        return bool(handle.good >= self.window(handle))

    def may_grow(self, handle):
        """Whether no gate forbids a growth."""
        rule = handle.rule
        return not (rule.block_at_bounds and rule.max_scale is not None and handle.scale >= self.held(rule, rule.max_scale))

    def may_back_off(self, handle):
        """Whether no gate forbids a backoff."""
        rule = handle.rule
        return not (rule.block_at_bounds and rule.min_scale is not None and handle.scale <= self.held(rule, rule.min_scale))

    def backoff_due(self, handle, bad, since):
        """Whether *bad* overflows in *since* steps, this one counted, make it back off."""
        rule = handle.rule
        if rule.overflow_tolerance is None:
            return bool(bad >= rule.hysteresis)
        return bool(self.held(rule, rule.overflow_tolerance) <= self.held(rule, bad) / self.held(rule, since))

    def gives_up(self, handle, due, scale):
        """Whether an overflow that leads to this scale is where the published scaler raises."""
        rule = handle.rule
        if rule.raise_at_min_scale and due and handle.scale <= self.held(rule, rule.min_scale):
            return True
        return bool(rule.raise_at_or_below is not None and scale <= self.held(rule, rule.raise_at_or_below))

    def forgives(self, handle, event):
        """Whether a finite step, or a growth in it, forgets the overflows counted."""
        return "finite" in handle.rule.reset_bad_steps_on or event in handle.rule.reset_bad_steps_on

    def bad_counted(self, handle):
        """Overflows counted, after one that was not enough."""
        return int(handle.bad + 1)

    def bad_after_backoff(self, handle):
        """Overflows counted, after a backoff was due."""
        return 0 if "backoff" in handle.rule.reset_bad_steps_on else int(handle.rule.hysteresis)

    def growth_factor(self, handle):
        """What a growth multiplies by."""
        first = handle.rule.warmup_growth_factor
        return float(handle.rule.growth_factor if first is None or handle.bad else first)

    def grown(self, handle):
        """The scale after a growth: guarded first, then capped."""
        grown = self.multiplied(handle, self.growth_factor(handle))
        return self.capped(handle, self.guarded(handle, grown))

    def guarded(self, handle, grown):
        """The guard: no growth to infinity."""
        return handle.scale if handle.rule.skip_infinite_growth and np.isinf(grown) else grown

    def capped(self, handle, grown):
        """The cap, where it clamps."""
        rule = handle.rule
        return grown if rule.block_at_bounds or rule.max_scale is None else min(grown, self.held(rule, rule.max_scale))

    def backed_off(self, handle):
        """The scale after a backoff."""
        return self.floored(handle, self.reduced(handle))

    def reduced(self, handle):
        """The scale times the backoff factor, or divided by what the factor is the reciprocal of."""
        rule = handle.rule
        return (
            self.divided(handle, rule.backoff_divisor) if rule.divide_on_backoff else self.multiplied(handle, rule.backoff_factor)
        )

    def floored(self, handle, reduced):
        """The floor, where it clamps."""
        rule = handle.rule
        return reduced if rule.block_at_bounds or rule.min_scale is None else max(reduced, self.held(rule, rule.min_scale))

    def multiplied(self, handle, factor):
        """The scale times a factor, rounded once."""
        with np.errstate(all="ignore"):
            return self.held(handle.rule, self.operand(handle, handle.scale) * self.operand(handle, factor))

    def divided(self, handle, divisor):
        """The scale divided by a number, rounded once."""
        with np.errstate(all="ignore"):
            return self.held(handle.rule, self.operand(handle, handle.scale) / self.operand(handle, divisor))

    def operand(self, handle, value):
        """A factor or the scale as it goes into a product: in the rule's dtype, or in float64 with a wide factor."""
        return np.float64(value) if handle.rule.float64_factor else self.held(handle.rule, value)

    def saved_fields(self, handle):
        """What it saves."""
        return ("scale", "shown", "good", "bad", "since")

    # --- level 1: the adapter's methods ---

    def scale(self, handle, tree):
        """A new tree, times the scale."""
        return map_tree(lambda leaf: self.scaled_leaf(leaf, handle.shown), tree)

    def unscale(self, handle, tree):
        """A new tree, divided by the scale."""
        return map_tree(lambda leaf: self.unscaled_leaf(leaf, handle.shown), tree)

    def all_finite(self, tree):
        """A Python bool."""
        return all(self.finite_leaf(leaf) for _, leaf in leaves(tree) if leaf is not None)

    # --- level 1: the decisions ---

    def scaled_leaf(self, leaf, scale):
        """One array times the scale, in its own dtype."""
        return self.computed(leaf, lambda part: self.product(part, scale))

    def unscaled_leaf(self, leaf, scale):
        """One array divided by the scale, in its own dtype."""
        return self.computed(leaf, lambda part: self.quotient(part, scale))

    def computed(self, leaf, operation):
        """A new array, each part of a complex one by itself: widened, computed and rounded back."""
        leaf = np.asarray(leaf)
        parts = leaf.reshape(-1).view(leaf.real.dtype) if leaf.dtype.kind == "c" else leaf
        with np.errstate(all="ignore"):
            made = self.narrowed(operation(self.widened(parts)), parts.dtype)
        return made.view(leaf.dtype).reshape(leaf.shape) if leaf.dtype.kind == "c" else np.asarray(made)

    def widened(self, part):
        """As it is computed: 16 bits in float32, everything else as it is."""
        return part if part.dtype == np.float64 else part.astype(np.float32)

    def narrowed(self, result, dtype):
        """Rounded once, to the dtype that came."""
        return result.astype(dtype)

    def scale_beside(self, part, scale):
        """The scale as it takes part: in the dtype of the computation."""
        return part.dtype.type(scale)

    def product(self, part, scale):
        """Times the scale."""
        return part * self.scale_beside(part, scale)

    def quotient(self, part, scale):
        """Divided by the scale; not times its reciprocal."""
        return part / self.scale_beside(part, scale)

    def finite_leaf(self, leaf):
        """Whether one array is finite."""
        leaf = np.asarray(leaf)
        if leaf.dtype.kind in "biu":
            return True
        return bool(np.all(self.finite_elements(leaf)))

    def finite_elements(self, leaf):
        """Which elements are finite; complex ones where both parts are."""
        with np.errstate(invalid="ignore"):  # a signalling NaN
            return np.isfinite(leaf if leaf.dtype.kind == "c" else leaf.astype(np.float64))
