"""Directed graphs whose edges are runs of equal steps: shortest paths and strongly connected components."""

import heapq
import itertools
import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

Node = TypeVar("Node", bound=Hashable)


class Run(NamedTuple):
    """
    Consecutive steps of the same kind.

    Args:
        symbol: "." for finite steps, "x" for overflows.
        steps: Number of steps; at least 1.

    >>> Run("x", 3)
    Run(symbol='x', steps=3)
    """

    symbol: str
    steps: int


RunLengths = tuple[Run, ...]  # an overflow trace, run-length encoded


def merge_runs(*runs: Run) -> RunLengths:
    """Return the trace that consists of *runs*, with adjacent runs of the same symbol merged."""
    groups = itertools.groupby(runs, key=lambda run: run.symbol)
    return tuple(Run(symbol, sum(run.steps for run in group)) for symbol, group in groups)


class Edge(NamedTuple, Generic[Node]):
    """Edge to a node, labeled with the steps that lead to this node."""

    run: Run
    to: Node


@dataclass(frozen=True)
class Graph(Generic[Node]):
    """Part of a graph that a search has explored."""

    edges: dict[Node, list[Edge[Node]]]  # edges of each explored node; the nodes are in the order of their distances
    previous: dict[Node, tuple[Node, Run] | None]  # last edge of a shortest path to each reached node; None for the start
    horizon: int | None  # number of steps to the nearest node that was reached but not explored; None without one

    def trace(self, node: Node) -> RunLengths:
        """Return a shortest trace from the start to *node*."""
        runs: list[Run] = []
        link = self.previous[node]
        while link is not None:
            predecessor, run = link
            runs.append(run)
            link = self.previous[predecessor]
        return merge_runs(*reversed(runs))


def search(start: Node, edges_of: Callable[[Node], list[Edge[Node]]], budget: float = math.inf) -> Graph[Node]:
    """Explore up to *budget* nodes from *start* with Dijkstra's algorithm. The length of an edge is its number of steps."""
    previous: dict[Node, tuple[Node, Run] | None] = {start: None}
    distance = {start: 0}
    edges = dict[Node, list[Edge[Node]]]()
    order = itertools.count()  # breaks ties, so that the heap never compares nodes
    queue = [(0, next(order), start)]
    while queue and len(edges) < budget:
        steps, _, node = heapq.heappop(queue)
        if node in edges:
            continue
        edges[node] = edges_of(node)
        for run, to in edges[node]:
            if to not in distance or steps + run.steps < distance[to]:
                distance[to], previous[to] = steps + run.steps, (node, run)
                heapq.heappush(queue, (distance[to], next(order), to))
    return Graph(edges, previous, min((steps for steps, _, node in queue if node not in edges), default=None))


def components(graph: Graph[Node]) -> Iterator[set[Node]]:
    """
    Yield the strongly connected components in reverse topological order: each after all components that can be reached from it.

    This is Tarjan's algorithm with an explicit stack, since a graph can be deeper than Python's recursion limit.
    """
    # The order in which nodes are first visited, and the lowest number in this order that a node can reach along the path.
    order, lowest = dict[Node, int](), dict[Node, int]()
    path, on_path = list[Node](), set[Node]()
    for root in graph.edges:
        work = [] if root in order else [(root, iter(graph.edges[root]))]
        while work:
            node, remaining = work[-1]
            if node not in order:
                order[node] = lowest[node] = len(order)
                path.append(node)
                on_path.add(node)
            for _, to in remaining:
                if to not in order:
                    work.append((to, iter(graph.edges.get(to, []))))
                    break
                if to in on_path:
                    lowest[node] = min(lowest[node], order[to])
            else:
                work.pop()
                if work:
                    parent, _ = work[-1]
                    lowest[parent] = min(lowest[parent], lowest[node])
                if lowest[node] == order[node]:
                    component = {path.pop()}
                    while node not in component:
                        component.add(path.pop())
                    on_path -= component
                    yield component
