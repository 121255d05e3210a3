"""Find neurons Z (N, n) with Z Z^T = K and sigma(Z) sigma(Z)^T = S, and reduce their number.

**Search** (`search`). Douglas and Rachford's iteration as in `factorization` for (Z, V), between the sets
{Z Z^T = K} x {V V^T = S} (projection: two polar factors) and {V = sigma(Z)} (projection: for each entry the nearer of
two rays). Newton steps at fixed signs end it. A search that fails proves nothing.

**Reduction** (`fewer`). Atoms of one direction are merged; Caratheodory's theorem leaves as many as the pairs
(z z^T, sigma(z) sigma(z)^T) have dimensions, as a vertex of the linear programme would; for few atoms a mixed-integer
programme then chooses the fewest.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import Bounds, LinearConstraint, milp

from covopt.completely_positive.factorization import SearchOptions, meet, newton, significant_root
from covopt.completely_positive.prepared import lengths
from covopt.oracles.neurons import caratheodory, merge
from covopt.runtime.loop import leavable

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

    Args:
        K, S: positive semi-definite up to rounding; S without the bias.
        slope: of sigma for negative arguments.
        n: neurons.
        seed: of the random starts.
        deadline: of time.perf_counter(); then None.
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


def fewer(Z: Neurons, slope: float, time_limit: float = 10.0) -> Float[np.ndarray, "N less"]:
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
        c = _fewest_of(units, c, slope, time_limit)
        units, c = units[:, c > 0.0], c[c > 0.0]
    return units * np.sqrt(c)


def _pairs_of(units: Neurons, slope: float) -> Float[np.ndarray, "q n"]:
    """Return the upper triangles of (z z^T, sigma(z) sigma(z)^T) as columns, scaled to Frobenius norms."""
    rows, columns = np.triu_indices(len(units))
    products = [Z[rows] * Z[columns] for Z in (units, sigma(units, slope))]
    return np.concatenate(products) * np.tile(lengths(rows, columns), 2)[:, None]


def _fewest_of(units: Neurons, c: Float[np.ndarray, " n"], slope: float, time_limit: float) -> Float[np.ndarray, " n"]:
    """Return weights of the fewest of these atoms for the same pair, by HiGHS, or else c."""
    A, n = _pairs_of(units, slope), len(c)
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
        "options": {"time_limit": time_limit},
    }
    solution = leavable(lambda: milp(np.repeat([0.0, 1.0], n), **question), time.perf_counter() + time_limit)
    if solution is None or solution.x is None or round(solution.fun) >= n:
        return c
    used = solution.x[n:] > 0.5
    weights = np.zeros(n)
    weights[used] = np.linalg.lstsq(A[:, used], target)[0]
    good = (weights >= 0.0).all() and np.linalg.norm(A @ weights - target) <= near
    return weights if good else c
