"""Ordinary training from a random start: Adam on all samples, with a penalty that may change along the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.weights import preactivations
from covopt.studies.ranks.sgd import he_start


def trained(
    problem: Problem,
    widths: Sequence[int],
    seed: int,
    steps: int,
    stop: Callable[[], bool],
    rate: float = 3e-3,
    penalty: Callable[[float], float] | None = None,
) -> list[Tensor]:
    """Minimise C(Z_L) + lam |W|^2 by Adam from He's start, with a rate that a cosine takes down to 0.

    Args:
        problem: the samples, the loss, the depth and lam.
        widths: n_1 ... n_{L-1}.
        seed: of the start.
        steps, rate: their number, and the first learning rate.
        stop: ends the training early, asked before each step.
        penalty: the strength of the penalty at each part of the training, from 0 to 1; None takes the problem's lam.
    """
    weights = [W.requires_grad_() for W in he_start(problem, widths, seed)]
    optimizer = torch.optim.Adam(weights, lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(steps):
        if stop():
            break
        lam = problem.lam if penalty is None else penalty(step / steps)
        optimizer.zero_grad()
        fit = problem.loss_at(preactivations(problem, weights)[-1])
        (fit + lam * sum(W.square().sum() for W in weights)).backward()
        optimizer.step()
        schedule.step()
    return [W.detach() for W in weights]
