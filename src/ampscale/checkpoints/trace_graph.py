"""Graphs whose edges are runs of steps: what is reached first, and what is reached again."""

import heapq
import itertools
import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

Node = TypeVar("Node", bound=Hashable)


class Run(NamedTuple):
    """Steps in a row that are alike."""

    symbol: str  # "." for finite steps, "x" for overflows
    steps: int


RunLengths = tuple[Run, ...]


def merged(*runs: Run) -> RunLengths:
    """*runs* as a trace, in which the symbols alternate."""
    grouped = itertools.groupby(runs, key=lambda run: run.symbol)
    return tuple(Run(symbol, sum(run.steps for run in alike)) for symbol, alike in grouped)


class Edge(NamedTuple, Generic[Node]):
    """The steps that lead to a node."""

    run: Run
    to: Node


@dataclass(frozen=True)
class Graph(Generic[Node]):
    """
    What a search found.

    Args:
        edges: Of each node that was followed, the nearest first.
        came: Of each node that was met, the one before it on a shortest trace, and the steps from there; None for the start.
        horizon: The distance of the nearest node that was not followed; None where all were.
    """

    edges: dict[Node, list[Edge[Node]]]
    came: dict[Node, tuple[Node, Run] | None]
    horizon: int | None

    def trace(self, node: Node, *more: Run) -> RunLengths:
        """A shortest trace to *node*, and *more* steps from there."""
        runs = [*reversed(more)]
        link = self.came[node]
        while link is not None:
            before, run = link
            runs.append(run)
            link = self.came[before]
        return merged(*reversed(runs))


def search(start: Node, edges_of: Callable[[Node], list[Edge[Node]]], budget: float = math.inf) -> Graph[Node]:
    """Dijkstra's search from *start*, until *budget* nodes have been followed."""
    came: dict[Node, tuple[Node, Run] | None] = {start: None}
    distance, edges, order = {start: 0}, dict[Node, list[Edge[Node]]](), itertools.count()
    queue = [(0, next(order), start)]
    while queue and len(edges) < budget:
        steps, _, node = heapq.heappop(queue)
        if node in edges:
            continue
        edges[node] = edges_of(node)
        for run, to in edges[node]:
            if to not in distance or steps + run.steps < distance[to]:
                distance[to], came[to] = steps + run.steps, (node, run)
                heapq.heappush(queue, (distance[to], next(order), to))
    return Graph(edges, came, min((steps for steps, _, node in queue if node not in edges), default=None))


def components(graph: Graph[Node]) -> Iterator[set[Node]]:
    """The sets of nodes that lead to each other, each after all that it leads to: Tarjan's algorithm, without recursion."""
    number, lowest = dict[Node, int](), dict[Node, int]()
    path, on_path = list[Node](), set[Node]()
    for root in graph.edges:
        work = [] if root in number else [(root, iter(graph.edges[root]))]
        while work:
            node, rest = work[-1]
            if node not in number:
                number[node] = lowest[node] = len(number)
                path.append(node)
                on_path.add(node)
            for _, to in rest:
                if to not in number:
                    work.append((to, iter(graph.edges.get(to, []))))
                    break
                if to in on_path:
                    lowest[node] = min(lowest[node], number[to])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
                if lowest[node] == number[node]:
                    yield _cut(path, on_path, node)


def _cut(path: list[Node], on_path: set[Node], node: Node) -> set[Node]:
    """Takes *node* and all after it from the path."""
    taken = {path.pop()}
    while node not in taken:
        taken.add(path.pop())
    on_path -= taken
    return taken
