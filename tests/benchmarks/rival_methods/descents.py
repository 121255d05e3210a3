"""torch.optim: L-BFGS with the strong Wolfe line search, AdamW with warm restarts, AdamW with one cycle; any depth.

The penalty is part of the loss; decoupled decay would have another minimiser. The rate of AdamW falls along cosines
over periods that double, so that it has a good network at every time; one cycle lasts as long as the run. With more
than 4 batches of samples the steps take batches. L-BFGS clears its memory when it stands still, and starts anew when
that gains nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tests.benchmarks.rival_methods.common import Question, balance, he_start
from tests.benchmarks.rival_methods.log import Log

STILL, WINDOW = 1e-8, 20
"""Relative gain of so many steps below which L-BFGS stands still."""
CYCLE, CYCLE_STEPS = 0.97, 1000
"""The share of the run that one cycle takes, so that its end is on time; how finely the rate follows it."""

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": lambda F, Y: (F - Y).square().sum(),
    "cross_entropy": lambda F, Y: functional.cross_entropy(F, Y, reduction="sum"),
    "huber": lambda F, Y: functional.huber_loss(F, Y, reduction="sum"),
    "logistic": lambda F, Y: functional.softplus(-Y * F).sum(),
}


class Network:
    """The weights as torch trains them: matrices, and their bias columns apart.

    Attributes:
        matrices: A_1, ..., A_L of shapes (n_l, n_(l-1)).
        biases: the bias columns of W_l; empty where the bias neuron has size 0.
    """

    def __init__(
        self, question: Question, rng: np.random.Generator, width: int, scale: float, single: bool, device: str
    ) -> None:
        self.question = question
        kind = {"dtype": torch.float32 if single else torch.float64, "device": device}
        weights = [torch.from_numpy(W).to(**kind) for W in _start(question, rng, width, scale)]
        self.X, self.Y = (torch.from_numpy(np.ascontiguousarray(Z)).to(**kind) for Z in (question.X, question.Y))
        self.matrices = [W[:, :-1].clone().requires_grad_() for W in weights]
        self.biases = [W[:, -1].clone().requires_grad_() for W in weights] if question.beta else []

    @property
    def parameters(self) -> list[Tensor]:
        """All of them."""
        return [*self.matrices, *self.biases]

    def cost(self, rows: Tensor | slice = slice(None)) -> Tensor:
        """The objective, its loss on these rows alone."""
        question, H = self.question, self.X[rows]
        for layer, A in enumerate(self.matrices):
            H = torch.relu(H) if layer else H
            H = torch.addmm(question.beta * self.biases[layer], H, A.T) if self.biases else H @ A.T
        penalty = torch.stack([part.square().sum() for part in self.parameters]).sum()
        return LOSSES[question.loss](H, self.Y[rows]) / len(H) + question.lam * penalty

    def show(self, log: Log, always: bool = False) -> None:
        """Hand the weights to the log, where it is time."""
        if always or log.due() or not log.kept:
            biases = self.biases or [A.new_zeros(len(A)) for A in self.matrices]
            weights = [torch.column_stack(pair) for pair in zip(self.matrices, biases, strict=True)]
            log.see(*(W.detach().cpu().double().numpy() for W in weights), always=always)


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
    single: bool = False,
    device: str = "cpu",
) -> None:
    """Until the time is up; `period`: seconds of AdamW's first cosine; `single`: in float32."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    while log.running():
        network = Network(question, rng, width, scale, single, device)
        if method == "lbfgs":
            _lbfgs(network, log, memory)
            continue
        optimiser = torch.optim.AdamW(network.parameters, lr=rate, weight_decay=0.0, foreach=False)
        if method == "one-cycle":
            _one_cycle(network, log, optimiser, rate, batch)
            return
        restarts(network, log, optimiser, rate, batch, period)


def batches(network: Network, batch: int) -> Iterator[Tensor | slice]:
    """Random rows without end; all of them at once for at most 4 batches."""
    generator, N = torch.Generator().manual_seed(0), len(network.Y)
    while True:
        yield torch.randint(N, (batch,), generator=generator).to(network.Y.device) if 4 * batch < N else slice(None)


def step(network: Network, optimiser: torch.optim.Optimizer, rows: Tensor | slice) -> None:
    """One step down the gradient on these rows."""
    optimiser.zero_grad()
    network.cost(rows).backward()
    optimiser.step()


def restarts(
    network: Network, log: Log, optimiser: torch.optim.Optimizer, rate: float, batch: int, period: float
) -> None:
    """Rates of all groups along cosines from `rate` to a hundredth over periods that double."""
    begun = log.seconds()
    for rows in batches(network, batch):
        part = (log.seconds() - begun) / period
        if part >= 1.0:
            begun, period, part = log.seconds(), 2.0 * period, 0.0
        for group in optimiser.param_groups:
            factor = group.setdefault("factor", 1.0)  # times the rate, where a group has a rate of its own
            group["lr"] = factor * rate * (0.01 + 0.99 * 0.5 * (1.0 + math.cos(math.pi * part)))
        step(network, optimiser, rows)
        network.show(log)
        if not log.running():
            return


def _one_cycle(network: Network, log: Log, optimiser: torch.optim.Optimizer, rate: float, batch: int) -> None:
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=rate, total_steps=CYCLE_STEPS + 1)
    for rows in batches(network, batch):
        step(network, optimiser, rows)
        network.show(log)
        part = log.seconds() / (CYCLE * log.limit)
        if part >= 1.0:
            break
        while schedule.last_epoch < int(CYCLE_STEPS * part):
            schedule.step()
    network.show(log, always=True)


def _lbfgs(network: Network, log: Log, memory: int) -> None:
    before = math.inf
    while log.running():
        optimiser = torch.optim.LBFGS(
            network.parameters,
            max_iter=1,
            max_eval=25,
            history_size=memory,
            tolerance_grad=0.0,
            tolerance_change=0.0,
            line_search_fn="strong_wolfe",
        )

        def closure(optimiser: torch.optim.LBFGS = optimiser) -> float:
            optimiser.zero_grad()
            cost = network.cost()
            cost.backward()
            return float(cost.detach())

        costs: list[float] = []
        while log.running():
            costs.append(float(optimiser.step(closure)))  # type: ignore[arg-type]
            network.show(log)
            if len(costs) > WINDOW and costs[-1 - WINDOW] - costs[-1] < STILL * costs[-1]:
                break
        if not costs or not before - costs[-1] > STILL * costs[-1]:
            return
        before = costs[-1]


def _start(question: Question, rng: np.random.Generator, width: int, scale: float) -> list[np.ndarray]:
    """Two layers: neurons of He's size times `scale`, balanced. More: He's start, biases 0."""
    outputs = question.Y.shape[1]
    if question.depth == 2:
        W1 = he_start(rng, question.Xt, width, scale)
        return list(balance(W1, np.hstack([rng.standard_normal((outputs, width)), np.zeros((outputs, 1))])))
    sizes = [question.X.shape[1], *[width] * (question.depth - 1), outputs]
    pairs = list(zip(sizes[1:], sizes, strict=False))
    gains = [2.0] * (len(pairs) - 1) + [1.0]
    drawn = [rng.standard_normal(pair) * math.sqrt(gain / pair[1]) for pair, gain in zip(pairs, gains, strict=True)]
    return [np.hstack([W, np.zeros((len(W), 1))]) for W in drawn]
