"""Ends of an interval for the cp-rank, each with its proof.

A proof can be checked again from its own arrays and A. A is a component of the support graph as `completely_positive`
prepares it: non-negative, connected, its diagonal between 1/2 and 2. A lower end holds for the given A, to its last
digit; other matrices within the tolerance, such as B^T B for a factor B, may have a lower cp-rank. An upper end holds
for A itself if the answer is exact, else for B^T B.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import networkx as nx
import numpy as np
from jaxtyping import Float

from covopt.completely_positive import factorization, rational, triangle_free
from covopt.completely_positive.graphs import EdgeWeights, clique_cover, is_triangle_free, support_graph
from covopt.completely_positive.moments import MomentBound
from covopt.completely_positive.prepared import Matrix
from covopt.completely_positive.zeros import ByZeros
from covopt.linalg.rounding import EPS

COVERING = 10.0  # time limit in seconds for the smallest edge-clique cover


@runtime_checkable
class Proof(Protocol):
    """A proof that the cp-rank is at least, or at most, a number."""

    def check(self, A: Matrix, value: int, tolerance: float) -> bool:
        """Return True if this proves the number for A."""
        ...


@dataclass(frozen=True)
class End:
    """One end of an interval, the reason for it in words, and the proof."""

    value: int
    reason: str
    proof: Proof

    def check(self, A: Matrix, tolerance: float) -> bool:
        """Return True if the proof holds for A."""
        return self.proof.check(A, self.value, tolerance)


# ---- lower ends


@dataclass(frozen=True)
class ByRank:
    """The rank as a lower end: no factor has fewer atoms than A has rank."""

    def check(self, A: Matrix, value: int, tolerance: float) -> bool:
        return value <= rank(A, tolerance)


@dataclass(frozen=True)
class ByEdges:
    """The number of edges, which is the cp-rank if the graph is connected and triangle-free with a cycle."""

    def check(self, A: Matrix, value: int, tolerance: float) -> bool:
        graph = support_graph(A)
        edges = graph.number_of_edges()
        return is_triangle_free(graph) and nx.is_connected(graph) and value <= edges and edges >= len(A)


@dataclass(frozen=True)
class ByEdgeWeights:
    """Weights of edges, at most 1 on each maximal clique; their sum is a lower bound on the number of atoms."""

    weights: EdgeWeights

    def check(self, A: Matrix, value: int, tolerance: float) -> bool:
        return value <= self.weights.bound and self.weights.check(support_graph(A))


@dataclass(frozen=True)
class ByCover:
    """The edge-clique cover number, by an integer programme: supports of atoms are cliques that cover all edges."""

    def check(self, A: Matrix, value: int, tolerance: float) -> bool:
        cover = clique_cover(support_graph(A), COVERING)
        return cover is not None and cover.cover_number is not None and value <= cover.cover_number


@dataclass(frozen=True)
class ByMoments:
    """A bound from moments, an identity of polynomials; see `moments`."""

    bound: MomentBound

    def check(self, A: Matrix, value: int, tolerance: float) -> bool:
        return value <= self.bound.bound(A, tolerance)


# ---- upper ends


@dataclass(frozen=True)
class ByFactor:
    """The rows of a factor B >= 0: B^T B is A up to the tolerance, or an exact factor is near B."""

    B: Float[np.ndarray, "r n"]

    def check(self, A: Matrix, value: int, tolerance: float) -> bool:
        if len(self.B) > value or not bool((self.B >= 0.0).all()):
            return False
        return factorization.residual(A, self.B) <= tolerance or factorization.proves(A, self.B)


@dataclass(frozen=True)
class ByOrder:
    """Order at most 4: see `by_order`."""

    def check(self, A: Matrix, value: int, tolerance: float) -> bool:
        end = by_order(A)
        return end is not None and end.value <= value


@dataclass(frozen=True)
class ByTheorem:
    """A theorem on every completely positive matrix of A's order and at most this rank."""

    rank: int  # the rank of A; with a factor, of B^T B
    # the factor that makes B^T B the matrix of the theorem; None: it is A, completely positive by another proof
    B: Float[np.ndarray, "r n"] | None = None

    def check(self, A: Matrix, value: int, tolerance: float) -> bool:
        ranked = most_rank(A) if self.B is None else min(self.B.shape)
        near = self.B is None or ByFactor(self.B).check(A, len(self.B), tolerance)
        return near and self.rank >= ranked and general_bound(len(A), self.rank).value <= value


# ---- ranks and theorems


def rank(A: Matrix, tolerance: float) -> int:
    """Return the rank of exact data; else the number of eigenvalues above the tolerance."""
    exact = exact_rank(A)
    return certain_rank(A, tolerance * float(np.linalg.norm(A))) if exact is None else exact


def exact_rank(A: Matrix) -> int | None:
    """Return the rank of positive semi-definite exact data; None for others."""
    pivots = rational.elimination(A) if rational.is_exact_data(A) else None
    return None if pivots is None else len(pivots)


def most_rank(A: Matrix) -> int:
    """Return an upper bound on the rank of A itself: the order, if A is not exact data."""
    exact = exact_rank(A)
    return len(A) if exact is None else exact


def certain_rank(A: Matrix, distance: float) -> int:
    """Return a lower bound on the rank of every matrix within `distance` of A (Weyl), rounding included."""
    rounding = 16 * len(A) * EPS * float(np.linalg.norm(A))
    return int((np.linalg.eigvalsh(A) > distance + rounding).sum())


def by_order(A: Matrix) -> End | None:
    """Return the upper end for order <= 4 if A is proved semi-definite (Maxfield, Minc 1962)."""
    n = len(A)
    if n > 4:
        return None
    definite = rational.is_definite(A)
    if not (definite or (rational.is_exact_data(A) and rational.elimination(A) is not None)):
        return None
    ranked = n if definite else most_rank(A)
    if n <= 3 or ranked <= 2:
        return End(ranked, "rank, attained at order 3 and below or rank 2", ByOrder())
    return End(4, "order 4", ByOrder())


def general_bound(n: int, ranked: int, B: Float[np.ndarray, "r n"] | None = None) -> End:
    """Return the end for all completely positive matrices of this order and at most this rank."""
    proof = ByTheorem(ranked, B)
    value, reason = (n, "order at most 4") if n <= 4 else (n * (n + 1) // 2 - 4, "n (n + 1) / 2 - 4 at order n")
    ends = [End(value, reason, proof)]
    if n == 5:
        ends.append(End(6, "6 at order 5", proof))
    if ranked >= 2:
        ends.append(End(max(2, ranked * (ranked + 1) // 2 - 1), "r (r + 1) / 2 - 1 at rank r", proof))
    return min(ends, key=lambda end: end.value)


def is_exact(A: Matrix, upper: End, B: Float[np.ndarray, "r n"] | None) -> bool:
    """Return True if A itself is proved to have a factor within the upper end.

    The proof is a theorem (no triangles, or order at most 4) whose condition holds by a margin or in exact arithmetic,
    or an exact factor near B.
    """
    graph = support_graph(A)
    if is_triangle_free(graph):
        comparison = triangle_free.comparison_matrix(A)
        if rational.is_definite(comparison):  # and so is A, if the graph is a tree: signs turn one into the other
            return not nx.is_tree(graph) or upper.value >= len(A)
        return rational.is_exact_data(A) and rational.elimination(comparison) is not None
    if isinstance(upper.proof, ByOrder):
        return by_order(A) is not None
    if isinstance(upper.proof, ByZeros):
        return True  # the proof is of A itself, to its last digit
    return B is not None and factorization.proves(A, B)
