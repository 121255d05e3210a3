"""Deep networks on many samples: a random start trained on batches.

Where the training of a start on all samples (exploration.py) takes long, it is trained on random batches in float32.
The rate falls once in each cycle of the training. A cycle has more steps than the one before, on larger batches. Small
batches lead down fast, and their noise leads to lower minima; large batches end nearer to the minimum. The loss over
all samples is evaluated after each cycle. If the time left after a cycle would be too short for the next one, the cycle
takes all of the time. If a start ends at zero, the next start follows.

Up to DEEPEST_TRAINED layers the first start is random, and the second one is the solution of two layers, made deeper;
in deeper networks that solution comes first. With the squared error, and three layers or few outputs, the first start
contains a linear network, whose signal passes all layers.

Processes that share the samples draw each batch from all samples and take the same steps. The descent after them
(`descended`) uses the gradients of all samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.spread import ALONE
from covopt.model.weights import Weights, evaluate
from covopt.runtime.loop import Budget, Progress, Status
from covopt.solvers.deep.exploration import FIRST, FIRST_OF_MORE_LAYERS, Cycle, first_starts, has_falling_penalty
from covopt.solvers.deep.pruning import reduced_on_few, widened
from covopt.solvers.deep.solver import DEEPEST_TRAINED
from covopt.solvers.deep.starts import from_two_layers
from covopt.solvers.training.batch import Batch, work
from covopt.solvers.training.cycles import CyclePace
from covopt.solvers.training.descent import SOAP, Adam, AdamOptions, steps_on_matrices
from covopt.solvers.training.homotopy import POLISHING, descend, in_single
from covopt.solvers.training.simple import simple_networks

BATCH = 256  # samples of a step in the first cycle; with 128 or 512, digits end up to 1 % higher or as low, later
WIDE, FASTER = 2, 2.5
"""Factors of the batches and of the speed where the inputs are too many for SOAP. A step on matrices then takes as long
as the passes over the samples, and products are faster than those of narrow layers."""
LARGER, LONGER = 1.5, 1.5  # batches and steps of a cycle, relative to the one before
CYCLES = (Cycle(200, 4.0), Cycle(300, 2.0), Cycle(400, 1.4), Cycle(600))
"""The first cycles, with a falling penalty; without one the steps are the same (docs/notes/2026-11-deep-batches.md)."""
SHARE = 0.6  # of the time that these cycles take on a start as wide as it may be
WHOLE = 0.35  # of the time, in which a start that can be trained on all samples makes batches needless
PROBED = 10  # steps of each cycle that measure their time before it
FOLLOWING = 1.2  # the time of the next cycle at least, relative to this one, or this one is the last
WIDER, STRENGTH = 1.0, 0.5
"""Neurons added to each layer after later cycles, relative to those that are needed, and the size of their weights,
relative to the layer's root mean square: digits end up to 1 % lower with them."""
STALL = 5e-4  # the training ends when a cycle at the last penalty lowers the loss by less than this, relative
STARTS = 3  # at most; a search on all samples follows
NOTHING = 0.999  # a network whose loss C is above this part of a constant's has lost the signal
FEW = 300  # samples that tell the usual penalty, the linear network and the answer of two layers
OUTPUTS = 2  # at most, for a linear network in more than three layers; with 10, digits end 1 to 10 % higher with it
NOISE = 0.2  # of random neurons beside those of the linear network: the size of their weights, relative to theirs


def suits_batches(problem: Problem, seconds: float, max_width: int | None = None) -> bool:
    """Return True if training a start on all samples would take too much of the time; never on a GPU."""
    splits = problem.can_be_split and problem.fits_single
    if not splits or problem.X.is_cuda or problem.samples <= 2 * BATCH:
        return False
    steps = sum(cycle.steps for cycle in FIRST.cycles)
    width = min(first_starts(problem).width(problem, first_starts(problem).widths[0]), max_width or math.inf)
    products = work(problem, [int(width)] * (problem.depth - 1))
    return steps * (FIRST.call + products) > WHOLE * seconds * FIRST.speed


@dataclass(frozen=True)
class Streamed:
    """The state of the training."""

    weights: list[Tensor]  # where the next cycle begins
    best: list[Tensor]  # the best network so far
    cost: float  # its loss over all samples
    start: int = 0  # the number of the start
    cycle: int = 0  # how many cycles it has had
    last: float = math.inf  # the loss of this start after its last cycle
    settled: bool = False  # True if that cycle had the problem's own penalty
    ended: Status | None = None  # why no other cycle is to follow; None while one is


