"""Problems made to refute a lower bound, with networks whose cost is known: duplicates, near-ties, scales far apart.

Nothing here comes from covopt: data and networks are NumPy, and a network's cost is evaluated in NumPy.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SLOPES = (0.0, 0.0, 0.0, 0.01, 0.5, -0.5, -0.99, 1.0)
BIASES = (0.0, 0.0, 1.0, 1.0, 1e-3, 1e3)
MISFITS = {2: 1e-10}
"""What a network of depth 2 may miss, relative to the largest target, and still fit exactly; 1e-7 at other depths."""


@dataclass(frozen=True)
class Attack:
    """A problem and the least cost of the networks that are known for it.

    Attributes:
        X, Y: the data.
        options: of `make_problem` and `solve`.
        upper: no true lower bound is above this.
        says: how the data were made.
    """

    X: Array
    Y: Array
    options: dict[str, object]
    upper: float
    says: str
    weights: list[Array] = field(default_factory=list)


def outputs(X: Array, weights: list[Array], beta: float, slope: float) -> Array:
    """F of the network W_1 ... W_L, the bias column last."""
    Z = X
    for W in weights[:-1]:
        Z = with_bias(Z, beta) @ W.T
        Z = np.where(Z >= 0.0, Z, slope * Z)
    return with_bias(Z, beta) @ weights[-1].T


def with_bias(Z: Array, beta: float) -> Array:
    """[Z, beta 1]."""
    return np.hstack([Z, np.full((len(Z), 1), beta)])


def cost(X: Array, Y: Array, weights: list[Array], loss: str, lam: float, beta: float, slope: float) -> float:
    """The objective of a network, infinite where it is no exact fit but should be."""
    F, norm = outputs(X, weights, beta, slope), float(sum((W**2).sum() for W in weights))
    if loss == "interpolate":
        allowed = MISFITS.get(len(weights), 1e-7) * np.abs(Y).max()
        return norm if np.abs(F - Y).max() <= allowed else np.inf
    if loss == "mse":
        return float(((F - Y) ** 2).sum() / len(Y) + lam * norm)
    top = F.max(axis=1, keepdims=True)
    return float((np.log(np.exp(F - top).sum(axis=1)) + top[:, 0] - (F * Y).sum(axis=1)).mean() + lam * norm)


def inputs(rng: np.random.Generator, samples: int, columns: int) -> tuple[Array, str]:
    """Inputs that are hard on numerics, and what makes them so."""
    kinds = "gauss int repeat collinear zero near-rows near-rank row-scales column-scales scale features ties one-hot"
    kind = str(rng.choice(kinds.split()))
    X = rng.standard_normal((samples, columns))
    i, j = rng.integers(samples), rng.integers(samples)
    match kind:
        case "int":
            X = rng.integers(-2, 3, X.shape).astype(float)
        case "repeat":
            X[i] = X[j]
        case "collinear":
            X = np.outer(X[:, 0], rng.standard_normal(columns))
        case "zero":
            X[i] = 0.0
        case "near-rows":
            X[i] = X[j] * rng.choice([1.0, -1.0, 1.0 + 2.0**-52]) + 10.0 ** rng.uniform(-17, -4) * X[i]
        case "near-rank":
            X = np.outer(X[:, 0], rng.standard_normal(columns)) + 10.0 ** rng.uniform(-14, -5) * X
        case "row-scales":
            X *= 10.0 ** rng.uniform(-8, 8, (samples, 1))
        case "column-scales":
            X *= 10.0 ** rng.uniform(-8, 8, (1, columns))
        case "scale":
            X *= 10.0 ** rng.uniform(-150, 70)
        case "features":
            X[:, 0] = X[:, -1] * rng.choice([1.0, -1.0, 2.0])
        case "ties":
            X = np.round(X, 1) + 1e-13 * X
        case "one-hot":
            X = np.eye(max(X.shape))[:samples, :columns]
    return X, kind


def network(rng: np.random.Generator, X: Array, widths: list[int], beta: float) -> list[Array]:
    """A random network: general, without bias, nearly of rank one, or along the inputs' first direction."""
    weights = [rng.standard_normal((n, m + 1)) for m, n in itertools.pairwise(widths)]
    kind = rng.choice(["general", "biasless", "nearly", "along"])
    if kind != "general":
        for W in weights:
            W[:, -1] *= 0.01 if kind == "nearly" else 0.0
    if kind == "along":
        direction = np.linalg.svd(X / (np.abs(X).max() or 1.0))[2][0]
        for layer, W in enumerate(weights[:-1]):
            W[:, :-1] = 0.0
            if layer == 0:
                W[:, :-1] = np.outer(np.resize([1.0, -1.0], len(W)), direction)
            else:
                np.fill_diagonal(W[:, :-1], 1.0)
    norms = [np.linalg.norm(W) for W in weights]
    mean = np.exp(np.mean(np.log(norms))) * 10.0 ** rng.uniform(-3, 3)
    return [W * (mean / norm) for W, norm in zip(weights, norms, strict=True)]


