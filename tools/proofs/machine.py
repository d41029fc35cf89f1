"""
Encoding of one transition, as `ampscale.core.machine` defines it, on Python numbers or on terms of z3.

A scale is an integer position on an ordered grid: larger scales have larger positions, `top` is the largest finite one,
`top + 1` is infinity, and 0 is zero. The products of the scale with the factors are inputs of a transition, see `Products`. For
powers of two, a product is a shift along the grid; for any other factor, it must only keep the order of the scales.
"""

from types import SimpleNamespace
from typing import Any, NamedTuple

Term = Any  # int or bool, or an integer or Boolean term of z3


class Rule(NamedTuple):
    """Constants of a rule. A bound without its `has_` flag has no effect."""

    growth_interval: Term
    hysteresis: Term
    initial_good_steps: Term
    has_min: Term
    min_scale: Term
    has_max: Term
    max_scale: Term
    has_raise_at_or_below: Term
    raise_at_or_below: Term
    finite_resets: Term
    growth_resets: Term
    backoff_resets: Term
    skip_infinite_growth: Term
    block_at_bounds: Term
    overflow_tolerance: Term  # True if the share of overflows decides instead of their number
    raise_at_min_scale: Term
    delayed_update: Term
    has_warmup: Term
    top: Term


class State(NamedTuple):
    """State, in the form of `machine_floats.HostState`: without `delayed_update`, `pending` equals `scale`."""

    scale: Term
    good: Term
    bad: Term
    window: Term
    pending: Term


class Products(NamedTuple):
    """Rounded products of one pending scale with the factors, before bounds and `skip_infinite_growth`."""

    grown: Term
    warmed: Term  # with `warmup_growth_factor`
    backed_off: Term


# Python's logic under the names of z3's functions.
PYTHON_LOGIC = SimpleNamespace(
    If=lambda condition, value, otherwise: value if condition else otherwise,
    And=lambda *conditions: all(conditions),
    Or=lambda *conditions: any(conditions),
    Not=lambda condition: not condition,
)


class Step:
    """
    One step. Each part of the transition is a method, so that a mutant replaces exactly one.

    Args:
        logic: `PYTHON_LOGIC`, or the module z3.
        rule: Constants of the rule.
        state: State before the step.
        finite: Flag of the step.
        products: Products of `state.pending`.
        share_reached: With `overflow_tolerance`, True if the share of overflows reaches it in this step.
    """

    def __init__(self, logic: Any, rule: Rule, state: State, finite: Term, products: Products, share_reached: Term) -> None:
        self.logic, self.rule, self.state = logic, rule, state
        self.finite, self.products, self.share_reached = finite, products, share_reached

    def result(self) -> tuple[State, Term]:
        """Return the next state, and True if the published scaler raises an error, which leaves the state unchanged."""
        new_scale = self.new_scale()
        in_force = self.logic.If(self.rule.delayed_update, self.state.pending, new_scale)
        new = State(in_force, self.good(), self.bad(), self.window(), new_scale)
        raises = self.raises(new_scale)
        return State(*(self.logic.If(raises, before, after) for before, after in zip(self.state, new, strict=True))), raises

    def grows(self) -> Term:
        """Return True if the scale grows."""
        rule, logic = self.rule, self.logic
        blocked = logic.And(rule.block_at_bounds, rule.has_max, self.state.pending >= rule.max_scale)
        return logic.And(self.finite, self.state.good + 1 >= rule.growth_interval, logic.Not(blocked))

    def due(self) -> Term:
        """Return True if a backoff is due, even if a bound blocks it."""
        counted = self.state.bad + 1 >= self.rule.hysteresis
        return self.logic.And(
            self.logic.Not(self.finite), self.logic.If(self.rule.overflow_tolerance, self.share_reached, counted)
        )

    def backs_off(self) -> Term:
        """Return True if the scale backs off."""
        rule, logic = self.rule, self.logic
        blocked = logic.And(rule.block_at_bounds, rule.has_min, self.state.pending <= rule.min_scale)
        return logic.And(self.due(), logic.Not(blocked))

    def new_scale(self) -> Term:
        """Return the scale after the step."""
        backed_off = self.logic.If(self.backs_off(), self.backed_off(), self.state.pending)
        return self.logic.If(self.grows(), self.grown(), backed_off)

    def grown(self) -> Term:
        """Return the result of a growth."""
        rule, logic = self.rule, self.logic
        warm = logic.And(rule.has_warmup, self.state.bad == 0)
        product = logic.If(warm, self.products.warmed, self.products.grown)
        unclamped = logic.If(logic.And(rule.skip_infinite_growth, product > rule.top), self.state.pending, product)
        clamps = logic.And(rule.has_max, logic.Not(rule.block_at_bounds), unclamped > rule.max_scale)
        return logic.If(clamps, rule.max_scale, unclamped)

    def backed_off(self) -> Term:
        """Return the result of a backoff."""
        rule, logic = self.rule, self.logic
        product = self.products.backed_off
        clamps = logic.And(rule.has_min, logic.Not(rule.block_at_bounds), product < rule.min_scale)
        return logic.If(clamps, rule.min_scale, product)

    def good(self) -> Term:
        """Return `good_steps` after the step."""
        after_finite = self.logic.If(self.grows(), 0, self.state.good + 1)
        blocked = self.logic.And(self.due(), self.logic.Not(self.backs_off()))
        after_overflow = self.logic.If(blocked, self.state.good, self.rule.initial_good_steps)
        return self.logic.If(self.finite, after_finite, after_overflow)

    def bad(self) -> Term:
        """Return `bad_steps` after the step."""
        rule, logic, bad = self.rule, self.logic, self.state.bad
        resets = logic.Or(rule.finite_resets, logic.And(self.grows(), rule.growth_resets))
        after_backoff = logic.If(rule.backoff_resets, 0, rule.hysteresis)
        return logic.If(self.finite, logic.If(resets, 0, bad), logic.If(self.due(), after_backoff, bad + 1))

    def window(self) -> Term:
        """Return `window_steps` after the step."""
        return self.logic.If(self.logic.Or(self.grows(), self.due()), 0, self.state.window + 1)

    def raises(self, new_scale: Term) -> Term:
        """Return True if the published scaler raises an error."""
        rule, logic = self.rule, self.logic
        at_min = logic.And(rule.raise_at_min_scale, self.due(), self.state.pending <= rule.min_scale)
        below = logic.And(rule.has_raise_at_or_below, logic.Not(self.finite), new_scale <= rule.raise_at_or_below)
        return logic.Or(at_min, below)


def shift(logic: Any, rule: Rule, position: Term, steps: Term) -> Term:
    """Return the position of a scale times 2**steps. The shift stops at zero and infinity, and leaves these two unchanged."""
    shifted = position + steps
    inside = logic.If(shifted > rule.top, rule.top + 1, logic.If(shifted < 1, 0, shifted))
    return logic.If(logic.Or(position == 0, position == rule.top + 1), position, inside)
