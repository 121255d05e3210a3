"""Fine-tuning on mini-batches, from given weights and without new neurons.

Where hundreds of passes over the samples take minutes, L-BFGS (descent.py) makes almost no progress. There cycles of
Adam in float32 take its place, each twice as long as the one before, with a rate that falls along a cosine from a small
part of the weights' size: they continue from the network, not elsewhere. After each cycle the loss is evaluated over
all samples in float64, and the lowest network is kept. Steps are taken in the units of units.py, which float32 holds.

Sources: Kingma, Ba, Adam (2015); Loshchilov, Hutter, SGDR (2017), for the cycles.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.units import Units
from covopt.model.weights import Weights, evaluate, flattened, gradient, shaped_like
from covopt.runtime.loop import Budget
from covopt.solvers.training.cycles import CyclePace
from covopt.solvers.training.descent import Adam, AdamOptions

BATCH = 512  # samples of a step on batches


def train_on_batches(problem: Problem, weights: Weights, budget: Budget, seed: int = 0) -> tuple[list[Tensor], bool]:
    """Fine-tune a network on mini-batches within the time; return whether a cycle gained too little before that, too.

    Without a gain the network is returned as it is, bit for bit.
    """
    best, lowest, units = list(weights), evaluate(problem, weights).total, Units.of(problem)
    current, passes, pace = list(weights), 1, CyclePace()
    generator = torch.Generator(device=problem.X.device).manual_seed(seed)
    while not budget.spent():
        steps, last = pace.steps(math.ceil(passes * problem.samples / BATCH), budget)
        current = units.outward(_cycle(units.problem, units.inward(current), steps, pace, budget, generator))
        cost = evaluate(problem, current).total
        pace.closed(budget)
        gained, passes = lowest - cost, 2 * passes
        if cost < lowest:
            best, lowest = current, cost
        if last:
            break
        if steps >= 100 and gained <= 1e-3 * lowest:  # after fewer steps, Adam has not begun
            return best, True
        if not math.isfinite(cost):
            current = best
    return best, False


def _cycle(
    problem: Problem, weights: Weights, steps: int, pace: CyclePace, budget: Budget, generator: torch.Generator
) -> list[Tensor]:
    """Train by `steps` steps of Adam on random batches; keep the dtype of the weights."""
    size = min(BATCH, problem.samples)

    def slope(x: Float[Tensor, "1 P"]) -> tuple[Float[Tensor, " 1"], Float[Tensor, "1 P"]]:
        rows = torch.randint(problem.samples, (size,), generator=generator, device=x.device)
        slopes = gradient(problem.on(rows).to(torch.float32), shaped_like(x[0], weights))
        return x.new_zeros(1), flattened(slopes)[None]

    start = flattened([W.float() for W in weights])[None]
    own, drawn = float(start.square().mean().sqrt()), math.sqrt(2.0 * sum(map(len, weights)) / start.numel())
    size_of_weights = own if own > 1e-3 * drawn else drawn  # a rate for much smaller ones would move nothing
    adam = Adam(slope, start, AdamOptions(steps=steps, rate=0.03 * size_of_weights), [generator])
    pace.descend(adam, steps, budget)
    return [W.to(like) for W, like in zip(shaped_like(adam.x[0], weights), weights, strict=True)]
