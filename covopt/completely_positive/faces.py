"""Find factors A = B^T B, B >= 0, of matrices on the boundary of the completely positive cone.

A matrix C is copositive if x^T C x >= 0 for all x >= 0, and such an x is a zero of C if x^T C x = 0. A copositive C
exposes A if <A, C> = 0. Then in A = sum_k b_k b_k^T every term of <A, C> = sum_k b_k^T C b_k is 0: each atom b_k is a
zero of C. Often C has finitely many zeros up to length, so that few atoms are possible. Matrices of high cp-rank are of
this kind, and a search from random starts (`factorization`) rarely finds their factors. So C is computed first, then
its zeros, then the factor.

**C** is the solution of a linear programme, min <A, C> over copositive C with <C, core> = 1, for a matrix `core` inside
the cone. The minimum is 0 where A is on the boundary. The programme begins with a few conditions x^T C x >= 0, and each
round adds those at local minima of x^T C x over the simplex (cutting planes), about as many as there are zeros.

**The first factor** has the atoms sqrt(w_k) z_k, z_k the zeros of C, with the weights w >= 0 that fit A best.

**B and C together** are then made exact by Newton steps. The equations B^T B = A alone would be singular there, for
their residual along C is of second order in B. But the system

    B^T B = A,   (C b_k)_i = 0 for i in the support of b_k

is regular. To see this, let (D, E) be in the kernel of its derivative: B^T D + D^T B = 0, and C d_k + E b_k = 0 on the
support of b_k. Then sum_k d_k^T C d_k = -<E, sum_k b_k d_k^T> = 0. On the support of a zero C is positive
semi-definite, so that C d_k = 0 there. If the ray of b_k is isolated, this leaves d_k = t_k b_k. Then
sum_k t_k b_k b_k^T = 0, and D = 0 if the b_k b_k^T are linearly independent. Three or four steps of least norm end at
rounding.

Nothing is proved here: the residual judges the factor, and `zeros` judges C.

Source of the atoms being zeros: Bomze, Schachinger, Ullrich, From seven to eleven, Linear Algebra Appl. 459 (2014),
who make matrices of high cp-rank from the zeros of copositive ones. The regular system is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import nnls

from covopt.completely_positive.copositive import Points, descended, least_product
from covopt.completely_positive.factorization import SEARCH, Atoms, derivative, residual
from covopt.completely_positive.prepared import Matrix, lengths, to_unit_diagonal
from covopt.runtime.loop import past

ENDED = 1e-6  # C counts as copositive if x^T C x >= -ENDED |C| on the simplex, and x as a zero of C below 10 ENDED |C|


@dataclass(frozen=True)
class OnBoundary:
    """A factor B >= 0 of A, and a C that exposes A: (C b_k)_i = 0 on the support of each atom b_k, up to rounding."""

    B: Atoms
    C: Matrix


def factor_on_boundary(A: Matrix, seed: int, deadline: float, enough: float = SEARCH.goal) -> OnBoundary | None:
    """Return a factor whose atoms are the zeros of a matrix that exposes A, and that matrix.

    None if no exposing matrix is found, or none whose zeros are the atoms of a factor with a relative residual of at
    most `enough`. A is positive semi-definite and non-negative up to rounding, with a positive diagonal.
    """
    if len(A) > 25:  # the search for zeros takes too long
        return None
    unit, scale = to_unit_diagonal(A)
    exposed = expose(unit, np.random.default_rng(seed), deadline)
    if exposed is None:
        return None
    C, zeros = exposed
    rough = _of_zeros(unit, zeros)
    if rough is None:
        return None
    both = _together(unit, rough, C, enough)
    return None if both is None else OnBoundary(both.B * scale, both.C / np.outer(scale, scale))


def expose(A: Matrix, rng: np.random.Generator, deadline: float) -> tuple[Matrix, Points] | None:
    """Return a matrix that exposes A (diagonal 1) and its zeros, one for each support; None: none found in time."""
    rows, columns = np.nonzero(np.triu(A > 0.0))
    joined = (A > 0.0).astype(np.float64)
    core = joined + np.diag(joined.sum(axis=1))  # inside the cone of those with A's zeros: edges and vertices
    core /= core.sum()
    points = np.eye(len(A))[rows] + np.eye(len(A))[columns]
    largest = 1e4  # bounds the entries of C before there are cuts
    clear = 1e-5  # relative to |C|: beyond this, the minimum of <A, C> is not 0, and A is not on the boundary
    for _ in range(100):  # matrices of the literature take 30 to 60
        solved = None if past(deadline) else least_product(A, points, (rows, columns), largest, deadline, core)
        if solved is None:
            return None
        C, _ = solved
        size = float(np.abs(C).max())
        if float((A * C).sum()) > clear * size:
            return None
        raised = np.where(joined > 0.0, C, 10.0 * size)  # no atom has two entries i, j with A_ij = 0
        values, minima = _minima(raised, rng)
        if values.min() > -ENDED * size:
            ended = float((A * C).sum()) > -clear * size
            return (C, _zeros(raised, np.concatenate([minima, points]), size)) if ended else None
        points = np.concatenate([points, minima[values < 0.0]])
    return None


def _minima(C: Matrix, rng: np.random.Generator) -> tuple[Float[np.ndarray, " m"], Points]:
    """Return x^T C x at local minima over the simplex, and these points: a descent ends near one, on its support."""
    x = np.maximum(descended(C, rng), 0.0)
    points = []
    for rounded in (1e-3, 1e-8):  # an entry below this counts as zero
        supports, places = np.unique(x > rounded, axis=0, return_index=True)
        points += [_critical(C, support, x[place]) for support, place in zip(supports, places, strict=True)]
    minima = np.unique(points, axis=0)
    return ((minima @ C) * minima).sum(axis=1), minima


def _zeros(C: Matrix, near: Points, size: float) -> Float[np.ndarray, "zeros n"]:
    """Return the zeros of C that lie next to these points, one for each support; `size` is |C|."""
    near = near / near.sum(axis=1, keepdims=True)
    near = near[((near @ C) * near).sum(axis=1) < 10.0 * ENDED * size]
    places = np.unique(near > 1e-3, axis=0, return_index=True)[1]
    return np.array([_critical(C, near[place] > 1e-3, near[place]) for place in places]).reshape(-1, len(C))


def _critical(C: Matrix, support: Bool[np.ndarray, " n"], x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return the critical point of x^T C x on the face of the simplex with this support.

    It solves (C x)_i = lambda on the support and sum(x) = 1. If it is not positive there, return x itself.
    """
    S = np.flatnonzero(support)
    K = np.ones((len(S) + 1, len(S) + 1))
    K[:-1, :-1], K[-1, -1] = C[np.ix_(S, S)], 0.0
    try:
        solution = np.linalg.solve(K, np.eye(len(K))[-1])[:-1]
    except np.linalg.LinAlgError:
        return x
    if not (solution > 0.0).all():
        return x
    point = np.zeros(len(C))
    point[S] = solution
    return point


