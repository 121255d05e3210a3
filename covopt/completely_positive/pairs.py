"""Find neurons Z (N, n) with Z Z^T = K and sigma(Z) sigma(Z)^T = S, and reduce their number.

**Search** (`search`). Douglas and Rachford's iteration as in `factorization` for (Z, V), between the sets
{Z Z^T = K} x {V V^T = S} (projection: two polar factors) and {V = sigma(Z)} (projection: for each entry the nearer of
two rays). Newton steps at fixed signs end it. A search that fails proves nothing.

**Reduction** (`fewer`). Atoms of one direction are merged; Caratheodory's theorem leaves as many as the pairs
(z z^T, sigma(z) sigma(z)^T) have dimensions, as a vertex of the linear programme would; for few atoms a mixed-integer
programme then chooses the fewest.

**Separation** (`separate`) proves that no neurons realise a pair (K, S), by a separating pair (C1, C2). It is at most 0
on every neuron. With s = max(z, 0) and t = max(-z, 0), z = s - t and sigma(z) = s - a t, so that on u = (s, t) >= 0,
where s_i t_i = 0,

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
import torch
from jaxtyping import Float
from scipy.optimize import Bounds, LinearConstraint, milp

from covopt.completely_positive.copositive import why_copositive
from covopt.completely_positive.factorization import SearchOptions, meet, newton, significant_root
from covopt.completely_positive.moments import is_solved
from covopt.completely_positive.prepared import lengths
from covopt.linalg.rounding import EPS
from covopt.oracles.neurons import caratheodory, merge
from covopt.runtime.lazy import lazy
from covopt.runtime.loop import leavable

if TYPE_CHECKING:
    import cvxpy as cp
else:
    cp = lazy("cvxpy")

Matrix = Float[np.ndarray, "N N"]
Neurons = Float[np.ndarray, "N n"]

SEARCH = SearchOptions(patience=600, starts=6, goal=1e-13, polish_after=0, polish_below=1e-2, polished=1200)


def sigma(Z: Neurons, slope: float) -> Neurons:
    """Return z for z >= 0, slope z otherwise."""
    return np.where(Z >= 0.0, Z, slope * Z)


def residual(K: Matrix, S: Matrix, Z: Neurons, slope: float) -> float:
    """Return the larger of |K - Z Z^T| / |K| and |S - sigma(Z) sigma(Z)^T| / |K|."""
    V = sigma(Z, slope)
    size = max(float(np.linalg.norm(K)), np.finfo(np.float64).tiny)
    return max(float(np.linalg.norm(K - Z @ Z.T)), float(np.linalg.norm(S - V @ V.T))) / size


def search(K: Matrix, S: Matrix, slope: float, n: int, seed: int, deadline: float) -> Neurons | None:
    """Search for Z (N, n) that realises the pair to the goal of `SEARCH`; None if none is found.

    K and S are positive semi-definite up to rounding, S without the bias.
    """
    roots = tuple(significant_root(A, SEARCH.noise).T for A in (K, S))
    if max(root.shape[1] for root in roots) > n:
        return None
    near_K, near_S = (root @ root.T for root in roots)

    def start(rng: np.random.Generator) -> tuple[Neurons, Neurons]:
        Z = rng.standard_normal((len(K), n))
        return _rotated(roots[0], Z), _rotated(roots[1], sigma(Z, slope))

    def move(state: tuple[Neurons, Neurons], Z: Neurons) -> tuple[Neurons, Neurons]:
        (x, y), V = state, sigma(Z, slope)
        return x + _rotated(roots[0], 2.0 * Z - x) - Z, y + _rotated(roots[1], 2.0 * V - y) - V

    return meet(
        start,
        point=lambda state: _on_graph(state[0], state[1], slope),
        move=move,
        residual=lambda Z: residual(near_K, near_S, Z, slope),
        polish=lambda Z, error: polish(near_K, near_S, slope, Z, error),
        seeds=(seed, n),
        deadline=deadline,
        options=SEARCH,
    )


def _rotated(root: Float[np.ndarray, "N rank"], P: Neurons) -> Neurons:
    """Return the matrix root Q, Q Q^T = I, that is nearest to P."""
    U, _, Vt = np.linalg.svd(root.T @ P, full_matrices=False)
    return root @ (U @ Vt)


def _on_graph(Z: Neurons, V: Neurons, slope: float) -> Neurons:
    """Return the a whose (a, sigma(a)) is nearest to (z, v), entry by entry."""
    up, down = np.maximum((Z + V) / 2.0, 0.0), np.minimum((Z + slope * V) / (1.0 + slope**2), 0.0)
    farther = (Z - up) ** 2 + (V - up) ** 2 > (Z - down) ** 2 + (V - slope * down) ** 2
    return np.where(farther, down, up)


def polish(K: Matrix, S: Matrix, slope: float, Z: Neurons, error: float) -> Neurons | None:
    """Take Newton steps of least norm that preserve every sign; None if they miss the goal."""
    scale = np.sqrt(np.maximum(np.diag(K), 0.0))[:, None]
    support = np.abs(Z) > 0.25 * min(1.0, np.sqrt(error)) * scale
    if support.sum() > SEARCH.polished:
        return None
    rows, columns = np.triu_indices(len(K))
    samples, neurons = np.nonzero(support)

    def linearised(Z: Neurons) -> tuple[np.ndarray, np.ndarray]:
        slopes = np.where(Z >= 0.0, 1.0, slope)[support]
        blocks, missing = [], []
        for target, values, factor in ((K, Z, np.ones_like(slopes)), (S, sigma(Z, slope), slopes)):
            # Moving entry (i, k) by d moves entries (i, j) and (j, i) by d values_jk.
            hit = (rows[None, :] == samples[:, None]) * values[columns][:, neurons].T
            hit = hit + (columns[None, :] == samples[:, None]) * values[rows][:, neurons].T
            blocks.append((hit * lengths(rows, columns) * factor[:, None]).T)
            missing.append((target - values @ values.T)[rows, columns] * lengths(rows, columns))
        return np.concatenate(blocks), np.concatenate(missing)

    return newton(Z, support, lambda Z: residual(K, S, Z, slope), linearised, SEARCH.goal, 1e-7)


def fewer(Z: Neurons, slope: float) -> Float[np.ndarray, "N less"]:
    """Return at most as many neurons with the same K and S, up to rounding."""
    alive = Z[:, (Z != 0.0).any(axis=0)]
    if not alive.size:
        return np.zeros((len(Z), 0))
    squares = np.sum(alive**2, axis=0)
    merged = merge(torch.as_tensor((alive / np.sqrt(squares)).T), torch.as_tensor(squares[:, None]), tolerance=1e-13)
    units, weights = merged.directions.numpy().T, merged.outputs
    selected = caratheodory(torch.as_tensor(_pairs_of(units, slope)), weights)
    units, c = units[:, selected.places.numpy()], selected.outputs.numpy()[:, 0]
    if len(c) <= 40:  # as many as the mixed-integer programme can choose among in a few seconds
        c = _fewest_of(units, c, slope)
        units, c = units[:, c > 0.0], c[c > 0.0]
    return units * np.sqrt(c)


def _pairs_of(units: Neurons, slope: float) -> Float[np.ndarray, "q n"]:
    """Return the upper triangles of (z z^T, sigma(z) sigma(z)^T) as columns, scaled to Frobenius norms."""
    rows, columns = np.triu_indices(len(units))
    products = [Z[rows] * Z[columns] for Z in (units, sigma(units, slope))]
    return np.concatenate(products) * np.tile(lengths(rows, columns), 2)[:, None]


def _fewest_of(units: Neurons, c: Float[np.ndarray, " n"], slope: float) -> Float[np.ndarray, " n"]:
    """Return weights of the fewest of these atoms for the same pair, by HiGHS, or else c."""
    A, n, seconds = _pairs_of(units, slope), len(c), 10.0
    target, diagonal = A @ c, (units**2) @ c
    # c_k z_k z_k^T <= K bounds each weight by its diagonal.
    most = np.min(np.where(units**2 > 1e-12, diagonal[:, None] / np.maximum(units**2, 1e-12), np.inf), axis=0)
    most = np.minimum(most, 4.0 * c.sum())
    near = 1e-10 * float(np.linalg.norm(target))
    constraints = [
        LinearConstraint(np.hstack([A, np.zeros_like(A)]), target - near, target + near),  # type: ignore[arg-type]
        LinearConstraint(np.hstack([np.eye(n), -np.diag(most)]), ub=0.0),
    ]
    question = {
        "constraints": constraints,
        "integrality": np.repeat([0, 1], n),
        "bounds": Bounds(np.zeros(2 * n), np.concatenate([most, np.ones(n)])),  # type: ignore[arg-type]
        "options": {"time_limit": seconds},
    }
    solution = leavable(lambda: milp(np.repeat([0.0, 1.0], n), **question), time.perf_counter() + seconds)
    if solution is None or solution.x is None or round(solution.fun) >= n:
        return c
    used = solution.x[n:] > 0.5
    weights = np.zeros(n)
    weights[used] = np.linalg.lstsq(A[:, used], target)[0]
    return weights if (weights >= 0.0).all() and np.linalg.norm(A @ weights - target) <= near else c


@dataclass(frozen=True)
class SeparatingPair:
    """A pair (C1, C2) with <C1, z z^T> + <C2, sigma(z) sigma(z)^T> <= 0 for every z.

    On the pair that it separates from the cone, the sum is positive.
    """

    C1: Matrix  # symmetric (N, N)
    C2: Matrix  # symmetric (N, N)
    lam: Float[np.ndarray, " N"]  # multipliers of the products s_i t_i = 0 (N,)
    P: Float[np.ndarray, "two_N two_N"]  # non-negative (2N, 2N), subtracted from H before its eigenvalues are computed
    value: float  # (<C1, K> + <C2, S>) / (|C1| |K| + |C2| |S|), above 0

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
    solved = is_solved(cp.Problem(cp.Maximize(value), constraints), time.perf_counter() + time_limit)
    if not solved or C1.value is None or C2.value is None or lam.value is None or P.value is None:
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
