"""Strict copositivity by going through every principal submatrix in fractions: slow, and without any pruning."""

import itertools
from fractions import Fraction

import numpy as np


def strictly_copositive(C: np.ndarray) -> bool:
    """Whether x^T C x > 0 for every x >= 0, x != 0.

    Submatrices C_S are taken by size. Let all smaller ones be strictly copositive and C_S not: then the minimum mu <= 0
    of x^T C_S x over the simplex is taken at some x > 0 with C_S x = mu 1. (a) C_S regular: x = mu C_S^{-1} 1, and
    mu < 0, so that C_S^{-1} 1 < 0. (b) C_S v = 0, v != 0: if mu < 0, then 1^T v = x^T C_S v / mu = 0, and x + t v
    reaches a face of the simplex with the same value mu, which is impossible; so mu = 0, x itself is a null vector,
    and the only one, or a combination would reach a face. So one linear system for each S decides.

    Source: as Hadeler, On copositive matrices, Linear Algebra Appl. 49 (1983).
    """
    entries = [[Fraction(float(c)) for c in row] for row in C]
    return not any(
        _violates([[entries[i][j] for j in S] for i in S])
        for size in range(1, len(C) + 1)
        for S in itertools.combinations(range(len(C)), size)
    )


def _violates(M: list[list[Fraction]]) -> bool:
    """Whether M y = 1 has a solution y < 0 (M regular), or M's null space is spanned by a vector x > 0."""
    n = len(M)
    rows, pivots = [[*row, Fraction(1)] for row in M], []
    for column in range(n):
        place = next((i for i in range(len(pivots), n) if rows[i][column] != 0), None)
        if place is None:
            continue
        k = len(pivots)
        rows[k], rows[place] = rows[place], rows[k]
        rows[k] = [a / rows[k][column] for a in rows[k]]
        for i in range(n):
            factor = rows[i][column]
            if i != k and factor != 0:
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
        pivots.append(column)
    if len(pivots) == n:
        return all(row[n] < 0 for row in rows)
    free = [j for j in range(n) if j not in pivots]
    return len(free) == 1 and all(rows[k][free[0]] < 0 for k in range(n - 1))  # x_pivot = -entry, x_free = 1
