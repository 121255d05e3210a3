"""Graphs behind completely positive matrices: against brute force, and matrices whose support has no triangle."""

import itertools
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, strategies as st
from references.grams import bipartite_gram, edge_gram, gram_data, incidence

import covopt
from covopt.completely_positive import graphs, triangle_free


@st.composite
def small_graphs(draw: st.DrawFn) -> nx.Graph:
    order, chance = draw(st.integers(1, 6)), draw(st.sampled_from([0.3, 0.6, 0.9]))
    return nx.gnp_random_graph(order, chance, seed=draw(st.integers(0, 10**6)))


def cliques_of(graph: nx.Graph) -> list[set[int]]:
    subsets = itertools.chain.from_iterable(itertools.combinations(graph, k) for k in range(1, len(graph) + 1))
    return [set(s) for s in subsets if all(graph.has_edge(*pair) for pair in itertools.combinations(s, 2))]


def needed(graph: nx.Graph) -> list[set[int]]:
    return [set(edge) for edge in graph.edges] + [{v} for v in nx.isolates(graph)]


def fewest_cliques(graph: nx.Graph) -> int:
    """By trying 1, 2, ... cliques."""
    cliques = cliques_of(graph)
    for count in range(1, len(needed(graph)) + 1):
        for chosen in itertools.combinations(cliques, count):
            if all(any(edge <= clique for clique in chosen) for edge in needed(graph)):
                return count
    return 0


def largest_fooling_set(graph: nx.Graph) -> int:
    edges, cliques = needed(graph), cliques_of(graph)
    apart = nx.Graph()
    apart.add_nodes_from(range(len(edges)))
    for i, j in itertools.combinations(range(len(edges)), 2):
        if not any(edges[i] | edges[j] <= clique for clique in cliques):
            apart.add_edge(i, j)
    return max(map(len, nx.find_cliques(apart)))


@given(small_graphs())
def test_clique_bounds_against_brute_force(graph: nx.Graph) -> None:
    cover = graphs.clique_cover(graph)
    assert cover.fooling.bound == largest_fooling_set(graph)
    assert cover.fooling.check(graph)
    assert cover.fractional.check(graph)
    if len(needed(graph)) <= 7:
        assert cover.cover_number == fewest_cliques(graph)
    assert cover.fooling.bound <= cover.fractional.bound <= (cover.cover_number or 0)


def test_known_covers() -> None:
    for graph, cover in ((nx.cycle_graph(5), 5), (nx.complete_graph(6), 1), (nx.octahedral_graph(), 4)):
        assert graphs.clique_cover(graph).cover_number == cover


def test_weights_that_are_too_heavy_do_not_pass() -> None:
    triangle = nx.complete_graph(3)
    assert graphs.EdgeWeights(((0, 1), (0, 2), (1, 2)), np.full(3, 1 / 3)).check(triangle)
    assert not graphs.EdgeWeights(((0, 1), (0, 2), (1, 2)), np.full(3, 0.4)).check(triangle)
    assert not graphs.EdgeWeights(((0, 1), (0, 2)), np.array([2.0, -1.5])).check(triangle)
    assert not graphs.EdgeWeights(((0, 1), (0, 1)), np.array([0.5, 0.5])).check(triangle)
    assert not graphs.EdgeWeights(((0, 3),), np.ones(1)).check(triangle)


def test_incidence_and_its_gram_matrix() -> None:
    path = nx.path_graph(4)
    assert (incidence(path) == [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]).all()
    assert (edge_gram(path) == [[1, 1, 0, 0], [1, 2, 1, 0], [0, 1, 2, 1], [0, 0, 1, 1]]).all()
    assert (bipartite_gram(1, 2) == [[2, 1, 1], [1, 1, 0], [1, 0, 1]]).all()


