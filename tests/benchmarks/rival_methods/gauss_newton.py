"""The structure-guided Gauss-Newton method for shallow ReLU networks (Cai, Ding, Liu, Liu, Xia, arXiv:2404.05064).

In turns: the outer weights by linear least squares (here with the ridge of the objective), then a damped Gauss-Newton
step of the hidden layer with the outer weights as they are. Its matrix sum_s (V^T V)_ij [z_si > 0][z_sj > 0] x_s x_s^T
plus N lam I is definite, so nothing is shifted. It is solved directly in the smaller of both forms while that is small,
else by conjugate gradients. The damping is found by halving. Balancing is ours: it is free, and helps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.benchmarks.rival_methods.common import Question, balance, he_start, outer, with_bias
from tests.benchmarks.rival_methods.log import Log

STILL = 1e-7
"""Relative gain of 10 turns below which the next start begins."""


def run(
    question: Question,
    log: Log,
    seed: int,
    *,
    width: int = 60,
    scale: float = 1.0,
    turns: int = 40,
    direct: int = 500,
    method: str = "",
) -> None:
    """Starts one after another until the time is up.

    Args:
        turns: of conjugate gradients.
        direct: unknowns, up to which the system is factored instead.
    """
    Xt, Y, lam, beta, rng = question.Xt, question.Y, question.lam, question.beta, np.random.default_rng(seed)
    while log.running():
        W, costs = he_start(rng, Xt, width, scale), []
        while log.running():
            H = np.maximum(Xt @ W.T, 0.0)
            V = outer(with_bias(H, beta), Y, len(Xt) * lam)
            W, V = balance(W, V)
            log.see(W, V)
            W, cost = _step(Xt, Y, W, V, lam, beta, turns, direct)
            costs.append(cost)
            if len(costs) > 10 and costs[-11] - cost < STILL * cost:
                break


def _step(
    Xt: np.ndarray, Y: np.ndarray, W: np.ndarray, V: np.ndarray, lam: float, beta: float, turns: int, direct: int
) -> tuple[np.ndarray, float]:
    """A damped Gauss-Newton step of W (n, d) and the cost there."""
    N, A, Z = len(Xt), V[:, :-1], Xt @ W.T
    D = (Z > 0.0).astype(float)
    R = np.maximum(Z, 0.0) @ A.T + beta * V[:, -1] - Y
    cost = _cost(Xt, Y, W, V, lam, beta)
    gradient = (D * (R @ A)).T @ Xt / N + lam * W
    if min(Y.size, W.size) <= direct:
        p = _direct(Xt, D, A, gradient, lam)
    else:

        def product(p: np.ndarray) -> np.ndarray:
            return (D * ((D * (Xt @ p.T)) @ A.T @ A)).T @ Xt / N + lam * p

        p = conjugate_gradients(product, -gradient, turns)
    size, slope = 1.0, 2.0 * float(np.sum(gradient * p))
    while size > 1e-6:
        reached = _cost(Xt, Y, W + size * p, V, lam, beta)
        if reached <= cost + 1e-4 * size * slope:
            return W + size * p, reached
        size *= 0.5
    return W, cost


def _direct(Xt: np.ndarray, D: np.ndarray, A: np.ndarray, gradient: np.ndarray, lam: float) -> np.ndarray:
    """-(J^T J / N + lam I)^-1 gradient with J (N m, n d), J[(s, k), (i, a)] = A_ki D_si x_sa."""
    N, m, n, d = len(Xt), len(A), *gradient.shape
    J = np.einsum("ki,si,sa->skia", A, D, Xt, optimize=True).reshape(N * m, n * d) / np.sqrt(N)
    g = gradient.ravel()
    if n * d <= N * m:
        return -np.linalg.solve(J.T @ J + lam * np.eye(n * d), g).reshape(n, d)
    inside = np.linalg.solve(J @ J.T + lam * np.eye(N * m), J @ g)
    return -((g - J.T @ inside) / lam).reshape(n, d)


def conjugate_gradients(product: Callable[[np.ndarray], np.ndarray], b: np.ndarray, turns: int) -> np.ndarray:
    """An approximate solution of product(x) = b."""
    x, r = np.zeros_like(b), b.copy()
    p, square = r.copy(), float(np.sum(r * r))
    aim = 1e-6 * square
    for _ in range(turns):
        if square <= aim:
            break
        q = product(p)
        size = square / float(np.sum(p * q))
        x, r = x + size * p, r - size * q
        before, square = square, float(np.sum(r * r))
        p = r + square / before * p
    return x


def _cost(Xt: np.ndarray, Y: np.ndarray, W: np.ndarray, V: np.ndarray, lam: float, beta: float) -> float:
    F = np.maximum(Xt @ W.T, 0.0) @ V[:, :-1].T + beta * V[:, -1]
    return float(np.sum((F - Y) ** 2) / len(Xt) + lam * (np.sum(W**2) + np.sum(V**2)))
