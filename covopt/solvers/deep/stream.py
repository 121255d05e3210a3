"""Deep networks on many samples: mini-batch training of a random start.

Where the training of a start on all samples (exploration.py) takes long, it is trained on random batches in float32, in
cycles (batch_cycles.py). The first one, the opening, stops once the cost falls more slowly than the number of steps
grows, or rises because the weights grow while the loss is close to 0. Up to OPENS_ON_ALL samples, SOAP opens the
training on all samples instead. In later cycles points on the way have a mean that is good before the end. Points on
the way and the ends of all cycles are evaluated on all samples. If the time left after a cycle would be too short for
the next one, the cycle takes all of the time. If a start ends at zero, the next start follows.

Up to DEEPEST_TRAINED layers the first start is random, and the second one is the solution of two layers, made deeper;
in deeper networks that solution comes first. With three layers or few outputs, the first start contains a linear
network, whose signal passes all layers.

Processes that share the samples draw each batch from all samples and take the same steps. The descent after them
(`descended`) uses the gradients of all samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.spread import ALONE
from covopt.model.units import spans_less
from covopt.model.weights import Cost, Weights, evaluate
from covopt.runtime.loop import Budget, OnIncumbent, Progress, Status, ignore_incumbent
from covopt.solvers.deep import batch_cycles
from covopt.solvers.deep.batch_cycles import BATCH, OPENING, BatchCycle, CyclePenalty, StoppingRule, batch_size, is_wide
from covopt.solvers.deep.exploration import Cycle
from covopt.solvers.deep.first_training import FIRST, first_starts, has_falling_penalty
from covopt.solvers.deep.pruning import balanced, reduced_on_few, widened
from covopt.solvers.deep.solver import DEEPEST_TRAINED
from covopt.solvers.deep.starts import from_two_layers
from covopt.solvers.incumbent import Incumbent
from covopt.solvers.training.batch import work
from covopt.solvers.training.cycles import CyclePace
from covopt.solvers.training.homotopy import POLISHING, descend, in_single
from covopt.solvers.training.simple import simple_networks

OPENS_ON_ALL = 1024  # samples, up to which the training opens on all of them (docs/notes/2026-11-deep-batches.md)
ON_ALL = replace(FIRST, report_every=25)  # that opening, in all cycles but the last
ON_ALL_FALLING = replace(ON_ALL, cycles=(Cycle(250, 4.0), Cycle(250), *ON_ALL.cycles[-1:]))  # where the penalty falls
FASTER = 2.5  # factor of the speed where the inputs are too many for SOAP: larger products are faster
PASSES, PART = 3.0, 0.08
"""From one evaluation to the next, the steps see every sample PASSES times on average, at least. They are also at least
PART of the cycle, or of the opening so far. At first, evaluations come after half of these steps: 20,000 samples have
two within the first second. With half of PASSES, 17 sets of 1,000 to 4,600 samples cost 3 % more after 0.5 and 1 s."""
MEAN = 0.1  # the share of a cycle's steps so far, over which its points are averaged; with 0.5, 9 % higher after 1.5 s
TRAINED, LARGE, SHARE = 1500, 2.4, 0.6
"""A start is as wide as the time allows: TRAINED steps, on batches LARGE times the first, are to take this share."""
WHOLE = 0.35  # of the time, in which a start that can be trained on all samples makes batches needless
PROBED = 3  # steps that measure their time before each cycle; with 10, ten sets cost 1 to 4 % more until 3 s
FOLLOWING = 1.2  # the time of the next cycle at least, relative to this one, or this one is the last
WIDER, STRENGTH, NEEDED = 1.0, 0.5, 0.95
"""Neurons added to each layer after a cycle, relative to those that are needed, and the size of their weights,
relative to the layer's root mean square. A network gets them only if at least the part NEEDED of its neurons is needed.
With more neurons after each cycle 19 sets end 4 % higher; without any, one set ends 67 % higher
(docs/notes/2026-11-deep-batches.md)."""
STALL = 5e-4  # the training ends when a cycle after the opening lowers the loss by less than this, relative
SHORT = 3  # cycles after the opening, which may end higher by more than that, because they are too short
STARTS = 3  # at most; an improvement on all samples follows
NOTHING = 0.999  # a network whose loss C is above this part of a constant's has lost the signal
FEW = 300  # samples that tell the usual penalty, the linear network and the answer of two layers
OUTPUTS = 2  # at most, for a linear network in more than three layers; with 10, digits end 1 to 10 % higher with it
NOISE = 0.2  # of random neurons beside those of the linear network: the size of their weights, relative to theirs


def suits_batches(problem: Problem, seconds: float, max_width: int | None = None) -> bool:
    """Return True if training a start on all samples would take too much of the time; never on a GPU."""
    splits = problem.can_be_split and problem.fits_single
    if not splits or problem.X.is_cuda or problem.samples <= batch_size(problem, 0, 1):
        return False
    steps = sum(cycle.steps for cycle in FIRST.cycles)
    width = min(first_starts(problem).width(problem, first_starts(problem).widths[0]), max_width or math.inf)
    inputs = problem.X[:, : problem.samples] if spans_less(problem) else problem.X  # as many as a step multiplies
    products = work(replace(problem, X=inputs), [int(width)] * (problem.depth - 1))
    return steps * (FIRST.call + products) > WHOLE * seconds * FIRST.speed


UNKNOWN = Cost(math.inf, math.inf, math.inf, math.inf)  # before the first cycle of a start


@dataclass(frozen=True)
class Streamed:
    """The state of the training."""

    weights: list[Tensor]  # where the next cycle begins
    best: list[Tensor]  # the best network so far
    cost: float  # its loss over all samples
    start: int = 0  # the number of the start
    cycle: int = 0  # the number of its next cycle: 0 is the opening, 1 the one on large batches
    last: Cost = UNKNOWN  # the cost of this start after its last cycle
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
        self._max_width, self._init, self.enough = max_width, init, enough
        self._generator = torch.Generator(device=problem.X.device).manual_seed(seed)
        self._pace = CyclePace()
        self.on_incumbent: OnIncumbent = ignore_incumbent
        self._zero = [problem.X.new_zeros(shape) for shape in problem.shapes([0] * (problem.depth - 1))]

    @cached_property
    def _single(self) -> Problem:
        """The problem in float32, if that holds it."""
        return in_single(self.problem)

    @cached_property
    def _few(self) -> Problem:
        """A few of the samples, the same in each process."""
        few = self.problem.evenly(FEW)
        return replace(few, X=few.spread.stacked(few.X), Y=few.spread.stacked(few.Y), spread=ALONE)

    @cached_property
    def _simple(self) -> list[Tensor]:
        """The constant, linear or zero network of lowest cost on them, no wider than `max_width`."""
        widest, networks = self._max_width or math.inf, [self._zero, *simple_networks(self._few)]
        narrow = [weights for weights in networks if max(len(W) for W in weights[:-1]) <= widest]
        return min(narrow, key=lambda weights: evaluate(self._few, weights).total)

    @cached_property
    def _flat(self) -> float:
        """The loss C of the best constant."""
        constants = [self._zero, *simple_networks(self._few, linear=False)]
        return evaluate(self.problem, min(constants, key=lambda weights: evaluate(self._few, weights).fit)).fit

    @cached_property
    def _penalty(self) -> CyclePenalty:
        """The penalty of the first start; that of later ones does not fall."""
        return batch_cycles.falling_penalty(self._few) if has_falling_penalty(self._few) else CyclePenalty()

    def init(self, budget: Budget) -> Streamed:
        """Return the first start, or the given network."""
        weights = self._simple if self._init is None else list(self._init)
        cost, nothing = (evaluate(self.problem, network) for network in (weights, self._zero))
        best, lowest = (weights, cost.total) if cost.total < nothing.total else (self._zero, nothing.total)
        if self._init is None:
            return Streamed(self._drawn(0, budget), best, lowest)
        # Through a layer without neurons nothing passes, and no gradient.
        ended = None if min(len(W) for W in weights[:-1]) else Status.CONVERGED
        return Streamed(weights, best, lowest, self._starts, 2, cost, ended)

    def step(self, state: Streamed, budget: Budget) -> Streamed:
        """Train for a cycle, or until the time is over, and evaluate the loss over all samples."""
        with budget.phase("batches"):
            return self._trained(state, budget)

    def finished(self, state: Streamed) -> Status | None:
        """Return OPTIMAL at a proved minimum, CONVERGED when a cycle gained too little."""
        return Status.OPTIMAL if state.cost <= self.enough else state.ended

    def progress(self, state: Streamed, iteration: int, seconds: float) -> Progress:
        """Return the line with cost and width, and what comes next; there is no bound."""
        width = max(len(W) for W in state.best[:-1])
        batch = self.problem.samples if self._on_all(state) else batch_size(self.problem, state.cycle, 0)
        phase = f"training on batches of {batch} samples"
        return Progress(iteration, seconds, state.cost, None, width, phase)

    def _trained(self, state: Streamed, budget: Budget) -> Streamed:
        """Train for a cycle; continue from there, or with the next start where the signal was lost."""
        lowest = Incumbent(self.problem)
        lowest.offer(state.best, state.cost)
        after = (self._opened_on_all if self._on_all(state) else self._descended)(state, lowest, budget)
        trained, network = after.weights, reduced_on_few(self.problem, after.weights, budget.overdue)
        cost = evaluate(self.problem, network)
        lowest.offer(network, cost.total)
        self._pace.closed(budget)
        following = replace(after, best=lowest.weights, cost=lowest.cost)
        if after.ended:
            return following
        if not cost.fit < NOTHING * self._flat:
            return self._after_nothing(following, budget)
        gain, little = state.last.total - cost.total, STALL * cost.total
        too_short = state.cycle <= SHORT and gain < -little
        stalled = state.cycle > 0 and gain <= little and not too_short
        if state.cycle and min(len(W) for W in network[:-1]):
            trained = self._resized(network, trained)
        ended = Status.CONVERGED if stalled else None
        return replace(following, weights=trained, cycle=after.cycle + 1, last=cost, ended=ended)

    def _resized(self, network: list[Tensor], trained: list[Tensor]) -> list[Tensor]:
        """Return the network of needed neurons; with more in each layer if nearly all trained neurons are needed."""
        needed, used = (sum(len(W) for W in weights[:-1]) for weights in (network, trained))
        if needed < NEEDED * used:
            return network
        more = [math.ceil(WIDER * len(W)) for W in network[:-1]]
        return widened(network, more, STRENGTH, self._generator, self._max_width)

    def _after_nothing(self, state: Streamed, budget: Budget) -> Streamed:
        """Return the state with the next start; or the end."""
        if state.start + 1 >= self._starts:
            return replace(state, ended=Status.CONVERGED)
        number = state.start + 1
        return Streamed(self._drawn(number, budget), state.best, state.cost, number)

    def _drawn(self, number: int, budget: Budget) -> list[Tensor]:
        """Draw a start, as wide as the time allows."""
        problem, starts = self.problem, first_starts(self.problem)
        width, widest = starts.width(problem, starts.widths[0]), self._max_width or math.inf
        speed = FASTER * FIRST.speed if is_wide(problem) else FIRST.speed
        while width > starts.narrowest and self._work(width) > SHARE * budget.time_limit * speed:
            width = max(starts.narrowest, int(0.9 * width))
        simpler, wide = [], 0
        if number == int(problem.depth <= DEEPEST_TRAINED):
            simpler = self._from_two_layers(budget)
        elif number == 0 and (problem.depth == 3 or problem.Y.shape[1] <= OUTPUTS):
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
        """Return about how many multiplications TRAINED steps take with this width."""
        products = work(self.problem, [width] * (self.problem.depth - 1)) / self.problem.samples
        return TRAINED * (FIRST.call + LARGE * BATCH * products)

    def _on_all(self, state: Streamed) -> bool:
        """Return True if the next cycle is an opening on all samples."""
        return not state.cycle and self.problem.samples <= OPENS_ON_ALL and self.problem.spread is ALONE

    def _opened_on_all(self, state: Streamed, lowest: Incumbent, budget: Budget) -> Streamed:
        """Open on all samples, in all cycles but the last; none on large batches is to follow."""
        training, networks = ON_ALL_FALLING if self._penalty.first > 1.0 else ON_ALL, [state.weights]
        for cycle in training.cycles[:-1]:
            networks = training.train_cycle(self.problem, networks, cycle, budget, partial(self._show, lowest))
        return replace(state, weights=networks[0], cycle=1, ended=Status.TIME_LIMIT if budget.spent() else None)

    def _show(self, lowest: Incumbent, networks: list[list[Tensor]]) -> Cost:
        """Offer the network on the way, the only one of these, and report the lowest cost."""
        network = balanced(networks[0])
        cost = evaluate(self.problem, network)
        lowest.offer(network, cost.total)
        self.on_incumbent(lowest.cost, max(len(W) for W in network[:-1]))
        return cost

    def _descended(self, state: Streamed, lowest: Incumbent, budget: Budget) -> Streamed:
        """Train on batches for a cycle, or until an opening is over; offer networks on the way."""
        cycle, rule, shown = self._cycle(state), StoppingRule(), 0
        descent, may_end = cycle.descent(1 + PROBED), not (state.cycle or is_wide(self.problem))
        for steps in (1, 1 + PROBED):  # the first step takes longer than the others
            self._pace.descend(descent, steps, budget)
        steps, last = self._steps(state.cycle, budget)
        if state.cycle:  # the rate depends on the number of steps
            descent = cycle.descent(steps)
        mean = descent.x.clone()

        def after_step() -> bool:
            nonlocal shown
            step = descent.steps_taken
            if state.cycle:
                mean.lerp_(descent.x, 1.0 / (1.0 + MEAN * step))
            size = batch_size(self.problem, state.cycle, step)
            between = max(PASSES * self.problem.samples / size, PART * (steps if state.cycle else step))
            if not shown + (between if shown > between else 0.5 * between) <= step < steps:
                return False
            shown = step
            cost = self._show(lowest, [cycle.network(mean if state.cycle else descent.x)])
            return may_end and rule.stops(step, cost, descent.x)

        self._pace.descend(descent, steps, budget, after_step)
        if rule.stopped:
            return replace(state, weights=cycle.network(rule.lowest))
        ended = Status.TIME_LIMIT if last or descent.steps_taken < steps else None
        return replace(state, weights=cycle.network(descent.x), ended=ended)

    def _steps(self, cycle: int, budget: Budget) -> tuple[int, bool]:
        """Return the steps of this cycle, and whether it is the last; an opening takes about half of the time."""
        if cycle:
            return self._pace.steps(batch_cycles.steps_of(cycle), budget, FOLLOWING)
        fewest, most = OPENING
        half = self._pace.steps(2 * most, budget, 0.0)[0] // 2
        return self._pace.steps(min(most, max(fewest, half)), budget, 0.5)

    def _cycle(self, state: Streamed) -> BatchCycle:
        """Return the functions of the next cycle."""
        rate = batch_cycles.rate_of(self.problem, state.cycle, state.last)
        penalty = CyclePenalty() if state.start else self._penalty
        return BatchCycle(self._single, state.weights, state.cycle, self._generator, rate, penalty)


def descended(problem: Problem, weights: Weights, budget: Budget) -> list[Tensor]:
    """Descend by L-BFGS on all samples, through sharpening kinks; keep the needed neurons."""
    if not min(len(W) for W in weights[:-1]):
        return list(weights)
    with budget.phase("descent"):
        return reduced_on_few(problem, descend(problem, [weights], POLISHING, budget.pace())[0], budget.overdue)
