"""Gauss-Newton with variable projection (Newman, Ruthotto, Hart, van Bloemen Waanders, arXiv:2007.13171).

The outer weights are those of the ridge regression for the hidden ones, V(W), and f(W) = min_V is minimised by
Gauss-Newton in a trust region, each step by a few turns of Steihaug's conjugate gradients. The matrix is Kaufman's:
A^T P A / N + lam I with A p = ([Z > 0] * Xt p^T) V^T and P = I - H (H^T H + N lam I)^-1 H^T, the residual's projection.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.benchmarks.rival_methods.common import Question, he_start, outer, with_bias
from tests.benchmarks.rival_methods.log import Log

STILL = 1e-8
"""Relative gain of 10 turns below which the next start begins."""


def run(
    question: Question, log: Log, seed: int, *, width: int = 60, scale: float = 1.0, turns: int = 20, method: str = ""
) -> None:
    """Starts one after another until the time is up; `turns`: of conjugate gradients, the paper's rank."""
    Xt, Y, lam, beta, rng = question.Xt, question.Y, question.lam, question.beta, np.random.default_rng(seed)
    while log.running():
        W, costs = he_start(rng, Xt, width, scale), []
        radius = float(np.linalg.norm(W))
        cost, V, H = _reduced(Xt, Y, W, lam, beta)
        while log.running() and radius > 1e-9 * np.linalg.norm(W):
            log.see(W, V)
            gradient, product = _model(Xt, Y, W, V, H, lam)
            p = steihaug(product, gradient, radius, turns)
            predicted = -2.0 * float(np.sum(gradient * p)) - float(np.sum(p * product(p)))
            reached = _reduced(Xt, Y, W + p, lam, beta)
            ratio = (cost - reached[0]) / max(predicted, 1e-300)
            if ratio > 1e-4:
                W, (cost, V, H) = W + p, reached
            radius = 2.0 * radius if ratio > 0.75 else radius if ratio > 0.25 else 0.25 * float(np.linalg.norm(p))
            costs.append(cost)
            if len(costs) > 20 and costs[-21] - cost < STILL * cost:
                break


def _reduced(
    Xt: np.ndarray, Y: np.ndarray, W: np.ndarray, lam: float, beta: float
) -> tuple[float, np.ndarray, np.ndarray]:
    """f(W), V(W) and H = [relu(Xt W^T), beta 1]."""
    H = with_bias(np.maximum(Xt @ W.T, 0.0), beta)
    V = outer(H, Y, len(Xt) * lam)
    cost = np.sum((H @ V.T - Y) ** 2) / len(Xt) + lam * (np.sum(W**2) + np.sum(V**2))
    return float(cost), V, H


def _model(
    Xt: np.ndarray, Y: np.ndarray, W: np.ndarray, V: np.ndarray, H: np.ndarray, lam: float
) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Half of the gradient of f, and the product with half of its Gauss-Newton matrix."""
    N, A, D = len(Xt), V[:, :-1], (H[:, :-1] > 0.0).astype(float)
    inverse = np.linalg.inv(H.T @ H + N * lam * np.eye(H.shape[1]))
    gradient = (D * ((H @ V.T - Y) @ A)).T @ Xt / N + lam * W

    def product(p: np.ndarray) -> np.ndarray:
        moved = (D * (Xt @ p.T)) @ A.T
        moved = moved - H @ (inverse @ (H.T @ moved))
        return (D * (moved @ A)).T @ Xt / N + lam * p

    return gradient, product


def steihaug(
    product: Callable[[np.ndarray], np.ndarray], gradient: np.ndarray, radius: float, turns: int
) -> np.ndarray:
    """An approximate minimiser of 2 <gradient, p> + <p, product(p)> over |p| <= radius."""
    p, r = np.zeros_like(gradient), -gradient
    q, square = r.copy(), float(np.sum(r * r))
    aim = 1e-4 * square
    for _ in range(turns):
        if square <= aim:
            break
        image = product(q)
        size = square / float(np.sum(q * image))
        if np.linalg.norm(p + size * q) >= radius:
            a, b, c = float(np.sum(q * q)), float(np.sum(p * q)), float(np.sum(p * p)) - radius**2
            return p + (-b + np.sqrt(max(0.0, b * b - a * c))) / a * q
        p, r = p + size * q, r - size * image
        before, square = square, float(np.sum(r * r))
        q = r + square / before * q
    return p