def attack(seed: int, depth: int | None = None) -> Attack | None:
    """One problem with what its networks cost; None where the draw gives none (zero targets, numbers beyond 1e75)."""
    rng = np.random.default_rng(seed)
    samples, columns, classes = int(rng.integers(1, 9)), int(rng.integers(1, 6)), int(rng.choice([1, 1, 2, 3]))
    drawn = int(rng.choice([2, 2, 2, 3, 4, 6, 13]))
    depth = drawn if depth is None else depth
    slope, beta = float(rng.choice(SLOPES)), float(rng.choice(BIASES))
    X, kind = inputs(rng, samples, columns)
    loss = str(rng.choice(["interpolate", "interpolate", "mse", "cross_entropy"]))
    loss = "mse" if loss == "cross_entropy" and classes == 1 else loss
    lam = 1.0 if loss == "interpolate" else 10.0 ** rng.uniform(-12, 3)
    widths = [columns, *[int(rng.choice([1, 2, 4]))] * (depth - 1), classes]
    weights = network(rng, X, widths, beta)
    with np.errstate(over="ignore", invalid="ignore"):
        F = outputs(X, weights, beta, slope)
    largest = float(np.abs(F).max())
    if not np.isfinite(F).all() or not 1e-250 < largest < 1e70:
        return None
    Y = _targets(rng, F, loss, largest, MISFITS.get(depth, 1e-7))
    upper = _least(rng, X, Y, weights, loss, lam, beta, slope)
    if not np.isfinite(upper):
        return None
    activation = {0.0: "relu", 1.0: "linear"}.get(slope, f"leaky:{slope}")
    options: dict[str, object] = {"loss": loss, "depth": depth, "bias": beta, "activation": activation}
    options |= {} if loss == "interpolate" else {"lam": lam}
    return Attack(X, Y, options, upper, f"seed {seed}, {kind}, {loss}, depth {depth}", weights)


def _targets(rng: np.random.Generator, F: Array, loss: str, largest: float, misfit: float) -> Array:
    if loss == "cross_entropy":
        labels = F.argmax(axis=1) if rng.random() < 0.5 else rng.integers(0, F.shape[1], len(F))
        soft = rng.dirichlet(np.full(F.shape[1], rng.choice([0.1, 1.0, 10.0])), len(F))
        return np.eye(F.shape[1])[labels] if rng.random() < 0.6 else soft
    if loss == "interpolate":  # half of the networks miss by nearly as much as is allowed
        return F + 0.9 * misfit * largest * rng.uniform(-1, 1, F.shape) * (rng.random() < 0.5)
    return F + rng.choice([0.0, 1e-3, 1.0]) * largest * rng.standard_normal(F.shape)


def _least(
    rng: np.random.Generator, X: Array, Y: Array, weights: list[Array], loss: str, lam: float, beta: float, slope: float
) -> float:
    """The least cost of the network, its rescalings, the zero network, the constant ones."""
    zero = [W * 0.0 for W in weights]
    constants = [W.copy() for W in zero]
    if beta > 0.0:
        constants[-1][:, -1] = Y.mean(axis=0) / beta / (1.0 + lam / beta**2 if loss == "mse" else 1.0)
    known = [weights, zero, constants]
    if loss != "interpolate":
        known += [[W * scale for W in weights] for scale in 10.0 ** np.linspace(-3, 1, 17)]
    if beta == 0.0:  # layers may be rescaled against each other: balanced is cheapest
        norms = [np.linalg.norm(W) for W in weights]
        mean = np.exp(np.mean(np.log(norms)))
        known.append([W * (mean / norm) for W, norm in zip(weights, norms, strict=True)])
    with np.errstate(over="ignore", invalid="ignore"):
        costs = [cost(X, Y, each, loss, lam, beta, slope) for each in known]
    return float(min((c for c in costs if np.isfinite(c)), default=np.inf))