class DeepStream:
    """The training on batches, from a start or from the network `init`, for `loop.run`.

    The depth is at least 3. Where a start ends at zero, another one follows, up to `starts`. The training ends at the
    cost `enough`: a bound proves that it is optimal.
    """

    def __init__(
        self,
        problem: Problem,
        starts: int = 1,
        seed: int = 0,
        max_width: int | None = None,
        init: Weights | None = None,
        enough: float = 0.0,
    ) -> None:
        self.problem, self._starts, self._seed = problem, min(starts, STARTS), seed
        self._max_width, self._init, self._enough = max_width, init, enough
        self._generator = torch.Generator(device=problem.X.device).manual_seed(seed)
        self._pace, self._wide = CyclePace(), problem.X.shape[1] >= SOAP.largest
        self._zero = [problem.X.new_zeros(shape) for shape in problem.shapes([0] * (problem.depth - 1))]

    @cached_property
    def _single(self) -> Problem:
        """The problem in float32, if that holds it."""
        return in_single(self.problem)

    @cached_property
    def _few(self) -> Problem:
        """A few of the samples, the same in each process."""
        rows, spread = self.problem.spread.some(self._evenly, len(self.problem.X), FEW)
        few = self.problem.on(rows)
        return replace(few, X=spread.stacked(few.X), Y=spread.stacked(few.Y), spread=ALONE)

    @cached_property
    def _simple(self) -> list[Tensor]:
        """The constant, linear or zero network of lowest cost on them."""
        return min([self._zero, *simple_networks(self._few)], key=lambda weights: evaluate(self._few, weights).total)

    @cached_property
    def _flat(self) -> float:
        """The loss C of the best constant."""
        constants = [self._zero, *simple_networks(self._few, linear=False)]
        return evaluate(self.problem, min(constants, key=lambda weights: evaluate(self._few, weights).fit)).fit

    @cached_property
    def _cycles(self) -> tuple[Cycle, ...]:
        """The first cycles."""
        falls = self.problem.depth >= FIRST_OF_MORE_LAYERS.shallowest and has_falling_penalty(self._few)
        return CYCLES if falls else tuple(Cycle(cycle.steps) for cycle in CYCLES)

    def init(self, budget: Budget) -> Streamed:
        """Return the first start, or the given network."""
        weights = self._simple if self._init is None else list(self._init)
        cost, nothing = (evaluate(self.problem, network).total for network in (weights, self._zero))
        best, lowest = (weights, cost) if cost < nothing else (self._zero, nothing)
        if self._init is None:
            return Streamed(self._drawn(0, budget), best, lowest)
        # Through a layer without neurons nothing passes, and no gradient.
        ended = None if min(len(W) for W in weights[:-1]) else Status.CONVERGED
        return Streamed(weights, best, lowest, self._starts, len(CYCLES), cost, ended=ended)

    def step(self, state: Streamed, budget: Budget) -> Streamed:
        """Train for a cycle, or until the time is over, and evaluate the loss over all samples."""
        with budget.phase("batches"):
            return self._trained(state, budget)

    def finished(self, state: Streamed) -> Status | None:
        """Return OPTIMAL at a proved minimum, CONVERGED when a cycle gained too little."""
        return Status.OPTIMAL if state.cost <= self._enough else state.ended

    def progress(self, state: Streamed, iteration: int, seconds: float) -> Progress:
        """Return the line with cost and width, and what comes next; there is no bound."""
        width = max(len(W) for W in state.best[:-1])
        phase = f"cycle {state.cycle + 1} of training on batches of {self._batch(state.cycle)} samples"
        return Progress(iteration, seconds, state.cost, None, width, phase)

    def _trained(self, state: Streamed, budget: Budget) -> Streamed:
        """Train for a cycle; continue from there, or with the next start where the signal was lost."""
        cycle = self._cycle(state)
        trained, last = self._descended(state.weights, cycle, self._batch(state.cycle), budget)
        network = reduced_on_few(self.problem, trained)
        cost = evaluate(self.problem, network)
        self._pace.closed(budget)
        best, lowest = (network, cost.total) if cost.total < state.cost else (state.best, state.cost)
        following = replace(state, best=best, cost=lowest)
        if last:
            return replace(following, ended=Status.TIME_LIMIT)
        if not cost.fit < NOTHING * self._flat:
            return self._after_nothing(following, budget)
        # What a higher penalty takes off the weights comes back after it: such a cycle says nothing about the next.
        stalled = cycle.penalty == 1.0 and state.last - cost.total <= STALL * cost.total
        ended = Status.CONVERGED if stalled and state.settled else None
        if state.cycle >= len(CYCLES) and min(len(W) for W in network[:-1]):
            more = [math.ceil(WIDER * len(W)) for W in network[:-1]]
            trained = widened(network, more, STRENGTH, self._generator, self._max_width)
        return replace(
            following,
            weights=trained,
            cycle=state.cycle + 1,
            last=cost.total,
            ended=ended,
            settled=cycle.penalty == 1.0,
        )

    def _after_nothing(self, state: Streamed, budget: Budget) -> Streamed:
        """Return the state with the next start; or the end."""
        if state.start + 1 >= self._starts:
            return replace(state, ended=Status.CONVERGED)
        return Streamed(self._drawn(state.start + 1, budget), state.best, state.cost, state.start + 1)

    def _cycle(self, state: Streamed) -> Cycle:
        """Return the next cycle; only the penalty of the first start falls."""
        cycle = self._cycles[min(state.cycle, len(CYCLES) - 1)]
        steps = round(cycle.steps * LONGER ** max(0, state.cycle - len(CYCLES) + 1))
        return Cycle(steps, 1.0 if state.start else cycle.penalty)

    def _batch(self, number: int) -> int:
        """Return how many samples a step of this cycle takes, of all processes."""
        return min(self.problem.samples, round((WIDE if self._wide else 1) * BATCH * LARGER**number))

    def _drawn(self, number: int, budget: Budget) -> list[Tensor]:
        """Draw a start, as wide as the first cycles have time for."""
        problem, starts = self.problem, first_starts(self.problem)
        width, widest = starts.width(problem, starts.widths[0]), self._max_width or math.inf
        speed = FASTER * FIRST.speed if self._wide else FIRST.speed
        while width > starts.narrowest and self._work(width) > SHARE * budget.time_limit * speed:
            width = max(starts.narrowest, int(0.9 * width))
        simpler, wide = [], 0
        if number == int(problem.depth <= DEEPEST_TRAINED):
            simpler = self._from_two_layers(budget)
        elif number == 0 and problem.ridge and (problem.depth == 3 or problem.Y.shape[1] <= OUTPUTS):
            simpler, wide = self._simple, int(min(width, widest))
        if simpler and all(0 < len(W) <= widest for W in simpler[:-1]):
            return widened(simpler, [max(0, wide - len(W)) for W in simpler[:-1]], NOISE, self._generator)
        return starts.draw(problem, number, self._seed, int(min(width, widest)))

    def _from_two_layers(self, budget: Budget) -> list[Tensor]:
        """Return the solution of two layers for a few samples, made deeper, from the process with the best one."""
        own = Budget(budget.time_limit, started=budget.started, timing=budget.timing)
        networks = [self._zero, *from_two_layers(self._few, own, self._seed)]
        costs = [evaluate(self._few, weights).total for weights in networks]
        return self.problem.spread.cheapest(min(costs), networks[costs.index(min(costs))])

    def _work(self, width: int) -> float:
        """Return about how many multiplications the first cycles take with this width."""
        products = work(self.problem, [width] * (self.problem.depth - 1)) / self.problem.samples
        return sum(cycle.steps * (FIRST.call + BATCH * LARGER**k * products) for k, cycle in enumerate(CYCLES))

    def _descended(self, weights: Weights, cycle: Cycle, size: int, budget: Budget) -> tuple[list[Tensor], bool]:
        """Return the network after a cycle on batches of this size, and whether there is no time for another."""
        widths, spread = [len(W) for W in weights[:-1]], self.problem.spread
        spread = spread.in_parts(max(2, spread.processes))
        batch = Batch(self._single, [widths], max(1, size // spread.parts))
        start = batch.pack([[W.to(self._single.X) for W in weights]])
        lam = start.new_full((1, 1), cycle.penalty * self.problem.lam)

        def slope(x: Float[Tensor, "1 P"]) -> tuple[Tensor, Tensor]:
            rows, of_rows = spread.some(self._draw, len(self.problem.X), size)
            slopes = torch.cat([batch.slopes(x, some, lam) for (some,) in of_rows.shares(rows)])
            return x.new_zeros(1), spread.averaged(slopes)[:1]

        def method(steps: int) -> Adam:
            rate = FIRST.rate * float(start.square().mean().sqrt())
            return steps_on_matrices(slope, start, AdamOptions(steps=steps, rate=rate), batch.stacks)

        probe = method(cycle.steps)
        for steps in (1, 1 + PROBED):  # the first step takes longer than the others
            self._pace.descend(probe, steps, budget)
        steps, last = self._pace.steps(cycle.steps, budget, FOLLOWING)
        descent = method(steps)
        self._pace.descend(descent, steps, budget)
        return [W.to(self.problem.X) for W in batch.unpack(descent.x[0], widths)], last or descent.steps_taken < steps

    def _draw(self, rows: int, count: int) -> Int[Tensor, " k"]:
        """Draw the samples of a batch, with replacement, or take all; a part that has too few takes some twice."""
        if count >= rows:
            return torch.arange(count, device=self.problem.X.device) % rows
        return torch.randint(rows, (count,), generator=self._generator, device=self.problem.X.device)

    def _evenly(self, rows: int, count: int) -> Int[Tensor, " k"]:
        return torch.arange(0, rows, math.ceil(rows / count), device=self.problem.X.device)


def descended(problem: Problem, weights: Weights, budget: Budget) -> list[Tensor]:
    """Descend by L-BFGS on all samples, through sharpening kinks; keep the needed neurons."""
    if not min(len(W) for W in weights[:-1]):
        return list(weights)
    with budget.phase("descent"):
        return reduced_on_few(problem, descend(problem, [weights], POLISHING, budget.pace())[0], budget.overdue)
