"""
All states that the presets reach with small windows, over all overflow traces, and their traps.

A trap is a state from which no trace changes the scale again, although a factor of the rule is not 1. The states and the
shortest traces come from `checkpoints.trace_graph`; each step is the library's own, on Python numbers.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

from ampscale import LossScaleRule, LossScaleState, checkpoints, presets
from ampscale.checkpoints.trace_graph import Edge, Graph, Run, search
from ampscale.core import machine_floats
from ampscale.core.machine_floats import HostState

from .machine import PYTHON_LOGIC, Products, Rule, State, Step, shift
from .page import Reached
from .theorems import INVARIANTS

BUDGET = 4000  # maximum number of explored states of a rule that has too many or indefinitely many
PENDING = 4  # index of the pending scale in a HostState
SMALLEST = {"float32": -149, "float64": -1074}  # exponent of the smallest positive number
LARGEST = {"float32": 127, "float64": 1023}  # exponent of the largest number
SMALL = {"init_scale": 8.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 2, "max_scale": 2.0**9}
FURTHER = (  # rules with combinations of fields that no preset has
    LossScaleRule(**SMALL, hysteresis=2, min_scale=2.0, block_at_bounds=True),
    LossScaleRule(**SMALL, hysteresis=3, initial_good_steps=4, reset_bad_steps_on=("finite", "growth")),
    LossScaleRule(**SMALL, overflow_tolerance=0.5, reset_bad_steps_on=("growth", "backoff"), delayed_update=True),
    LossScaleRule(**SMALL, min_scale=2.0, warmup_growth_factor=16.0, reset_bad_steps_on=(), raise_at_or_below=8.0),
    LossScaleRule(2.0**120, 16.0, 2.0**-8, growth_interval=3, hysteresis=2, min_scale=2.0**10, raise_at_min_scale=True),
    LossScaleRule(
        2.0**120, 16.0, 2.0**-8, growth_interval=3, hysteresis=2, skip_infinite_growth=False, reset_bad_steps_on=("backoff",)
    ),
    LossScaleRule(growth_factor=1.0, backoff_factor=1.0, growth_interval=2),
)


@dataclass(frozen=True)
class Explored:
    """Reachable states of a rule, and the shortest trace into each scale that is a trap."""

    rule: LossScaleRule
    graph: Graph[HostState]
    traps: dict[float, tuple[Run, ...]]


def settings(name: str, windows: int = 4) -> Iterator[LossScaleRule]:
    """Yield the rules of a preset with growth intervals up to *windows*, a hysteresis up to 3, and factors of 2 and 1/2."""
    preset = presets.PRESETS[name]
    factors = {"growth_factor": [2.0], "backoff_factor": [0.5]}
    values = {"growth_interval": range(1, windows + 1), "hysteresis": range(1, min(windows, 3) + 1), **factors}
    values |= {"overflow_tolerance": [0.25, 0.5]}
    varied = [key for key in values if key in preset.parameters]
    for combination in product(*(values[key] for key in varied)):
        yield preset.rule(**dict(zip(varied, combination, strict=True)))


def explore(rule: LossScaleRule) -> Explored:
    """Return all reachable states of *rule*; if there can be too many, those that the shortest traces reach."""
    step = machine_floats.step_of(rule)

    def edges_of(state: HostState) -> list[Edge[HostState]]:
        following = ((symbol, step(state, symbol == ".")) for symbol in ".x")
        return [Edge(Run(symbol, 1), _canonical(rule, new)) for symbol, new in following if new is not None]

    scale, good, _, _, _ = machine_floats.init_host(rule)
    budget = math.inf if exact(rule) and rule.overflow_tolerance is None else BUDGET
    graph = search((scale, good, 0, 0, scale), edges_of, budget)
    return Explored(rule, graph, _traps(rule, graph))


def exact(rule: LossScaleRule) -> bool:
    """Return True if all factors are powers of two. Other factors lead to too many scales for an exploration of all states."""
    factors = (rule.growth_factor, rule.backoff_factor, rule.warmup_growth_factor or 1.0)
    return all(math.frexp(factor)[0] == 0.5 for factor in factors)


def _canonical(rule: LossScaleRule, state: HostState) -> HostState:
    """Return the state that represents all states with the same next steps: counts without effect have fixed values."""
    scale, good, bad, window, pending = state
    if rule.block_at_bounds:
        good = min(good, rule.growth_interval - 1)
    if rule.overflow_tolerance is None:
        window = 0
    return scale, good, bad, window, pending


def _traps(rule: LossScaleRule, graph: Graph[HostState]) -> dict[float, tuple[Run, ...]]:
    """Return the shortest trace into each trap, by its scale: search backward from the steps that change the scale."""
    if rule.growth_factor == rule.backoff_factor == 1:
        return {}
    sources: dict[HostState, list[HostState]] = {}
    changing = set(graph.previous) - set(graph.edges)  # unexplored states count as able to change
    for state, edges in graph.edges.items():
        for _, new in edges:
            sources.setdefault(new, []).append(state)
            if new[PENDING] != state[PENDING]:
                changing.add(state)
    unvisited = [*changing]
    while unvisited:
        new_sources = set(sources.get(unvisited.pop(), ())) - changing
        changing |= new_sources
        unvisited.extend(new_sources)
    traps: dict[float, tuple[Run, ...]] = {}
    for state in graph.edges:  # in the order of their distances from the start
        if state not in changing and state[PENDING] not in traps:
            traps[state[PENDING]] = graph.trace(state)
    return traps


def row(name: str, explored: list[Explored]) -> Reached:
    """Return the row of a preset. Its only traps must be zero, after overflows alone, and infinity, after finite steps alone."""
    traps = {scale: trace for result in explored for scale, trace in result.traps.items()}
    for scale, trace in traps.items():
        assert {run.symbol for run in trace} == {0.0: {"x"}, math.inf: {"."}}[scale]
    completely = [result for result in explored if result.graph.horizon is None]
    assert all(set(result.traps) == set(traps) for result in completely)
    steps = [_steps_to(name, scale) if scale in traps else None for scale in (math.inf, 0.0)]
    complete = len(completely) == len(explored)
    return Reached(name, sum(len(result.graph.edges) for result in explored), complete, *steps)


def _steps_to(name: str, trap: float) -> int:
    """Return the number of overflows or finite steps after which the scale of a preset with its defaults is *trap*."""
    rule = presets.PRESETS[name].rule()
    step = machine_floats.step_of(rule)
    steps = 0
    scale, good, _, _, _ = machine_floats.init_host(rule)
    state: HostState | None = (scale, good, 0, 0, scale)
    while state is not None and state[0] != trap:
        idle = rule.growth_interval - 1 - state[1] if trap else 0  # finite steps that only increment the counts
        scale, good, bad, window, pending = state
        state = step((scale, good + idle, bad, window + idle, pending), trap != 0)
        steps += idle + 1
    assert state is not None
    return steps


def encoded(rule: LossScaleRule) -> Rule:
    """Return the constants of *rule* for the encoding, in which bounds are positions."""
    low, high, raises = rule.min_scale, rule.max_scale, rule.raise_at_or_below
    resets = (event in rule.reset_bad_steps_on for event in ("finite", "growth", "backoff"))
    return Rule(
        rule.growth_interval,
        rule.hysteresis,
        rule.initial_good_steps,
        *(term for bound in (low, high, raises) for term in (bound is not None, position(rule, bound or 1.0))),
        *resets,
        rule.skip_infinite_growth,
        rule.block_at_bounds,
        rule.overflow_tolerance is not None,
        rule.raise_at_min_scale,
        rule.delayed_update,
        rule.warmup_growth_factor is not None,
        position(rule, math.inf) - 1,
    )


def position(rule: LossScaleRule, scale: float) -> int:
    """Return the position of *scale*: 2 * (e - SMALLEST) + 1 for 2**e, and one more for all numbers between it and 2**(e + 1)."""
    if scale == 0:
        return 0
    if scale == math.inf:
        return 2 * (LARGEST[rule.dtype] - SMALLEST[rule.dtype]) + 3
    mantissa, exponent = math.frexp(scale)
    of_power = 2 * (exponent - 1 - SMALLEST[rule.dtype]) + 1
    return of_power if mantissa == 0.5 else of_power + 1


def differing(explored: Explored, step: type[Step] = Step) -> int:
    """Return the number of explored steps in which the encoding differs from the library. An invalid state raises an error."""
    rule = explored.rule
    constants = encoded(rule)
    count = 0
    assert not any(math.isnan(state[PENDING]) for state in explored.graph.previous)
    positions = {scale: position(rule, scale) for state in explored.graph.previous for scale in (state[0], state[PENDING])}
    assert len(set(positions.values())) == len(positions), f"{rule} has two scales at one position"
    factors = (rule.growth_factor, rule.warmup_growth_factor or 1.0, rule.backoff_factor)
    distances = [2 * round(math.log2(factor)) for factor in factors]
    for state, edges in explored.graph.edges.items():
        before = State(positions[state[0]], *state[1:4], positions[state[PENDING]])
        for name, invariant in INVARIANTS.items():
            assert invariant(PYTHON_LOGIC, constants, before), f"{name} is false for {state} of {rule}"
        products = Products(*(shift(PYTHON_LOGIC, constants, before.pending, distance) for distance in distances))
        reached = {run.symbol: new for run, new in edges}
        for symbol in ".x":
            actual, raises = step(PYTHON_LOGIC, constants, before, symbol == ".", products, _share_reached(rule, before)).result()
            expected = reached.get(symbol)
            if expected is None or raises:
                is_equal = expected is None and raises
            else:
                is_equal = _canonical(rule, actual) == (positions[expected[0]], *expected[1:4], positions[expected[PENDING]])
            count += not is_equal
    return count


def _share_reached(rule: LossScaleRule, state: State) -> bool:
    share = Fraction(state.bad + 1, state.window + 1)
    return rule.overflow_tolerance is not None and share >= Fraction(rule.overflow_tolerance)


def resumed(explored: Explored) -> tuple[int, dict[str, int]]:
    """Return the number of states that ampscale's checkpoints restore exactly, and the numbers of other states by their error."""
    rule = explored.rule
    exact = 0
    errors: dict[str, int] = {}
    for scale, good, bad, window, pending in explored.graph.edges:
        optional = (None if rule.overflow_tolerance is None else window, pending if rule.delayed_update else None)
        state = LossScaleState(scale, good, bad, *optional)
        try:
            saved = json.loads(json.dumps(checkpoints.FORMATS["ampscale"].entries(checkpoints.Checkpoint(rule, state))))
            loaded = checkpoints.load("ampscale", saved)
        except ValueError as error:
            key = re.sub(r"\d+", "n", str(error).partition(", got")[0])
            if "positive, finite" in key:
                key = "a scale of zero or infinity"
            errors[key] = errors.get(key, 0) + 1
            continue
        restored: tuple[Any, ...] = loaded.state
        assert loaded.rule == rule
        assert tuple(None if value is None else value.item() for value in restored) == tuple(state)
        exact += 1
    return exact, errors
