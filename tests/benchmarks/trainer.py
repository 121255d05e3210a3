"""The honest rival: a wide two-layer ReLU network trained in PyTorch, full batch, in float64, against a clock.

It minimises exactly the objective of covopt, (1/N) |F - Y|^2 + lam (|W_1|^2 + |W_2|^2), bias columns included. A seed
starts from a balanced He-like draw, runs Adam with a cosine schedule over its part of the time, and then L-BFGS with
the strong Wolfe line search. Where L-BFGS comes to a stand (ReLU's kinks), its memory is cleared once or more, and when
that no longer helps either the next seed begins. The best network of all seeds is the answer.
"""

import math
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class TrainerOptions:
    """What the training does with its time.

    Attributes:
        width: hidden neurons.
        seeds: starts that share the time equally; a start that stands still hands the rest of its time on.
        scale: factor on the He draw W_1 ~ N(0, scale^2 2 / d); the output weights get the same norm neuron by neuron.
        adam: part of a seed's time for Adam; the rest is L-BFGS.
        rate: Adam's first learning rate; the cosine ends at `final` times it.
        memory: pairs that L-BFGS remembers.
        still: relative fall in `window` iterations of L-BFGS below which it stands still.
        clearings: times that its memory is cleared before the next seed begins.
        device: cpu or cuda.
    """

    width: int = 500
    seeds: int = 1
    scale: float = 0.3
    adam: float = 0.1
    rate: float = 3e-3
    final: float = 1e-2
    betas: tuple[float, float] = (0.9, 0.999)
    memory: int = 20
    still: float = 1e-9
    window: int = 50
    clearings: int = 3
    device: str = "cpu"


@dataclass
class Training:
    """The best network [W_1, W_2] of all seeds, and its (seconds, cost) over time."""

    weights: list[NDArray[np.float64]]
    cost: float
    history: list[tuple[float, float]]
    starts: list[dict[str, float]]


@dataclass
class _Clock:
    """Seconds since the start, and the best network so far."""

    limit: float
    started: float
    best: float = math.inf
    weights: list[Tensor] = field(default_factory=list)
    history: list[tuple[float, float]] = field(default_factory=list)

    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def see(self, cost: float, weights: list[Tensor]) -> None:
        """Keep the weights when they are better than all before."""
        if cost < self.best:
            self.best, self.weights = cost, [W.detach().clone() for W in weights]
            self.history.append((self.seconds(), cost))


class _Ended(Exception):
    """Raised inside a line search when the time is up."""


def train(
    X: NDArray[np.float64],
    Y: NDArray[np.float64],
    *,
    lam: float,
    beta: float,
    seconds: float,
    seed: int = 0,
    options: TrainerOptions | None = None,
) -> Training:
    """The best network that training finds in the given seconds.

    Args:
        X: inputs (N, n_0).
        Y: targets (N, n_L).
        lam: strength of the penalty on all weights.
        beta: size of the bias neuron.
        seconds: wall-clock limit.
        seed: of the first start; the others follow it.
        options: the settings.
    """
    options = options or TrainerOptions()
    clock = _Clock(seconds, time.perf_counter())
    Xt = torch.from_numpy(np.column_stack([X, np.full(len(X), beta)])).to(options.device)
    targets = torch.from_numpy(Y).to(options.device)
    starts: list[dict[str, float]] = []
    while clock.seconds() < seconds:
        begun = clock.seconds()
        shares = max(1, options.seeds - len(starts))
        end = begun + (seconds - begun) / shares
        run = _Run(Xt, targets, lam, beta, options, seed + len(starts), clock, begun, end)
        cost = run.train()
        starts.append({"seed": seed + len(starts), "seconds": clock.seconds() - begun, "cost": cost})
    return Training([W.cpu().numpy() for W in clock.weights], clock.best, clock.history, starts)


def warm_up() -> None:
    """Let torch load what its optimisers need, which takes seconds when they are first used."""
    train(np.ones((2, 1)), np.ones((2, 1)), lam=1.0, beta=0.0, seconds=0.1, options=TrainerOptions(width=2))


