"""Decide in exact arithmetic whether a matrix C is copositive: x^T C x >= 0 for all x >= 0.

**Smallest supports.** If C is not copositive, take an x >= 0 with x^T C x < 0 whose support S has the fewest entries.
Then every principal submatrix of C_S but C_S itself is positive semi-definite. For if v^T C v < 0 for a v with a
smaller support, move from x along v or -v, whichever does not raise the value: a face of the orthant is reached at a
negative value, that is, at a smaller support. So only such S have to be searched.

**The tree.** A node is a pair of disjoint sets (I, R) of rows with C_I positive definite. It stands for all S that
contain I and lie in I + R. The root is I = {}, R = all rows. For x with the part y on R let

    P = C_I^{-1} C_IR,    B = C_RR - C_RI P.

The best part of x on I is x_I = -P y, and the value of x is then y^T B y. If y belongs to a vector with a smallest
support, x_I is positive: otherwise the segment from that vector to (x_I, y), which lowers the value, would leave the
orthant at a smaller support. So the supports S of a node obey:

1. If B_rr < 0 for an r in S, then S = I + r. The vector x = (-P_r, 1) has a negative value: it is the answer if it is
   not negative. No other S contains r.
2. If B_rr = 0 for an r in S, then S = I + r + s with B_rs < 0. For in a larger S all B_rs would be 0, and S without r
   would do.
3. If B_rr > 0 and B_rs >= 0 for all s in R, no S contains r: lowering y_r to 0 does not raise the value.
4. If P_ir >= 0 for all r in R, then x_i <= 0, and the node is empty.
5. Replace the positive entries of B off its diagonal by zeros. If the result is positive semi-definite, y^T B y >= 0
   for all y >= 0, and the node is empty.
6. The same if B itself is positive semi-definite.

**Children.** Otherwise some vertices r_1, ..., r_k of R are chosen without which the node would be empty, by rule 5, or
by rule 6 if that takes at most half as many. S contains one of them; the children are (I + r_j, R - r_1 - ... - r_j),
for r_j the first that it contains. Nothing is lost.

**Nothing is rounded.** All entries are whole numbers: det(C_I) times P and B, which a pivot step without fractions
(Bareiss) turns into those of a child. Floating point chooses the r_j. It proves that a matrix is semi-definite only by
a Cholesky factor with a margin above its rounding.

Source: the systems that decide are those of Hadeler, On copositive matrices, Linear Algebra Appl. 49 (1983).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

import numpy as np
import torch
from jaxtyping import Int, Shaped
from numpy.typing import ArrayLike

from covopt.completely_positive import rational
from covopt.completely_positive.prepared import Matrix, check_matrix
from covopt.runtime.interrupts import gently
from covopt.runtime.loop import check_time_limit, past
from covopt.runtime.options import checked

Numbers = Shaped[np.ndarray, " k"]
Table = Shaped[np.ndarray, "k m"]


class Copositive(StrEnum):
    """The verdict on copositivity."""

    YES = "copositive"
    NO = "not copositive"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Copositivity:
    """The proved sign of x^T C x for x >= 0, if any.

    Attributes:
        verdict: proved in exact arithmetic, unless it is `undecided`.
        x: whole numbers, none of them negative, with x^T C x < 0; None unless the matrix is not copositive.
        nodes: the number of nodes of the tree over supports.
        C: the matrix (n, n), its rounding asymmetry averaged.
    """

    verdict: Copositive
    x: tuple[int, ...] | None
    nodes: int
    C: Matrix

    def check(self) -> bool:
        """Return True if x, or the tree, proves the verdict again from the matrix, exactly."""
        if self.verdict is Copositive.NO:
            x = self.x
            return x is not None and len(x) == len(self.C) and min(x) >= 0 and value(self.C, x) < 0
        if self.x is not None:
            return False
        return self.verdict is Copositive.UNDECIDED or decide(self.C).verdict is Copositive.YES


@checked
@gently()
def copositivity(C: ArrayLike | torch.Tensor, *, time_limit: float = 60.0) -> Copositivity:
    """Decide in exact arithmetic whether x^T C x >= 0 for all x >= 0.

    >>> answer = covopt.copositivity([[1.0, -2.0], [-2.0, 1.0]])
    >>> str(answer.verdict), answer.x, answer.check()
    ('not copositive', (2, 1), True)

    Args:
        C: a symmetric matrix (n, n). The problem is hard in n; orders up to 25 take seconds.
        time_limit: seconds after which the verdict is `undecided`; Ctrl-C ends it as well.

    Returns:
        The verdict for C to its last digit, and for a matrix that is not copositive an x >= 0 with x^T C x < 0.

    Raises:
        DataError: C is not a finite, symmetric, square matrix of real numbers, or is empty.
        ProblemError: the time limit is not positive.

    Source: Hadeler, On copositive matrices, Linear Algebra Appl. 49 (1983), for the systems that decide; the module
    covopt.completely_positive.supports proves what prunes them.
    """
    matrix = check_matrix(C)
    check_time_limit(time_limit)
    return decide(matrix, time.perf_counter() + time_limit)


@dataclass(frozen=True)
class Node:
    """A node (I, R) of the tree: all supports that contain I and lie in I + R; see the module's text."""

    inside: tuple[int, ...]  # the rows in I
    undecided: tuple[int, ...]  # the rows in R
    T: Table  # det(C_I) times P (in the first rows) and det(C_I) times B (below), whole numbers
    determinant: int  # det(C_I) > 0

    def violation(self) -> dict[int, int] | None:
        """Return an x >= 0 with x^T C x < 0 by rules 1 and 2, as its nonzero entries by row of C; None: no such x."""
        k = len(self.inside)
        P, B = self.T[:k], self.T[k:]
        for r in range(len(self.undecided)):
            if B[r, r] < 0 and (P[:, r] <= 0).all():
                return self._point([(r, 1)])
            if B[r, r] != 0:
                continue
            for s in np.flatnonzero(B[r] < 0).tolist():
                t = _between(P[:, r], P[:, s], Fraction(B[s, s], -2 * B[r, s]))
                if t is not None:
                    return self._point([(r, t.numerator), (s, t.denominator)])
        return None

    def zeros(self) -> Iterator[dict[int, int]]:
        """Yield the zeros of a copositive C whose support is I and one vertex of R, and holds no other zero's."""
        k = len(self.inside)
        for r in range(len(self.undecided)):
            if self.T[k + r, r] == 0 and (self.T[:k, r] < 0).all():
                yield self._point([(r, 1)])

    def _point(self, y: list[tuple[int, int]]) -> dict[int, int]:
        """Return det(C_I) times (-P y, y), for y given by places in R and entries."""
        best = {i: -sum(self.T[place, r] * weight for r, weight in y) for place, i in enumerate(self.inside)}
        return best | {self.undecided[r]: self.determinant * weight for r, weight in y}

    def reduced(self) -> Node | None:
        """Return the node without the vertices of R that rules 1, 2 and 3 exclude, where `violation` is None.

        Return None if R becomes empty, or if the node is empty by rule 4.
        """
        k = len(self.inside)
        alive = (np.diag(self.T[k:]) > 0).astype(bool)
        below = (self.T < 0).astype(bool)
        while alive.any():
            needless = alive & ~below[k:, alive].any(axis=1)  # the diagonal is positive
            if not needless.any():
                break
            alive &= ~needless
        if not alive.any() or not below[:k, alive].any(axis=1).all():
            return None
        places = np.flatnonzero(alive)
        rows, undecided = np.concatenate([np.arange(k), k + places]), tuple(self.undecided[r] for r in places)
        return Node(self.inside, undecided, self.T[np.ix_(rows, places)], self.determinant)

    def children(self, definite: bool = False) -> Iterator[Node]:
        """Yield the children; none if the node is empty by rule 5 or 6.

        Args:
            definite: rules 5 and 6 require positive definite matrices, not only semi-definite ones.
        """
        free = np.ones(len(self.undecided), dtype=bool)
        for r in _first(self.T[len(self.inside) :], definite):
            free[r] = False
            if free.any():
                yield self._pivoted(r, np.flatnonzero(free))

    def _pivoted(self, r: int, free: Int[np.ndarray, " m"]) -> Node:
        """Return the node (I + r, the vertices at `free`), by one pivot step."""
        k, m, old = len(self.inside), len(free), self.T
        pivot, row = old[k + r, r], old[k + r, free]
        T = np.empty((k + 1 + m, m), dtype=object)
        T[:k] = (old[:k, free] * pivot - old[:k, r, None] * row) // self.determinant
        T[k] = row
        i, j = np.triu_indices(m)  # B is symmetric
        T[k + 1 + i, j] = T[k + 1 + j, i] = (old[k + free[i], free[j]] * pivot - row[i] * row[j]) // self.determinant
        return Node((*self.inside, self.undecided[r]), tuple(self.undecided[s] for s in free.tolist()), T, pivot)


