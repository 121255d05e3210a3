"""Random networks and what is asked of them, for the tests of the three faces of the loss and their benchmark."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

import covopt

LOSSES = ("mse", "cross_entropy", "huber:0.7", "logistic", None)
BIASES = (0.0, 1.0, "free")
ACTIVATIONS = ("relu", "leaky:0.2")


def network(seed: int, depth: int, loss: str | None = "mse", samples: int = 6, widths: Sequence[int] | None = None):
    """X, Y, W and the weights of the samples, at random."""
    rng = np.random.default_rng(seed)
    outputs = {"logistic": 1, "cross_entropy": 3}.get(str(loss), 2)
    dims = [3, *(rng.integers(1, 2 * samples, size=depth - 1) if widths is None else widths), outputs]
    X, Y = rng.normal(size=(samples, 3)), rng.normal(size=(samples, outputs))
    Y = np.sign(Y) if loss == "logistic" else np.eye(3)[rng.integers(3, size=samples)] if outputs == 3 else Y
    W = [rng.normal(size=(n, m + 1)) for m, n in pairwise(dims)]
    return X, Y, W, rng.uniform(0.2, 2.0, size=samples)


def condition(Z: Sequence[np.ndarray], bias: float | str, slope: float = 0.0) -> float:
    """What a dense covariance loses: the largest over the smallest singular value of a layer, but for rounding.

    The largest is that of [sigma(Z_l), beta 1], the smallest that of what the penalised weights act on: with free
    biases, the part of sigma(Z_l) that is not constant.
    """
    worst = 1.0
    for z in Z[:-1]:
        S = np.where(z > 0, z, slope * z)
        whole = np.hstack([S, np.full((len(z), 1), 1.0 if bias == "free" else float(bias))])
        s = np.linalg.svd(S - S.mean(axis=0) if bias == "free" else whole, compute_uv=False)
        largest = np.linalg.norm(whole, 2)
        s = s[s > 1e-12 * largest]
        worst = max(worst, largest / s[-1] if len(s) else 1.0)
    return float(worst)


def on_segment(X: Any, Y: Any, pairs: list, ZL: Any, layer: int, ends: Sequence[Any], t: float) -> float:
    """L_k with the pair of one hidden layer, or Z_L after the last, at t on a segment."""
    if layer == len(pairs):
        return covopt.loss_of_covariances(X, Y, pairs, (1 - t) * ends[0] + t * ends[1], lam=0.1).total
    mixed = tuple((1 - t) * A + t * B for A, B in zip(*ends, strict=True))
    K = [*pairs[:layer], mixed, *pairs[layer + 1 :]]
    return covopt.loss_of_covariances(X, Y, K, ZL, lam=0.1).total
