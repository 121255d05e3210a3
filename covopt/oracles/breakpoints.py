"""Neurons (w, b) with free biases: the best b for each w, and a search for the best neuron."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.model.activation import Activation
from covopt.oracles.search import AscentOptions, ConvexConcaveOracle


def rows_of(W: Float[Tensor, "n d"], b: Float[Tensor, " n"]) -> Float[Tensor, "n d+1"]:
    """Return [W, b]: neurons as rows of hidden weights, the bias column last."""
    return torch.cat([W, b[:, None]], dim=1)


def best_breakpoints(
    X: Float[Tensor, "N d"], activation: Activation, Lambda: Float[Tensor, "N m"], W: Float[Tensor, "B d"]
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
    """Return for each w the b = -x_j^T w with the largest h, and h, by cumulative sums over sorted X w."""
    biases, values, a = [], [], activation.slope
    for z in W @ X.T:
        z, order = z.sort(descending=True)
        rows = Lambda[order]
        S0, S1 = rows.cumsum(dim=0), (z[:, None] * rows).cumsum(dim=0)
        above = S1 - z[:, None] * S0
        whole = S1[-1] - z[:, None] * S0[-1]
        h = ((1.0 - a) * above + a * whole).norm(dim=1)
        best = int(h.argmax())
        biases.append(-z[best])
        values.append(h[best])
    if not biases:
        return X.new_zeros(0), X.new_zeros(0)
    return torch.stack(biases), torch.stack(values)


def strongest(
    X: Float[Tensor, "N d"],
    activation: Activation,
    Lambda: Float[Tensor, "N m"],
    neurons: Float[Tensor, "k d+1"],
    count: int,
    seed: int,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[Float[Tensor, " d"], float, float] | None:
    """Search for the neuron (w, b) with the largest h = |Lambda^T sigma(X w + b)|, |w| = 1.

    Returns (w, b, h) of the best neuron found, or None.

    Args:
        X: inputs; the search centres them.
        Lambda: with column sums of 0.
        neurons: rows (w, b) to start from, besides `count` random ones of this seed.
        stop: asked before each step.
    """
    mean = X.mean(dim=0)
    rho = float((X - mean).norm(dim=1).max()) if X.shape[1] else 0.0
    if rho == 0.0 or not Lambda.shape[1]:
        return None
    scaled = torch.cat([(X - mean) / rho, X.new_ones(len(X), 1)], dim=1)
    own = torch.cat([rho * neurons[:, :-1], neurons[:, -1:] + (neurons[:, :-1] @ mean)[:, None]], dim=1)
    generator = torch.Generator(device=X.device).manual_seed(seed)
    random = torch.randn(count, scaled.shape[1], generator=generator, dtype=X.dtype, device=X.device)
    first = torch.cat([own[own.norm(dim=1) > 0], random])
    W = ConvexConcaveOracle(scaled, activation, AscentOptions())(Lambda, first, stop=stop).directions[:, :-1]
    W = torch.nn.functional.normalize(W[W.norm(dim=1) > 0], dim=1)
    biases, values = best_breakpoints(X - mean, activation, Lambda, W)
    if not len(values):
        return None
    best = int(values.argmax())
    return W[best], float(biases[best] - W[best] @ mean), float(values[best])
