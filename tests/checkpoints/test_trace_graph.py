"""Tests of the graph search, whose distances are compared with the Bellman–Ford algorithm, and of graph components."""

from hypothesis import example, given
from hypothesis import strategies as st

from ampscale.checkpoints.trace_graph import Edge, Run, components, merge_runs, search

graphs = st.lists(
    st.lists(st.tuples(st.sampled_from(".x"), st.integers(1, 5), st.integers(0, 7)), max_size=3), min_size=8, max_size=8
)


def searched(rows, budget=100, start=0):
    """Return the graph that a search from a node of a table of edges explores."""
    return search(start, lambda node: [Edge(Run(symbol, steps), target) for symbol, steps, target in rows[node]], budget)


def distances(rows):
    """Return the distances from the first node, computed with the Bellman–Ford algorithm."""
    distance = {0: 0}
    for _ in rows:
        for node, row in enumerate(rows):
            for _, steps, target in row:
                if node in distance and distance[node] + steps < distance.get(target, 1000):
                    distance[target] = distance[node] + steps
    return distance


@given(graphs)
def test_search_explores_reachable_nodes_in_order_of_distance(rows):
    """The trace to each node has the shortest length."""
    graph, expected = searched(rows), distances(rows)
    assert set(graph.edges) == set(expected)
    lengths = [sum(run.steps for run in graph.trace(node)) for node in graph.edges]
    assert lengths == sorted(lengths)
    assert dict(zip(graph.edges, lengths, strict=True)) == expected
    assert graph.horizon is None


@given(graphs, st.integers(1, 8))
@example([[(".", 5, 1), (".", 1, 2)], [], [(".", 1, 1)], [], [], [], [], []], 3)  # two paths lead to the last node
def test_budget_ends_the_search_at_its_horizon(rows, budget):
    """The search explores *budget* nodes. Its horizon is the distance of the nearest unexplored node."""
    graph, expected = searched(rows, budget), distances(rows)
    assert len(graph.edges) == min(budget, len(expected))
    unexplored = [distance for node, distance in expected.items() if node not in graph.edges]
    assert graph.horizon == min(unexplored, default=None)


@given(graphs)
def test_components_are_sets_of_mutually_reachable_nodes(rows):
    """Each component is yielded after all components that it leads to."""
    graph = searched(rows)
    reach = {node: set(searched(rows, start=node).edges) for node in graph.edges}
    result = list(components(graph))
    assert sorted(node for component in result for node in component) == sorted(graph.edges)
    for position, component in enumerate(result):
        for node in component:
            assert {other for other in reach[node] if node in reach[other]} == component
            assert reach[node] <= set().union(*result[: position + 1])


def test_components_need_no_recursion():
    """A chain of ten thousand nodes has ten thousand components, from the last to the first."""
    graph = search(0, lambda node: [Edge(Run(".", 1), node + 1)] if node < 10_000 else [])
    assert list(components(graph)) == [{node} for node in range(10_000, -1, -1)]


def test_merge_runs_merges_adjacent_runs():
    """The symbols of the result alternate. Without runs, the result is empty."""
    assert merge_runs(Run(".", 1), Run(".", 2), Run("x", 1), Run(".", 1)) == (Run(".", 3), Run("x", 1), Run(".", 1))
    assert merge_runs() == ()
