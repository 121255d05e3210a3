"""Non-negative factors A = B^T B: a search, polishing, and a proof that an exact factor is near a computed one.

Atoms are the rows of B (r, n): A = sum_k b_k b_k^T. A search that fails proves nothing.

**Search.** All B with B^T B = A are Q R, where R^T R = A and Q has orthonormal columns; the nearest one to a given P is
Q = the polar factor of P R^T. Douglas and Rachford's iteration x <- x + proj(2 x_+ - x) - x_+ between this set and the
cone B >= 0 finds a common point of random instances in about ten steps, where alternating projections take fifty
(docs/notes/2026-11-completely-positive.md).

**Polishing.** Where the sets only touch, the iteration converges slowly. Newton steps of least norm on the positive
entries, B^T D + D^T B = A - B^T B, then reduce the residual to rounding.

**Proof.** See `proves`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import scipy.linalg
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array

from covopt.completely_positive import rational
from covopt.completely_positive.prepared import Matrix, lengths, root_of_unit, to_unit_diagonal
from covopt.linalg.rounding import EPS
from covopt.runtime.loop import past

Atoms = Float[np.ndarray, "r n"]
State = TypeVar("State")


@dataclass(frozen=True)
class SearchOptions:
    """Limits of the search for a common point of two sets; no proof depends on them."""

    iterations: int = 3000  # the maximum number of Douglas-Rachford iterations from one start
    patience: int = 400  # a start ends when the residual has not halved within this many iterations
    starts: int = 4  # random starts for each number of atoms
    noise: float = 1e-11  # eigenvalues up to this, relative to the largest, are left out before the search
    goal: float = 1e-14  # relative residual that ends a search
    polish_after: int = 25  # iterations before polishing, which takes longer than fast convergence
    # relative residual below which polishing is tried, and again after each further factor of 10
    polish_below: float = 1e-3
    polished: int = 1500  # the maximum number of unknowns of one polishing


SEARCH = SearchOptions()


def residual(A: Matrix, B: Atoms) -> float:
    """Return |A - B^T B| / |A| in Frobenius norm, scaled so that no square underflows."""
    if not A.any():
        return float(np.linalg.norm(B))
    root = root_of_unit(A)
    A, B = A / root / root, B / root
    return float(np.linalg.norm(A - B.T @ B) / np.linalg.norm(A))


def meet(
    start: Callable[[np.random.Generator], State],
    point: Callable[[State], np.ndarray],
    move: Callable[[State, np.ndarray], State],
    residual: Callable[[np.ndarray], float],
    polish: Callable[[np.ndarray, float], np.ndarray | None],
    seeds: tuple[int, ...],
    deadline: float,
    options: SearchOptions,
) -> np.ndarray | None:
    """Search for a common point of two sets by Douglas and Rachford's iteration; None if none is found.

    `start` makes a state of the iteration from random numbers, `point` projects it onto the second set, and `move`
    returns the next state from both. `residual`, relative, is 0 on the first set; near it `polish` ends the search.
    """
    for number in range(options.starts):
        state = start(np.random.default_rng((*seeds, number)))
        mark, marked, polish_at = np.inf, 0, options.polish_below
        for count in range(options.iterations):
            now = point(state)
            error = residual(now)
            if error <= options.goal:
                return now
            if error < 0.5 * mark:
                mark, marked = error, count
            if error < polish_at and count >= options.polish_after:
                polish_at = 0.1 * error
                polished = polish(now, error)
                if polished is not None:
                    return polished
            if count - marked > options.patience or (count % 16 == 0 and past(deadline)):
                break
            state = move(state, now)
        if past(deadline):
            break
    return None


def newton(
    point: np.ndarray,
    support: Bool[np.ndarray, "rows columns"],
    residual: Callable[[np.ndarray], float],
    linearised: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    goal: float,
    stalled: float,
) -> np.ndarray | None:
    """Take Newton steps of least norm that preserve every sign on a support; None if they miss the goal.

    `linearised` returns the derivative of the equations in the entries of the support, and their residuals. The steps
    end if a residual below `stalled` barely falls.
    """
    signs, point = np.where(support, np.sign(point), 0.0), np.where(support, point, 0.0)
    last, steps = np.inf, 12
    for _ in range(steps):
        now = residual(point)
        if now <= goal:
            return point
        if now > 0.9 * last and now < stalled:
            return None
        last, step = now, np.zeros_like(point)
        step[support] = np.linalg.lstsq(*linearised(point), rcond=1e-9)[0]
        point = np.where(np.sign(point + step) == signs, point + step, 0.0)
    return None


def significant_root(A: Matrix, noise: float) -> Float[np.ndarray, "rank n"]:
    """Return R with R^T R = A, without eigenvalues up to `noise` or rounding, relative to the largest."""
    values, vectors = np.linalg.eigh(A)
    significant = values > max(len(A) * EPS, noise) * max(values[-1], 0.0)
    return np.sqrt(values[significant])[:, None] * vectors[:, significant].T


def search(A: Matrix, r: int, seed: int, deadline: float, options: SearchOptions = SEARCH) -> Atoms | None:
    """Search for B >= 0 (r, n) of relative residual at most 10 times the goal; None if none is found.

    The residual is that of A without its noise. A is positive semi-definite up to rounding, and non-negative, with a
    positive diagonal.
    """
    unit, scale = to_unit_diagonal(A)
    root = significant_root(unit, options.noise)
    if len(root) > r:
        return None
    near = root.T @ root

    def nearest(P: Atoms) -> Atoms:  # Q R for the polar factor Q of P R^T
        U, _, Vt = np.linalg.svd(P @ root.T, full_matrices=False)
        return U @ (Vt @ root)

    B = meet(
        start=lambda rng: nearest(np.abs(rng.standard_normal((r, len(A))))),
        point=lambda x: np.maximum(x, 0.0),
        move=lambda x, B: x + (nearest(2.0 * B - x) - B),
        residual=lambda B: residual(near, B),
        polish=lambda B, error: polish(near, B, error, options),
        seeds=(seed, r),
        deadline=deadline,
        options=options,
    )
    return None if B is None else B * scale


def polish(A: Matrix, B: Atoms, error: float, options: SearchOptions) -> Atoms | None:
    """Take Newton steps on entries of B above sqrt(error) / 4; None if they miss the goal."""
    support = B / np.sqrt(np.diag(A)) > 0.25 * min(1.0, np.sqrt(error))
    if support.sum() > options.polished or not support.any(axis=0).all():
        return None
    rows, columns = np.triu_indices(len(A))

    def linearised(B: Atoms) -> tuple[np.ndarray, np.ndarray]:
        J = derivative(B, support, rows, columns)
        return J.T.toarray(), (A - B.T @ B)[rows, columns] * lengths(rows, columns)

    return newton(B, support, lambda B: residual(A, B), linearised, options.goal, 1e-8)


Places = Int[np.ndarray, " q"]


def derivative(B: Atoms, support: Bool[np.ndarray, "r n"], rows: Places, columns: Places) -> csr_array:
    """Return the transposed derivative of B -> (B^T B)_ij for rows i, columns j; its rows: the entries in `support`.

    Its columns are entries times their `lengths`. The adjoint takes a symmetric S to 2 B S, so that the row of entry
    (k, i) holds 2 B_kj / |(i, j)| for each j.
    """
    n = B.shape[1]
    place = np.full((n, n), -1)
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    atoms, entries = np.nonzero(support)
    coefficients = 2.0 * B[atoms] / lengths(entries[:, None], np.arange(n))
    equations = place[entries]
    used = (coefficients != 0.0) & (equations >= 0)
    unknowns = np.broadcast_to(np.arange(len(atoms))[:, None], used.shape)[used]
    return csr_array((coefficients[used], (unknowns, equations[used])), shape=(len(atoms), len(rows)))


def fewest(A: Matrix, counts: Iterable[int], seed: int, deadline: float, options: SearchOptions) -> Atoms | None:
    """Return a factor with the first of these numbers of atoms for which the search succeeds."""
    for r in counts:
        if past(deadline):
            break
        B = search(A, r, seed, deadline, options)
        if B is not None:
            return B
    return None


def split(B: Atoms, r: int) -> Float[np.ndarray, "more n"]:
    """Return r atoms of the same matrix, if there are fewer now: b becomes m times b / sqrt(m)."""
    if not len(B) or r <= len(B):
        return B
    parts = np.full(len(B), r // len(B)) + (np.arange(len(B)) < r % len(B))
    return np.repeat(B / np.sqrt(parts)[:, None], parts, axis=0)


def proves(A: Matrix, B: Atoms) -> bool:
    """Return True if a B' >= 0 with B'^T B' = A, exactly, is proved to exist near B.

    B' has B's shape. Let A = U^T M U with M = A[J, J] positive definite and U = M^{-1} A[J, :], the identity on J: J is
    everything where A is positive definite by a margin, and comes from exact elimination where A is exact data. With C
    = B[:, J] and eps = |M - C^T C|, let sigma be the smallest singular value of D -> C^T D + D^T C on the entries that
    may move. A right inverse T of it has norm 1 / sigma, and D -> T (M - C^T C - D^T D) maps the ball of radius rho = 2
    eps / sigma into itself and contracts it if 4 eps < sigma^2. Its fixed point D makes (C + D)^T (C + D) = M, and B' =
    (C + D) U has B'^T B' = A. B' >= 0 if the entries that move are at least rho |u_j|, u_j the columns of U.

    For J = everything, the zeros of B are held, provided that entries of A are exactly zero where no two positive
    entries of B meet, and all others move; sigma^2 is the smallest eigenvalue of the derivative's Gram matrix. Else all
    entries move, sigma^2 = 4 lambda_min(C^T C), and B must be positive.

    Rounding is added to eps and taken off sigma^2; floating point, not interval arithmetic.

    Source: the Newton-Kantorovich theorem for a quadratic map.
    """
    n = len(A)
    if not (B >= 0.0).all():
        return False
    values = np.linalg.eigvalsh(A)
    if values[0] > 16 * n * EPS * values[-1]:
        return _proves_regular(A, B)
    pivots = rational.elimination(A) if rational.is_exact_data(A) else None
    if not pivots:
        return False
    C, M = B[:, pivots], A[np.ix_(pivots, pivots)]
    gram = np.linalg.eigvalsh(C.T @ C)
    square = 4.0 * (gram[0] - 16 * n * EPS * gram[-1])
    off = _distance(M, C)
    if square <= 4.0 * off:
        return False
    U = np.linalg.solve(M, A[pivots])
    conditioned = EPS * 16 * n * float(np.linalg.cond(M)) * float(np.linalg.norm(U))
    room = 2.0 * off / np.sqrt(square) * (np.linalg.norm(U, axis=0) + conditioned)
    return bool((C @ U - np.linalg.norm(C) * conditioned > room).all())


def _proves_regular(A: Matrix, B: Atoms) -> bool:
    support = B > 0.0
    meeting = support.T.astype(np.int64) @ support > 0
    if A[~meeting].any():
        return False
    off, smallest = _distance(A, B), float(B[support].min())
    needed = 4.0 * max(1.01 * off, (off / smallest) ** 2)
    rows, columns = np.nonzero(np.triu(meeting))
    if support.sum() < len(rows):
        return False
    J = derivative(B, support, rows, columns)
    gram = (J.T @ J).toarray()
    # A Cholesky factor, faster than eigenvalues, proves the shifted matrix positive definite. Its backward error, and
    # that of the Gram matrix, are below (q + 1) eps times the trace (Higham, Theorem 10.3).
    shift = needed + 4 * (len(gram) + 1) * EPS * float(np.trace(gram))
    gram[np.diag_indices_from(gram)] -= shift
    try:
        scipy.linalg.cholesky(gram, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return False
    return True


def _distance(A: Matrix, B: Atoms) -> float:
    """Return a bound on |A - B^T B|, rounding included."""
    rounding = (len(B) + 4) * EPS * float(np.linalg.norm(B.T @ B))
    return float(np.linalg.norm(A - B.T @ B)) + rounding
