"""Polytopes of optima with a free linear part, shared by pairs of opposite neurons.

If the linear part of the network is free, Lambda^T X' = 0, directions come in pairs w, -w with the same
d, and sigma(X' w) - sigma(-X' w) = (1 + a) X' w, of rank 2 only. With e_j the sum and o_j the difference of the sizes
in pair j,

    F' = (1 - a)/2 sum_j e_j |X' w_j| d_j^T + X' B,   B = (1 + a)/2 sum_j o_j w_j d_j^T,   |o_j| <= e_j,

at the cost 2 kappa sum_j e_j. Consider min C + 2 kappa sum_j |e_j| over e_j d_j and *any* B: no network of these
directions costs less than its minimum, so that its minimum is at most that of the problem, and it is the same if its
(e, B) is a network's. Where (e, B) is determined by F' (`independence`), it is near that of the network known; where
that one can be changed to have |o_j| < e_j for all j, with room for what is not known, and there are more pairs than
the 2 m numbers in B, the same B has a whole polytope of o, and each is an optimum.

**The fewest neurons** of a polytope of optima are found by enumerating its possible ends.

Pair j of opposite neurons has the sizes (e_j + o_j) / 2 and (e_j - o_j) / 2, with sum_j o_j m_j = B of 2 m numbers; one
of the two is not there where |o_j| = e_j. A vertex of the polytope has at most 2 m pairs with |o_j| < e_j, so that
J + 2 m neurons are enough. Fewer would leave 2 m - 1 pairs or less: then for some 2 m - 1 pairs, a vector n that is
orthogonal to their m_j, and some signs s of all the others

    n^T (B - sum_j s_j e_j m_j) = 0 .
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from covopt.answer.uniqueness.candidates import ROUNDING, Candidate, Columns, Optimum, columns
from covopt.answer.uniqueness.plane import Plane
from covopt.answer.uniqueness.uniqueness import SEVERAL, Examined, Uniqueness


def no_fewer(M: NDArray[np.float64], B: NDArray[np.float64], e: NDArray[np.float64], tolerance: float) -> bool:
    """Return True if it is proved that no optimum has fewer than J + k neurons, because no combination comes near 0.

    The columns of M are m_j (k, J), J > k = 2 m; n^T (B - sum_j s_j e_j m_j) is known up to `tolerance` for unit n.
    """
    k, J = M.shape
    remaining = J - k + 1
    if math.comb(J, k - 1) << min(remaining, 64) > 2_000_000:  # too many choices and signs to go through
        return False
    free = np.array(list(combinations(range(J), k - 1)), dtype=int).reshape(-1, k - 1)
    fixed = np.array([np.setdiff1d(np.arange(J), chosen) for chosen in free])
    # The last right singular vector is orthogonal to the m_j chosen, whatever their rank.
    n = np.linalg.svd(M.T[free], full_matrices=True)[2][:, -1]
    parts = np.take_along_axis(n @ (M * e), fixed, axis=1)
    signs = 1.0 - 2.0 * ((np.arange(1 << remaining)[:, None] >> np.arange(remaining)) & 1)
    return bool((np.abs((n @ B)[:, None] - parts @ signs.T) > tolerance).all())


def polytope(plane: Plane, candidates: list[Candidate], c: NDArray[np.float64], estimate: Optimum) -> Examined | None:
    """Prove that a polytope of networks is optimal, with a free linear part; else None."""
    pairs = _pairs(candidates)
    J, m, a, X = len(candidates) // 2, plane.outputs, plane.slope, plane.float_inputs
    if pairs is None or 2 * m >= J:
        return None
    lines, size = [candidates[k] for k, _ in pairs], float(np.linalg.norm(X))
    e, o = (np.array([c[k] + sign * c[j] for k, j in pairs]) for sign in (1.0, -1.0))
    even = columns([0.5 * (1.0 - a) * np.abs(X @ k.w) for k in lines], lines, size)
    both = np.hstack([even.T, np.kron(X, np.eye(m))])
    parts = Columns(both.astype(np.float64), even.off + ROUNDING * size * m)
    linear = columns([0.5 * (1.0 + a) * k.w for k in lines], lines, 1.0)
    rows = Columns(linear.T.T, linear.off)
    if not (parts.independent and rows.independent):
        return None
    B = linear.T @ o
    wrong = parts.distance(np.concatenate([e, B]), estimate.outputs, estimate.off)
    o, room = _inmost(linear.T, B, e)
    missed = float(np.linalg.norm(linear.T @ o - B)) + (linear.off + ROUNDING) * float(np.linalg.norm(o))
    moved = (wrong + missed) / (rows.smallest - rows.off)
    if room <= 2.0 * (wrong + moved):
        return None
    # e_j and B are known up to `wrong`, the m_j, |m_j| <= 1, up to linear.off in all.
    known_to = 2.0 * (wrong * (1.0 + J) + (linear.off + ROUNDING * J) * (float(e.sum()) + size))
    fewest = J + 2 * m if no_fewer(linear.T, B, e, known_to) else J
    D, W = (np.stack([getattr(k, name) for k in lines]) for name in ("d", "w"))
    sizes = 0.5 * np.concatenate([e + o, e - o])[:, None]
    verdict = Uniqueness(
        SEVERAL,
        f"The linear part of an optimum is free, and {J} pairs of opposite neurons share it: their parts of its"
        f" {2 * m} numbers can be moved from one to another at no cost.",
        candidates=2 * J,
        fewest=(fewest, J + 2 * m),
        most=(2 * J, 2 * J),
        dimension=J - 2 * m,
        independence=parts.smallest,
    )
    # Lambda^T X' = 0 leaves no output bias. The optimum stated is the one farthest from losing a neuron.
    outputs = sizes * np.concatenate([D, D]) / float(plane.units)
    return Examined(verdict, np.concatenate([W, -W]), outputs, np.zeros(m))


def _pairs(candidates: list[Candidate]) -> list[tuple[int, int]] | None:
    """Return candidates of opposite directions, or None if one has no opposite."""
    W = np.stack([k.w for k in candidates])
    opposite = np.argmin(W @ W.T, axis=1)
    sums = np.linalg.norm(W + W[opposite], axis=1)
    kinds = np.array([k.inside for k in candidates])
    paired = (sums < 1e-8) & (opposite[opposite] == np.arange(len(W))) & (kinds == kinds[opposite])
    if not paired.all() or any(k.blurred for k in candidates):
        return None
    return [(k, int(j)) for k, j in enumerate(opposite) if k < j]


def _inmost(M: NDArray, B: NDArray, e: NDArray) -> tuple[NDArray[np.float64], float]:
    """Maximise t over (o, t) with M o = B and |o_j| <= e_j - t, by a linear programme."""
    J = len(e)
    scale = float(e.max())
    rows = np.vstack([np.hstack([np.eye(J), np.ones((J, 1))]), np.hstack([-np.eye(J), np.ones((J, 1))])])
    solved = linprog(
        np.append(np.zeros(J), -1.0),
        A_ub=rows,
        b_ub=np.tile(e, 2) / scale,
        A_eq=np.hstack([M, np.zeros((len(M), 1))]),
        b_eq=B / scale,
        bounds=[(None, None)] * J + [(0.0, None)],
    )
    if solved.x is None:
        return np.zeros(J), 0.0
    o = solved.x[:J] * scale
    # One least-squares step takes back what the programme left.
    o = o + np.linalg.lstsq(M, B - M @ o, rcond=None)[0]
    return o, float((e - np.abs(o)).min())
