"""torch.optim: L-BFGS with the strong Wolfe line search from the start on, and AdamW with warm restarts.

AdamW has the penalty in its loss and no decoupled decay, which would have another minimiser. Its rate falls along
cosines over periods that double, so that it has a good network at every time; from 4 batches of samples on it takes
batches. L-BFGS clears its memory when it stands still, and starts anew when that gains nothing.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from tests.benchmarks.rival_methods.common import Question, balance, he_start
from tests.benchmarks.rival_methods.log import Log

STILL, WINDOW = 1e-8, 20
"""Relative gain of so many steps below which L-BFGS stands still."""


def run(
    question: Question,
    log: Log,
    seed: int,
    *,
    method: str = "lbfgs",
    width: int = 350,
    scale: float = 0.3,
    rate: float = 3e-3,
    batch: int = 512,
    period: float = 1.0,
    memory: int = 20,
) -> None:
    """Until the time is up; `period`: seconds of AdamW's first cosine."""
    torch.set_num_threads(1)
    Xt, Y, lam, beta, rng = question.Xt, question.Y, question.lam, question.beta, np.random.default_rng(seed)
    data = torch.from_numpy(Xt), torch.from_numpy(np.ascontiguousarray(Y))
    while log.running():
        W1 = he_start(rng, Xt, width, scale)
        W2 = np.hstack([rng.standard_normal((Y.shape[1], width)), np.zeros((Y.shape[1], 1))])
        weights = [torch.from_numpy(W).requires_grad_() for W in balance(W1, W2)]
        if method == "lbfgs":
            _lbfgs(*data, weights, lam, beta, log, memory)
        else:
            _adamw(*data, weights, lam, beta, log, rate, batch if len(Y) > 4 * batch else len(Y), period)


def _objective(Xt: Tensor, Y: Tensor, weights: list[Tensor], lam: float, beta: float) -> Tensor:
    W1, W2 = weights
    F = torch.addmm(beta * W2[:, -1], torch.relu(Xt @ W1.T), W2[:, :-1].T)
    return (F - Y).square().sum() / len(Y) + lam * (W1.square().sum() + W2.square().sum())


def _show(log: Log, weights: list[Tensor]) -> None:
    log.see(weights[0].detach().numpy(), weights[1].detach().numpy())


def _adamw(
    Xt: Tensor,
    Y: Tensor,
    weights: list[Tensor],
    lam: float,
    beta: float,
    log: Log,
    rate: float,
    batch: int,
    period: float,
) -> None:
    optimiser = torch.optim.AdamW(weights, lr=rate, weight_decay=0.0, foreach=False)
    generator, begun = torch.Generator().manual_seed(0), log.seconds()
    while log.running():
        part = (log.seconds() - begun) / period
        if part >= 1.0:
            begun, period, part = log.seconds(), 2.0 * period, 0.0
        optimiser.param_groups[0]["lr"] = rate * (0.01 + 0.99 * 0.5 * (1.0 + math.cos(math.pi * part)))
        rows = slice(None) if batch == len(Y) else torch.randint(len(Y), (batch,), generator=generator)
        optimiser.zero_grad()
        _objective(Xt[rows], Y[rows], weights, lam, beta).backward()
        optimiser.step()
        _show(log, weights)


def _lbfgs(Xt: Tensor, Y: Tensor, weights: list[Tensor], lam: float, beta: float, log: Log, memory: int) -> None:
    before = math.inf
    while log.running():
        optimiser = torch.optim.LBFGS(
            weights,
            max_iter=1,
            max_eval=25,
            history_size=memory,
            tolerance_grad=0.0,
            tolerance_change=0.0,
            line_search_fn="strong_wolfe",
        )

        def closure(optimiser: torch.optim.LBFGS = optimiser) -> float:
            optimiser.zero_grad()
            cost = _objective(Xt, Y, weights, lam, beta)
            cost.backward()
            return float(cost.detach())

        costs: list[float] = []
        while log.running():
            costs.append(float(optimiser.step(closure)))  # type: ignore[arg-type]
            _show(log, weights)
            if len(costs) > WINDOW and costs[-1 - WINDOW] - costs[-1] < STILL * costs[-1]:
                break
        if not costs or not before - costs[-1] > STILL * costs[-1]:
            return
        before = costs[-1]
