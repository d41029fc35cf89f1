"""
Conforming implementation of levels 0 and 1 in plain Python and NumPy, the base class of all mutants.

Each method takes one decision, so that a mutant overrides one method. The implementation is independent of ampscale: it uses
only the fields of a rule.
"""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from ampscale_conformance.model.adapter import ImplementationInfo
from ampscale_conformance.model.bits import leaves, map_tree

from ampscale import LossScaleRule

EVERYTHING = (
    *("resume", "rounding", "division", "float16", "bfloat16", "complex", "integers", "none", "empty", "layout", "namedtuple"),
)
EVERY_SETTING = LossScaleRule(
    init_scale=1024.0, hysteresis=2, min_scale=2.0**-20, max_scale=2.0**40, reset_bad_steps_on=("finite", "backoff")
)


def rounded_scalar(leaf):
    """Return an array of shape () rounded to float16, unless it becomes zero or infinite; any other array, or None, unchanged."""
    if leaf is None or leaf.ndim:
        return leaf
    with np.errstate(all="ignore"):
        rounded = leaf.astype(np.float16).astype(leaf.dtype)
    return rounded if rounded != 0 and np.isfinite(rounded) else leaf


class PublishedScalerError(ArithmeticError):
    """Error that is raised if the published scaler raises one."""


@dataclass
class Scaler:
    """Handle: the state and the constants of a scaler. Each step changes it in place."""

    rule: LossScaleRule
    scale: Any  # a NumPy scalar of the rule's dtype
    shown: Any  # the current scale: with `delayed_update`, the one before the last update
    good: int  # finite steps toward a growth
    bad: int = 0  # overflows toward a backoff
    since: int = 0  # steps since the last growth or due backoff


