"""
Proofs of the theorems by z3, for all rules, states and flags at once.

The products of the factors are free positions that only keep the order of the scales, so that a proof holds for every factor,
rounding and float format. If a claim needs distances on the grid, the factors are powers of two: shifts by free distances.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import z3

from .machine import Products, Rule, State, Step, Term, shift
from .theorems import INVARIANTS, THEOREMS, Context, History, history_agrees, next_history

BOOLEANS = {
    *("has_min", "has_max", "has_raise_at_or_below", "finite_resets", "growth_resets", "backoff_resets", "skip_infinite_growth"),
    *("block_at_bounds", "overflow_tolerance", "raise_at_min_scale", "delayed_update", "has_warmup"),
}


def symbols(cls: type, suffix: str = "") -> Any:
    """Return an instance of a NamedTuple whose fields are free variables."""
    return cls(*((z3.Bool if name in BOOLEANS else z3.Int)(f"{name}{suffix}") for name in cls._fields))


def valid(rule: Rule, init_scale: Term) -> Term:
    """Return the requirements that `RuleConstants` checks for the constants and the initial scale."""
    bounds = (
        (z3.BoolVal(True), init_scale),
        (rule.has_min, rule.min_scale),
        (rule.has_max, rule.max_scale),
        (rule.has_raise_at_or_below, rule.raise_at_or_below),
    )
    return z3.And(
        rule.growth_interval >= 1,
        rule.hysteresis >= 1,
        *(z3.Implies(flag, z3.And(value >= 1, value <= rule.top)) for flag, value in bounds),
        z3.Implies(rule.has_min, rule.min_scale <= init_scale),
        z3.Implies(rule.has_max, init_scale <= rule.max_scale),
        z3.Implies(rule.raise_at_min_scale, rule.has_min),
        z3.Implies(rule.block_at_bounds, z3.Or(rule.has_min, rule.has_max)),
        z3.Implies(rule.overflow_tolerance, rule.hysteresis == 1),
    )


def rounded_products(rule: Rule, scale: Term, products: Products) -> Term:
    """Return the properties of products in any float format: no growth lowers the scale, and no backoff raises it."""
    ends = [z3.And(*(z3.Implies(scale == end, product == end) for product in products)) for end in (0, rule.top + 1)]
    upward = z3.And(*(z3.And(product >= scale, product <= rule.top + 1) for product in (products.grown, products.warmed)))
    return z3.And(*ends, upward, products.backed_off >= 0, products.backed_off <= scale)


def powers_of_two(rule: Rule, scale: Term, distances: Products, product: Callable[..., Term] = shift) -> Products:
    """Return the products with powers of two, given the nonnegative distances of growth, warm-up and backoff."""
    shifts = (distances.grown, distances.warmed, -distances.backed_off)
    return Products(*(product(z3, rule, scale, distance) for distance in shifts))


def invariants(rule: Rule, state: State, history: History) -> Term:
    """Return the conjunction of all invariants."""
    return z3.And(*(invariant(z3, rule, state) for invariant in INVARIANTS.values()), history_agrees(z3, rule, state, history))


def initial(rule: Rule, scale: Term) -> State:
    """Return the state before the first step."""
    return State(scale, rule.initial_good_steps, z3.IntVal(0), z3.IntVal(0), scale)


def context(step: type[Step], suffix: str = "", rule: Rule | None = None) -> tuple[Context, Term]:
    """Return the context of one symbolic step, and the assumptions about its rule, state and products."""
    rule = rule or symbols(Rule)
    state, history, products = symbols(State, suffix), symbols(History, suffix), symbols(Products, suffix)
    finite = z3.Bool("finite")
    transition = step(z3, rule, state, finite, products, z3.Bool(f"share_reached{suffix}"))
    new, raises = transition.result()
    assumed = z3.And(
        valid(rule, z3.Int(f"init{suffix}")), invariants(rule, state, history), rounded_products(rule, state.pending, products)
    )
    return Context(z3, rule, state, history, finite, products, transition, new, raises), assumed


def counterexample(assumed: Term, claim: Term) -> z3.ModelRef | None:
    """Return a model in which *assumed* is true and *claim* false; None if there is none, so that the claim is proven."""
    solver = z3.Solver()
    solver.set("timeout", 20_000)
    solver.add(assumed, z3.Not(claim))
    result = solver.check()
    if result == z3.unknown:
        raise TimeoutError(f"z3 did not decide: {solver.reason_unknown()}")
    return solver.model() if result == z3.sat else None


def claims(
    step: type[Step] = Step, product: Callable[..., Term] = shift
) -> Iterator[tuple[str, str, Callable[[], z3.ModelRef | None]]]:
    """Yield (statement, clause, search for a counterexample) for every theorem about *step*, and about a *product*."""
    for text, invariant in INVARIANTS.items():
        clause = "MACHINE-bounds" if "scale is" in text else "MACHINE-state"
        yield text, clause, lambda invariant=invariant: _inductive(step, lambda rule, state, _: invariant(z3, rule, state))
    text = "`good_steps` and `bad_steps` agree with the numbers of finite steps and overflows in the run since their last reset"
    yield text, "MACHINE-every-sequence", lambda: _inductive(step, partial(history_agrees, z3))
    for text, (theorem, clause) in THEOREMS.items():
        yield text, clause, lambda theorem=theorem: _about_one_step(step, theorem)
    text = "Scale, counts and, if the rule has them, `window_steps` and `pending_scale` determine all further steps"
    yield text, "MACHINE-pure", lambda: _resume(step)
    text = (
        "On equal flags, the larger of two scales stays at least as large, without `block_at_bounds` and `skip_infinite_growth`"
    )
    yield text, "MACHINE-pure", lambda: _order(step)
    text = (
        "On equal flags, the larger of two powers of two stays at least as large, "
        "with growth factors of 1 and 2 and without `block_at_bounds`"
    )
    yield text, "MACHINE-skip-infinite-growth", lambda: _order_of_powers(step)
    text = "With `block_at_bounds`, the scale passes a bound by less than one factor, for powers of two"
    yield text, "MACHINE-block-at-bounds", lambda: _beyond_bounds(step)
    text = "A product with a power of two keeps the order of the scales, leaves zero and infinity unchanged, and is between them"
    yield text, "MACHINE-arithmetic", lambda: _keeps_order(product)


def _inductive(step: type[Step], invariant: Callable[[Rule, State, History], Term]) -> z3.ModelRef | None:
    """Check that *invariant* holds before the first step, and that each step preserves it."""
    rule, start = symbols(Rule), z3.Int("init")
    history = History(z3.IntVal(0), rule.initial_good_steps, z3.IntVal(0))
    first = counterexample(valid(rule, start), invariant(rule, initial(rule, start), history))
    if first is not None:
        return first
    before, assumed = context(step)
    return counterexample(assumed, invariant(before.rule, before.new, next_history(before)))


def _about_one_step(step: type[Step], theorem: Callable[[Context], Term]) -> z3.ModelRef | None:
    before, assumed = context(step)
    return counterexample(assumed, theorem(before))


def _twice(step: type[Step]) -> tuple[Context, Context, Term]:
    """Return a step from each of two states of the same rule, and the assumptions about the two steps."""
    left, assumed_left = context(step, "_1")
    right, assumed_right = context(step, "_2", left.rule)
    return left, right, z3.And(assumed_left, assumed_right)


def _equal(left: tuple[Term, ...], right: tuple[Term, ...]) -> Term:
    return z3.And(*(term == other for term, other in zip(left, right, strict=True)))


def _resume(step: type[Step]) -> z3.ModelRef | None:
    """Compare steps from two states that may differ in `window` or `pending` only, if the rule does not use these."""
    left, right, assumed = _twice(step)

    def equal_where_used(state: State, other: State) -> Term:
        counts = z3.Implies(left.rule.overflow_tolerance, state.window == other.window)
        pending = z3.Implies(left.rule.delayed_update, state.pending == other.pending)
        return z3.And(_equal(state[:3], other[:3]), counts, pending)

    same_products = z3.Implies(left.state.pending == right.state.pending, _equal(left.products, right.products))
    same_share = z3.Implies(left.state.window == right.state.window, left.step.share_reached == right.step.share_reached)
    assumed = z3.And(assumed, equal_where_used(left.state, right.state), same_products, same_share)
    return counterexample(assumed, z3.And(left.raises == right.raises, equal_where_used(left.new, right.new)))


def _ordered(left: Context, right: Context) -> tuple[Term, Term]:
    """
    Return two claims: before the step, the states have equal counts, and no scale on the left is larger; and after it, too.

    The second claim is true if the step raises an error.
    """

    def ordered(lower: State, upper: State) -> Term:
        return z3.And(lower.scale <= upper.scale, lower.pending <= upper.pending, _equal(lower[1:4], upper[1:4]))

    share = left.step.share_reached == right.step.share_reached
    before = z3.And(ordered(left.state, right.state), share, z3.Not(left.rule.block_at_bounds))
    return before, z3.Or(left.raises, right.raises, ordered(left.new, right.new))


def _order(step: type[Step]) -> z3.ModelRef | None:
    left, right, assumed = _twice(step)
    before, after = _ordered(left, right)
    products = z3.And(*(lower <= upper for lower, upper in zip(left.products, right.products, strict=True)))
    return counterexample(z3.And(assumed, before, products, z3.Not(left.rule.skip_infinite_growth)), after)


def _order_of_powers(step: type[Step]) -> z3.ModelRef | None:
    left, right, assumed = _twice(step)
    before, after = _ordered(left, right)
    distances = symbols(Products, "_distance")
    products = [_equal(side.products, powers_of_two(left.rule, side.state.pending, distances)) for side in (left, right)]
    in_range = z3.And(*(z3.And(distance >= 0, distance <= 1) for distance in distances[:2]), distances.backed_off >= 0)
    return counterexample(z3.And(assumed, before, *products, in_range), after)


def _beyond_bounds(step: type[Step]) -> z3.ModelRef | None:
    rule, start, distances = symbols(Rule), z3.Int("init"), symbols(Products, "_distance")
    growth = z3.If(z3.And(rule.has_warmup, distances.warmed > distances.grown), distances.warmed, distances.grown)

    def within_one_factor(state: State) -> Term:
        above = z3.Implies(rule.has_max, state.pending < rule.max_scale + growth)
        return z3.And(above, z3.Implies(rule.has_min, state.pending > rule.min_scale - distances.backed_off))

    blocks = z3.And(rule.block_at_bounds, *(distance >= 1 for distance in distances))
    first = counterexample(z3.And(valid(rule, start), blocks), within_one_factor(initial(rule, start)))
    if first is not None:
        return first
    before, assumed = context(step, rule=rule)
    products = _equal(before.products, powers_of_two(rule, before.state.pending, distances))
    return counterexample(z3.And(assumed, blocks, products, within_one_factor(before.state)), within_one_factor(before.new))


def _keeps_order(product: Callable[..., Term]) -> z3.ModelRef | None:
    """Check that the products with powers of two satisfy all that the proofs assume about products."""
    rule, distances = symbols(Rule), symbols(Products, "_distance")
    low, high = z3.Ints("low high")
    assumed = z3.And(rule.top >= 1, low >= 0, low <= high, high <= rule.top + 1, *(distance >= 0 for distance in distances))
    small, large = (powers_of_two(rule, scale, distances, product) for scale in (low, high))
    ordered = z3.And(*(lower <= upper for lower, upper in zip(small, large, strict=True)))
    return counterexample(assumed, z3.And(ordered, rounded_products(rule, low, small)))