def _between(p: Numbers, q: Numbers, least: Fraction) -> Fraction | None:
    """Return some t > 0 above `least` with p_i t + q_i < 0 for every i; None if there is none."""
    low, high = max(Fraction(0), least), None
    for a, b in zip(p, q, strict=True):
        if a == 0 and b >= 0:
            return None
        if a > 0:
            high = Fraction(-b, a) if high is None else min(high, Fraction(-b, a))
        elif a < 0:
            low = max(low, Fraction(-b, a))
    if high is None:
        return low + 1
    return (low + high) / 2 if low < high else None


def _first(B: Table, definite: bool) -> list[int]:
    """Return places in R of vertices r_1, ..., r_k without which rule 5 or 6 proves that the node is empty."""
    M = np.where((B < 0).astype(bool) | np.eye(len(B), dtype=bool), B, 0)
    # The row with the smallest sum goes first.
    chosen = _removed(M, lambda weights: int(weights.sum(axis=1).argmin()), len(B), definite) or []
    if len(chosen) <= 1:
        return chosen
    # The largest entry of the eigenvector for the smallest eigenvalue goes first.
    fewer = _removed(
        B, lambda weights: int(np.abs(np.linalg.eigh(weights)[1][:, 0]).argmax()), len(chosen) // 2, definite
    )
    return chosen if fewer is None else fewer


