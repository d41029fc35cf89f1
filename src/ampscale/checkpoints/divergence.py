"""
Search for the steps at which the scales of two scalers can differ, over all overflow traces.

Both scalers take the same steps. The pair of their states is a node of a graph, and each step is an edge. A trace is a path in
this graph. A pair is called differing if its two scales differ, and the graph shows for all traces:

    no differing pair                               the scales are equal for every trace
    the nearest differing pair                      the earliest step after which the scales can differ
    a differing pair on a cycle                     the scales can differ indefinitely
    otherwise, the path with most differing pairs   the number of steps in which the scales can differ

Nearly all steps of a run are finite and idle: they only increase a count. The effect of a later overflow depends on whether there
was an idle step, but not on how many. The search therefore takes the first idle step as one edge, and all further idle steps up
to the next growth as another.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

from ..core.machine import LossScaleState
from ..core.rule import LossScaleRule
from .state import Checkpoint, canonical, numbers_of
from .trace_graph import Edge, Graph, Run, RunLengths, components, merge_runs, search

BUDGETS = (500, 2_000, 8_000)  # maximum numbers of pairs to explore; most searches need a few hundred


@dataclass(frozen=True)
class Divergence:
    """
    Steps at which the scales of two scalers can differ, over all overflow traces.

    Once exactly one of the two published scalers has raised an error, the scales count as different.

    Args:
        first: Shortest trace after which the scales differ; () if they differ from the start, None if no such trace was found.
        steps: Maximum number of steps of a run in which the scales differ: 0 if they never do, infinity if there is no
            maximum, None if the search did not determine the maximum.
        endless: If there is no maximum, a trace to a pair of states with different scales, and one from this pair to itself.
        searched: Number of steps up to which all traces were searched; None if there is no such limit.

    >>> from ampscale import checkpoints, presets
    >>> flax, torch = presets.flax(min_scale=None), presets.torch()
    >>> saved = checkpoints.save("torch", checkpoints.Checkpoint(flax, flax.init(like=0.0)))
    >>> saved.report.divergence.first, saved.report.divergence.steps
    ((Run(symbol='.', steps=224112),), inf)
    """

    first: RunLengths | None
    steps: float | None
    endless: tuple[RunLengths, RunLengths] | None = None
    searched: int | None = None


def divergence(source: Checkpoint, target: Checkpoint, budgets: tuple[int, ...] = BUDGETS) -> Divergence:
    """Search for the steps at which two scalers can differ. Try each budget in turn until a search determines their number."""
    # Compare the rules first: a factor such as 1.1 leads to more scales than a search can explore.
    if canonical(source) == canonical(target):
        return Divergence(None, 0)
    start = Pair(numbers_of(source.state), numbers_of(target.state))
    edges_of = partial(_edges, source.rule, target.rule)
    for budget in budgets:
        result = _evaluate(search(start, edges_of, budget), edges_of)
        if result.steps is not None:
            break
    return result


def steps_to_growth(checkpoint: Checkpoint) -> int | None:
    """Return the number of consecutive finite steps after which the scale is first larger; None if it never grows."""
    rule, start = checkpoint.rule, numbers_of(checkpoint.state)
    state, steps = start, 0
    visited = set[LossScaleState]()
    while state not in visited:
        visited.add(state)
        other_idle_steps = _idle_steps(rule, state) - 1
        for count in (1, other_idle_steps):  # the first step can apply a pending scale; the others are taken together
            if count > 0:
                steps += count
                state = _after_finite(rule, state, count) or state  # a finite step never raises, so this is never None
            if state.scale > start.scale:
                return steps
    return None


class Pair(NamedTuple):
    """States of two scalers in Python numbers. The state of a scaler that has raised an error is None."""

    source: LossScaleState | None
    target: LossScaleState | None
    counting: bool = False  # True if the previous step was finite and idle for both scalers

    @property
    def differs(self) -> bool:
        """Return True if the scales differ, or if only one scaler has raised an error."""
        if self.source is None or self.target is None:
            return self.source is not self.target
        return bool(self.source.scale != self.target.scale)


EdgesOf = Callable[[Pair], list[Edge[Pair]]]
_ONE_RAISED = Pair(None, LossScaleState(0.0, 0, 0))  # stands for all pairs of which one scaler has raised an error


def _edges(source: LossScaleRule, target: LossScaleRule, pair: Pair) -> list[Edge[Pair]]:
    """
    Return the edges from *pair*: an overflow and a finite step.

    After an idle step, one edge stands for all further idle steps up to the next growth, instead of one finite step.
    """
    if pair == _ONE_RAISED:
        return [Edge(Run(".", 1), _ONE_RAISED)]
    if pair.source is None or pair.target is None:  # both scalers have raised an error, so the run ends
        return []
    idle = min(_idle_steps(source, pair.source), _idle_steps(target, pair.target))
    count = max(idle, 1) if pair.counting else 1
    overflow = _pair(_after(source, pair.source, False), _after(target, pair.target, False))
    finite = _pair(_after_finite(source, pair.source, count), _after_finite(target, pair.target, count), counting=idle > 0)
    return [Edge(Run("x", 1), overflow), Edge(Run(".", count), finite)]


def _pair(source: LossScaleState | None, target: LossScaleState | None, counting: bool = False) -> Pair:
    return _ONE_RAISED if (source is None) != (target is None) else Pair(source, target, counting)


@lru_cache(2**17)
def _after(rule: LossScaleRule, state: LossScaleState, finite: bool) -> LossScaleState | None:
    """Return the state after a step; None if the published scaler raises an error."""
    new_state, raises = rule.transition(state, finite)
    if raises:
        return None
    # While a bound blocks a growth, the count increases without further effect. Limit the count, so that the graph stays finite.
    return new_state._replace(good_steps=min(new_state.good_steps, rule.growth_interval - 1))


def _after_finite(rule: LossScaleRule, state: LossScaleState, steps: int) -> LossScaleState | None:
    """Return the state after *steps* finite steps, all but the last of which only increase `good_steps`."""
    return _after(rule, state._replace(good_steps=state.good_steps + steps - 1), True)


def _idle_steps(rule: LossScaleRule, state: LossScaleState) -> int:
    """Return how many of the next finite steps are idle: they only increase a count that has no effect on later overflows."""
    scale = state.scale if state.pending_scale is None else state.pending_scale
    # A blocked backoff leaves `good_steps` unchanged, so the number of finite steps before the overflow matters.
    blocked = rule.block_at_bounds and rule.min_scale is not None and scale <= rule.min_scale
    if blocked or rule.overflow_tolerance is not None:
        return 0
    return rule.growth_interval - 1 - int(state.good_steps)


def _evaluate(graph: Graph[Pair], edges_of: EdgesOf) -> Divergence:
    """Return the divergence that an explored graph implies for all traces."""
    searched = None if graph.horizon is None else graph.horizon - 1
    nearest = next((pair for pair in graph.edges if pair.differs), None)
    if nearest is None:
        steps = 0 if searched is None else None
        return Divergence(None, steps, searched=searched)
    first, endless = graph.trace(nearest), _endless(graph)
    if endless is None and searched is not None:  # the scales may differ for many steps before a pair repeats
        endless = _endless_pattern(graph, nearest, edges_of)
    if endless is not None:
        return Divergence(first, math.inf, endless, searched)
    steps = _max_differing_steps(graph) if searched is None else None
    return Divergence(first, steps, searched=searched)


# Patterns that soon drive the scales to their bounds: an overflow at every step, at no step, and after each idle step.
_OVERFLOW_PATTERNS: tuple[Callable[[Pair], bool], ...] = (lambda _: True, lambda _: False, lambda pair: pair.counting)


def _endless_pattern(graph: Graph[Pair], nearest: Pair, edges_of: EdgesOf) -> tuple[RunLengths, RunLengths] | None:
    """Return a result like that of `_endless`, for traces that lead to *nearest* and then follow one of the patterns."""
    for pattern in _OVERFLOW_PATTERNS:
        path = search(nearest, partial(_pattern_edge, edges_of, pattern), len(graph.edges))
        endless = _endless(path)
        if endless is not None:
            lead, cycle = endless
            return merge_runs(*graph.trace(nearest), *lead), cycle
    return None


def _pattern_edge(edges_of: EdgesOf, pattern: Callable[[Pair], bool], pair: Pair) -> list[Edge[Pair]]:
    """Return only the edge of an overflow if *pattern* is True for *pair*, otherwise only the edge of finite steps."""
    edges = edges_of(pair)
    return edges[:1] if pattern(pair) else edges[1:]


def _endless(graph: Graph[Pair]) -> tuple[RunLengths, RunLengths] | None:
    """Return a trace to a differing pair on a cycle, and a trace along this cycle; None if there is no such pair."""
    component_of = {pair: component for component in components(graph) for pair in component}
    for pair in graph.edges:
        if pair.differs and (cycle := _shortest_cycle(graph, component_of[pair], pair)):
            return graph.trace(pair), cycle
    return None


def _shortest_cycle(graph: Graph[Pair], component: set[Pair], pair: Pair) -> RunLengths:
    """Return a shortest trace from *pair* back to itself; () if there is none, so that *pair* is alone in its *component*."""
    inner = search(pair, lambda node: [edge for edge in graph.edges.get(node, []) if edge.to in component])
    cycles = [merge_runs(*inner.trace(node), run) for node, edges in inner.edges.items() for run, to in edges if to == pair]
    return min(cycles, key=lambda trace: sum(run.steps for run in trace), default=())


def _max_differing_steps(graph: Graph[Pair]) -> int:
    """Return the maximum number of steps with different scales, for a fully explored graph without differing pairs on cycles."""
    maxima = dict[Pair, int]()  # result for the part of the graph that can be reached from a pair
    for component in components(graph):
        maximum = 0
        for pair in component:
            for run, to in graph.edges[pair]:
                if to not in component:
                    # The first step of the edge has the scales of *pair*, and all others have those of *to*.
                    differing = pair.differs + (run.steps - 1) * to.differs
                    maximum = max(maximum, differing + maxima[to])
        maxima |= dict.fromkeys(component, maximum)
    start = next(iter(graph.edges))
    return maxima[start]
