"""Networks by group lasso over sampled activation patterns, for any solver of it.

A round samples patterns D_i = 1(Xt g_i > 0), half of them near the neurons so far, and solves, for each output k, the
programme of gated networks min (1/N) |sum_i D_i Xt u_ik - y_k|^2 + 2 lam sum_i |u_ik| (Pilanci and Ergen 2020; Mishkin,
Sahiner and Pilanci 2022; without the cone constraints). Its solutions are directions of neurons: relu(Xt u) and
relu(-Xt u) with unit u, together with the gates and the neurons of the rounds before, are the features of a second
group lasso, min (1/N) |H V - Y|^2 + 2 lam sum_j |v_j|, and that one is exactly our objective over networks of those
directions. Rounds double the patterns. The output's bias is minimised out: that multiplies Y and the features by
I - c 1 1^T.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.benchmarks.rival_methods.common import Question
from tests.benchmarks.rival_methods.log import Log

Gated = Callable[[np.ndarray, np.ndarray, int, float], np.ndarray]
"""(A (N, P d), y (N,), d, lam) -> u (P d,) that minimises (1/N) |A u - y|^2 + 2 lam sum |u_i| over groups of d."""
Tasks = Callable[[np.ndarray, np.ndarray, float], np.ndarray]
"""(H (N, P), Y (N, m), lam) -> V (P, m) that minimises (1/N) |H V - Y|^2 + 2 lam sum |V_j|."""
USED, LARGEST = 1e-6, 6e7
"""A group counts from so large a part of the largest; numbers in the matrix of patterns, at most."""
NEAR = 0.3
"""Distance of the gates drawn near a neuron."""


def rounds(question: Question, log: Log, seed: int, gated: Gated, tasks: Tasks, gates: int) -> None:
    """Rounds until the time is up; `gates`: patterns of the first round."""
    Xt, Y, lam, rng = question.Xt, question.Y, question.lam, np.random.default_rng(seed)
    centred = Centring(len(Xt), lam, question.beta)
    kept = np.zeros((0, Xt.shape[1]))
    target = centred(Y)
    while log.running():
        drawn = _gates(rng, kept, min(gates, int(LARGEST // Xt.size)))
        found = _directions(Xt, target, lam, drawn, gated, centred, log)
        points = np.vstack([kept, drawn, found, -found])
        points = points[np.any(Xt @ points.T > 0.0, axis=0)]
        H = np.maximum(Xt @ points.T, 0.0)
        V = tasks(np.asfortranarray(centred(H)), np.asfortranarray(target), lam)
        sizes = np.linalg.norm(V, axis=1)
        used = sizes > 1e-12 * max(float(sizes.max()), 1e-300)
        kept, roots = points[used], np.sqrt(sizes[used])
        b = centred.bias(H[:, used] @ V[used] - Y)
        log.see(kept * roots[:, None], np.hstack([(V[used] / roots[:, None]).T, b[:, None]]), always=True)
        gates *= 2


class Centring:
    """A root of what is left of (1/N) |R|^2 when min_b (1/N) |R + beta b|^2 + lam |b|^2 has been taken."""

    def __init__(self, N: int, lam: float, beta: float) -> None:
        self._share = 1.0 - np.sqrt(lam / (beta**2 + lam))
        self._beta, self._lam = beta, lam

    def __call__(self, A: np.ndarray) -> np.ndarray:
        return A - self._share * np.mean(A, axis=0)

    def bias(self, R: np.ndarray) -> np.ndarray:
        """The minimising b."""
        return -self._beta * np.mean(R, axis=0) / (self._beta**2 + self._lam)


def _gates(rng: np.random.Generator, kept: np.ndarray, count: int) -> np.ndarray:
    """Unit vectors (P, d): the neurons so far, half of the count near them, and random ones."""
    d = kept.shape[1]
    near = kept[rng.integers(len(kept), size=count // 2)] if len(kept) else kept
    near = near + NEAR / np.sqrt(d) * rng.standard_normal(near.shape)
    drawn = np.vstack([kept, near, rng.standard_normal((count - len(near), d))])
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def _directions(
    Xt: np.ndarray, target: np.ndarray, lam: float, gates: np.ndarray, gated: Gated, centred: Centring, log: Log
) -> np.ndarray:
    """Unit u (P, d) of the gated programmes of all outputs; those that the time left no room for are missing."""
    N, d = Xt.shape
    patterns = np.unique(Xt @ gates.T > 0.0, axis=1)
    D = patterns[:, patterns.any(axis=0)].astype(float)  # skglm divides by the norms of the groups
    A = np.asfortranarray(centred((D[:, :, None] * Xt[:, None, :]).reshape(N, -1)))
    found = []
    for y in target.T:
        if not log.running():
            break
        u = gated(A, np.ascontiguousarray(y), d, lam).reshape(-1, d)
        sizes = np.linalg.norm(u, axis=1)
        found.append(u[sizes > USED * max(float(sizes.max()), 1e-300)])
    points = np.vstack([*found, np.zeros((0, d))])
    return points / np.linalg.norm(points, axis=1, keepdims=True)
