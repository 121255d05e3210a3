"""Decide one component of the support graph, and bound its cp-rank from both sides.

`completely_positive` splits matrices into components and combines the answers.
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

from covopt.completely_positive import copositive, factorization, triangle_free, zeros
from covopt.completely_positive.copositive import Witness
from covopt.completely_positive.ends import (
    COVERING,
    ByCover,
    ByEdges,
    ByEdgeWeights,
    ByFactor,
    ByMoments,
    ByRank,
    End,
    by_order,
    certain_rank,
    general_bound,
    is_exact,
    most_rank,
    rank,
)
from covopt.completely_positive.faces import factor_on_boundary
from covopt.completely_positive.graphs import clique_cover, is_triangle_free, support_graph
from covopt.completely_positive.moments import moment_bound
from covopt.completely_positive.prepared import Matrix


class Verdict(StrEnum):
    """The verdict on complete positivity."""

    POSITIVE = "completely positive"
    NOT = "not completely positive"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Search:
    """The options that the parts of a search share: those of `cp_rank`, and a deadline of time.perf_counter()."""

    tolerance: float
    seed: int
    deadline: float
    rank: int | None

    def share(self, part: float) -> float:
        """Return the time at which this part of the remaining time will have passed."""
        now = time.perf_counter()
        return now + part * max(0.0, self.deadline - now)


@dataclass(frozen=True)
class Part:
    """The answer for one component, whose rows of the whole matrix are `vertices`; `lower` and `upper` as in CPRank."""

    verdict: Verdict
    exact: bool
    lower: End
    upper: End | None = None
    B: Float[np.ndarray, "r n"] | None = None
    witness: Witness | None = None
    vertices: tuple[int, ...] = ()

    def check(self, A: Matrix, tolerance: float) -> bool:
        """Return True if both ends, and `exact`, can be proved again; the verdict is not checked."""
        if not self.lower.check(A, tolerance):
            return False
        if self.verdict is not Verdict.POSITIVE or self.upper is None:
            return self.verdict is Verdict.UNDECIDED and self.upper is None
        if self.exact and not is_exact(A, self.upper, self.B):
            return False
        return self.lower.value <= self.upper.value and self.upper.check(A, tolerance)


def decide(A: Matrix, search: Search) -> Part:
    """Decide a connected, non-negative, semi-definite A with a diagonal between 1/2 and 2."""
    graph = support_graph(A)
    if is_triangle_free(graph):
        return _without_triangles(A, graph.number_of_edges(), search)
    # Among equal lower ends, `max` takes the first, which is the simplest to check.
    ends = [End(rank(A, search.tolerance), "rank", ByRank()), *_by_cliques(graph, graph, search)]
    lower, bound = max(ends, key=lambda end: end.value), by_order(A)
    options = factorization.SearchOptions(noise=0.01 * search.tolerance)
    first, *further_counts = _counts(len(A), lower.value, search.rank)
    B = factorization.fewest(A, [first], search.seed, search.share(0.2), options)
    face = None if B is not None else factor_on_boundary(A, search.seed, search.share(0.3), 0.1 * search.tolerance)
    if face is not None:
        proved = zeros.prove(A, face.C, search.share(0.3))
        if proved is not None:
            B, proof = proved
            end = End(len(B), "zeros of a copositive matrix that exposes A: no other atoms are possible", proof)
            return Part(Verdict.POSITIVE, True, end, end, B)
        B = face.B
    if B is None:
        B = factorization.fewest(A, further_counts, search.seed, search.share(0.4), options)
    if B is None and bound is None:
        witness = copositive.find(A, search.tolerance, search.seed, search.share(0.5))
        if witness is not None:
            return Part(Verdict.NOT, True, lower, witness=witness)
    if bound is None and search.rank is None and (B is None or lower.value < len(B)):
        lower = max([lower, *by_moments(A, search)], key=lambda end: end.value)
    if B is None and bound is None:
        more = replace(options, iterations=20000, patience=3000)
        B = factorization.fewest(A, _counts(len(A), lower.value, None), search.seed + 1, search.deadline, more)
    if B is None:
        return Part(Verdict.UNDECIDED, False, lower) if bound is None else Part(Verdict.POSITIVE, True, lower, bound)
    if search.rank is None:
        fewer = factorization.fewest(A, range(lower.value, len(B)), search.seed, search.deadline, options)
        B = B if fewer is None else fewer
    if bound is not None and bound.value <= len(B):
        return Part(Verdict.POSITIVE, True, lower, bound, B)
    proved = factorization.proves(A, B)
    if not proved and not factorization.residual(A, B) <= search.tolerance:
        return Part(Verdict.UNDECIDED, False, lower)
    return Part(Verdict.POSITIVE, proved, lower, _upper(A, B, proved), B)


def _without_triangles(A: Matrix, edges: int, search: Search) -> Part:
    """Decide a matrix without triangles by Drew, Johnson and Loewy: `triangle_free`."""
    tree, tolerance = edges == len(A) - 1, search.tolerance
    least, vector = triangle_free.perron(A)
    ranked = rank(A, tolerance)
    if tree:
        lower = End(ranked, "rank, attained by every tree", ByRank())
    else:
        lower = End(edges, "edges of a triangle-free support graph", ByEdges())
    if least < -tolerance * float(np.linalg.norm(A)):
        witness = copositive.witness(A, copositive.signed(vector, A != 0.0), 0.0)
        if witness is not None:
            return Part(Verdict.NOT, True, lower, witness=witness)
    B = triangle_free.factor(A, ranked)
    if tree and factorization.residual(A, B) > tolerance:
        B = triangle_free.factor(A, len(A))
    if not factorization.residual(A, B) <= tolerance:
        return Part(Verdict.UNDECIDED, False, lower)
    upper = End(len(B), lower.reason, ByFactor(B))
    return Part(Verdict.POSITIVE, is_exact(A, upper, B), lower, upper, B)


def lower_of_given(A: Matrix, clean: Matrix, distance: float, search: Search) -> End:
    """Return a lower end for a matrix A whose small entries were left out of `clean`.

    It holds for every matrix between A and the clean one; `distance` bounds the distance of these matrices to the clean
    one (Frobenius norm). A small entry need not be covered, but it joins vertices, so that an atom can have a larger
    support than in the clean graph. A is non-negative, with a positive diagonal.
    """
    ends = [End(certain_rank(clean, distance), "rank, beyond the tolerance", ByRank())]
    ends += _by_cliques(support_graph(A), support_graph(clean), search)
    return max(ends, key=lambda end: end.value)


def _by_cliques(graph: nx.Graph, needed: nx.Graph, search: Search) -> list[End]:
    """Return lower ends by fooling sets, fractional and integral clique covers of `needed`."""
    ends: list[End] = []
    cover = clique_cover(graph, min(COVERING, max(1.0, search.share(0.2) - time.perf_counter())), needed)
    if cover is not None:
        fooling, fractional = cover.fooling, cover.fractional
        reason = "edges of which no two lie in a clique of the support graph"
        ends.append(End(fooling.bound, reason, ByEdgeWeights(fooling)))
        reason = "fractional edge-clique cover of the support graph"
        ends.append(End(fractional.bound, reason, ByEdgeWeights(fractional)))
        if cover.cover_number is not None:
            ends.append(End(cover.cover_number, "edge-clique cover number of the support graph", ByCover()))
    return ends


def by_moments(A: Matrix, search: Search) -> list[End]:
    """Return the end that a semidefinite programme proves, if it is solved in time."""
    bound = moment_bound(A, search.tolerance, search.share(0.7))
    if bound is None:
        return []
    return [End(bound.bound(A, search.tolerance), "moments (semidefinite programming)", ByMoments(bound))]


def _upper(A: Matrix, B: Float[np.ndarray, "r n"], proved: bool) -> End:
    """Return the upper end by the factor's atoms, or by a theorem if it is lower."""
    # Theorems need the rank of the matrix that is proved to be completely positive: A, or else B^T B.
    theorem = general_bound(len(A), most_rank(A)) if proved else general_bound(len(A), min(B.shape), B)
    ends = [End(len(B), "a factor with this number of atoms", ByFactor(B)), theorem]
    return min(ends, key=lambda end: end.value)


def _counts(n: int, lower: int, rank: int | None) -> Iterator[int]:
    """Yield the numbers of atoms to try for a first factor."""
    if rank is not None and rank >= lower:
        yield rank
    tried = {rank}
    for count in (lower, n, n + 1, math.ceil(1.5 * n), 3 * n):
        if count >= lower and count not in tried:
            tried.add(count)
            yield count
