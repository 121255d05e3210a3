"""Random starts of deep networks, trained by Adam in one batch to find promising ones.

If lam is large or the network is deep, a narrow or small random start ends at zero or at a minimum of too low rank.
Adam finds the low minima from wide starts of several scales. The first 1,000 or 2,000 steps at a falling rate suffice,
because the best networks are refined afterwards (docs/notes/2026-11-deep-penalties.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.weights import Weights, evaluate
from covopt.runtime.loop import Budget
from covopt.solvers.deep.fine_tuning import FineTuning, FurtherTraining
from covopt.solvers.deep.pruning import of_lower_rank, reduced
from covopt.solvers.training.batch import Batch, Widths, work
from covopt.solvers.training.cycles import CyclePace
from covopt.solvers.training.descent import Adam, AdamOptions
from covopt.solvers.training.exact_fit import usual_penalty
from covopt.solvers.training.homotopy import in_single
from covopt.solvers.training.matrices import SOAP
from covopt.solvers.training.trainer import initial

Networks = list[list[Tensor]]
Report = Callable[[Networks], object]  # receives the lowest networks of an unfinished training


@dataclass(frozen=True)
class RandomStarts:
    """Random networks: the number of a start chooses its width, scale and seed."""

    # widths of the hidden layers, relative to `usual_width`, in the order of their use
    widths: tuple[float, ...] = (1.0, 1.5, 2.0)
    # scales of the first layer at depth 3; the other layers are balanced with it. Depth L uses their power 3 / L, so
    # that the product over all layers is the same at every depth
    scales: tuple[float, ...] = (0.5, 0.7, 0.35, 1.0)
    first: int = 0  # offset of the widths: start 0 has the width `widths[first]`
    narrowest: int = 0  # the least width, whatever the usual one
    widest: float = math.inf  # the largest width, as a multiple of the number of inputs and outputs
    largest: float = math.inf  # the root mean square of the inputs above which the scale falls in proportion

    def width(self, problem: Problem, factor: float) -> int:
        """Return this multiple of the usual width, within the limits."""
        d, m = problem.X.shape[1], problem.Y.shape[1]
        return max(self.narrowest, round(min(factor * usual_width(problem.samples, m), self.widest * (d + m))))

    def draw(self, problem: Problem, number: int, seed: int, max_width: int | None = None) -> list[Tensor]:
        """Return the start with this number; no hidden layer is wider than `max_width`."""
        width = self.width(problem, self.widths[(number + self.first) % len(self.widths)])
        widths = [min(width, max_width or width)] * (problem.depth - 1)
        size = problem.spread.norm(problem.X) / math.sqrt(problem.samples * (problem.X.shape[1] + 1))
        scale = self.scales[number % len(self.scales)] ** (3.0 / problem.depth) / max(1.0, size / self.largest)
        mixed = (seed * 1_000_003 + number) % 2**63  # pairs with a smaller number than the factor do not collide
        return initial(problem, widths, mixed, scale)


def by_adam(batch: Batch, point: Tensor, options: AdamOptions) -> Adam:
    """Return the steps of Adam from this point."""
    return Adam(batch.evaluate, point, options)


def by_soap(batch: Batch, point: Tensor, options: AdamOptions) -> Adam:
    """Return the steps of SOAP from this point."""
    return SOAP(batch.evaluate, point, options, batch.stacks)


@dataclass(frozen=True)
class Cycle:
    """A part of the training of a first start, during which the rate falls once."""

    steps: int  # the number of steps
    penalty: float = 1.0  # lam during these steps, as a multiple of the problem's


@dataclass(frozen=True)
class Exploration:
    """Adam on the unsmoothed loss from many random starts, all in one batch in float32.

    docs/notes/2026-11-deep-penalties.md has the measurements behind the settings.
    """

    # widths and scales. With widths 1, 1.5, 2 and scales up to 1 five of six solves ended 0.2 to 1.8 % higher
    starts: RandomStarts = RandomStarts((1.5, 2.0), (0.5, 0.7, 0.35))
    together: int = 72  # starts of a batch. With twice as many, a step on 12 samples takes 1.5 times as long
    # minimum and maximum number of steps. Within the share of time, more starts gain more than more steps
    steps: tuple[int, int] = (1000, 2000)
    # first learning rate, relative to the root mean square of the starts' weights; a cosine schedule lowers it
    rate: float = 0.065
    share: float = 0.45  # maximum share of the time limit for one batch
    shallowest: int = 4  # minimum depth for Adam. At depth 3 it ends between 0.3 % below and 0.3 % above L-BFGS
    # minimum lam for Adam, as a multiple of `usual_penalty`. At smaller lam, Adam stops far from minima: 2 % higher
    # at 0.6 and depth 4. At larger lam, it ends lower: by 5.6 % at 4 and depth 4 on 30 digits
    least: float = 1.0
    # minimum numbers of starts and of steps. If fewer fit into the time, L-BFGS with smoothed kinks explores
    fewest: tuple[int, int] = (24, 400)
    elite: int = 8  # maximum number of starts that are refined
    promising: float = 0.05  # maximum relative excess of the cost of such a start over the lowest
    call: float = 2e6  # overhead of a step, in multiplications
    speed: float = 4e9  # multiplications per second
    probe: int = 10  # number of steps that measure the time of a step
    report_every: int = 100  # number of steps between two reports of the lowest networks
    method: Callable[[Batch, Tensor, AdamOptions], Adam] = by_adam  # the steps that train: `by_adam` or `by_soap`
    cycles: tuple[Cycle, ...] = ()  # the first start trains in all but the last; later starts in the last one
    tuning: FineTuning = field(default_factory=FineTuning)  # settings of `fine_tune`
    # number of copies of lower rank in a row that gain little before no more are trained. With 3 or 4 instead of 2,
    # fine-tuning comes later, and 200 digits end 0.3 to 1 % higher at five and six layers
    restarts: int = 0
    copies: tuple[Cycle, ...] = ()  # the cycles in which such a copy trains
    further: FurtherTraining | None = None  # further training of the best network, if any

    def count(self, problem: Problem, seconds: float, most: int) -> int:
        """Return how many starts, up to `most`, can be trained together; 0 if Adam is not used.

        The estimate uses only sizes and the time limit, so that the same problem gets the same starts on every machine.
        """
        if problem.depth < self.shallowest or not problem.can_be_split:
            return 0
        if self.least > 0.0 and problem.lam < self.least * usual_penalty(problem):
            return 0
        width = self.starts.width(problem, sum(self.starts.widths) / len(self.starts.widths))
        products = work(problem, [width] * (problem.depth - 1))
        fewest_starts, fewest_steps = self.fewest
        with_fewest_steps, with_usual_steps = (
            (self.share * seconds * self.speed / steps - self.call) / products
            for steps in (fewest_steps, self.steps[0])
        )
        if with_fewest_steps < fewest_starts:
            return 0
        return min(most, self.together, max(fewest_starts, int(min(with_usual_steps, most))))  # seconds may be infinite

    def early(self, problem: Problem, seconds: float, most: int, batch: int, hurries: bool) -> int:
        """Return how many starts, up to `most`, are trained before a batch of others descends; 0 for none.

        None are if the batch takes less than a tenth of the time: with six layers it ends up to 7 % lower. At three
        layers a search that `hurries` trains them all the same: 16 points cost 0.0374 after 1 s, by the batch 0.0417
        after 2 s.
        """
        quick = share_of_descents(problem, batch, seconds) <= 0.1 and not (hurries and problem.depth == 3)
        return 0 if quick else self.count(problem, seconds, most)

    def train(
        self, problem: Problem, starts: Sequence[Weights], budget: Budget, report: Report | None = None
    ) -> Networks:
        """Train the starts, in fewer steps if time is short; return the lowest network from each."""
        batch, point, rate = _packed(in_single(problem), starts, self.rate)
        limit = min(budget.time_limit, budget.seconds() + self.share * budget.time_limit)
        within, pace = replace(budget, time_limit=limit), CyclePace()
        fewest, most = self.steps
        affordable = self._affordable(problem, batch.widths, self.share * budget.time_limit)
        most = max(fewest, min(most, affordable))
        if affordable < 3 * most:  # the time may be too short; these steps only measure it
            pace.descend(self.method(batch, point, AdamOptions(rate=rate)), self.probe, within)
        steps = min(most, pace.steps(most, within)[0])
        return self._descended(problem, batch, point, AdamOptions(steps=steps, rate=rate), within, report, pace)

    def _descended(
        self,
        problem: Problem,
        batch: Batch,
        point: Tensor,
        options: AdamOptions,
        budget: Budget,
        report: Report | None,
        pace: CyclePace | None = None,
    ) -> Networks:
        """Take steps from the point, and report the lowest networks now and then; return the lowest from each row."""
        adam = self.method(batch, point, options)

        def after_step() -> None:
            if report is not None and adam.steps_taken % self.report_every == 0:
                report(_unpacked(problem, batch, adam))

        (pace or CyclePace()).descend(adam, options.steps, budget, after_step)
        return _unpacked(problem, batch, adam)

    def train_cycle(
        self, problem: Problem, networks: Networks, cycle: Cycle, budget: Budget, report: Report | None = None
    ) -> Networks:
        """Train the networks for a cycle."""
        own = replace(self, steps=(cycle.steps, cycle.steps), share=1.0)
        return _at_penalty(problem, networks, cycle.penalty, partial(own.train, budget=budget, report=report))

    def fits(self, problem: Problem, seconds: float) -> bool:
        """Return True if a start has the time for all cycles but the last."""
        steps = sum(cycle.steps for cycle in self.cycles[:-1])
        return replace(self, fewest=(1, steps)).count(problem, seconds, 1) > 0

    def train_briefly(
        self, problem: Problem, start: list[Tensor], budget: Budget, report: Report | None = None
    ) -> list[Tensor]:
        """Train a start in all cycles but the last, within a share of the time, for a good network at once."""
        networks, within = [start], budget.rest(self.share)
        for cycle in self.cycles[:-1]:
            if not within.spent():
                networks = self.train_cycle(problem, networks, cycle, within, report)
        return networks[0]

    def one_by_one(self, problem: Problem, starts: Iterable[list[Tensor]], budget: Budget) -> Iterator[list[Tensor]]:
        """Yield starts trained one after another in short cycles; none if `further` is set or one takes long.

        On 300 points of two moons every second start ends at a minimum that costs 1.9 % more. With four layers and
        more other starts gain nothing, so none is trained; with a small lam wider copies gain more.
        """
        if problem.depth > 3 or self.further or not self.fits(problem, 0.3 * budget.time_limit):
            return
        for start in starts:
            if budget.spent():
                return
            yield reduced(problem, self.train_briefly(problem, start, budget), budget.pace())

    def restart(self, problem: Problem, weights: Weights, generator: torch.Generator, budget: Budget) -> list[Tensor]:
        """Train a copy of lower rank through its cycles; return a zero network as it is."""
        if not any(bool(W.any()) for W in weights):
            return list(weights)  # the learning rate is relative to the size of the weights
        copies = [of_lower_rank(weights, generator)]
        for cycle in self.copies:
            copies = self.train_cycle(problem, copies, cycle, budget)
        return reduced(problem, copies[0], budget.pace())

    def train_further(
        self, problem: Problem, weights: list[Tensor], further: FurtherTraining, budget: Budget, report: Report
    ) -> list[Tensor]:
        """Train a network for a cycle of further training."""
        low = replace(self, rate=further.rate)
        trained = low.train_cycle(problem, [weights], Cycle(further.steps), budget, report)
        return reduced(problem, trained[0], budget.pace())

    def fine_tune(
        self, problem: Problem, networks: Sequence[Weights], budget: Budget, report: Report | None = None
    ) -> Networks:
        """Take the steps of `tuning` from these networks; return the lowest from each.

        L-BFGS stops at kinks; these steps still lower the cost there. The result is empty if too few steps fit into the
        time, or if all weights are 0.
        """
        if not any(bool(W.any()) for weights in networks for W in weights):
            return []  # the learning rate is relative to the size of the weights
        own = self.tuning
        seconds = min(own.share * budget.time_limit, budget.remaining())
        widths = [[len(W) for W in weights[:-1]] for weights in networks]
        steps = min(own.steps, self._affordable(problem, widths, seconds))
        if steps < self.fewest[1]:
            return []
        tuned, part = [list(weights) for weights in networks], math.ceil(steps / len(own.penalties))

        def train(raised: Problem, start: Networks) -> Networks:
            batch, point, rate = _packed(in_single(raised) if own.single else raised, start, own.rate)
            return self._descended(raised, batch, point, AdamOptions(steps=part, rate=rate), budget, report)

        for penalty in own.penalties:
            tuned = _at_penalty(problem, tuned, penalty, train)
        return tuned

    def _affordable(self, problem: Problem, widths: Sequence[Widths], seconds: float) -> int:
        """Return the number of steps of a batch that fit into the time, estimated from multiplications."""
        products = sum(work(problem, own) for own in widths)
        return int(min(seconds * self.speed / (self.call + products), 1e9))  # the time limit may be infinite


def _at_penalty(problem: Problem, networks: Networks, factor: float, train: Callable[..., Networks]) -> Networks:
    """Train at a multiple of lam, which lowers the ranks of the layers; what that would take to zero stays."""
    if factor == 1.0:
        return train(problem, networks)
    raised = replace(problem, lam=factor * problem.lam)
    nothing = evaluate(raised, [torch.zeros_like(W) for W in networks[0]]).total
    trained = zip(networks, train(raised, networks), strict=True)
    return [new if evaluate(raised, new).total < 0.9 * nothing else old for old, new in trained]


def _packed(problem: Problem, networks: Sequence[Weights], rate: float) -> tuple[Batch, Tensor, float]:
    """Return the batch, its parameters, and `rate` times their root mean square."""
    batch = Batch(problem, [[len(W) for W in weights[:-1]] for weights in networks])
    point = batch.pack([[W.to(problem.X) for W in weights] for weights in networks])
    used = point[point != 0.0]
    return batch, point, rate * float(used.square().mean().sqrt()) if len(used) else 0.0


def _unpacked(problem: Problem, batch: Batch, adam: Adam) -> Networks:
    """Return the lowest network that Adam met in each row of the batch."""
    rows = zip(adam.best, batch.widths, strict=True)
    return [[W.to(problem.X) for W in batch.unpack(row, widths)] for row, widths in rows]


def usual_width(samples: int, outputs: int) -> int:
    """Return the usual number of neurons of a hidden layer of a random start."""
    return round(max(10.0, 2.0 * outputs, 3.0 * math.sqrt(samples)))


def few_starts(problem: Problem, seconds: float) -> int:
    """Return how many starts explore through smoothed kinks for 0.3 of the time on a CPU, at least 1."""
    return max(1, round(0.3 / max(share_of_descents(problem, 1, seconds), 1e-9)))  # the share is 0 without a limit


def share_of_descents(problem: Problem, starts: int, seconds: float) -> float:
    """Return the part of the time that this number of starts takes, of 900 turns each, on a CPU."""
    width = round(usual_width(problem.samples, problem.Y.shape[1]) * max(Exploration().starts.widths))
    return starts * 900 * work(problem, [width] * (problem.depth - 1)) / 3e9 / seconds  # multiplications in a second