class _Run:
    """One start, between two times of the clock."""

    def __init__(
        self,
        Xt: Tensor,
        Y: Tensor,
        lam: float,
        beta: float,
        options: TrainerOptions,
        seed: int,
        clock: _Clock,
        begun: float,
        end: float,
    ) -> None:
        self._Xt, self._Y, self._lam, self._beta, self._options = Xt, Y, lam, beta, options
        self._clock, self._begun, self._end = clock, begun, end
        self._weights = self._initial(torch.Generator().manual_seed(seed))
        self.best, self.steps, self.iterations = math.inf, 0, 0

    def train(self) -> float:
        """Adam, then L-BFGS; the best cost of this start."""
        with torch.no_grad():
            self._see(float(self._objective()))
        self._adam()
        for _ in range(self._options.clearings + 1):
            if not self._lbfgs():
                break
        return self.best

    def _initial(self, generator: torch.Generator) -> list[Tensor]:
        """W_1 (n, n_0 + 1), W_2 (n_L, n + 1), balanced; the bias columns start at 0."""
        n, d, m = self._options.width, self._Xt.shape[1], self._Y.shape[1]
        W1 = self._options.scale * math.sqrt(2.0 / d) * torch.randn(n, d, generator=generator, dtype=torch.float64)
        W1[:, -1] = 0.0
        V = torch.randn(n, m, generator=generator, dtype=torch.float64)
        V = V / V.norm(dim=1, keepdim=True) * W1.norm(dim=1, keepdim=True)
        W2 = torch.cat([V.T, V.new_zeros(m, 1)], dim=1)
        return [W.contiguous().to(self._Xt.device).requires_grad_() for W in (W1, W2)]

    def _objective(self) -> Tensor:
        W1, W2 = self._weights
        hidden = torch.relu(self._Xt @ W1.T)
        F = torch.addmm(self._beta * W2[:, -1], hidden, W2[:, :-1].T)
        return (F - self._Y).square().sum() / len(self._Y) + self._lam * (W1.square().sum() + W2.square().sum())

    def _see(self, cost: float) -> None:
        self.best = min(self.best, cost)
        self._clock.see(cost, self._weights)

    def _adam(self) -> None:
        options, length = self._options, self._options.adam * (self._end - self._begun)
        optimiser = torch.optim.Adam(self._weights, lr=options.rate, betas=options.betas, foreach=False)
        while length > 0:
            part = (self._clock.seconds() - self._begun) / length
            if part >= 1.0:
                return
            fall = options.final + (1.0 - options.final) * 0.5 * (1.0 + math.cos(math.pi * part))
            optimiser.param_groups[0]["lr"] = options.rate * fall
            optimiser.zero_grad()
            cost = self._objective()
            cost.backward()
            if self.steps % 10 == 0:
                self._see(float(cost.detach()))
            optimiser.step()
            self.steps += 1

    def _lbfgs(self) -> bool:
        """Until it stands still (True: clearing its memory may help) or the time is up (False)."""
        options, before = self._options, math.inf
        optimiser = torch.optim.LBFGS(
            self._weights,
            max_iter=options.window,
            max_eval=4 * options.window,
            history_size=options.memory,
            tolerance_grad=0.0,
            tolerance_change=0.0,
            line_search_fn="strong_wolfe",
        )

        def closure() -> float:
            if self._clock.seconds() >= self._end:
                raise _Ended
            optimiser.zero_grad()
            cost = self._objective()
            cost.backward()
            self._see(float(cost.detach()))
            return float(cost.detach())

        began = self.best
        while True:
            try:
                optimiser.step(closure)
            except _Ended:
                return False
            self.iterations += options.window
            if not before - self.best > options.still * self.best:
                return began - self.best > options.still * self.best
            before = self.best


def adam_on_batches(
    X: NDArray[np.float64], Y: NDArray[np.float64], *, width: int, lam: float, seconds: float, rate: float, bias: bool
) -> torch.nn.Sequential:
    """A float32 network after so long on batches of 512, the rate falling to 0 with the time.

    The penalty is in the loss, where the objective has it; AdamW's own decay would be another objective.
    """
    torch.manual_seed(0)
    inputs, targets = torch.from_numpy(X).float(), torch.from_numpy(Y).float()
    layers = torch.nn.Linear(X.shape[1], width, bias=bias), torch.nn.Linear(width, Y.shape[1], bias=bias)
    net = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1])
    adam, began = torch.optim.Adam(net.parameters(), lr=rate), time.perf_counter()
    while (used := (time.perf_counter() - began) / seconds) < 1.0:
        adam.param_groups[0]["lr"] = rate * 0.5 * (1.0 + math.cos(math.pi * used))
        batch = torch.randint(len(inputs), (512,))
        norm = torch.stack([p.square().sum() for p in net.parameters()]).sum()
        loss = (net(inputs[batch]) - targets[batch]).square().sum(dim=1).mean() + lam * norm
        adam.zero_grad()
        loss.backward()
        adam.step()
    return net
