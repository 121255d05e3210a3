"""Factors of matrices on the boundary of the completely positive cone.

Few atoms are possible there. Let C be copositive with <A, C> = 0. In A = sum_k b_k b_k^T every term of <A, C> = sum_k
b_k^T C b_k vanishes, so the atoms are zeros of C. C with the fewest zeros often has finitely many rays of them, and
then they are all the atoms that there can be: matrices of high cp-rank are of this kind, and a search that starts
anywhere hardly meets them.

**C** solves min <A, C>, <C, core> = 1, over copositive C, the core inside the cone: the minimum is 0 on the boundary.
Cutting planes add the local minima of x^T C x on the simplex, about as many as zeros in each round.

**B and C together.** B^T B = A alone is degenerate: the part of the residual along C is of second order in B. But

    B^T B = A,   (C b_k)_i = 0 for i in the support of b_k

is regular. Let (D, E) be in the kernel of its derivative: B^T D + D^T B = 0 and C d_k + E b_k = 0 on the supports. Then
sum_k d_k^T C d_k = -<E, sum_k b_k d_k^T> = 0. C is semi-definite on the support of a zero, so that C d_k = 0 there, and
d_k = t_k b_k where the ray is isolated; sum_k t_k b_k b_k^T = 0 leaves D = 0 if the b_k b_k^T are independent. So
Newton's steps of least norm end to rounding after three or four.

Nothing here is proved: the factor is judged by its residual, and C by `zeros`.

Source of the atoms being zeros: Bomze, Schachinger, Ullrich, From seven to eleven, Linear Algebra Appl. 459 (2014),
who make matrices of high cp-rank from the zeros of copositive ones. The regular system is ours.
"""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import linprog, nnls

from covopt.completely_positive.cutting_planes import descended
from covopt.completely_positive.factorization import GOAL, POLISHED, Atoms, Matrix, derivative, residual
from covopt.runtime.loop import leavable, past

Points = Float[np.ndarray, "m n"]

LARGEST = 25
"""The largest order."""
ROUNDS = 100
"""The most rounds of cutting planes: matrices of the literature take 30 to 60."""
ENDED = 1e-6
"""C counts as copositive if x^T C x >= -ENDED |C|, x as a zero below 10 ENDED |C|."""
CLEAR = 1e-5
"""Relative to |C|: beyond this, the minimum of <A, C> is not 0, and A is not on the boundary."""
ROUGH = 1e-2
"""Relative residual from which Newton's steps are tried."""
STEPS = 10
"""Newton's steps."""
BOX = 1e4
"""Bounds on the entries of C before there are cuts."""


@dataclass(frozen=True)
class Exposed:
    """A nearly copositive C (n, n) with <A, C> near 0, and its zeros, one for each support."""

    C: Matrix
    zeros: Points


@dataclass(frozen=True)
class OnBoundary:
    """B >= 0 with B^T B = A, and C with C b_k = 0 on the support of b_k, up to rounding."""

    B: Atoms
    C: Matrix


def factor_on_boundary(A: Matrix, seed: int, deadline: float, enough: float = GOAL) -> OnBoundary | None:
    """Return a factor from the zeros of an exposing matrix, and the matrix.

    None where A has no such matrix, or one with too many zeros.

    Args:
        A: positive semi-definite and non-negative up to rounding, with a positive diagonal.
        seed: of the starts of the searches for zeros.
        deadline: of time.perf_counter(); then None.
        enough: relative residual of the factor, at most.
    """
    if len(A) > LARGEST:
        return None
    scale = np.sqrt(np.diag(A))
    unit = A / np.outer(scale, scale)
    exposed = expose(unit, np.random.default_rng(seed), deadline)
    if exposed is None:
        return None
    rough = _of_zeros(unit, exposed.zeros)
    if rough is None:
        return None
    both = _together(unit, rough, exposed.C, enough)
    return None if both is None else OnBoundary(both.B * scale, both.C / np.outer(scale, scale))


def expose(A: Matrix, rng: np.random.Generator, deadline: float) -> Exposed | None:
    """Return the exposing matrix of A, of diagonal 1; None if there is none, or time is up."""
    pairs = np.argwhere(np.triu(A > 0.0))
    joined = (A > 0.0).astype(np.float64)
    core = joined + np.diag(joined.sum(axis=1))  # inside the cone of those with A's zeros: edges and vertices
    core /= core.sum()
    points = np.eye(len(A))[pairs[:, 0]] + np.eye(len(A))[pairs[:, 1]]
    for _ in range(ROUNDS):
        C = None if past(deadline) else _least(A, core, pairs, points, deadline)
        if C is None:
            return None
        size = float(np.abs(C).max())
        if float((A * C).sum()) > CLEAR * size:
            return None
        raised = np.where(joined > 0.0, C, 10.0 * size)  # an atom has no two entries where A has a zero
        values, minima = _minima(raised, rng)
        if values.min() > -ENDED * size:
            ended = float((A * C).sum()) > -CLEAR * size
            return Exposed(C, _zeros(raised, np.concatenate([minima, points]), size)) if ended else None
        points = np.concatenate([points, minima[values < 0.0]])
    return None


