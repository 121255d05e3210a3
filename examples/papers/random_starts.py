"""Ordinary training from several random starts at once: Adam on all samples, with a penalty that falls to lam.

A penalty that is strong at first leaves few dimensions where the fit begins; a constant one leaves deep networks with
many more, and costs more time. Steps are counted, so that a seed gives the same networks however busy the machine is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from figure_design import applied, square
from jaxtyping import Float
from torch import Tensor

Network = list[Float[np.ndarray, "_ _"]]


class Schedule(NamedTuple):
    """A training: its steps, its largest rate, and how many times stronger the penalty is at first.

    The rate rises in the first `warm` steps, and a cosine takes it down to 0; the penalty falls geometrically to lam at
    half of the steps.
    """

    steps: int
    rate: float = 5e-3
    stronger: float = 40.0
    warm: int = 100

    def rate_at(self, step: int) -> float:
        """The rate of a step."""
        return self.rate * min(1.0, (step + 1) / self.warm) * 0.5 * (1.0 + math.cos(math.pi * step / self.steps))

    def penalty_at(self, step: int) -> float:
        """Return the penalty of a step as a multiple of lam."""
        return self.stronger ** max(0.0, 1.0 - 2.0 * step / self.steps)

    def __str__(self) -> str:
        return f"Adam, {self.steps} steps, rate {self.rate:g}; penalty at first {self.stronger:g} lam"


def trained(
    X: Float[np.ndarray, "N n0"],
    Y: Float[np.ndarray, "N nL"],
    hidden: Sequence[int],
    lam: float,
    starts: int,
    seed: int,
    schedule: Schedule,
) -> list[Network]:
    """Minimise the mean of |f(x) - y|^2 + lam |W|^2 from each of some random starts, He-scaled, in float32.

    Args:
        X, Y: samples and targets.
        hidden: widths n_1 ... n_{L-1}.
        lam: the penalty at the end.
        starts, seed: how many random starts, and their seed.
        schedule: the training.

    Returns:
        Of each start W_1 ... W_L, the bias column last.
    """
    generator = torch.Generator().manual_seed(seed)
    widths = (X.shape[1], *hidden, Y.shape[1])
    slopes = [torch.randn(starts, n, m, generator=generator) * math.sqrt(2.0 / n) for n, m in pairwise(widths)]
    biases = [torch.zeros(starts, 1, m) for m in widths[1:]]
    weights = [W.requires_grad_() for W in (*slopes, *biases)]
    inputs, targets = (torch.as_tensor(array, dtype=torch.float32) for array in (X, Y))
    optimizer = torch.optim.Adam(weights, betas=(0.9, 0.99))
    for step in range(schedule.steps):
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate_at(step)
        fit = (_outputs(slopes, biases, inputs) - targets).square().sum(dim=2).mean(dim=1)
        optimizer.zero_grad()
        (fit.sum() + lam * schedule.penalty_at(step) * sum(W.square().sum() for W in weights)).backward()
        optimizer.step()
    layers = [torch.cat([A, b], dim=1).mT.detach().double().numpy() for A, b in zip(slopes, biases, strict=True)]
    return [[W[k] for W in layers] for k in range(starts)]


def _outputs(slopes: list[Tensor], biases: list[Tensor], X: Tensor) -> Tensor:
    """The outputs of each of the networks (k, N, n_L)."""
    Z = X.expand(len(slopes[0]), -1, -1)
    for layer, (A, b) in enumerate(zip(slopes, biases, strict=True)):
        Z = torch.baddbmm(b, torch.relu(Z) if layer else Z, A)
    return Z


def cost(layers: Network, X: Float[np.ndarray, "N n0"], Y: Float[np.ndarray, "N nL"], lam: float) -> float:
    """The mean of |f(x) - y|^2 + lam |W|^2."""
    return float(((applied(layers, X) - Y) ** 2).sum(axis=1).mean()) + lam * square(layers)


def best(
    networks: Sequence[Network], X: Float[np.ndarray, "N n0"], Y: Float[np.ndarray, "N nL"], lam: float
) -> Network:
    """The network of the lowest cost."""
    return min(networks, key=lambda layers: cost(layers, X, Y, lam))
