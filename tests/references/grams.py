"""Gram matrices of the edges of a graph, whose cp-rank [JGHG22] knows (Prop. 13 and 14, Rem. 23)."""

from __future__ import annotations

import networkx as nx
import numpy as np
from jaxtyping import Float


def incidence(graph: nx.Graph) -> Float[np.ndarray, "k n"]:
    """The edge-vertex matrix E: one row for each of the k edges, with a 1 at both ends."""
    places = {vertex: i for i, vertex in enumerate(graph)}
    E = np.zeros((graph.number_of_edges(), len(places)))
    for row, edge in enumerate(graph.edges):
        E[row, [places[v] for v in edge]] = 1.0
    return E


def edge_gram(graph: nx.Graph) -> Float[np.ndarray, "n n"]:
    """A = E^T E: degrees on the diagonal, 1 for each edge.

    For a triangle-free graph its cp-rank is the number of edges ([JGHG22], Prop. 13, where E is the transpose).
    """
    E = incidence(graph)
    return E.T @ E


def bipartite_gram(p: int, q: int) -> Float[np.ndarray, "n n"]:
    """E^T E of K_{p,q}, of cp-rank p q; p = q = N / 2 gives B_N of [JGHG22]."""
    return edge_gram(nx.complete_bipartite_graph(p, q))


def gram_data(A: Float[np.ndarray, "n n"]) -> tuple[Float[np.ndarray, "n n"], Float[np.ndarray, "n n"]]:
    """The data (X, Y) = (I, A), for which (Y Y^T)^(1/2) = A.

    Where A is completely positive, R(X, Y; L = 2, beta = 0) = 2 tr A, K_1 = Ks_1 = A is the only optimum, and the
    fewest neurons are the cp-rank of A ([JGHG22], Prop. 14).
    """
    return np.eye(len(A)), np.array(A, dtype=np.float64)
