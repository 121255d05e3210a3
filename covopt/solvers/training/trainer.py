"""Ordinary training, many widths and seeds at once: Adam, then full-batch L-BFGS.

It minimises L(W) = C(Z_L) + lam sum_l |W_l|_F^2, bias columns included, in the precision of the data. Networks of
similar width are trained as one batch (batch.py); those that have stalled leave it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.weights import Cost, Weights, check_weights, evaluate
from covopt.runtime.errors import ProblemError, listed
from covopt.runtime.loop import Budget, Callback, Progress, Status, run
from covopt.solvers.incumbent import Attempt, one_history
from covopt.solvers.training.batch import Batch, Widths, buckets, work
from covopt.solvers.training.descent import Adam, AdamOptions, BatchedLBFGS

Entry = TypeVar("Entry")

WINDOW, STALL_GAIN = 100, 1e-9
"""A network is stalled where this number of turns of L-BFGS lower its cost by less than this, relative."""
TURNS, RATE_OF_TURNS = 200, 5e9
"""Turns without which a training is not worth beginning, and the multiplications in a second of them, roughly."""
LARGEST = 10_000_000  # activations in one batch, at most (8 bytes each in float64, held twice)


@dataclass(frozen=True)
class TrainerOptions:
    """The length of a training."""

    adam: AdamOptions = field(default_factory=AdamOptions)  # its steps and rate
    iterations: int = 100_000  # turns of L-BFGS, one evaluation each, at most


@dataclass(frozen=True)
class Training:
    """One trained network."""

    widths: list[int]  # n_1 ... n_{L-1}
    seed: int | None  # the seed of its random start; None if the weights were given
    weights: list[Tensor]  # W_1 ... W_L, the best of its training
    cost: Cost  # recomputed from them in float64
    history: NDArray[np.float64]  # (seconds, lowest cost so far), shape (T, 2)
    converged: bool  # it stalled, and was not stopped by time or iterations


@dataclass(frozen=True)
class Trainings:
    """All networks of one call, in the order of its widths and, for each, of its seeds."""

    networks: list[Training]
    status: Status  # `converged` when all stalled
    history: list[Progress]  # the best cost of all over time

    @property
    def best(self) -> Training:
        """The network with the lowest cost."""
        return min(self.networks, key=lambda network: network.cost.total)

    @property
    def costs(self) -> list[float]:
        """The final cost of each network."""
        return [network.cost.total for network in self.networks]


def train(
    problem: Problem,
    widths: int | Sequence[int | Widths],
    *,
    seeds: int | Sequence[int] = 1,
    budget: Budget | None = None,
    init: Sequence[Weights] = (),
    options: TrainerOptions | None = None,
    callback: Callback | None = None,
) -> Trainings:
    """Train a network for every width and seed, and from the weights in `init`, all together.

    An entry of `widths` is n (the same for every hidden layer) or (n_1, ..., n_{L-1}). `seeds` says how many (0, 1,
    ...), or which; a network's start depends on its widths and seed alone. A round of the budget is up to 100 steps of
    each batch. A ProblemError refuses `interpolate`, widths that do not fit the depth, and a call without any network
    to train.
    """
    options, budget = options or TrainerOptions(), budget or Budget()
    if problem.stated_lam is None:
        raise ProblemError("Training needs a penalty, and interpolate has none; give lam, or use the method cone.")
    hidden = [_widths(problem, hidden_widths) for hidden_widths in ([widths] if isinstance(widths, int) else widths)]
    numbers = range(seeds) if isinstance(seeds, int) else seeds
    starts = [(seed, initial(problem, hidden_widths, seed)) for hidden_widths in hidden for seed in numbers]
    for weights in init:
        check_weights(problem, weights)
        starts.append((None, [W.to(problem.X) for W in weights]))  # type: ignore[arg-type]
    if not starts:
        raise ProblemError("There is no network to train; give at least one width and one seed.")
    trainer = _Trainer(problem, [weights for _, weights in starts], options)
    outcome = run(trainer, budget, callback)
    exact, curves = problem.double(), np.array(trainer.curves)
    networks = [
        Training(
            [len(W) for W in weights[:-1]],
            seed,
            weights,
            evaluate(exact, [W.double() for W in weights]),
            curves[:, [0, 1 + i]],
            stalled,
        )
        for i, ((seed, _), (weights, stalled)) in enumerate(zip(starts, trainer.ends(), strict=True))
    ]
    return Trainings(networks, outcome.status, outcome.history)


def train_best(
    problem: Problem,
    budget: Budget,
    width: int | Widths | None = None,
    starts: int = 1,
    seed: int = 0,
    init: Weights | None = None,
    callback: Callback | None = None,
) -> Attempt:
    """Return the best training of one width, by default `default_width`.

    Networks start from `init`, if it is given, and the seeds `seed`, `seed` + 1, ... The trainings come in batches that
    fit into the remaining time; if it ends before the last batch, there are fewer costs than starts.
    """
    width = default_width(problem, starts, budget.time_limit) if width is None else width
    history: list[Progress] = []
    costs: list[float] = []
    best, status = None, Status.TIME_LIMIT
    while len(costs) < starts and status is not Status.INTERRUPTED and not (costs and budget.spent()):
        taken = len(costs)
        size = min(starts - taken, fitting(problem, _widths(problem, width), budget))
        given = [init] if init is not None and not costs else []
        trainings = train(
            problem,
            [width],
            seeds=range(seed + taken + len(given), seed + taken + size),
            budget=budget,
            init=given,
            callback=one_history(history, callback),
        )
        costs, status = costs + trainings.costs, trainings.status
        if best is None or trainings.best.cost.total < best.cost.total:
            best = trainings.best
    assert best is not None
    if len(costs) < starts and status is Status.CONVERGED:
        status = Status.TIME_LIMIT
    return Attempt(best.weights, status, history, starts=costs)


def fitting(problem: Problem, widths: Widths, budget: Budget) -> int:
    """Return how many trainings, of TURNS turns each, fit into the remaining time."""
    seconds = TURNS * work(problem, widths) / RATE_OF_TURNS
    if problem.X.is_cuda:
        seconds = 0.0
    # The start, its place in the batch and its cost in float64: on a core that five programs share, with 2e-3 a limit
    # of 2 s and 10,000 starts were 1.5 s late.
    apart = 6e-3
    return max(1, int(budget.remaining() / (seconds + apart)))


def default_width(problem: Problem, starts: int, seconds: float) -> int:
    """Return 2 N, within 40 and 500, and fewer where TURNS turns take too long on a CPU."""
    narrowest, widest = 40, 500
    width = max(narrowest, min(widest, 2 * problem.samples))
    most = math.inf if problem.X.is_cuda else RATE_OF_TURNS * seconds / TURNS / starts
    while width > narrowest and work(problem, [width] * (problem.depth - 1)) > most:
        width = max(narrowest, width // 2)
    return width


def initial(problem: Problem, widths: Widths, seed: int, scale: float | None = None) -> list[Tensor]:
    """Draw a balanced network: each neuron's outgoing norm is its incoming one; biases are 0.

    `scale` is a factor on the He draw of the first layer, W_1 ~ N(0, scale^2 2 / (n_0 + 1)). None: 0.3 for depth 2,
    else 1.
    """
    generator = torch.Generator().manual_seed(seed)
    scale = (0.3 if problem.depth == 2 else 1.0) if scale is None else scale
    norms, weights = None, []
    for n, columns in problem.shapes(widths):
        W = torch.randn(n, columns - 1, generator=generator, dtype=torch.float64)
        if norms is None:
            W *= scale * math.sqrt(2.0 / columns)
        else:
            W *= norms / W.norm(dim=0)
        norms = W.norm(dim=1)
        weights.append(torch.cat([W, W.new_zeros(n, 1)], dim=1).to(problem.X))
    return weights


def _widths(problem: Problem, widths: int | Widths) -> list[int]:
    hidden = [widths] * (problem.depth - 1) if isinstance(widths, int) else list(widths)
    if len(hidden) != problem.depth - 1 or min(hidden) < 1:
        raise ProblemError(
            f"The widths {listed(hidden)} do not fit depth {problem.depth}; give {problem.depth - 1} of at least 1."
        )
    return hidden


class _Trainer:
    """The iteration of the loop: a round advances every batch that is not finished."""

    def __init__(self, problem: Problem, starts: Sequence[Weights], options: TrainerOptions) -> None:
        self._widths = [[len(W) for W in weights[:-1]] for weights in starts]
        self._members = buckets(problem, self._widths, LARGEST)
        chosen = [([self._widths[i] for i in members], [starts[i] for i in members]) for members in self._members]
        self._groups = [_Group(problem, *group, options) for group in chosen]
        self.curves: list[list[float]] = []  # seconds and the lowest cost of each network so far, after each round

    def ends(self) -> list[tuple[list[Tensor], bool]]:
        """Return the best weights of each network, and whether it stalled."""
        return self._gather([zip(group.networks(), group.stalled.tolist(), strict=True) for group in self._groups])

    def init(self, budget: Budget) -> _Trainer:
        return self

    def step(self, state: _Trainer, budget: Budget) -> _Trainer:
        with budget.phase("training"):
            for group in self._groups:
                group.advance(budget)
        return self

    def finished(self, state: _Trainer) -> Status | None:
        if not all(group.finished for group in self._groups):
            return None
        return Status.CONVERGED if all(bool(group.stalled.all()) for group in self._groups) else Status.ITERATION_LIMIT

    def progress(self, state: _Trainer, iteration: int, seconds: float) -> Progress:
        costs = self._gather([group.costs.tolist() for group in self._groups])
        self.curves.append([seconds, *costs])
        best = int(torch.tensor(costs, dtype=torch.float64).argmin())
        return Progress(iteration, seconds, costs[best], None, max(self._widths[best]))

    def _gather(self, parts: Sequence[Iterable[Entry]]) -> list[Entry]:
        """Return one entry for each network, in the order of the starts."""
        entries = dict(zip(chain.from_iterable(self._members), chain.from_iterable(parts), strict=True))
        return [entries[number] for number in range(len(entries))]


class _Group:
    """One batch on its way through Adam and L-BFGS."""

    def __init__(
        self, problem: Problem, widths: list[list[int]], starts: Sequence[Weights], options: TrainerOptions
    ) -> None:
        self._options, self._batch = options, Batch(problem, widths)
        # Multiplications end a round, after which the loop may look at the batches; they are counted, and not timed, so
        # that the same number of rounds is the same training on any machine.
        self._steps = max(1, min(WINDOW, int(4e8 / sum(work(problem, layers) for layers in widths))))
        self._adam = Adam(self._batch.evaluate, self._batch.pack(starts), options.adam)
        self._descent: BatchedLBFGS | None = None
        self.best, self.costs = self._adam.best, self._batch.evaluate(self._adam.best)[0]
        self.stalled = torch.zeros_like(self.costs, dtype=torch.bool)  # networks that gain no more
        self.finished = False

    def networks(self) -> list[list[Tensor]]:
        """Return the weights of `best`."""
        return [self._batch.unpack(row, widths) for row, widths in zip(self.best, self._batch.widths, strict=True)]

    def advance(self, budget: Budget) -> None:
        """Run a round: up to 100 steps, fewer if they are long or the time ends."""
        for _ in range(self._steps):
            if self.finished or budget.spent():
                return
            if self._descent is None:
                self._train(budget)
            else:
                self._descend(self._descent, budget)

    def _train(self, budget: Budget) -> None:
        """Take a step of Adam, or change to L-BFGS, after a tenth of the time whatever Adam's steps."""
        ends = 0.1 * budget.time_limit
        if self._adam.steps_taken < self._options.adam.steps and budget.seconds() < ends:
            self._adam.iterate()
            self.best, self.costs = self._adam.best, torch.minimum(self.costs, self._adam.lowest)
            return
        self._descent = BatchedLBFGS(self._batch.evaluate, self.best)
        self._rows = torch.arange(len(self.best), device=self.best.device)
        self._turns, self._resets = 0, torch.zeros_like(self._rows)
        self._before, self._began = self._descent.f, self._descent.f

    def _descend(self, descent: BatchedLBFGS, budget: Budget) -> None:
        """Take a turn of L-BFGS; stalled networks restart without memory, or leave."""
        descent.iterate()
        self._turns += 1
        self.best, self.costs = self.best.clone(), self.costs.clone()
        self.best[self._rows], self.costs[self._rows] = descent.x, descent.f
        ended = descent.stuck
        if self._turns % WINDOW == 0:
            ended = ended | ~(self._before - descent.f > STALL_GAIN * descent.f)
            self._before = descent.f
        if bool(ended.any()):
            gained = self._began - descent.f > STALL_GAIN * descent.f
            again = ended & gained & (self._resets < 3)  # it continues without its memory while that helps
            descent.reset_memory(again)
            self._resets = self._resets + again
            self._began = torch.where(again, descent.f, self._began)
            self._leave(descent, ended & ~again, budget)
        self.finished = self.finished or self._turns >= self._options.iterations

    def _leave(self, descent: BatchedLBFGS, gone: Tensor, budget: Budget) -> None:
        if budget.spent() or not bool(gone.any()):
            return
        self.stalled[self._rows[gone]] = True
        staying = ~gone
        descent.keep(staying)
        self._rows, self._resets = self._rows[staying], self._resets[staying]
        self._before, self._began = self._before[staying], self._began[staying]
        self.finished = not len(self._rows)
