"""Matrices whose support graph has no triangle: verdict, cp-rank and a factor with that many atoms.

Let A be symmetric and non-negative with a connected triangle-free graph, and M its comparison matrix (the diagonal of
A, minus A elsewhere). A is completely positive exactly when M is positive semi-definite, and its cp-rank is then the
number of edges, or, for a tree, the rank.

Atoms lie on single edges or vertices: A_ii = sum_j A_ij exp(w_ij) + rest_i with w antisymmetric, an atom
sqrt(A_ij) (exp(w_ij / 2) e_i + exp(-w_ij / 2) e_j) for each edge, and one sqrt(rest_i) e_i. The Perron vector d > 0 of
M's smallest eigenvalue gives w_ij = log(d_j / d_i) and rest_i = lambda_min(M). The rests are then moved towards the
root of a tree by raising w_ij from each vertex to its parent; where there is a cycle, it is the root, and the rests on
it vanish at one value of w on its first edge, found by bisection.

Source: Drew, Johnson, Loewy, Completely positive matrices associated with M-matrices, Linear Multilinear Algebra 37
(1994); Berman, Hershkowitz, Combinatorial results on completely positive matrices, Linear Algebra Appl. 95 (1987). The
construction by rests is ours.
"""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq

from covopt.completely_positive.graphs import support_graph
from covopt.completely_positive.prepared import Matrix
from covopt.linalg.rounding import EPS


def comparison_matrix(A: Matrix) -> Matrix:
    """Return the comparison matrix: the diagonal of A, and -|A_ij| elsewhere."""
    return 2.0 * np.diag(np.diag(A)) - np.abs(A)


def perron(A: Matrix) -> tuple[float, Float[np.ndarray, " n"]]:
    """Return the smallest eigenvalue of the comparison matrix and its positive eigenvector."""
    values, vectors = np.linalg.eigh(comparison_matrix(A))
    return float(values[0]), np.maximum(np.abs(vectors[:, 0]), np.finfo(np.float64).tiny)


def factor(A: Matrix, rank: int) -> Float[np.ndarray, "r n"]:
    """Return B >= 0 with A = B^T B; r is the number of edges, or, for a tree, the rank.

    A has a connected triangle-free graph and a positive semi-definite comparison matrix, up to rounding. The rank of a
    tree is n or n - 1; in the second case only rounding remains at the root.
    """
    graph = support_graph(A)
    _, d = perron(A)
    w = np.log(d)[None, :] - np.log(d)[:, None]
    cycle = next(iter(nx.cycle_basis(graph)), None)
    root = int(d.argmax())  # rounding shrinks towards this root: 3e-16 of A, against 9e-11 with root 0
    for vertex, parent in _leaves_first(graph, [root] if cycle is None else cycle):
        _settle(A, w, vertex, parent)
    if cycle is not None:
        _turn(A, w, cycle)
    atoms = []
    for i, j in graph.edges:
        atom = np.zeros(len(A))
        atom[i], atom[j] = np.sqrt(A[i, j]) * np.exp(np.array([w[i, j], w[j, i]]) / 2.0)
        atoms.append(atom)
    if cycle is None and rank == len(A):
        atoms.append(np.sqrt(max(0.0, _rest(A, w, root))) * np.eye(len(A))[root])
    return np.array(atoms).reshape(len(atoms), len(A))


def _leaves_first(graph: nx.Graph, roots: list[int]) -> list[tuple[int, int]]:
    """Return (vertex, parent) of a breadth-first tree from the roots, children before parents."""
    rooted = graph.copy()
    rooted.add_edges_from((-1, root) for root in roots)
    return [(child, parent) for parent, child in nx.bfs_edges(rooted, -1) if parent != -1][::-1]


def _rest(A: Matrix, w: Matrix, i: int) -> float:
    """Return rest_i, the part of A_ii that the edges do not use."""
    near = np.flatnonzero(A[i])
    near = near[near != i]
    return float(A[i, i] - A[i, near] @ np.exp(w[i, near]))


def _settle(A: Matrix, w: Matrix, i: int, j: int) -> None:
    """Set w_ij such that rest_i is 0."""
    share = A[i, j] * np.exp(w[i, j]) + _rest(A, w, i)
    w[i, j] = np.log(max(share, np.finfo(np.float64).tiny) / A[i, j])
    w[j, i] = -w[i, j]


def _turn(A: Matrix, w: Matrix, cycle: list[int]) -> None:
    """Choose w on the cycle's first edge such that all rests on the cycle are 0."""
    steps = list(itertools.pairwise([*cycle, cycle[0]]))

    def excess(value: float) -> float:
        w[cycle[0], cycle[1]], w[cycle[1], cycle[0]] = value, -value
        for i, j in steps[1:]:
            _settle(A, w, i, j)
        return _rest(A, w, cycle[0])

    low = float(w[cycle[0], cycle[1]])
    if excess(low) <= 4 * len(A) * EPS * A[cycle[0], cycle[0]]:
        return  # the comparison matrix is singular: all rests are rounding
    step = 1.0
    while excess(low + step) > 0.0:
        step *= 2.0
    excess(brentq(excess, low, low + step, xtol=1e-15, rtol=4 * EPS))  # type: ignore[arg-type]
