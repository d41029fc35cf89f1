"""The search and the components, against what plain reachability says."""

from hypothesis import example, given
from hypothesis import strategies as st

from ampscale.checkpoints.trace_graph import Edge, Run, components, merged, search

graphs = st.lists(
    st.lists(st.tuples(st.sampled_from(".x"), st.integers(1, 5), st.integers(0, 7)), max_size=3), min_size=8, max_size=8
)


def searched(rows, budget=100):
    """The graph that a table of edges says, from its first node on."""
    return search(0, lambda node: [Edge(Run(symbol, steps), to) for symbol, steps, to in rows[node]], budget)


def distances(rows):
    """The length of a shortest way from the first node to each, by trying every edge again and again."""
    found = {0: 0}
    for _ in rows:
        for node, row in enumerate(rows):
            for _, steps, to in row:
                if node in found and found[node] + steps < found.get(to, 1000):
                    found[to] = found[node] + steps
    return found


@given(graphs)
def test_what_is_followed_is_what_can_be_reached_the_nearest_first(rows):
    """Each with a trace of the shortest length."""
    graph, wanted = searched(rows), distances(rows)
    assert set(graph.edges) == set(wanted)
    lengths = [sum(run.steps for run in graph.trace(node)) for node in graph.edges]
    assert lengths == sorted(lengths)
    assert dict(zip(graph.edges, lengths, strict=True)) == wanted
    assert graph.horizon is None


@given(graphs, st.integers(1, 8))
@example([[(".", 5, 1), (".", 1, 2)], [], [(".", 1, 1)], [], [], [], [], []], 3)  # the last node was met on two ways
def test_a_budget_ends_the_search_at_its_horizon(rows, budget):
    """So many nodes are followed, and all that are nearer than the horizon are among them."""
    graph, wanted = searched(rows, budget), distances(rows)
    assert len(graph.edges) == min(budget, len(wanted))
    left = [distance for node, distance in wanted.items() if node not in graph.edges]
    assert graph.horizon == min(left, default=None)


@given(graphs)
def test_components_are_the_nodes_that_lead_to_each_other(rows):
    """Each comes after all that it leads to."""
    graph = searched(rows)
    reach = {node: set(searched_from(rows, node)) for node in graph.edges}
    found = list(components(graph))
    assert sorted(node for component in found for node in component) == sorted(graph.edges)
    for position, component in enumerate(found):
        for node in component:
            assert {other for other in reach[node] if node in reach[other]} == component
            assert reach[node] <= set().union(*found[: position + 1])


def searched_from(rows, start):
    """The nodes that *start* leads to, itself among them."""
    return search(start, lambda node: [Edge(Run(symbol, steps), to) for symbol, steps, to in rows[node]]).edges


def test_a_long_chain_needs_no_recursion():
    """Ten thousand nodes in a row are ten thousand components, from the last to the first."""
    graph = search(0, lambda node: [Edge(Run(".", 1), node + 1)] if node < 10_000 else [])
    assert list(components(graph)) == [{node} for node in range(10_000, -1, -1)]


def test_runs_that_are_alike_are_one():
    """A trace alternates between its symbols."""
    assert merged(Run(".", 1), Run(".", 2), Run("x", 1), Run(".", 1)) == (Run(".", 3), Run("x", 1), Run(".", 1))
    assert merged() == ()
