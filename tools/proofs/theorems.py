"""
Invariants of the state, and theorems about a step, on Python numbers or on terms of z3.

Each invariant holds initially, and every step preserves it. A theorem may use all invariants and a `History`, which counts the
steps of a run independently of the counts in the state.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from .machine import Products, Rule, State, Step, Term


class History(NamedTuple):
    """Counts of a run that the proof adds to the state."""

    finite_run: Term  # finite steps since the start, the last growth or the last overflow
    start: Term  # value of `good_steps` before the steps of `finite_run`
    overflows: Term  # overflows since the start or the last event that resets `bad_steps`


class Context(NamedTuple):
    """One step of a rule: constants, state, history and flag before the step, and its results."""

    logic: Any
    rule: Rule
    state: State
    history: History
    finite: Term
    products: Products
    step: Step
    new: State
    raises: Term


def implies(logic: Any, condition: Term, conclusion: Term) -> Term:
    """Return the implication."""
    return logic.Or(logic.Not(condition), conclusion)


def _scales(logic: Any, state: State, predicate: Callable[[Term], Term]) -> Term:
    return logic.And(predicate(state.scale), predicate(state.pending))


def _range(logic: Any, rule: Rule, state: State) -> Term:
    return _scales(logic, state, lambda scale: logic.And(scale >= 0, scale <= rule.top + 1))


def _bounds(logic: Any, rule: Rule, state: State) -> Term:
    def inside(scale: Term) -> Term:
        return logic.And(
            implies(logic, rule.has_min, scale >= rule.min_scale), implies(logic, rule.has_max, scale <= rule.max_scale)
        )

    return logic.Or(rule.block_at_bounds, _scales(logic, state, inside))


def _finite(logic: Any, rule: Rule, state: State) -> Term:
    return implies(logic, rule.skip_infinite_growth, _scales(logic, state, lambda scale: scale <= rule.top))


def _good(logic: Any, rule: Rule, state: State) -> Term:
    least = logic.Or(state.good >= 0, state.good >= rule.initial_good_steps)
    unbounded = logic.And(rule.block_at_bounds, rule.has_max)
    most = logic.Or(unbounded, state.good < rule.growth_interval, state.good <= rule.initial_good_steps)
    return logic.And(least, most)


def _bad(logic: Any, rule: Rule, state: State) -> Term:
    counting = logic.Not(rule.overflow_tolerance)
    most = implies(logic, counting, state.bad <= rule.hysteresis)
    reset = implies(logic, logic.And(counting, rule.backoff_resets), state.bad < rule.hysteresis)
    return logic.And(state.bad >= 0, most, reset)


def _finite_resets(logic: Any, rule: Rule, state: State) -> Term:
    applies = logic.And(rule.finite_resets, logic.Not(rule.block_at_bounds))
    return implies(logic, applies, logic.Or(state.good == rule.initial_good_steps, state.bad == 0))


def _window(logic: Any, rule: Rule, state: State) -> Term:
    applies = logic.And(rule.overflow_tolerance, rule.growth_resets, rule.backoff_resets)
    return logic.And(state.window >= 0, implies(logic, applies, state.bad <= state.window))


def _pending(logic: Any, rule: Rule, state: State) -> Term:
    return logic.Or(rule.delayed_update, state.pending == state.scale)


INVARIANTS: dict[str, Callable[[Any, Rule, State], Term]] = {
    "The scale is between zero and infinity": _range,
    "The scale is between `min_scale` and `max_scale`, unless `block_at_bounds`": _bounds,
    "With `skip_infinite_growth`, the scale is finite": _finite,
    "`good_steps` is below `growth_interval` or at most `initial_good_steps`, unless `block_at_bounds` with `max_scale`": _good,
    "`bad_steps` is at most `hysteresis`, and less if a backoff resets `bad_steps`, unless `overflow_tolerance`": _bad,
    "If finite steps reset `bad_steps`, either it is 0 or `good_steps` is `initial_good_steps`, unless `block_at_bounds`": (
        _finite_resets
    ),
    "`bad_steps` is at most `window_steps`, if growths and backoffs reset it, with `overflow_tolerance`": _window,
    "Without `delayed_update`, there is no other scale than the one in force": _pending,
}


def next_history(context: Context) -> History:
    """Return the history after the step."""
    logic, rule, old = context.logic, context.rule, context.history
    grows = context.step.grows()
    start = logic.If(grows, 0, logic.If(context.finite, old.start, rule.initial_good_steps))
    resets = logic.Or(
        logic.And(context.finite, rule.finite_resets),
        logic.And(grows, rule.growth_resets),
        logic.And(context.step.due(), rule.backoff_resets),
    )
    counted = logic.If(context.finite, old.overflows, old.overflows + 1)
    finite_run = logic.If(logic.And(context.finite, logic.Not(grows)), old.finite_run + 1, 0)
    new = History(finite_run, start, logic.If(resets, 0, counted))
    return History(*(logic.If(context.raises, before, after) for before, after in zip(old, new, strict=True)))


def history_agrees(logic: Any, rule: Rule, state: State, history: History) -> Term:
    """Return True if the counts in the state agree with the history."""
    start = logic.Or(history.start == 0, history.start == rule.initial_good_steps)
    good = logic.Or(rule.block_at_bounds, state.good == history.start + history.finite_run)
    limited = logic.If(history.overflows < rule.hysteresis, history.overflows, rule.hysteresis)
    bad = logic.Or(rule.overflow_tolerance, state.bad == limited)
    return logic.And(history.finite_run >= 0, history.overflows >= 0, start, good, bad)


def _growth_window(c: Context) -> Term:
    enough = c.history.finite_run + 1 >= c.rule.growth_interval - c.history.start
    exact = c.step.grows() == c.logic.And(c.finite, enough)
    return c.logic.Or(
        c.rule.block_at_bounds,
        c.logic.And(exact, implies(c.logic, c.new.pending > c.state.pending, c.logic.And(c.finite, enough))),
    )


def _growth_resets(c: Context) -> Term:
    return implies(c.logic, c.step.grows(), c.new.good == 0)


def _hysteresis(c: Context) -> Term:
    early = c.logic.And(c.logic.Not(c.finite), c.history.overflows + 1 < c.rule.hysteresis)
    return implies(c.logic, c.logic.And(early, c.logic.Not(c.rule.overflow_tolerance)), c.new.pending == c.state.pending)


def _backoff(c: Context) -> Term:
    late = c.logic.And(c.logic.Not(c.finite), c.history.overflows + 1 >= c.rule.hysteresis)
    plain = c.logic.Not(c.logic.Or(c.rule.overflow_tolerance, c.rule.block_at_bounds, c.raises))
    clamped = c.logic.And(c.rule.has_min, c.products.backed_off < c.rule.min_scale)
    expected = c.logic.If(clamped, c.rule.min_scale, c.products.backed_off)
    return implies(c.logic, c.logic.And(late, plain), c.new.pending == expected)


def _overflow_resets(c: Context) -> Term:
    applies = c.logic.Not(c.logic.Or(c.finite, c.raises, c.rule.block_at_bounds))
    return implies(c.logic, applies, c.new.good == c.rule.initial_good_steps)


def _no_growth_on_overflow(c: Context) -> Term:
    return c.logic.Or(c.finite, c.new.pending <= c.state.pending)


def _no_backoff_on_finite(c: Context) -> Term:
    return implies(c.logic, c.finite, c.new.pending >= c.state.pending)


def _static(c: Context) -> Term:
    unchanged = c.logic.And(*(product == c.state.pending for product in c.products))
    return implies(c.logic, unchanged, c.new.pending == c.state.pending)


def _delayed(c: Context) -> Term:
    expected = c.logic.If(c.rule.delayed_update, c.state.pending, c.new.pending)
    return c.logic.Or(c.raises, c.new.scale == expected)


def _raises(c: Context) -> Term:
    unchanged = c.logic.And(*(old == new for old, new in zip(c.state, c.new, strict=True)))
    return implies(c.logic, c.raises, c.logic.And(unchanged, c.logic.Not(c.finite)))


def _traps(c: Context) -> Term:
    end = c.logic.Or(c.state.pending == 0, c.state.pending == c.rule.top + 1)
    return implies(c.logic, end, c.new.pending == c.state.pending)


def _progress(c: Context) -> Term:
    """Finite steps lead to a growth, and overflows to a backoff, each after at most as many steps as the rule counts."""
    counting = c.logic.Not(c.logic.Or(c.rule.overflow_tolerance, c.raises))
    good = implies(c.logic, c.logic.And(c.finite, c.logic.Not(c.step.grows())), c.new.good == c.state.good + 1)
    waits = c.logic.And(counting, c.logic.Not(c.finite), c.logic.Not(c.step.due()))
    return c.logic.And(good, implies(c.logic, waits, c.new.bad == c.state.bad + 1))


def _scale_changes(c: Context) -> Term:
    """If the products differ from the scale, a growth or a backoff changes a positive, finite scale, except at a bound."""
    scale = c.state.pending
    positive_and_finite = c.logic.And(scale > 0, scale <= c.rule.top)
    products_differ = c.logic.And(c.products.grown > scale, c.products.warmed > scale, c.products.backed_off < scale)
    lowest = c.logic.If(c.products.grown < c.products.warmed, c.products.grown, c.products.warmed)
    highest = c.logic.If(c.products.grown < c.products.warmed, c.products.warmed, c.products.grown)
    skipped = c.logic.And(c.rule.skip_infinite_growth, highest > c.rule.top)
    at_max = c.logic.And(c.rule.has_max, scale >= c.rule.max_scale)
    at_min = c.logic.And(c.rule.has_min, scale <= c.rule.min_scale)
    up = implies(c.logic, c.step.grows(), c.logic.Or(at_max, skipped, c.new.pending > scale))
    down = implies(c.logic, c.step.due(), c.logic.Or(at_min, c.raises, c.new.pending < scale))
    return implies(c.logic, c.logic.And(positive_and_finite, products_differ, lowest >= 0), c.logic.And(up, down))


THEOREMS: dict[str, tuple[Callable[[Context], Term], str]] = {
    "The scale grows at the `growth_interval`-th finite step since the start, the last growth or the last overflow, "
    "counted from `initial_good_steps`, and at no other, unless `block_at_bounds`": (_growth_window, "MACHINE-growth-window"),
    "A growth resets `good_steps`, even if it leaves the scale unchanged": (_growth_resets, "MACHINE-growth-resets"),
    "An overflow before the `hysteresis`-th counted one leaves the scale unchanged": (_hysteresis, "MACHINE-hysteresis"),
    "Every counted overflow from the `hysteresis`-th on applies the backoff factor and `min_scale`, unless `block_at_bounds`": (
        _backoff,
        "MACHINE-backoff",
    ),
    "Every overflow resets `good_steps`, unless `block_at_bounds`": (_overflow_resets, "MACHINE-overflow-resets"),
    "The scale never grows on an overflow": (_no_growth_on_overflow, "MACHINE-backoff"),
    "The scale never falls on a finite step": (_no_backoff_on_finite, "MACHINE-growth-factor"),
    "With factors of 1 the scale never changes": (_static, "MACHINE-static"),
    "With `delayed_update` the scale in force is the previous pending one, otherwise the new one": (
        _delayed,
        "MACHINE-delayed-update",
    ),
    "Only an overflow raises an error, and the step then changes nothing": (_raises, "MACHINE-would-raise"),
    "Zero and infinity are traps: no step changes them": (_traps, "MACHINE-skip-infinite-growth"),
    "A finite step causes a growth or is counted, and an overflow makes a backoff due or is counted": (
        _progress,
        "MACHINE-growth-window",
    ),
    "A positive, finite scale that differs from its products with the factors changes at each growth and each due backoff, "
    "except at a bound, at a skipped growth and at an error": (_scale_changes, "MACHINE-bounds"),
}
