"""Support graphs of completely positive matrices, and bounds on the cp-rank from clique covers.

If A = sum_k b_k b_k^T with b_k >= 0, the support of each b_k is a clique of A's
support graph, and these cliques cover every edge. With the maximal cliques as rows and the edges as columns of a 0-1
matrix M,

    fooling set <= fractional cover <= edge-clique cover number <= cp-rank,

where a fooling set (edges of which no two lie in one clique) is an integral solution of max { 1^T y : M y <= 1,
y >= 0 }, the fractional cover any solution, and a cover an integral solution of min { 1^T x : M^T x >= 1 }.

Source: Berman, Shaked-Monderer, Completely Positive Matrices (2003), section 3; Fawzi, Parrilo (2016), section 4.
"""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass

import networkx as nx
import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_array

from covopt.linalg.rounding import EPS
from covopt.runtime.loop import leavable

Edge = tuple[int, ...]


def support_graph(A: Float[np.ndarray, "n n"]) -> nx.Graph:
    """Return the graph on 0 ... n-1 with an edge where an entry off the diagonal is not zero."""
    graph = nx.Graph()
    graph.add_nodes_from(range(len(A)))
    rows, columns = np.nonzero(np.triu(A, 1))
    graph.add_edges_from(zip(rows.tolist(), columns.tolist(), strict=True))
    return graph


def is_triangle_free(graph: nx.Graph) -> bool:
    """Return True if no three vertices are all joined."""
    return not any(set(graph[u]) & set(graph[v]) for u, v in graph.edges)


@dataclass(frozen=True)
class EdgeWeights:
    """Weights y >= 0 on edges and vertices, at most 1 on each clique: cp-rank >= sum(y)."""

    edges: tuple[Edge, ...]  # pairs of vertices to cover, and single vertices that are in no such pair
    weights: Float[np.ndarray, " k"]  # y (k,); all 1 for a fooling set

    @property
    def bound(self) -> int:
        """Return the sum of the weights, rounded up; the margin covers the rounding of the sum."""
        margin = 1e-7
        return math.ceil(float(self.weights.sum()) - margin)

    def check(self, graph: nx.Graph) -> bool:
        """Return True if all edges are in the graph and no maximal clique carries more than 1."""
        if (self.weights < 0).any() or len(set(self.edges)) < len(self.edges):
            return False
        if any(not (graph.has_edge(*e) if len(e) == 2 else graph.has_node(e[0])) for e in self.edges):
            return False
        rounding = len(self.edges) * EPS
        pairs = list(zip(self.edges, self.weights, strict=True))
        heaviest = max(sum(w for e, w in pairs if set(e) <= set(clique)) for clique in nx.find_cliques(graph))
        return bool(heaviest <= 1.0 + rounding)


@dataclass(frozen=True)
class CliqueCover:
    """The number of cliques that cover a graph's edges, and lower bounds on it."""

    cover_number: int | None  # the fewest cliques of a cover, by HiGHS' branch and bound; None if it ran out of time
    fooling: EdgeWeights  # edges of which no two lie in one clique, weight 1 each
    fractional: EdgeWeights  # the best weights of edges


def clique_cover(graph: nx.Graph, time_limit: float = 10.0, needed: nx.Graph | None = None) -> CliqueCover | None:
    """Solve the three programmes of the module's docstring in `time_limit` seconds; None beyond 4000 maximal cliques.

    `needed` is a subgraph on the same vertices, whose edges and lone vertices must be covered; None: the graph.
    """
    most = 4000
    cliques = list(itertools.islice(nx.find_cliques(graph), most + 1))
    if len(cliques) > most or not cliques:
        return None
    needed = graph if needed is None else needed
    edges: list[Edge] = [*needed.edges, *((v,) for v in nx.isolates(needed))]
    M = _containment([frozenset(c) for c in cliques], edges)
    share, fits = {"time_limit": time_limit / 3.0}, {"A_ub": M, "b_ub": np.ones(len(cliques))}
    solved = leavable(lambda: linprog(-np.ones(len(edges)), options=share, **fits), time.perf_counter() + time_limit)
    y = np.zeros(len(edges)) if solved is None or solved.x is None else np.maximum(solved.x, 0.0)
    y = y / max(1.0, float((M @ y).max()))
    packed = binary_minimum(-np.ones(len(edges)), LinearConstraint(M, ub=1.0), share)
    fooling = [] if packed is None else [e for e, z in zip(edges, packed[0], strict=True) if z > 0.5]
    covered = binary_minimum(np.ones(len(cliques)), LinearConstraint(M.T, lb=1.0), share)
    return CliqueCover(
        cover_number=int((covered[0] > 0.5).sum()) if covered is not None and covered[1] else None,
        fooling=EdgeWeights(tuple(fooling), np.ones(len(fooling))),
        fractional=EdgeWeights(tuple(edges), y),
    )


def _containment(cliques: list[frozenset[int]], edges: list[Edge]) -> csr_array:
    """Return M: 1 where the clique of the row holds the edge, or lone vertex, of the column."""
    place = {frozenset(edge): i for i, edge in enumerate(edges)}
    entries = [
        (row, place[frozenset(held)])
        for row, clique in enumerate(cliques)
        for held in itertools.chain(itertools.combinations(clique, 1), itertools.combinations(clique, 2))
        if frozenset(held) in place
    ]
    rows, columns = np.array(entries).T
    return csr_array((np.ones(len(entries)), (rows, columns)), shape=(len(cliques), len(edges)))


def binary_minimum(
    objective: NDArray[np.float64], constraint: LinearConstraint | tuple[()], options: dict[str, float]
) -> tuple[NDArray[np.float64], bool] | None:
    """Return a binary minimiser, by HiGHS, and whether it is proved to be one; None without any.

    `options` are those of scipy.optimize.milp, time_limit among them.
    """
    question = {"constraints": constraint, "integrality": 1, "bounds": Bounds(0, 1), "options": options}
    solution = leavable(lambda: milp(objective, **question), time.perf_counter() + options["time_limit"])
    return None if solution is None or solution.x is None else (solution.x, solution.status == 0)
