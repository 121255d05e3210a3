"""The objective of a ReLU network from its weights alone: one NumPy function that all contenders share.

It is written anew here, from the definition, so that no contender is judged by its own code.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Objective:
    """What the weights cost.

    Attributes:
        cost: fit + lam norm, or norm alone for the representation cost (lam None).
        fit: (1/N) |F - Y|^2, or the mean of another loss.
        norm: |W_1|^2 + ... + |W_L|^2, bias columns included.
        residual: max |F - Y|.
    """

    cost: float
    fit: float
    norm: float
    residual: float


def objective(
    X: Array, Y: Array, weights: list[Array], *, lam: float | None, beta: float, slope: float, loss: str = "mse"
) -> Objective:
    """The objective at [W_1, ..., W_L], shapes (n, n_below + 1) with the bias columns last.

    F = [sigma(...), beta 1] W_L^T with sigma(z) = max(z, 0) + slope min(z, 0); lam None asks for the norm alone. Losses
    are mse, cross_entropy, huber (threshold 1, summed over the outputs) and logistic (one output, targets -1 and 1).
    """
    bias = np.full((len(X), 1), beta)
    Zs = np.hstack([X, bias])
    for W in weights[:-1]:
        Z = Zs @ W.T
        Zs = np.hstack([np.maximum(Z, 0.0) + slope * np.minimum(Z, 0.0), bias])
    F = Zs @ weights[-1].T
    if loss == "cross_entropy":
        largest = F.max(axis=1)
        logs = largest + np.log(np.exp(F - largest[:, None]).sum(axis=1))
        fit = float(np.mean(logs - np.sum(F * Y, axis=1)))
    elif loss == "huber":
        R = np.abs(F - Y)
        fit = float(np.sum(np.where(R <= 1.0, 0.5 * R**2, R - 0.5)) / len(X))
    elif loss == "logistic":
        fit = float(np.mean(np.logaddexp(0.0, -Y * F)))
    else:
        fit = float(np.sum((F - Y) ** 2) / len(X))
    norm = float(sum(np.sum(W**2) for W in weights))
    return Objective(norm if lam is None else fit + lam * norm, fit, norm, float(np.max(np.abs(F - Y))))
