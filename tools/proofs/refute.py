"""
Counterexamples to claims that one could expect to hold: a rule and flags that z3 finds, replayed by the library.

The solver searches all runs of up to `LONGEST` steps of all rules whose factors and bounds are powers of two.
"""

import math
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, NamedTuple

import z3

from ampscale import LossScaleRule

from .machine import PYTHON_LOGIC, Products, Rule, State, Step, Term
from .page import Disproof
from .prove import BOOLEANS, initial, powers_of_two, symbols, valid

LONGEST = 7
TOP = 277  # positions of the powers of two in float32: 1 is 2**-149, TOP is 2**127
UNUSED = ("has_raise_at_or_below", "raise_at_min_scale", "delayed_update", "has_warmup")  # False in the rules of the search


class Runs(NamedTuple):
    """One or two runs of a rule: states and flags. A run of n flags has n + 1 states."""

    states: list[list[State]]
    flags: list[list[Term]]


class Claim(NamedTuple):
    """Claim that is false for some rules that satisfy *when*; *fails* is True for runs that contradict the claim."""

    text: str
    when: Callable[[Any, Rule], Term]
    fails: Callable[[Any, Rule, Runs], Term]
    runs: int = 1
    same_flags: bool = True  # True if two runs have the same flags in all steps; False if only in the last step


def _early_growth(logic: Any, rule: Rule, runs: Runs) -> Term:
    (*_, before, after), flags = runs.states[0], runs.flags[0]
    recent = [logic.And(logic.Not(flag), rule.growth_interval >= age) for age, flag in enumerate(reversed(flags), 1)]
    return logic.And(after.pending > before.pending, logic.Or(*recent))


def _outside(logic: Any, rule: Rule, runs: Runs) -> Term:
    scale = runs.states[0][-1].scale
    return logic.Or(logic.And(rule.has_min, scale < rule.min_scale), logic.And(rule.has_max, scale > rule.max_scale))


def _order_broken(logic: Any, _: Rule, runs: Runs) -> Term:
    left, right = runs.states
    return logic.And(left[0].scale < right[0].scale, left[-1].scale > right[-1].scale)


def _count_matters(logic: Any, _: Rule, runs: Runs) -> Term:
    left, right = runs.states
    same = (value == other for value, other in zip(left[-2][:2], right[-2][:2], strict=True))
    return logic.And(*same, left[-1].scale != right[-1].scale)


CLAIMS = (
    Claim(
        "With `block_at_bounds`, too, the scale grows only after `growth_interval` finite steps in a row",
        lambda _, rule: rule.block_at_bounds,
        _early_growth,
    ),
    Claim("With `block_at_bounds`, too, the scale stays within its bounds", lambda _, rule: rule.block_at_bounds, _outside),
    Claim(
        "With `block_at_bounds`, too, `good_steps` stays below `growth_interval`",
        lambda _, rule: rule.block_at_bounds,
        lambda _, rule, runs: runs.states[0][-1].good >= rule.growth_interval,
    ),
    Claim(
        "With `overflow_tolerance`, `bad_steps` is at most `window_steps` for every `reset_bad_steps_on`",
        lambda logic, rule: logic.And(rule.overflow_tolerance, rule.backoff_resets),
        lambda _, __, runs: runs.states[0][-1].bad > runs.states[0][-1].window,
    ),
    Claim(
        "On equal flags, the larger of two scales stays at least as large, even with `block_at_bounds`",
        lambda logic, rule: logic.And(rule.block_at_bounds, logic.Not(rule.skip_infinite_growth)),
        _order_broken,
        runs=2,
    ),
    Claim(
        "On equal flags, the larger of two scales stays at least as large, even with `skip_infinite_growth` and a factor of 4",
        lambda logic, rule: logic.And(rule.skip_infinite_growth, logic.Not(rule.block_at_bounds)),
        _order_broken,
        runs=2,
    ),
    Claim(
        "A checkpoint with scale and `good_steps` alone is enough to resume a run with a hysteresis of 2",
        lambda logic, rule: logic.And(rule.finite_resets, logic.Not(rule.block_at_bounds)),
        _count_matters,
        runs=2,
        same_flags=False,
    ),
)


def refute(claim: Claim) -> Disproof:
    """Return a shortest counterexample; raise an error if there is none, or if the library does not confirm it."""
    for length in range(1, LONGEST + 1):
        solver, rule, distances, runs = _search(claim, length)
        if solver.check() == z3.sat:
            _simplify(solver, rule, runs)
            return _replayed(claim, solver.model(), rule, distances, runs)
    raise AssertionError(f"no counterexample of at most {LONGEST} steps to: {claim.text}")