def _removed(M: Table, choose: Callable[[Matrix], int], most: int, definite: bool) -> list[int] | None:
    """Return at most `most` rows of M without which M is proved to be positive (semi-)definite; or None.

    `choose` picks them one by one, from the remaining rows of M scaled to a unit diagonal.
    """
    rounded = rational.rounded(M)
    sizes = np.sqrt(np.diag(rounded))
    weights = rounded / np.outer(sizes, sizes)
    removed: list[int] = []
    live = np.arange(len(M))
    while not rational.is_semidefinite(M[np.ix_(live, live)], rounded[np.ix_(live, live)], definite):
        if len(removed) == most:
            return None
        place = choose(weights[np.ix_(live, live)])
        removed.append(int(live[place]))
        live = np.delete(live, place)
    return removed


def root_of_tree(C: Matrix) -> tuple[Node, list[int]]:
    """Return the root for C_ij / 2^(e_i + e_j), and the e_i, which bring the diagonal near 1."""
    exponents = rational.halves(C)
    return Node((), tuple(range(len(C))), rational.scaled_integers(C, exponents, exponents), 1), exponents


def scaled_back(x: dict[int, int], exponents: list[int]) -> tuple[int, ...]:
    """Return x_i / 2^exponent_i for all i, times a power of two that makes them whole."""
    least = max(exponents[i] for i in x)
    return tuple(x.get(i, 0) << max(0, least - exponent) for i, exponent in enumerate(exponents))


def decide(C: Matrix, deadline: float = math.inf, most: float = math.inf) -> Copositivity:
    """Decide if a symmetric matrix is copositive by searching the tree, within a deadline and `most` nodes."""
    root, exponents = root_of_tree(C)
    stack, nodes = [root], 0
    while stack:
        if nodes >= most or past(deadline):
            return Copositivity(Copositive.UNDECIDED, None, nodes, C)
        node, nodes = stack.pop(), nodes + 1
        violation = node.violation()
        if violation is not None:
            return Copositivity(Copositive.NO, scaled_back(violation, exponents), nodes, C)
        reduced = node.reduced()
        if reduced is not None:
            stack.extend(reversed(list(reduced.children())))
    return Copositivity(Copositive.YES, None, nodes, C)


def value(C: Matrix, x: tuple[int, ...]) -> Fraction:
    """Return x^T C x, exactly."""
    weights = [Fraction(number) for number in x]
    terms = (weights[i] * weights[j] * Fraction(float(entry)) for (i, j), entry in np.ndenumerate(C))
    return sum(terms, Fraction(0))
