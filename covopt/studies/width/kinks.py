"""Starts of two-layer networks from sets of kinks, the lines on which the outputs bend.

A direction w puts the kink of a neuron where w . (x, beta) = 0: with one input at a point, at a sample or between two.
Outer weights by ridge regression give an interpolant of the targets, or come near one. New sets are random, or vary the
kinks of good networks: some are dropped, merged, added or replaced. Nothing here descends or proves anything.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.weights import Weights
from covopt.oracles.neurons import balance

# Share of random kinks that go through a sample, as those of optima often do.
THROUGH_SAMPLES = 0.5
# The ridge relative to the mean square of the hidden values.
RIDGE = 1e-3
# Share of the steps to fewer kinks that merge two; the others drop one.
MERGING = 0.5


def draw_kinks(problem: Problem, count: int, generator: torch.Generator) -> Float[Tensor, "count d"]:
    """Return unit directions whose kinks separate neighbouring samples along random axes."""
    X, rows = problem.X, []
    for _ in range(count):
        axis = torch.randn(X.shape[1], generator=generator, dtype=torch.float64)
        axis = axis / axis.norm()
        places = (X @ axis).sort().values
        i, shift, at_sample = (float(r) for r in torch.rand(3, generator=generator, dtype=torch.float64))
        low = min(int(i * len(places)), len(places) - 1)
        high = min(low + 1, len(places) - 1)
        offset = places[low] + (0.0 if at_sample < THROUGH_SAMPLES else shift) * (places[high] - places[low])
        bias = -offset / problem.beta if problem.beta > 0.0 else 0.0 * offset
        rows.append(torch.cat([axis, bias[None]]))
    return torch.nn.functional.normalize(torch.stack(rows), dim=1)


def vary_kinks(problem: Problem, weights: Weights, width: int, generator: torch.Generator) -> Float[Tensor, "width d"]:
    """Return directions near a network's: fewer by merges and drops, or with new ones."""
    W1, W2 = weights
    unit = torch.nn.functional.normalize(W1, dim=1)
    sizes = W1.norm(dim=1) * W2[:, :-1].norm(dim=0)
    if len(unit) == width:  # replace one
        unit, sizes = _without(unit, sizes, _pick(len(unit), generator))
    while len(unit) > width:
        i = _pick(len(unit), generator)
        if float(torch.rand(1, generator=generator)) < MERGING:
            # Merging two neurons with near directions into their mean changes the outputs least.
            near = (unit @ unit[i]).index_fill(0, torch.tensor([i]), -2.0)
            j = int(near.topk(min(2, len(near) - 1)).indices[_pick(min(2, len(near) - 1), generator)])
            mean = torch.nn.functional.normalize(sizes[i] * unit[i] + sizes[j] * unit[j], dim=0)
            unit, sizes = unit.clone(), sizes.clone()
            unit[j], sizes[j] = mean, sizes[i] + sizes[j]
        unit, sizes = _without(unit, sizes, i)
    return torch.cat([unit, draw_kinks(problem, width - len(unit), generator)]) if len(unit) < width else unit


def fit_kinks(problem: Problem, directions: Float[Tensor, "B n d"]) -> list[list[Tensor]]:
    """Return balanced networks with these kinks, with outer weights by ridge regression."""
    hidden = problem.activation(problem.Xt @ directions.mT)
    A = torch.cat([hidden, torch.full_like(hidden[..., :1], problem.bias(1))], dim=2)
    gram = A.mT @ A
    ridge = RIDGE * gram.diagonal(dim1=1, dim2=2).mean(dim=1)
    gram.diagonal(dim1=1, dim2=2).add_(ridge[:, None] + torch.finfo(gram.dtype).tiny)
    outer = torch.linalg.solve_ex(gram, A.mT @ problem.Y)[0]
    networks = []
    for rows, V in zip(directions, outer, strict=True):
        W1, v = balance(rows, V[:-1])
        networks.append([W1, torch.cat([v.T, V[-1][:, None]], dim=1)])
    return networks


def _without(unit: Tensor, sizes: Tensor, i: int) -> tuple[Tensor, Tensor]:
    remaining = torch.arange(len(unit)) != i
    return unit[remaining], sizes[remaining]


def _pick(count: int, generator: torch.Generator) -> int:
    return int(torch.randint(count, (1,), generator=generator))