def _least(A: Matrix, core: Matrix, pairs: np.ndarray, points: Points, deadline: float) -> Matrix | None:
    """Return the solution of the linear programme of these cuts; zero where A is."""
    rows, columns = pairs.T
    twice = np.where(rows == columns, 1.0, 2.0)
    cuts = points[:, rows] * points[:, columns] * twice
    cuts /= np.linalg.norm(cuts, axis=1, keepdims=True)
    question = {
        "A_ub": -cuts,
        "b_ub": np.zeros(len(cuts)),
        "A_eq": (core[rows, columns] * twice)[None],
        "b_eq": [1.0],
        "bounds": (-BOX, BOX),
        "options": {"time_limit": max(1e-3, deadline - time.perf_counter())},
    }
    solved = leavable(functools.partial(linprog, A[rows, columns] * twice, **question), deadline)
    if solved is None or solved.x is None:
        return None
    C = np.zeros_like(A)
    C[rows, columns] = C[columns, rows] = solved.x
    return C


def _minima(C: Matrix, rng: np.random.Generator) -> tuple[Float[np.ndarray, " m"], Points]:
    """Return x^T C x at local minima on the simplex, where descents end, and the points."""
    x = np.maximum(descended(C, rng), 0.0)
    points = []
    for rounded in (1e-3, 1e-8):  # the remainder of an entry that descends to zero
        supports, places = np.unique(x > rounded, axis=0, return_index=True)
        points += [_critical(C, support, x[place]) for support, place in zip(supports, places, strict=True)]
    minima = np.unique(points, axis=0)
    return ((minima @ C) * minima).sum(axis=1), minima


def _zeros(C: Matrix, near: Points, size: float) -> Float[np.ndarray, "zeros n"]:
    """Return points near these with x^T C x near 0, relative to `size`, one for each support."""
    near = near / near.sum(axis=1, keepdims=True)
    near = near[((near @ C) * near).sum(axis=1) < 10.0 * ENDED * size]
    places = np.unique(near > 1e-3, axis=0, return_index=True)[1]
    return np.array([_critical(C, near[place] > 1e-3, near[place]) for place in places]).reshape(-1, len(C))


def _critical(C: Matrix, support: Bool[np.ndarray, " n"], x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return the solution of (C x)_i = lambda on the support, sum(x) = 1, if positive; else x."""
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
    """Return the factor of rows w_k z_k, w >= 0, nearest to A; None if far or of many atoms."""
    if not len(zeros):
        return None
    rows, columns = np.triu_indices(len(A))
    lengths = np.where(rows == columns, 1.0, np.sqrt(2.0))
    units = zeros / np.linalg.norm(zeros, axis=1, keepdims=True)
    try:
        weights, off = nnls((units[:, rows] * units[:, columns] * lengths).T, A[rows, columns] * lengths)
    except RuntimeError:  # too many iterations
        return None
    used = weights > 1e-9 * weights.max()
    if off > ROUGH * np.linalg.norm(A):
        return None
    return np.sqrt(weights[used])[:, None] * units[used]


def _together(A: Matrix, B: Atoms, C: Matrix, enough: float) -> OnBoundary | None:
    """Take Newton's steps for B and C together (the module's text); None if they end far off."""
    support = B > 0.0
    pairs = np.argwhere(np.triu(A > 0.0))
    if support.sum() + len(pairs) > POLISHED or A[support.T.astype(np.int64) @ support > 0].min() <= 0.0:
        return None
    lengths = np.where(pairs[:, 0] == pairs[:, 1], 1.0, np.sqrt(2.0))
    atoms, entries = np.nonzero(support)
    same = atoms[:, None] == atoms[None, :]
    B, C = B.copy(), C.copy()
    best, least = None, enough
    for _ in range(STEPS):
        off = residual(A, B)
        if off <= least:
            best, least = OnBoundary(B.copy(), C.copy()), off
        if off <= GOAL:
            break
        G = derivative(B, support, pairs).toarray()
        J = np.block(
            [[G.T, np.zeros((len(pairs), len(pairs)))], [np.where(same, C[np.ix_(entries, entries)], 0.0), G / 2.0]]
        )
        missing = np.concatenate([(A - B.T @ B)[tuple(pairs.T)] * lengths, -(B @ C)[support]])
        step = np.linalg.lstsq(J, missing, rcond=1e-10)[0]
        B[support] += step[: len(atoms)]
        C[tuple(pairs.T)] += step[len(atoms) :] / lengths
        C = np.triu(C) + np.triu(C, 1).T
        if not (B >= 0.0).all():
            break
    return best
