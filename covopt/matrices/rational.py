"""Exact arithmetic for small symmetric matrices: every float64 is a fraction, so nothing is rounded here.

* `elimination`: whether A is positive semi-definite, its rank, and rows that span the others.
* `strictly_copositive`: whether x^T C x > 0 for all x >= 0 but 0, by going through the principal submatrices.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
from jaxtyping import Float

BITS = 26
"""Entries with at most so many significant bits count as exact data, others as rounded results of a computation."""
ENUMERATED = 10
"""Largest order at which every principal submatrix is looked at."""


def is_exact_data(A: Float[np.ndarray, "n m"]) -> bool:
    """Whether all entries are whole multiples below 2^BITS of one power of two: integers, halves, and the like."""
    largest = np.abs(A).max(initial=0.0)
    if largest == 0.0:
        return True
    scaled = np.ldexp(A, BITS - int(np.frexp(largest)[1]))
    return bool((scaled == np.round(scaled)).all())


def integers(A: Float[np.ndarray, "n m"]) -> list[list[int]]:
    """A times the least power of two that makes it whole."""
    ratios = [[float(a).as_integer_ratio() for a in row] for row in A]
    common = max((q for row in ratios for _, q in row), default=1)
    return [[p * (common // q) for p, q in row] for row in ratios]


def elimination(A: Float[np.ndarray, "n n"]) -> list[int] | None:
    """Rows J with A = A[:, J] A[J, J]^{-1} A[J, :] and A[J, J] positive definite; None: A is not semi-definite.

    Their number is the rank. Fraction-free (Bareiss) elimination with the largest diagonal entry as the pivot: each
    entry on the way is a minor of A, so that all divisions come out even.
    """
    M, left, pivots, previous = integers(A), list(range(len(A))), [], 1
    while left:
        if min(M[i][i] for i in left) < 0:
            return None
        k = max(left, key=lambda i: M[i][i])
        if M[k][k] == 0:
            return pivots if all(M[i][j] == 0 for i in left for j in left) else None
        left.remove(k)
        pivots.append(k)
        for i, j in itertools.combinations_with_replacement(left, 2):
            M[i][j] = M[j][i] = (M[i][j] * M[k][k] - M[i][k] * M[k][j]) // previous
        previous = M[k][k]
    return pivots


def strictly_copositive(C: Float[np.ndarray, "n n"]) -> bool:
    """Whether x^T C x > 0 for every x >= 0, x != 0; exact, and exponential in n.

    Submatrices C_S are taken by size. Let all smaller ones be strictly copositive and C_S not: then the minimum mu <= 0
    of x^T C_S x over the simplex is taken at some x > 0 with C_S x = mu 1. (a) C_S regular: x = mu C_S^{-1} 1, and
    mu < 0, so that C_S^{-1} 1 < 0. (b) C_S v = 0, v != 0: if mu < 0, then 1^T v = x^T C_S v / mu = 0, and x + t v
    reaches a face of the simplex with the same value mu, which is impossible; so mu = 0, x itself is a null vector,
    and the only one, or a combination would reach a face. So one linear system for each S decides.

    Source: as Hadeler, On copositive matrices, Linear Algebra Appl. 49 (1983).
    """
    whole = integers(C)
    n = len(whole)
    for size in range(1, n + 1):
        for S in itertools.combinations(range(n), size):
            if _violates([[Fraction(whole[i][j]) for j in S] for i in S]):
                return False
    return True


def _violates(M: list[list[Fraction]]) -> bool:
    """Whether M y = 1 has a solution y < 0 (M regular), or M's null space is spanned by a vector x > 0."""
    n = len(M)
    rows = [[*row, Fraction(1)] for row in M]
    for k in range(n):
        pivot = next((i for i in range(k, n) if rows[i][k] != 0), None)
        if pivot is None:
            return _null_vector_is_positive(M)
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [a / rows[k][k] for a in rows[k]]
        for i in range(n):
            if i != k and rows[i][k] != 0:
                factor = rows[i][k]
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    return all(row[n] < 0 for row in rows)


def _null_vector_is_positive(M: list[list[Fraction]]) -> bool:
    n, rows, pivots = len(M), [list(row) for row in M], []
    for column in range(n):
        row = next((i for i in range(len(pivots), n) if rows[i][column] != 0), None)
        if row is None:
            continue
        k = len(pivots)
        rows[k], rows[row] = rows[row], rows[k]
        rows[k] = [a / rows[k][column] for a in rows[k]]
        for i in range(n):
            if i != k and rows[i][column] != 0:
                factor = rows[i][column]
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
        pivots.append(column)
    free = [j for j in range(n) if j not in pivots]
    if len(free) != 1:
        return False
    return all(rows[k][free[0]] < 0 for k in range(len(pivots)))  # x_pivot = -entry, x_free = 1
