"""Deep networks on many samples: solved on few of them, then trained on batches of all.

A start descends for hundreds of turns, each a pass over all samples. Where that takes longer than there is time, the
whole search (solver.py) is for a random part of the samples, so small that it fits, with widths to match. The network
that it ends with is then trained on all: by schedule-free Adam over random batches in float32, as for two layers
(solvers/shallow/stream.py). If time remains, the network after that is improved on all samples.

Where the rows are spread over processes, each of them searches the same few samples from a seed of its own, and the
network of lowest cost continues; the training, and the descent after it (`descended`), use the gradients of all rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.spread import ALONE
from covopt.model.weights import Weights, evaluate
from covopt.runtime.loop import Budget, Progress, Status, run
from covopt.solvers.deep.exploration import FIRST, usual_width
from covopt.solvers.deep.pruning import reduced, reduced_on_few
from covopt.solvers.deep.solver import DeepOptions, DeepSolver
from covopt.solvers.options import DRAWS_TOGETHER
from covopt.solvers.training.batch import Batch, work
from covopt.solvers.training.cycles import CyclePace, ScheduleFree, up_to_meeting
from covopt.solvers.training.homotopy import POLISHING, descend

TURNS, RATE_OF_TURNS = 200, 3e9
"""Turns that a batch of random starts descends, and their multiplications in a second on one core of a CPU, roughly."""
SHARE = 0.3  # of the time that the search on few samples may take
WHOLE = 0.25  # of the remaining time, within which this number of turns on all samples make batches needless
FEWEST = 200  # samples, of which a part is taken
BATCH = 256  # samples of a step
RATE, NEAR = 0.3, 0.95  # of schedule-free Adam, the rate relative to the weights' root mean square
GROWTH = 1.5  # of the number of steps from one evaluation of the loss over all samples to the next
STALL = 5e-4  # the training ends when the loss falls by less than this from one evaluation to the next, relative
SEARCHED = (Status.OPTIMAL, Status.CONVERGED, Status.TOLERANCE)  # of a search that was not cut


def suits_few_samples(problem: Problem, seconds: float, draws: int) -> bool:
    """Return True if neither can one start be trained, nor `draws` descend, on all samples in that time, on CPUs."""
    if not problem.can_be_split or problem.X.is_cuda or problem.samples <= FEWEST:
        return False
    return not FIRST.count(problem, seconds, 1) and not _fits(problem, problem.samples, seconds, draws)


def few_samples(problem: Problem, seconds: float, draws: int, seed: int) -> Problem:
    """Return the problem on a random part of the samples, sized by the time.

    The part is so large that `draws` random starts descend in `seconds`. With samples sharded over processes, each
    process gets all chosen rows.
    """
    generator = torch.Generator().manual_seed(seed)

    def drawn(rows: int, count: int) -> Int[Tensor, " k"]:
        return torch.randperm(rows, generator=generator)[:count].sort().values.to(problem.X.device)

    rows, spread = problem.spread.some(drawn, len(problem.X), few_count(problem, seconds, draws))
    few = problem.on(rows)
    return replace(few, X=spread.stacked(few.X), Y=spread.stacked(few.Y), spread=ALONE)


def few_count(problem: Problem, seconds: float, draws: int) -> int:
    """Return the number of samples of that part."""
    count = problem.samples
    while count > FEWEST and not _fits(problem, count, seconds, draws):
        count = max(FEWEST, int(0.8 * count))
    return count


def _fits(problem: Problem, samples: int, seconds: float, draws: int) -> bool:
    """Return True if TURNS turns of these starts, on this number of samples, fit into the time."""
    width = usual_width(samples, problem.Y.shape[1])
    turn = work(problem, [width] * (problem.depth - 1)) * samples / problem.samples
    return TURNS * draws * turn <= RATE_OF_TURNS * seconds


@dataclass(frozen=True)
class Streamed:
    """The state of the training."""

    weights: list[Tensor]  # the network with which the training began
    best: list[Tensor]  # the best network so far
    cost: float  # its loss over all samples
    due: int  # the steps after which the loss over all samples is evaluated next
    descent: Mapping[str, Tensor] | None = None  # the memory of `ScheduleFree`; None before its first step
    last: float = math.inf  # the loss that was evaluated last
    ended: Status | None = None  # why no other step is to follow; None while one is


class DeepStream:
    """The search on few samples, with `options`, and the training on batches, for `loop.run`.

    The depth is at least 3, the loss mse or cross_entropy. The training begins with `init`, in place of a search, if it
    is given.
    """

    def __init__(
        self,
        problem: Problem,
        options: DeepOptions,
        seed: int = 0,
        max_width: int | None = None,
        init: Weights | None = None,
    ) -> None:
        self.problem, self._options, self._seed = problem, options, seed
        self._max_width, self._init = max_width, init
        self._generator = torch.Generator(device=problem.X.device).manual_seed(seed)
        self._pace = CyclePace()
        self.cut = False  # True if the search on few samples, of any process, ended before it found no improvement

    @cached_property
    def _single(self) -> Problem:
        """The problem in float32, where batches are needed at all."""
        return self.problem.to(torch.float32)

    def init(self, budget: Budget) -> Streamed:
        """Return the solution on few samples, or the given network."""
        weights = self._searched(budget) if self._init is None else list(self._init)
        widths, processes = [len(W) for W in weights[:-1]], self.problem.spread.processes
        passes = TURNS * work(self.problem, widths) <= RATE_OF_TURNS * WHOLE * budget.remaining() * processes
        # Through a layer without neurons nothing passes, and no gradient.
        ended = Status.CONVERGED if passes or not min(widths) else None
        due = max(100, 2 * math.ceil(self.problem.samples / BATCH))
        return Streamed(weights, weights, evaluate(self.problem, weights).total, up_to_meeting(due), ended=ended)

    def step(self, state: Streamed, budget: Budget) -> Streamed:
        """Train until the loss over all samples is due, or until the time is over, and evaluate it."""
        with budget.phase("batches"):
            return self._trained(state, budget)

    def finished(self, state: Streamed) -> Status | None:
        """Return CONVERGED when the training gained too little."""
        return state.ended

    def progress(self, state: Streamed, iteration: int, seconds: float) -> Progress:
        """Cost and width; no bound."""
        width = max(len(W) for W in state.best[:-1])
        phase = f"{state.due * BATCH / self.problem.samples:.0f} passes over the samples in batches"
        return Progress(iteration, seconds, state.cost, None, width, phase)

    def _searched(self, budget: Budget) -> list[Tensor]:
        """Search on few samples, each process by its own clock; return the best network."""
        limit, spread = SHARE * budget.time_limit, self.problem.spread
        few = few_samples(self.problem, limit, max(self._options.batch, DRAWS_TOGETHER), self._seed)
        seed = (self._seed + spread.place) % 2**63
        solver = DeepSolver(few, self._options, seed, max_width=self._max_width)
        own = Budget(budget.seconds() + limit, budget.max_iterations, budget.started, timing=budget.timing)
        outcome = run(solver, own)
        self.cut = spread.largest(float(outcome.status not in SEARCHED)) > 0.0
        weights = reduced(few, outcome.state.best)
        return spread.cheapest(evaluate(few, weights).total, weights)

    def _trained(self, state: Streamed, budget: Budget) -> Streamed:
        """Train until the loss over all samples is due, or until the time is over; evaluate it without idle neurons."""
        batch, descent = self._descent(state.weights)
        if state.descent is not None:
            descent.recall(state.descent)
        self._pace.descend(descent, state.due, budget)
        network = [W.to(self.problem.X) for W in batch.unpack(descent.x[0], batch.widths[0])]
        trained = reduced_on_few(self.problem, network)
        cost = evaluate(self.problem, trained).total
        self._pace.closed(budget)
        best, lowest = (trained, cost) if cost < state.cost else (state.best, state.cost)
        ended = None if state.last - cost > STALL * state.cost else Status.CONVERGED
        if descent.steps_taken < state.due:
            ended = Status.TIME_LIMIT
        due, memory = up_to_meeting(GROWTH * state.due), descent.memory()
        return replace(state, best=best, cost=lowest, due=due, descent=memory, last=cost, ended=ended)

    def _descent(self, weights: Weights) -> tuple[Batch, ScheduleFree]:
        """Return schedule-free Adam from this network, on random batches."""
        widths, spread = [len(W) for W in weights[:-1]], self.problem.spread
        spread = spread.in_parts(max(2, spread.processes))
        size = min(BATCH, self.problem.samples)
        batch = Batch(self._single, [widths], max(1, size // spread.parts))
        start = batch.pack([[W.float() for W in weights]])[0]
        lam = start.new_full((1, 1), self.problem.lam)

        def draw(rows: int, count: int) -> Int[Tensor, " k"]:
            return torch.randint(rows, (count,), generator=self._generator, device=start.device)

        def slope(x: Tensor) -> tuple[Tensor, Tensor]:
            rows, of_rows = spread.some(draw, len(self.problem.X), size)
            slopes = [batch.slopes(at[None], some, lam) for at, (some,) in zip(x, of_rows.shares(rows), strict=True)]
            return x.new_zeros(len(x)), torch.cat(slopes)

        rate = RATE * float(start.square().mean().sqrt())
        return batch, ScheduleFree(slope, start, rate, spread, [self._generator], NEAR)


def descended(problem: Problem, weights: Weights, budget: Budget) -> list[Tensor]:
    """Descend by L-BFGS on all samples, through sharpening kinks; keep the needed neurons."""
    if not min(len(W) for W in weights[:-1]):
        return list(weights)
    with budget.phase("descent"):
        return reduced_on_few(problem, descend(problem, [weights], POLISHING, budget.pace())[0], budget.overdue)
