"""Ends of an interval for the cp-rank, each with what proves it: every proof can be checked again, from it and A alone.

A is a component of the support graph as `completely_positive` prepares it: non-negative, connected, its diagonal
between 1/2 and 2. A lower end holds for A as it is given, to its last digit; other matrices within the tolerance, such
as B^T B of a factor B, may have a lower cp-rank. An upper end holds for A itself where the answer is exact, else for
B^T B.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import networkx as nx
import numpy as np
from jaxtyping import Float

from covopt.completely_positive import factorization, rational, triangle_free
from covopt.completely_positive.factorization import EPS
from covopt.completely_positive.graphs import EdgeWeights, clique_cover, is_triangle_free, support_graph
from covopt.completely_positive.moments import MomentBound
from covopt.completely_positive.zeros import ByZeros

Matrix = Float[np.ndarray, "n n"]

COVERING = 10.0
"""Seconds after which the search for the smallest edge-clique cover gives up."""


@runtime_checkable
class Proof(Protocol):
    """Why the cp-rank is at least, or at most, a number."""

    def check(self, A: Matrix, value: int, tolerance: float) -> bool:
        """Whether it proves this number for A."""
        ...


@dataclass(frozen=True)
class End:
    """One end of an interval, the reason for it in words, and the proof."""

    value: int
    reason: str
    proof: Proof

    def check(self, A: Matrix, tolerance: float) -> bool:
        """Whether the proof holds for A."""
        return self.proof.check(A, self.value, tolerance)


# ---- lower ends


@dataclass(frozen=True)
class ByRank:
    """No factor has fewer atoms than A has rank."""

    def check(self, A: Matrix, value: int, tolerance: float) -> bool:
        """By computing the rank again."""
        return value <= rank(A, tolerance)


@dataclass(frozen=True)
class ByEdges:
    """A connected graph without triangles that has a cycle: the cp-rank is the number of edges."""

    def check(self, A: Matrix, value: int, tolerance: float) -> bool:
        """By looking at the graph."""
        graph = support_graph(A)
        edges = graph.number_of_edges()
        return is_triangle_free(graph) and nx.is_connected(graph) and value <= edges and edges >= len(A)


@dataclass(frozen=True)
class ByEdgeWeights:
    """No clique carries more than 1, so that the atoms are at least as many as the weights' sum."""

    weights: EdgeWeights

    def check(self, A: Matrix, value: int, tolerance: float) -> bool:
        """By going through the maximal cliques."""
        return value <= self.weights.bound and self.weights.check(support_graph(A))


@dataclass(frozen=True)
class ByCover:
    """The atoms' supports are cliques and cover all edges."""

    def check(self, A: Matrix, value: int, tolerance: float) -> bool:
        """By solving the integer programme again."""
        cover = clique_cover(support_graph(A), COVERING)
        return cover is not None and cover.cover_number is not None and value <= cover.cover_number


@dataclass(frozen=True)
class ByMoments:
    """See `moments`."""

    bound: MomentBound

    def check(self, A: Matrix, value: int, tolerance: float) -> bool:
        """By multiplying the identity of polynomials out again."""
        return value <= self.bound.bound(A, tolerance)


# ---- upper ends


@dataclass(frozen=True)
class ByFactor:
    """A = B^T B, B >= 0 with so many rows, up to the tolerance, or for a matrix that is proved to lie near B."""

    B: Float[np.ndarray, "r n"]

    def check(self, A: Matrix, value: int, tolerance: float) -> bool:
        """By multiplying the factor out, or by proving that an exact one is near."""
        if len(self.B) > value or not bool((self.B >= 0.0).all()):
            return False
        return factorization.residual(A, self.B) <= tolerance or factorization.proves(A, self.B)


@dataclass(frozen=True)
class ByOrder:
    """Order at most 4: see `by_order`."""

    def check(self, A: Matrix, value: int, tolerance: float) -> bool:
        """By the theorem."""
        known = by_order(A)
        return known is not None and known.value <= value


@dataclass(frozen=True)
class ByTheorem:
    """What holds for every completely positive matrix of A's order and at most this rank.

    Attributes:
        rank: of A; with a factor, of B^T B.
        B: the factor that makes B^T B the matrix in question; None: it is A, completely positive by another proof.
    """

    rank: int
    B: Float[np.ndarray, "r n"] | None = None

    def check(self, A: Matrix, value: int, tolerance: float) -> bool:
        """By the rank and the theorem."""
        ranked = most_rank(A) if self.B is None else min(self.B.shape)
        near = self.B is None or ByFactor(self.B).check(A, len(self.B), tolerance)
        return near and self.rank >= ranked and general_bound(len(A), self.rank).value <= value


# ---- what they rest on


def rank(A: Matrix, tolerance: float) -> int:
    """Return the rank of exact data; of rounded data, the eigenvalues of A that are above the tolerance."""
    exact = exact_rank(A)
    return certain_rank(A, tolerance * float(np.linalg.norm(A))) if exact is None else exact


def exact_rank(A: Matrix) -> int | None:
    """The rank of positive semi-definite exact data; None for others."""
    pivots = rational.elimination(A) if rational.is_exact_data(A) else None
    return None if pivots is None else len(pivots)


def most_rank(A: Matrix) -> int:
    """A rank that A itself does not exceed: of data that are not exact, the order is all that is known."""
    exact = exact_rank(A)
    return len(A) if exact is None else exact


def certain_rank(A: Matrix, distance: float) -> int:
    """The eigenvalues that no matrix so close to A can be without (Weyl), rounding included."""
    rounding = 16 * len(A) * EPS * float(np.linalg.norm(A))
    return int((np.linalg.eigvalsh(A) > distance + rounding).sum())


def comparison_is_definite(A: Matrix) -> bool:
    """Whether the comparison matrix is proved to be positive definite."""
    return rational.is_definite(triangle_free.comparison_matrix(A))


def by_order(A: Matrix) -> End | None:
    """Order at most 4: non-negative and positive semi-definite is enough (Maxfield, Minc 1962), if that is proved."""
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
    """What holds for every completely positive matrix of this order and at most this rank; B as for `ByTheorem`."""
    proof = ByTheorem(ranked, B)
    ends = [
        End(n, "order at most 4", proof) if n <= 4 else End(n * (n + 1) // 2 - 4, "n (n + 1) / 2 - 4 at order n", proof)
    ]
    if n == 5:
        ends.append(End(6, "6 at order 5", proof))
    if ranked >= 2:
        ends.append(End(max(2, ranked * (ranked + 1) // 2 - 1), "r (r + 1) / 2 - 1 at rank r", proof))
    return min(ends, key=lambda end: end.value)


def is_exact(A: Matrix, upper: End, B: Float[np.ndarray, "r n"] | None) -> bool:
    """Whether A itself is proved to have a factor with no more atoms than the upper end.

    By a theorem whose condition holds by a margin or in exact arithmetic (no triangles; order at most 4), or because
    an exact factor is proved to lie beside B.
    """
    graph = support_graph(A)
    if is_triangle_free(graph):
        if comparison_is_definite(A):  # and so is A, if the graph is a tree: signs turn one into the other
            return not nx.is_tree(graph) or upper.value >= len(A)
        return rational.is_exact_data(A) and rational.elimination(triangle_free.comparison_matrix(A)) is not None
    if isinstance(upper.proof, ByOrder):
        return by_order(A) is not None
    if isinstance(upper.proof, ByZeros):
        return True  # the proof is of A itself, to its last digit
    return B is not None and factorization.proves(A, B)