class Plain:
    """
    Adapter of a conforming implementation.

    Args:
        preset: The rule that it claims: a preset's name, or a rule.
        level: The level that it claims.
        capabilities: The capabilities that it claims.
    """

    def __init__(self, preset=EVERY_SETTING, level=1, capabilities=EVERYTHING):
        self.info = ImplementationInfo(name=type(self).__name__, level=level, capabilities=capabilities, preset=preset)

    # --- level 0: the adapter's methods ---

    def create(self, rule, **options):
        """Return a scaler before its first step."""
        rule = self.constants(rule)
        start = self.rounded(rule, rule.init_scale)
        return Scaler(rule, start, start, self.first_count(rule))

    def update(self, handle, finite):
        """Update the handle in place, and return None."""
        old_scale = handle.scale
        if self.was_finite(handle, finite):
            self.finite_step(handle)
        else:
            self.overflow_step(handle)
        handle.shown = old_scale if self.is_delayed(handle) else handle.scale

    def read_scale(self, handle):
        """Return the current scale."""
        return float(handle.shown)

    def save(self, handle):
        """Return the state by field names. `load` receives the constants again."""
        return {name: copy.copy(value) for name, value in vars(handle).items() if name in self.saved_fields(handle)}

    def load(self, rule, saved):
        """Return a scaler that continues from a saved state."""
        handle = self.create(rule)
        for name, value in saved.items():
            setattr(handle, name, value)
        return handle

    # --- level 0: the decisions ---

    def constants(self, rule):
        """Return the constants that the scaler uses."""
        return rule

    def rounded(self, rule, scale):
        """Round a scale to the rule's dtype."""
        with np.errstate(all="ignore"):
            return np.dtype(rule.dtype).type(scale)

    def first_count(self, rule):
        """Return the number of good steps at the start."""
        return rule.initial_good_steps

    def count_after_overflow(self, handle):
        """Return the number of good steps after an overflow."""
        return int(handle.rule.initial_good_steps)

    def count_after_growth(self, handle):
        """Return the number of good steps after a growth."""
        return 0

    def was_finite(self, handle, finite):
        """Return the flag that the update uses."""
        return finite

    def is_delayed(self, handle):
        """Return True if changes take effect one step late."""
        return bool(handle.rule.delayed_update)

    def finite_step(self, handle):
        """Run a step without an overflow."""
        handle.good, handle.since = handle.good + 1, handle.since + 1
        grows = self.growth_due(handle) and self.may_grow(handle)
        if grows:
            handle.scale = self.grown(handle)
            handle.good, handle.since = self.count_after_growth(handle), 0
        if self.resets_overflows(handle, "growth" if grows else "finite"):
            handle.bad = 0

    def overflow_step(self, handle):
        """Run a step with an overflow. An error is raised before anything changes."""
        due = self.backoff_due(handle, handle.bad + 1, handle.since + 1)
        backs_off = due and self.may_back_off(handle)
        scale = self.backed_off(handle) if backs_off else handle.scale
        if self.would_raise(handle, due, scale):
            raise PublishedScalerError(f"an overflow at a scale of {float(handle.scale)!r}")
        if backs_off or not due:
            handle.good = self.count_after_overflow(handle)
        handle.scale = scale
        handle.since = 0 if due else handle.since + 1
        handle.bad = self.bad_after_backoff(handle) if due else self.bad_counted(handle)

    def window(self, handle):
        """Return the number of finite steps after which the scale grows."""
        return int(handle.rule.growth_interval)

    def growth_due(self, handle):
        """Return True if the finite step that was just counted completes the window."""
        return bool(handle.good >= self.window(handle))

    def may_grow(self, handle):
        """Return True unless `block_at_bounds` blocks a growth."""
        rule = handle.rule
        return not (rule.block_at_bounds and rule.max_scale is not None and handle.scale >= self.rounded(rule, rule.max_scale))

    def may_back_off(self, handle):
        """Return True unless `block_at_bounds` blocks a backoff."""
        rule = handle.rule
        return not (rule.block_at_bounds and rule.min_scale is not None and handle.scale <= self.rounded(rule, rule.min_scale))

    def backoff_due(self, handle, bad, since):
        """Return True if a backoff is due after *bad* overflows in *since* steps, this step included."""
        rule = handle.rule
        if rule.overflow_tolerance is None:
            return bool(bad >= rule.hysteresis)
        return bool(self.rounded(rule, rule.overflow_tolerance) <= self.rounded(rule, bad) / self.rounded(rule, since))

    def would_raise(self, handle, due, scale):
        """Return True if the published scaler raises an error at an overflow that leads to *scale*."""
        rule = handle.rule
        if rule.raise_at_min_scale and due and handle.scale <= self.rounded(rule, rule.min_scale):
            return True
        return bool(rule.raise_at_or_below is not None and scale <= self.rounded(rule, rule.raise_at_or_below))

    def resets_overflows(self, handle, event):
        """Return True if a finite step resets the overflow count; *event* is "growth" if the scale grows in it, else "finite"."""
        return "finite" in handle.rule.reset_bad_steps_on or event in handle.rule.reset_bad_steps_on

    def bad_counted(self, handle):
        """Return the overflow count after an overflow that does not back off."""
        return int(handle.bad + 1)

    def bad_after_backoff(self, handle):
        """Return the overflow count after a backoff was due."""
        return 0 if "backoff" in handle.rule.reset_bad_steps_on else int(handle.rule.hysteresis)

    def growth_factor(self, handle):
        """Return the factor of a growth."""
        first = handle.rule.warmup_growth_factor
        return float(handle.rule.growth_factor if first is None or handle.bad else first)

    def grown(self, handle):
        """Return the scale after a growth: infinite growth is skipped first, then the scale is clamped."""
        grown = self.multiplied(handle, self.growth_factor(handle))
        return self.clamped_to_max(handle, self.skip_infinite(handle, grown))

    def skip_infinite(self, handle, grown):
        """Keep the scale if `skip_infinite_growth` is set and the new scale is infinite."""
        return handle.scale if handle.rule.skip_infinite_growth and np.isinf(grown) else grown

    def clamped_to_max(self, handle, grown):
        """Clamp the scale to `max_scale`, unless bounds block changes."""
        rule = handle.rule
        return grown if rule.block_at_bounds or rule.max_scale is None else min(grown, self.rounded(rule, rule.max_scale))

    def backed_off(self, handle):
        """Return the scale after a backoff."""
        return self.clamped_to_min(handle, self.reduced(handle))

    def reduced(self, handle):
        """Multiply the scale by the backoff factor, or divide it by `backoff_divisor`."""
        if handle.rule.divide_on_backoff:
            return self.divided(handle, handle.rule.backoff_divisor)
        return self.multiplied(handle, handle.rule.backoff_factor)

    def clamped_to_min(self, handle, reduced):
        """Clamp the scale to `min_scale`, unless bounds block changes."""
        rule = handle.rule
        return reduced if rule.block_at_bounds or rule.min_scale is None else max(reduced, self.rounded(rule, rule.min_scale))

    def multiplied(self, handle, factor):
        """Multiply the scale by a factor, and round once."""
        with np.errstate(all="ignore"):
            return self.rounded(handle.rule, self.operand(handle, handle.scale) * self.operand(handle, factor))

    def divided(self, handle, divisor):
        """Divide the scale by a number, and round once."""
        with np.errstate(all="ignore"):
            return self.rounded(handle.rule, self.operand(handle, handle.scale) / self.operand(handle, divisor))

    def operand(self, handle, value):
        """Convert a factor or the scale to the compute dtype: the rule's dtype, or float64 with `float64_factor`."""
        return np.float64(value) if handle.rule.float64_factor else self.rounded(handle.rule, value)

    def saved_fields(self, handle):
        """Return the names of the fields that are saved."""
        return ("scale", "shown", "good", "bad", "since")

    # --- level 1: the adapter's methods ---

    def scale(self, handle, tree):
        """Return a new tree with the leaves multiplied by the scale."""
        return map_tree(lambda leaf: self.scaled_leaf(leaf, handle.shown), tree)

    def unscale(self, handle, tree):
        """Return a new tree with the leaves divided by the scale."""
        return map_tree(lambda leaf: self.unscaled_leaf(leaf, handle.shown), tree)

    def all_finite(self, tree):
        """Return a Python bool: True if all elements are finite."""
        return all(self.finite_leaf(leaf) for _, leaf in leaves(tree) if leaf is not None)

    # --- level 1: the decisions ---

    def scaled_leaf(self, leaf, scale):
        """Multiply one array by the scale, in its own dtype."""
        return self.computed(leaf, lambda part: self.product(part, scale))

    def unscaled_leaf(self, leaf, scale):
        """Divide one array by the scale, in its own dtype."""
        return self.computed(leaf, lambda part: self.quotient(part, scale))

    def computed(self, leaf, operation):
        """Widen an array, apply the operation and round back. The two components of a complex array are separate."""
        leaf = np.array(leaf, order="C")
        parts = leaf.reshape(-1).view(leaf.real.dtype) if leaf.dtype.kind == "c" else leaf
        with np.errstate(all="ignore"):
            result = self.narrowed(operation(self.widened(parts)), parts.dtype)
        return result.view(leaf.dtype).reshape(leaf.shape) if leaf.dtype.kind == "c" else np.asarray(result)

    def widened(self, part):
        """Convert values to the compute dtype: float64 for float64, otherwise float32."""
        return part if part.dtype == np.float64 else part.astype(np.float32)

    def narrowed(self, result, dtype):
        """Round a result once, to the dtype of the argument."""
        return result.astype(dtype)

    def scale_for(self, part, scale):
        """Convert the scale to the compute dtype."""
        return part.dtype.type(scale)

    def product(self, part, scale):
        """Multiply by the scale."""
        return part * self.scale_for(part, scale)

    def quotient(self, part, scale):
        """Divide by the scale, without a reciprocal."""
        return part / self.scale_for(part, scale)

    def finite_leaf(self, leaf):
        """Return True if one array is finite."""
        leaf = np.asarray(leaf)
        if leaf.dtype.kind in "biu":
            return True
        return bool(np.all(self.finite_elements(leaf)))

    def finite_elements(self, leaf):
        """Return a bool per element. A complex element is finite if both its components are."""
        with np.errstate(invalid="ignore"):  # a signaling NaN
            return np.isfinite(leaf if leaf.dtype.kind == "c" else leaf.astype(np.float64))
