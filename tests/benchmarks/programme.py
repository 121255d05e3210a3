"""The convex programme of two-layer ReLU networks over sampled activation patterns, written straight in cvxpy.

`python -m tests.benchmarks.programme DIRECTORY`, as `contender` runs covopt. With patterns D_i = 1(X g_i >= 0) of
random gates g_i and one output, min (1/N) |sum_i D_i X (v_i - w_i) - y|^2 + 2 lam sum_i (|v_i| + |w_i|) subject to
(2 D_i - 1) X v_i >= 0 and the same for w_i; each v_i and w_i is a neuron.

Source: Pilanci, Ergen, Neural networks are convex regularizers, ICML 2020.
"""

from __future__ import annotations

import cvxpy as cp
import numpy as np

from tests.benchmarks.job import Stopwatch, run_job


def run(X: np.ndarray, Y: np.ndarray, job: dict) -> list[tuple[list[np.ndarray], dict]]:
    """Solve the convex programme, and balance its neurons."""
    if job["question"]["bias"] != 0.0 or job["question"]["activation"] != "relu" or Y.shape[1] != 1:
        raise SystemExit("This contender is set up for ReLU networks of one output without bias; choose such a work.")
    watch = Stopwatch()
    v, w = solved(X, Y[:, 0], job["question"]["lam"], job["options"]["gates"], job["options"]["seed"])
    told = watch.told()
    neurons, signs = np.vstack([v, w]), np.repeat([1.0, -1.0], len(v))
    lengths = np.linalg.norm(neurons, axis=1)
    used = lengths > 1e-9 * lengths.max()
    roots = np.sqrt(lengths[used])
    W1, W2 = neurons[used] / roots[:, None], (signs[used] * roots)[None]
    return [([np.pad(W, ((0, 0), (0, 1))) for W in (W1, W2)], told | {"width": len(W1)})]


def solved(X: np.ndarray, y: np.ndarray, lam: float, gates: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The neurons with positive and with negative output, (P, d) each."""
    N, d = X.shape
    drawn = np.random.default_rng(seed).standard_normal((d, gates))
    D = np.unique((X @ drawn >= 0.0).astype(float), axis=1)
    V, W = cp.Variable((d, D.shape[1])), cp.Variable((d, D.shape[1]))
    F = cp.sum(cp.multiply(D, X @ (V - W)), axis=1)
    norms = cp.sum(cp.norm(V, 2, axis=0)) + cp.sum(cp.norm(W, 2, axis=0))
    cones = [cp.multiply(2.0 * D - 1.0, X @ U) >= 0.0 for U in (V, W)]
    cp.Problem(cp.Minimize(cp.sum_squares(F - y) / N + 2.0 * lam * norms), cones).solve(solver="CLARABEL")
    if V.value is None or W.value is None:
        raise SystemExit("Clarabel found no solution of the sampled convex programme; use fewer gates.")
    return V.value.T, W.value.T


if __name__ == "__main__":
    run_job(run)
