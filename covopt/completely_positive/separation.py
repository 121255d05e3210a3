"""Prove that no neurons realise a pair (K, S), by a separating pair (C1, C2).

A separating pair is non-positive on every neuron. With s = max(z, 0) and t = max(-z, 0), z = s -
t and sigma(z) = s - a t, so that on u = (s, t) >= 0, where s_i t_i = 0,

    <C1, z z^T> + <C2, sigma(z) sigma(z)^T> = u^T G u,    G = L1^T C1 L1 + L2^T C2 L2,  L1 = [I, -I],  L2 = [I, -a I].

Twice sum_i lam_i s_i t_i = 0 may be added for any lam. So if H = [[0, diag lam], [diag lam, 0]] - G is positive
definite after an entrywise non-negative P has been taken off (or copositive), no neuron makes the sum positive, and a
pair with <C1, K> + <C2, S> > 0 is not in the cone S [JGHG22, section 3]. C1, C2, lam and P come from a semidefinite
programme; its inexactness is repaired by C1 <- C1 - delta I, lam <- lam + delta, which adds delta I to H.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from covopt.completely_positive.copositive import why_copositive
from covopt.linalg.rounding import EPS
from covopt.runtime.lazy import lazy
from covopt.runtime.loop import leavable

if TYPE_CHECKING:
    import cvxpy as cp
else:
    cp = lazy("cvxpy")

Matrix = Float[np.ndarray, "N N"]


@dataclass(frozen=True)
class SeparatingPair:
    """A pair (C1, C2) with <C1, z z^T> + <C2, sigma(z) sigma(z)^T> <= 0 for every z.

    On the pair that it separates from the cone, the sum is positive.

    Attributes:
        C1, C2: symmetric (N, N).
        lam: multipliers of the products s_i t_i = 0 (N,).
        P: non-negative (2N, 2N), subtracted from H before its eigenvalues are computed.
        value: (<C1, K> + <C2, S>) / (|C1| |K| + |C2| |S|), above 0.
    """

    C1: Matrix
    C2: Matrix
    lam: Float[np.ndarray, " N"]
    P: Float[np.ndarray, "two_N two_N"]
    value: float

    def check(self, K: Matrix, S: Matrix, slope: float) -> bool:
        """Return True if the arrays prove that they separate (K, S), S without the bias."""
        product = float((self.C1 * K).sum() + (self.C2 * S).sum())
        total = float(np.abs(self.C1 * K).sum() + np.abs(self.C2 * S).sum())
        if not product > 4 * K.size * EPS * total or (self.P < 0.0).any():
            return False
        H = _left(self.C1, self.C2, self.lam, slope)
        values = np.linalg.eigvalsh(H - self.P)
        return bool(values[0] > 16 * len(H) * EPS * max(values[-1], -values[0])) or why_copositive(H) is not None


def _left(C1: Matrix, C2: Matrix, lam: Float[np.ndarray, " N"], slope: float) -> Float[np.ndarray, "two_N two_N"]:
    """Return H of the module's docstring."""
    D = np.diag(lam)
    return np.block([[-(C1 + C2), C1 + slope * C2 + D], [C1 + slope * C2 + D, -(C1 + slope**2 * C2)]])


def separate(K: Matrix, S: Matrix, slope: float, tolerance: float, time_limit: float) -> SeparatingPair | None:
    """Search for a separating pair with a value above the tolerance, proved.

    None proves nothing. The programme is the dual of the doubly non-negative relaxation of the cone, and finds a pair
    if this relaxation excludes (K, S).
    """
    N = len(K)
    if N > 30:  # the semidefinite programme, of order 2 N, takes too long
        return None
    C1, C2 = cp.Variable((N, N), symmetric=True), cp.Variable((N, N), symmetric=True)
    lam, P = cp.Variable(N), cp.Variable((2 * N, 2 * N), symmetric=True)
    D = cp.diag(lam)
    H = cp.bmat([[-(C1 + C2), C1 + slope * C2 + D], [C1 + slope * C2 + D, -(C1 + slope**2 * C2)]])
    size = float(np.linalg.norm(K) + np.linalg.norm(S))
    if size == 0.0:
        return None
    value = (cp.sum(cp.multiply(C1, K)) + cp.sum(cp.multiply(C2, S))) / size
    constraints = [H - P >> 0, P >= 0, cp.norm(C1, "fro") <= 1.0, cp.norm(C2, "fro") <= 1.0]
    problem = cp.Problem(cp.Maximize(value), constraints)
    try:
        deadline = time.perf_counter() + time_limit
        solved = leavable(lambda: [problem.solve(solver=cp.CLARABEL, time_limit=time_limit)], deadline)
    except cp.SolverError:
        return None
    if solved is None or C1.value is None or C2.value is None or lam.value is None or P.value is None:
        return None
    first, second = (C1.value + C1.value.T) / 2.0, (C2.value + C2.value.T) / 2.0
    taken, multipliers = np.maximum((P.value + P.value.T) / 2.0, 0.0), np.array(lam.value)
    spectrum = np.linalg.eigvalsh(_left(first, second, multipliers, slope) - taken)
    delta = max(0.0, -float(spectrum[0])) * 1.01 + 64 * N * EPS * float(np.abs(spectrum).max())
    first, multipliers = first - delta * np.eye(N), multipliers + delta
    product = float((first * K).sum() + (second * S).sum())
    scale = float(np.linalg.norm(first) * np.linalg.norm(K) + np.linalg.norm(second) * np.linalg.norm(S))
    pair = SeparatingPair(first, second, multipliers, taken, product / max(scale, np.finfo(np.float64).tiny))
    return pair if pair.value > tolerance and pair.check(K, S, slope) else None