def test_data_whose_root_is_the_matrix() -> None:
    A = bipartite_gram(2, 3)
    X, Y = gram_data(A)
    values, vectors = np.linalg.eigh(Y @ Y.T)
    assert (np.eye(5) == X).all()
    assert (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T == pytest.approx(A, abs=1e-7)


@given(small_graphs().filter(lambda graph: graph.number_of_edges() > 0))
def test_matrices_of_graphs_need_an_atom_for_each_edge(graph: nx.Graph) -> None:
    """The fewest cliques that cover the edges, by trying, are a lower end; vertices without edges need no atom."""
    A, edges = covopt.gram_of_graph(graph), graph.number_of_edges()
    assert (edge_gram(graph) == A).all()
    graph.remove_nodes_from(list(nx.isolates(graph)))
    if not any(nx.triangles(graph).values()):
        if edges <= 7:
            assert fewest_cliques(graph) == edges
        answer = covopt.cp_rank(A)
        assert (answer.lower, answer.upper) == (edges, edges)


def test_directions_weights_and_repeated_edges_do_not_count() -> None:
    graph = nx.MultiDiGraph([("a", "b", {"weight": 5.0}), ("b", "a"), ("b", "c"), ("b", "c")])
    assert (covopt.gram_of_graph(graph) == [[1, 1, 0], [1, 2, 1], [0, 1, 1]]).all()


def test_graphs_by_name_and_from_files(tmp_path: Path) -> None:
    graph = nx.frucht_graph()
    nx.write_graph6(graph, tmp_path / "frucht.g6")
    lines = [f"{u}, {v}" if u % 2 else f"{u}\t{v} # an edge" for u, v in graph.edges]
    (tmp_path / "edges.txt").write_text("# Frucht\n\n" + "\n".join(lines))
    by_name = covopt.gram_of_graph("frucht")
    assert (by_name == edge_gram(graph)).all()
    assert (covopt.gram_of_graph(tmp_path / "frucht.g6") == by_name).all()
    order = list(dict.fromkeys(vertex for edge in graph.edges for vertex in edge))
    assert (covopt.gram_of_graph(str(tmp_path / "edges.txt")) == by_name[np.ix_(order, order)]).all()
    assert (covopt.gram_of_graph("complete_bipartite_graph_2_3") == bipartite_gram(2, 3)).all()
    assert (covopt.gram_of_graph("grid_2d_2_4") == edge_gram(nx.grid_2d_graph(2, 4))).all()


@pytest.mark.parametrize("name", ["cycle_4", "complete_bipartite_2_3"])
def test_data_of_graphs_cost_four_for_each_edge(name: str) -> None:
    """The network W_1 = E, W_2 = E^T attains 4k; the dual bound of `solve` proves that none costs less."""
    graph = nx.cycle_graph(4) if name == "cycle_4" else nx.complete_bipartite_graph(2, 3)
    X, Y = covopt.data_of_graph(name)
    E, edges = incidence(graph), graph.number_of_edges()
    assert (np.maximum(X @ E.T, 0.0) @ E == Y).all()
    assert 2.0 * (E**2).sum() == 4 * edges
    result = covopt.solve(X, Y, bias=0.0, time_limit=10.0)
    assert result.cost == pytest.approx(4 * edges, rel=1e-4)
    assert 4 * edges * (1.0 - 1e-3) <= result.lower <= 4 * edges * (1.0 + 1e-9)
    assert result.widths == [edges]


@given(small_graphs())
def test_triangles(graph: nx.Graph) -> None:
    assert graphs.is_triangle_free(graph) == (sum(nx.triangles(graph).values()) == 0)


def triangle_free_graph(order: int, edges: int, seed: int) -> nx.Graph:
    """Connected, with up to so many edges."""
    rng = np.random.default_rng(seed)
    graph = nx.random_labeled_tree(order, seed=seed)
    pairs = list(itertools.combinations(range(order), 2))
    for k in rng.permutation(len(pairs)):
        u, v = pairs[k]
        if graph.number_of_edges() < edges and not set(graph[u]) & set(graph[v]):
            graph.add_edge(u, v)
    return graph


@given(st.integers(2, 12), st.integers(0, 15), st.floats(0.0, 1.0), st.integers(0, 10**6))
def test_factors_without_triangles(order: int, more: int, diagonal: float, seed: int) -> None:
    graph = triangle_free_graph(order, order - 1 + more, seed)
    E = incidence(graph) * np.random.default_rng(seed).uniform(0.1, 3.0, (graph.number_of_edges(), order))
    A = E.T @ E + diagonal * np.eye(order)
    tree = graph.number_of_edges() == order - 1
    rank = order if diagonal > 1e-6 or not tree else order - 1
    B = triangle_free.factor(A, rank)
    assert len(B) == (rank if tree else graph.number_of_edges())
    assert (B >= 0).all()
    # A tree of almost full rank leaves its root's share out.
    assert np.abs(B.T @ B - A).max() <= (1e-13 if diagonal > 1e-6 or diagonal == 0.0 else 1e-5) * np.abs(A).max()
