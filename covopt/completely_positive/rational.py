"""Exact arithmetic for small symmetric matrices: every float64 is a fraction.

* `elimination`: decides if A is positive semi-definite; finds its rank, and rows that span the others.
* `is_definite`, `is_semidefinite`: by a Cholesky factor in floating point with a margin above its rounding, else by
  elimination.
"""

from __future__ import annotations

import itertools

import numpy as np
from jaxtyping import Float, Shaped

from covopt.linalg.rounding import EPS

Whole = Shaped[np.ndarray, "n m"]  # whole numbers of any size, as objects


def is_exact_data(A: Float[np.ndarray, "n m"]) -> bool:
    """Return True if all entries are whole multiples below 2^26 of one power of two.

    Entries with more significant bits count as rounded results of a computation.
    """
    largest = np.abs(A).max(initial=0.0)
    if largest == 0.0:
        return True
    scaled = np.ldexp(A, 26 - int(np.frexp(largest)[1]))
    return bool((scaled == np.round(scaled)).all())


def integers(A: Float[np.ndarray, "n m"]) -> Whole:
    """Return A times the smallest power of two, 1 or more, that makes it whole."""
    return scaled_integers(A, [0] * A.shape[0], [0] * A.shape[1])


def scaled_integers(A: Float[np.ndarray, "n m"], rows: list[int], columns: list[int]) -> Whole:
    """Return A_ij / 2^(rows_i + columns_j), times a power of two that makes all entries whole."""
    T = np.zeros(A.shape, dtype=object)
    shifts = np.zeros(A.shape, dtype=np.int64)
    for i, j in np.ndindex(*A.shape):
        T[i, j], denominator = float(A[i, j]).as_integer_ratio()
        shifts[i, j] = 1 - denominator.bit_length() - rows[i] - columns[j]
    some = A != 0.0
    return T << np.where(some, shifts - shifts[some].min(), 0).astype(object) if some.any() else T


def halves(A: Float[np.ndarray, "n n"]) -> list[int]:
    """Return half the binary logarithms of the diagonal, rounded, where it is positive."""
    diagonal = np.diag(A)
    return np.round(np.log2(np.where(diagonal > 0.0, diagonal, 1.0)) / 2.0).astype(int).tolist()


def elimination(A: Float[np.ndarray, "n n"]) -> list[int] | None:
    """Return rows J with A = A[:, J] A[J, J]^{-1} A[J, :] and A[J, J] positive definite; their number is the rank.

    None: A is not positive semi-definite.
    """
    return eliminate(integers(A).tolist())


def eliminate(M: list[list[int]]) -> list[int] | None:
    """Return the result of `elimination` for a matrix of whole numbers, which is overwritten.

    Fraction-free (Bareiss) elimination with the largest diagonal entry as the pivot: each intermediate entry is a
    minor, so all divisions are exact.
    """
    rows, pivots, previous = list(range(len(M))), [], 1
    while rows:
        if min(M[i][i] for i in rows) < 0:
            return None
        k = max(rows, key=lambda i: M[i][i])
        if M[k][k] == 0:
            return pivots if all(M[i][j] == 0 for i in rows for j in rows) else None
        rows.remove(k)
        pivots.append(k)
        for i, j in itertools.combinations_with_replacement(rows, 2):
            M[i][j] = M[j][i] = (M[i][j] * M[k][k] - M[i][k] * M[k][j]) // previous
        previous = M[k][k]
    return pivots


def is_definite(A: Float[np.ndarray, "n n"]) -> bool:
    """Return True if a symmetric matrix is proved positive definite (by Cholesky if large)."""
    if not (np.diag(A) > 0.0).all():
        return False
    M = scaled_integers(A, halves(A), halves(A))
    near = rounded(M)
    eliminated = 60  # the largest order for exact elimination, which takes a fifth of a second there
    return has_factor(near) if len(A) > eliminated else len(_pivots(M, near) or ()) == len(A)


def is_semidefinite(M: Whole, near: Float[np.ndarray, "n n"], definite: bool = False) -> bool:
    """Return True if a symmetric M of whole numbers with a positive diagonal is proved (semi-)definite.

    `near` is rounded(M); if its least eigenvalue is clearly negative, no exact arithmetic is tried.
    """
    pivots = _pivots(M, near)
    return pivots is not None and (len(pivots) == len(M) or not definite)


def _pivots(M: Whole, near: Float[np.ndarray, "n n"]) -> list[int] | None:
    if not np.linalg.eigvalsh(near)[0] > -_margin(near):
        return None
    return list(range(len(M))) if has_factor(near) else eliminate(M.tolist())


def rounded(M: Whole) -> Float[np.ndarray, "n n"]:
    """Return S M S in floating point, S the powers of two that bring the diagonal into [1, 4).

    The diagonal of M is positive. The error of an entry is at most 2^-52 max(1, |entry|); larger entries than 2^100 are
    set to 2^100.
    """
    halved = np.array([(int(entry).bit_length() - 1) // 2 for entry in np.diag(M)], dtype=object)
    scaled = (M << 64) >> np.add.outer(halved, halved)
    return np.clip(scaled, -(2**164), 2**164).astype(np.float64) * 2.0**-64


def has_factor(near: Float[np.ndarray, "n n"]) -> bool:
    """Return True if a Cholesky factor proves every M with rounded(M) = near definite.

    If the algorithm ends, its factor is that of a matrix within (n + 1) eps / 2 times the trace, which is below 4 n
    (Higham, Accuracy and Stability of Numerical Algorithms, Theorem 10.3), and the rounding of entries below 4 changes
    no eigenvalue by more than 4 n eps. The margin that is subtracted from the diagonal is larger than both.
    """
    try:
        np.linalg.cholesky(near - _margin(near) * np.eye(len(near)))
    except np.linalg.LinAlgError:
        return False
    return True


def _margin(near: Float[np.ndarray, "n n"]) -> float:
    n = len(near)
    return 8.0 * n * (n + 1) * EPS