def _search(claim: Claim, length: int) -> tuple[z3.Solver, Rule, Products, Runs]:
    solver, rule, distances = z3.Solver(), symbols(Rule), symbols(Products, "_distance")
    runs = Runs([], [])
    for index in range(claim.runs):
        start = z3.Int(f"init_{index}")
        prefix = [z3.Bool(f"finite_{0 if claim.same_flags else index}_{step}") for step in range(length - 1)]
        flags = [*prefix, z3.Bool("finite_last")]
        runs.flags.append(flags)
        runs.states.append([*_run(z3, rule, start, flags, distances)])
        solver.add(valid(rule, start))
    solver.add(rule.top == TOP, rule.growth_interval <= 3, rule.hysteresis <= 2, rule.initial_good_steps == 0)
    solver.add(*(distance == 2 for distance in distances[:2]), distances.backed_off == 2)
    solver.add(*(z3.Not(getattr(rule, name)) for name in UNUSED), claim.when(z3, rule), claim.fails(z3, rule, runs))
    return solver, rule, distances, runs


def _simplify(solver: z3.Solver, rule: Rule, runs: Runs) -> None:
    """Fix each constant and flag to the first value with a counterexample, so that all versions of z3 find the same one."""
    for name in sorted(BOOLEANS):
        default = name in ("skip_infinite_growth", "finite_resets", "backoff_resets")
        _fix(solver, getattr(rule, name), [default, not default])
    for flag in (flag for run in runs.flags for flag in run):
        _fix(solver, flag, [True, False])
    for count in (rule.growth_interval, rule.hysteresis):
        _fix(solver, count, [1, 2, 3])
    for scale in (*(run[0].scale for run in runs.states), rule.min_scale, rule.max_scale):
        _fix(solver, scale, [*range(150, 171), *range(TOP, 0, -1)])


def _fix(solver: z3.Solver, term: Term, values: list[Any]) -> None:
    """Fix *term* to the first of *values* with which the assertions can be satisfied."""
    solver.add(next(term == value for value in values if solver.check(term == value) == z3.sat))
    solver.check()  # updates the model


def _run(logic: Any, rule: Rule, start: Term, flags: list[Term], distances: Products) -> Iterator[State]:
    state = initial(rule, start)
    yield state
    for finite in flags:
        share_reached = 2 * (state.bad + 1) >= state.window + 1  # the tolerance is 0.5
        products = powers_of_two(rule, state.pending, distances)
        state, _ = Step(logic, rule, state, finite, products, share_reached).result()
        yield state


def _replayed(claim: Claim, model: z3.ModelRef, rule: Rule, distances: Products, runs: Runs) -> Disproof:
    """Run the library with the values of z3's *model*, and check that these runs contradict the claim, too."""

    def value(term: Term) -> Any:
        result = model.eval(term, model_completion=True)
        return z3.is_true(result) if z3.is_bool(result) else result.as_long()

    constants = Rule(*map(value, rule))
    real_rule = _rule(constants, Products(*map(value, distances)), value(runs.states[-1][0].scale))
    flags = [[value(flag) for flag in run] for run in runs.flags]
    init_scales = [_scale(value(run[0].scale)) for run in runs.states]
    states = [_real_run(real_rule, *start) for start in zip(init_scales, flags, strict=True)]
    if not claim.fails(PYTHON_LOGIC, constants, Runs([[_encoded(state) for state in run] for run in states], flags)):
        raise AssertionError(f"the library does not confirm the counterexample to: {claim.text}")
    traces = ["".join(".x"[not flag] for flag in run) for run in flags]
    return Disproof(claim.text, real_rule, traces, [[state[0] for state in run] for run in states])


def _rule(constants: Rule, distances: Products, init: int) -> LossScaleRule:
    events = ("finite", constants.finite_resets), ("growth", constants.growth_resets), ("backoff", constants.backoff_resets)
    return LossScaleRule(
        init_scale=_scale(init),
        growth_factor=2.0**distances.grown,
        backoff_factor=2.0**-distances.backed_off,
        growth_interval=constants.growth_interval,
        hysteresis=constants.hysteresis,
        min_scale=_scale(constants.min_scale) if constants.has_min else None,
        max_scale=_scale(constants.max_scale) if constants.has_max else None,
        reset_bad_steps_on=tuple(event for event, resets in events if resets),
        skip_infinite_growth=constants.skip_infinite_growth,
        block_at_bounds=constants.block_at_bounds,
        overflow_tolerance=0.5 if constants.overflow_tolerance else None,
    )


def _scale(position: int) -> float:
    """Return the float32 power of two at this position: 2**-149, the smallest, is at 1."""
    return math.ldexp(1.0, position - 150)


def _encoded(state: tuple[float, int, int, int]) -> State:
    scale, good, bad, window = state
    position = round(math.log2(scale)) + 150 if 0 < scale < math.inf else (TOP + 1 if scale else 0)
    return State(position, good, bad, window, position)


def _real_run(rule: LossScaleRule, init_scale: float, flags: list[bool]) -> list[tuple[float, int, int, int]]:
    states = accumulate(flags, rule.update, initial=rule.init(like=0.0)._replace(scale=init_scale))
    return [(state.scale, state.good_steps, state.bad_steps, state.window_steps or 0) for state in states]