def _of_zeros(A: Matrix, zeros: Points) -> Atoms | None:
    """Return the factor with atoms sqrt(w_k) z_k, w >= 0, nearest to A, z_k the zeros; None if it is far from A."""
    if not len(zeros):
        return None
    rows, columns = np.triu_indices(len(A))
    sizes = lengths(rows, columns)
    units = zeros / np.linalg.norm(zeros, axis=1, keepdims=True)
    try:
        weights, off = nnls((units[:, rows] * units[:, columns] * sizes).T, A[rows, columns] * sizes)
    except RuntimeError:  # too many iterations
        return None
    used = weights > 1e-9 * weights.max()
    if off > 1e-2 * np.linalg.norm(A):  # too far for Newton's steps
        return None
    return np.sqrt(weights[used])[:, None] * units[used]


def _together(A: Matrix, B: Atoms, C: Matrix, enough: float) -> OnBoundary | None:
    """Make B and C exact by joint Newton steps; None if the residual stays above `enough`."""
    support = B > 0.0
    rows, columns = places = np.nonzero(np.triu(A > 0.0))
    count, sizes = len(rows), lengths(rows, columns)
    if support.sum() + count > SEARCH.polished or A[support.T.astype(np.int64) @ support > 0].min() <= 0.0:
        return None
    atoms, entries = np.nonzero(support)
    same = atoms[:, None] == atoms[None, :]
    B, C = B.copy(), C.copy()
    best, least = None, enough
    for _ in range(10):
        off = residual(A, B)
        if off <= least:
            best, least = OnBoundary(B.copy(), C.copy()), off
        if off <= SEARCH.goal:
            break
        G = derivative(B, support, rows, columns).toarray()
        J = np.block([[G.T, np.zeros((count, count))], [np.where(same, C[np.ix_(entries, entries)], 0.0), G / 2.0]])
        missing = np.concatenate([(A - B.T @ B)[places] * sizes, -(B @ C)[support]])
        step = np.linalg.lstsq(J, missing, rcond=1e-10)[0]
        B[support] += step[: len(atoms)]
        C[places] += step[len(atoms) :] / sizes
        C = np.triu(C) + np.triu(C, 1).T
        if not (B >= 0.0).all():
            break
    return best
