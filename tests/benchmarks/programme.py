"""The convex programme of two-layer ReLU networks over sampled activation patterns, written straight in cvxpy.

`python -m tests.benchmarks.programme DIRECTORY`, as `contender` runs covopt. With patterns D_i = 1(X g_i >= 0) of
random gates g_i and one output, min (1/N) |sum_i D_i X (v_i - w_i) - y|^2 + 2 lam sum_i (|v_i| + |w_i|) subject to
(2 D_i - 1) X v_i >= 0 and the same for w_i; each v_i and w_i is a neuron.

Source: Pilanci, Ergen, Neural networks are convex regularizers, ICML 2020.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import cvxpy as cp
import numpy as np


def main(directory: Path) -> None:
    """Run the job and write what came of it."""
    job = json.loads((directory / "job.json").read_text())
    if job["beta"] != 0.0 or job["activation"] != "relu":
        raise SystemExit("This contender is set up for ReLU networks without bias; choose such a work.")
    with np.load(directory / "data.npz") as data:
        X, Y = data["X"], data["Y"]
    if Y.shape[1] != 1:
        raise SystemExit("This contender is set up for one output; choose such a work.")
    started, worked = time.perf_counter(), time.process_time()
    v, w = solved(X, Y[:, 0], job["lam"], job["options"]["gates"], job["options"]["seed"])
    told = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - worked}
    neurons, signs = np.vstack([v, w]), np.repeat([1.0, -1.0], len(v))
    lengths = np.linalg.norm(neurons, axis=1)
    used = lengths > 1e-9 * lengths.max()
    roots = np.sqrt(lengths[used])
    W1, W2 = neurons[used] / roots[:, None], (signs[used] * roots)[None]
    told["width"] = len(W1)
    np.savez(directory / "weights.npz", W1=np.pad(W1, ((0, 0), (0, 1))), W2=np.pad(W2, ((0, 0), (0, 1))))
    (directory / "run.json").write_text(json.dumps(told))


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
    main(Path(sys.argv[1]))
