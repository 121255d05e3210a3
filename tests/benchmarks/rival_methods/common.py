"""What the rivals share: the question, a start, the ridge regression of the outer weights, and balancing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

TINY = 1e-300


@dataclass(frozen=True)
class Question:
    """min C(F) + lam (|W_1|^2 + ... + |W_L|^2), by most rivals for L = 2 and C = (1/N) |F - Y|^2 alone.

    Attributes:
        X: inputs (N, n_0).
        Y: targets (N, n_L).
        lam: strength of the penalty.
        beta: the size of the bias neuron.
        depth: L.
        loss: mse, cross_entropy, huber or logistic.
    """

    X: np.ndarray
    Y: np.ndarray
    lam: float
    beta: float
    depth: int = 2
    loss: str = "mse"

    @property
    def Xt(self) -> np.ndarray:
        """[X, beta 1]."""
        return with_bias(self.X, self.beta)


def with_bias(X: np.ndarray, beta: float) -> np.ndarray:
    """[X, beta 1]."""
    return np.hstack([X, np.full((len(X), 1), beta)])


def he_start(rng: np.random.Generator, Xt: np.ndarray, width: int, scale: float) -> np.ndarray:
    """W_1 (width, d) of variance 2 scale^2 / d."""
    return scale * np.sqrt(2.0 / Xt.shape[1]) * rng.standard_normal((width, Xt.shape[1]))


def outer(H: np.ndarray, Y: np.ndarray, mu: float) -> np.ndarray:
    """argmin_V |H V^T - Y|^2 + mu |V|^2, (m, n), by the smaller of the two normal equations."""
    if H.shape[1] <= len(H):
        return np.linalg.solve(H.T @ H + mu * np.eye(H.shape[1]), H.T @ Y).T
    return (H.T @ np.linalg.solve(H @ H.T + mu * np.eye(len(H)), Y)).T


def balance(W1: np.ndarray, W2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same function with incoming and outgoing weights of one norm; neurons that do nothing stay as they are."""
    incoming, outgoing = np.linalg.norm(W1, axis=1), np.linalg.norm(W2[:, :-1], axis=0)
    alive = incoming * outgoing > TINY
    factor = np.where(alive, np.sqrt(np.maximum(outgoing, TINY) / np.maximum(incoming, TINY)), 1.0)
    return W1 * factor[:, None], W2 / np.append(factor, 1.0)
