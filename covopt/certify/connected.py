"""One component of the support graph: whether it is completely positive, and both ends of its cp-rank.

See `completely_positive`, which takes matrices apart and puts the answers together.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

import networkx as nx
import numpy as np
from jaxtyping import Float

from covopt.certify import copositive, factorization, rational, triangle_free
from covopt.certify.copositive import Witness
from covopt.certify.factorization import EPS
from covopt.certify.graphs import clique_cover, is_triangle_free, support_graph

Matrix = Float[np.ndarray, "n n"]


class Verdict(StrEnum):
    """Whether a matrix is completely positive."""

    POSITIVE = "completely positive"
    NOT = "not completely positive"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class End:
    """One end of an interval and the reason for it."""

    value: int
    reason: str


@dataclass(frozen=True)
class Search:
    """What the parts of a search share.

    Attributes:
        tolerance, seed, rank: as in `completely_positive.cp_rank`.
        deadline: of time.perf_counter().
    """

    tolerance: float
    seed: int
    deadline: float
    rank: int | None

    def share(self, part: float) -> float:
        """The time at which so large a part of what is left now will have passed."""
        now = time.perf_counter()
        return now + part * max(0.0, self.deadline - now)


@dataclass(frozen=True)
class Part:
    """The answer for one component; `lower` and `upper` as in CPRank."""

    verdict: Verdict
    exact: bool
    lower: End
    upper: End | None = None
    B: Float[np.ndarray, "r n"] | None = None
    witness: Witness | None = None


def decide(A: Matrix, search: Search) -> Part:
    """The answer for A: non-negative and semi-definite up to rounding, connected, with a diagonal between 1/2 and 2."""
    graph = support_graph(A)
    if is_triangle_free(graph):
        return _without_triangles(A, graph.number_of_edges(), search)
    rank = _rank(A, search.tolerance)
    lower = _lower(A, graph, rank, search)
    known = _by_order(A, rank)
    options = factorization.SearchOptions(noise=0.01 * search.tolerance)
    B = factorization.fewest(A, _counts(len(A), lower.value, search.rank), search.seed, search.share(0.5), options)
    if B is None and known is None:
        witness = copositive.find(A, search.tolerance, search.seed, search.share(0.7))
        if witness is not None:
            return Part(Verdict.NOT, True, lower, witness=witness)
        more = replace(options, iterations=20000, patience=3000)
        B = factorization.fewest(A, _counts(len(A), lower.value, None), search.seed + 1, search.deadline, more)
    if B is None:
        return Part(Verdict.UNDECIDED, False, lower) if known is None else Part(Verdict.POSITIVE, True, lower, known)
    if search.rank is None:
        fewer = factorization.fewest(A, range(lower.value, len(B)), search.seed, search.deadline, options)
        B = B if fewer is None else fewer
    proved = factorization.proves(A, B)
    upper = End(len(B), "a factor with so many atoms")
    # A proved factor is one of A itself, whose rank may exceed what rounded data are sure to have.
    theorem = _general_bound(len(A), len(A) if proved and _is_definite(A) else rank)
    if known is not None and known.value <= upper.value:
        return Part(Verdict.POSITIVE, True, lower, known, B)
    if theorem.value < upper.value:
        upper = theorem
    return Part(Verdict.POSITIVE, proved or (known is not None and upper is theorem), lower, upper, B)


def _without_triangles(A: Matrix, edges: int, search: Search) -> Part:
    """Drew, Johnson and Loewy: `triangle_free`."""
    n = len(A)
    comparison = triangle_free.comparison_matrix(A)
    least, vector = triangle_free.perron(A)
    margin = 16 * n * EPS * float(np.linalg.norm(A))
    if least < -search.tolerance * float(np.linalg.norm(A)):
        witness = copositive.witness(A, copositive.by_comparison(A, vector), 0.0)
        if witness is not None:
            return Part(Verdict.NOT, True, End(edges, "edges of a triangle-free support graph"), witness=witness)
    exact = least > margin or (rational.is_exact_data(A) and rational.elimination(comparison) is not None)
    # For a tree, signs turn one matrix into the other: A is as definite as its comparison matrix.
    rank = n if least > margin else _rank(A, search.tolerance)
    tree = edges == n - 1
    reason = "rank, attained by every tree" if tree else "edges of a triangle-free support graph"
    end = End(rank if tree else edges, reason)
    return Part(Verdict.POSITIVE, exact, end, end, triangle_free.factor(A, rank))


def _rank(A: Matrix, tolerance: float) -> int:
    """The rank of exact data; of rounded data, the eigenvalues that no matrix within the tolerance can be without."""
    if rational.is_exact_data(A):
        pivots = rational.elimination(A)
        if pivots is not None:
            return len(pivots)
    size = float(np.linalg.norm(A))
    return int((np.linalg.eigvalsh(A) > (tolerance + 16 * len(A) * EPS) * size).sum())


def _lower(A: Matrix, graph: nx.Graph, rank: int, search: Search) -> End:
    """The best of the rank and the clique bounds; of equal ones, the one that is simplest to check."""
    ends = [End(rank, "rank")]
    cover = clique_cover(graph, min(10.0, max(1.0, search.share(0.2) - time.perf_counter())))
    if cover is not None:
        ends.append(End(cover.fooling.bound, "edges of which no two lie in a clique of the support graph"))
        ends.append(End(cover.fractional.bound, "fractional edge-clique cover of the support graph"))
        if cover.cover_number is not None:
            ends.append(End(cover.cover_number, "edge-clique cover number of the support graph"))
    return max(ends, key=lambda end: end.value)


def _by_order(A: Matrix, rank: int) -> End | None:
    """Order at most 4: non-negative and positive semi-definite is enough (Maxfield, Minc 1962), if that is proved."""
    n = len(A)
    definite = _is_definite(A)
    if n > 4 or not (definite or (rational.is_exact_data(A) and rational.elimination(A) is not None)):
        return None
    if n <= 3 or rank <= 2:
        return End(n if definite else rank, "rank, attained at order 3 and below or rank 2")
    return End(4, "order 4")


def _is_definite(A: Matrix) -> bool:
    """Whether A is positive definite, by a margin above rounding."""
    values = np.linalg.eigvalsh(A)
    return bool(values[0] > 16 * len(A) * EPS * values[-1])


def _general_bound(n: int, rank: int) -> End:
    """What holds for every completely positive matrix of this order and rank."""
    ends = [End(n, "order at most 4") if n <= 4 else End(n * (n + 1) // 2 - 4, "n (n + 1) / 2 - 4 at order n")]
    if n == 5:
        ends.append(End(6, "6 at order 5"))
    if rank >= 2:
        ends.append(End(max(2, rank * (rank + 1) // 2 - 1), "r (r + 1) / 2 - 1 at rank r"))
    return min(ends, key=lambda end: end.value)


def _counts(n: int, lower: int, rank: int | None) -> Iterator[int]:
    """Numbers of atoms to try for a first factor."""
    if rank is not None and rank >= lower:
        yield rank
    tried = {rank}
    for count in (lower, n, n + 1, math.ceil(1.5 * n), 3 * n):
        if count >= lower and count not in tried:
            tried.add(count)
            yield count
