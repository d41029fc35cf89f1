"""
How far two scalers can part: not estimated, but looked up among all traces of overflows that there are.

Both take the same steps, and the pair of their states is a node of a graph through which the steps lead. What can ever happen
is written in the graph:

    no pair in which the scales differ        they agree for ever
    the nearest one                           the earliest step after which they can differ
    one that leads to itself again            they can differ without end
    else, the path with the most such steps   in how many steps they can differ

Nearly all steps of a run are finite and idle: they do nothing but count, and an overflow asks only whether there was one. So
the search takes the first of them, and then all others up to the one before either scale grows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

from ..core.machine import LossScaleState
from ..core.rule import LossScaleRule
from .state import Checkpoint, arrays_of, numbers_of, plain
from .trace_graph import Edge, Graph, Run, RunLengths, components, merged, search

BUDGETS = (500, 2_000, 8_000)  # pairs; a few hundred answer most questions


@dataclass(frozen=True)
class Divergence:
    """
    How far the scales of two scalers can differ over all traces. Where only one of them raises, that is a difference too.

    Args:
        first: The shortest trace after which they differ: empty where they do at once, None where none was found.
        steps: In how many steps of a run they can differ: 0 where they agree for ever, infinite where there is no end to it,
            None where the search was too short to know.
        endless: Where there is no end, a trace to a pair of states that differ, and one from there to the same pair.
        searched: Up to how many steps every trace was followed; None where for ever.
    """

    first: RunLengths | None
    steps: float | None
    endless: tuple[RunLengths, RunLengths] | None = None
    searched: int | None = None


def divergence(source: Checkpoint, target: Checkpoint, budgets: tuple[int, ...] = BUDGETS) -> Divergence:
    """
    How far two scalers can part from where they stand.

    Args:
        source: One of them.
        target: The other.
        budgets: How many pairs of states to follow; the next number where the last gave no full answer.

    Returns:
        What is known then.
    """
    if plain(source) == plain(target):  # also where a factor like 1.1 leads to more scales than can be followed
        return Divergence(None, 0)
    start = Pair(numbers_of(source.state), numbers_of(target.state))
    edges_of = partial(_edges, source.rule, target.rule)
    found = Divergence(None, None, searched=-1)
    for budget in budgets:
        found = _read(search(start, edges_of, budget), edges_of)
        if found.steps is not None:
            break
    return found


def steps_to_growth(checkpoint: Checkpoint) -> int | None:
    """The finite steps in a row after which the scale in force is first larger; None where it never is."""
    rule, state = checkpoint.rule, numbers_of(checkpoint.state)
    now, steps, seen = state, 0, set[LossScaleState]()
    while now not in seen:
        seen.add(now)
        for run in (1, _idle_steps(rule, now) - 1):
            if run > 0:
                steps, now = steps + run, _after_finite(rule, now, run) or now  # only an overflow makes a scaler raise
            if now.scale > state.scale:
                return steps
    return None


class Pair(NamedTuple):
    """The states of two scalers in Python numbers; None for one that has raised."""

    source: LossScaleState | None
    target: LossScaleState | None
    counting: bool = False  # the step before was finite and idle for both

    @property
    def differs(self) -> bool:
        """Whether the scales in force do."""
        if self.source is None or self.target is None:
            return self.source is not self.target
        return bool(self.source.scale != self.target.scale)


_PARTED = Pair(None, LossScaleState(0.0, 0, 0))  # one has raised and the other goes on, wherever to


def _edges(source: LossScaleRule, target: LossScaleRule, pair: Pair) -> list[Edge[Pair]]:
    """What an overflow leads to, and what finite steps do: one, then all that are idle, then the one in which a scale grows."""
    if pair == _PARTED:
        return [Edge(Run(".", 1), _PARTED)]
    if pair.source is None or pair.target is None:  # both have raised, and there are no more steps
        return []
    idle = min(_idle_steps(source, pair.source), _idle_steps(target, pair.target))
    run = max(idle, 1) if pair.counting else 1
    overflow = _joined(_after(source, pair.source, False), _after(target, pair.target, False))
    finite = _joined(_after_finite(source, pair.source, run), _after_finite(target, pair.target, run), counting=idle > 0)
    return [Edge(Run("x", 1), overflow), Edge(Run(".", run), finite)]


def _joined(source: LossScaleState | None, target: LossScaleState | None, counting: bool = False) -> Pair:
    return _PARTED if (source is None) != (target is None) else Pair(source, target, counting)


# When to overflow, so that the scales soon reach their ends: always, never, and never twice in a row.
OVERFLOWS: tuple[Callable[[Pair], bool], ...] = (lambda _: True, lambda _: False, lambda pair: pair.counting)


@lru_cache(2**17)
def _after(rule: LossScaleRule, state: LossScaleState, finite: bool) -> LossScaleState | None:
    """The state after a step, which is asked of the machine itself; None where the published scaler raises."""
    updated, stops = rule.transition(arrays_of(rule, state), finite)
    if stops:
        return None
    after = numbers_of(updated)
    # Behind a closed gate the count goes on, and from here on says no more than that a growth waits.
    return after._replace(good_steps=min(after.good_steps, rule.growth_interval - 1))


def _after_finite(rule: LossScaleRule, state: LossScaleState, steps: int) -> LossScaleState | None:
    """The state after finite steps, all but the last of which are idle."""
    return _after(rule, state._replace(good_steps=state.good_steps + steps - 1), True)


def _idle_steps(rule: LossScaleRule, state: LossScaleState) -> int:
    """How many finite steps do nothing but count, and matter to an overflow only in that there was one."""
    scale = state.scale if state.pending_scale is None else state.pending_scale
    kept = (
        rule.block_at_bounds and rule.min_scale is not None and scale <= rule.min_scale
    )  # an overflow leaves the count as it is
    return 0 if kept or rule.overflow_tolerance is not None else rule.growth_interval - 1 - int(state.good_steps)


def _read(graph: Graph[Pair], edges_of: Callable[[Pair], list[Edge[Pair]]]) -> Divergence:
    """What a graph says about all traces."""
    searched = None if graph.horizon is None else graph.horizon - 1
    nearest = next((pair for pair in graph.edges if pair.differs), None)
    if nearest is None:
        return Divergence(None, 0 if searched is None else None, searched=searched)
    first, endless = graph.trace(nearest), _endless(graph)
    if endless is None and searched is not None:
        # Scales can drift apart for long before a pair comes round. On these ways they soon reach their ends, and it does.
        ways = (search(nearest, partial(_one_way, edges_of, overflow), len(graph.edges)) for overflow in OVERFLOWS)
        lead, cycle = next(filter(None, map(_endless, ways)), ((), ()))
        endless = (merged(*first, *lead), cycle) if cycle else None
    if endless is not None:
        return Divergence(first, math.inf, endless, searched)
    return Divergence(first, _most(graph) if searched is None else None, searched=searched)


def _one_way(edges_of: Callable[[Pair], list[Edge[Pair]]], overflow: Callable[[Pair], bool], pair: Pair) -> list[Edge[Pair]]:
    """The edge of an overflow where there is to be one, else that of finite steps."""
    edges = edges_of(pair)
    return edges[:1] if overflow(pair) else edges[1:]


def _endless(graph: Graph[Pair]) -> tuple[RunLengths, RunLengths] | None:
    """A trace to a pair that differs, and one from there to itself again; None where no such pair leads to itself."""
    cycles = {pair: component for component in components(graph) if _leads_back(graph, component) for pair in component}
    pair = next((pair for pair in graph.edges if pair.differs and pair in cycles), None)
    return None if pair is None else (graph.trace(pair), _round(graph, cycles[pair], pair))


def _leads_back(graph: Graph[Pair], component: set[Pair]) -> bool:
    """Whether there is an edge from a component to itself: else it is a single pair, which is met once."""
    return any(edge.to in component for pair in component for edge in graph.edges.get(pair, []))


def _round(graph: Graph[Pair], component: set[Pair], pair: Pair) -> RunLengths:
    """A shortest trace from *pair* to itself."""
    inner = search(pair, lambda node: [edge for edge in graph.edges.get(node, []) if edge.to in component])
    rounds = [inner.trace(node, edge.run) for node, edges in inner.edges.items() for edge in edges if edge.to == pair]
    return min(rounds, key=lambda trace: sum(run.steps for run in trace))


def _most(graph: Graph[Pair]) -> int:
    """In how many steps the scales differ at most, in a whole graph where no pair that differs leads to itself again."""
    most = dict[Pair, int]()
    for component in components(graph):
        edges = [(pair, edge) for pair in component for edge in graph.edges[pair] if edge.to not in component]
        best = max((_differing(pair, edge) + most[edge.to] for pair, edge in edges), default=0)
        most |= dict.fromkeys(component, best)
    return most[next(iter(graph.edges))]


def _differing(pair: Pair, edge: Edge[Pair]) -> int:
    """In how many of an edge's steps the scales differ: in the first those of *pair*, then those that are reached."""
    return pair.differs + (edge.run.steps - 1) * edge.to.differs
