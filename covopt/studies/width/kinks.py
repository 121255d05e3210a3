"""Starts for two-layer networks, as sets of kinks: the lines, one for each neuron, on which the outputs bend.

A direction w puts the kink of a neuron where w . (x, beta) = 0: with one input at a point, at a sample or between two.
Outer weights by ridge regression make an interpolant of the targets, or what comes near. New sets are drawn, or made of
the kinks of good networks: some dropped or merged, added, or drawn anew. Nothing here descends or proves anything.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.weights import Weights
from covopt.oracles.neurons import balance

# Of the kinks drawn, the part that goes through a sample, where those of optima often are.
THROUGH_SAMPLES = 0.5
# The ridge relative to the mean square of the hidden values.
RIDGE = 1e-3
# Of the steps to fewer kinks, the part that merges two; the others drop one.
MERGING = 0.5


def draw_kinks(problem: Problem, count: int, generator: torch.Generator) -> Float[Tensor, "count d"]:
    """Return unit directions whose kinks separate neighbouring samples, in the order along a random axis."""
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
    """Return directions like those of the network: fewer by merges and drops, or with new ones in place of one."""
    W1, W2 = weights
    unit = torch.nn.functional.normalize(W1, dim=1)
    sizes = W1.norm(dim=1) * W2[:, :-1].norm(dim=0)
    if len(unit) == width:  # one is drawn anew
        unit, sizes = _without(unit, sizes, _pick(len(unit), generator))
    while len(unit) > width:
        i = _pick(len(unit), generator)
        if float(torch.rand(1, generator=generator)) < MERGING:
            # Two neurons whose directions are near lose the least when one takes their mean.
            near = (unit @ unit[i]).index_fill(0, torch.tensor([i]), -2.0)
            j = int(near.topk(min(2, len(near) - 1)).indices[_pick(min(2, len(near) - 1), generator)])
            mean = torch.nn.functional.normalize(sizes[i] * unit[i] + sizes[j] * unit[j], dim=0)
            unit, sizes = unit.clone(), sizes.clone()
            unit[j], sizes[j] = mean, sizes[i] + sizes[j]
        unit, sizes = _without(unit, sizes, i)
    return torch.cat([unit, draw_kinks(problem, width - len(unit), generator)]) if len(unit) < width else unit


def fit_kinks(problem: Problem, directions: Float[Tensor, "B n d"]) -> list[list[Tensor]]:
    """Return balanced networks with these kinks, their outer weights by ridge regression on the targets."""
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
    kept = torch.arange(len(unit)) != i
    return unit[kept], sizes[kept]


def _pick(count: int, generator: torch.Generator) -> int:
    return int(torch.randint(count, (1,), generator=generator))
