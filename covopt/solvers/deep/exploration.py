"""Random starts of deep networks, trained by Adam in one batch to find promising ones.

A narrow or small random start falls to zero or to a minimum of too low a rank where lam is large or the network deep.
Adam from starts that are wide enough, of several scales, meets the low minima instead. All starts take a few hundred
steps, the best third of them some thousand more (docs/notes/2026-11-deep-penalties.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.weights import Weights, evaluate
from covopt.runtime.loop import Budget
from covopt.solvers.training.batch import Batch, work
from covopt.solvers.training.cycles import CyclePace
from covopt.solvers.training.descent import Adam, AdamOptions
from covopt.solvers.training.exact_fit import usual_penalty
from covopt.solvers.training.homotopy import in_single
from covopt.solvers.training.trainer import initial


@dataclass(frozen=True)
class RandomStarts:
    """Networks of several widths and scales, a different one for each number.

    Attributes:
        widths: of the hidden layers, relative to `usual_width`.
        scales: of the first layer at depth 3, to the power 3 / L at depth L, so that signals behind L layers compare.
        first: the number whose width and scale come first.
    """

    widths: tuple[float, ...] = (1.0, 1.5, 2.0)
    scales: tuple[float, ...] = (0.5, 0.7, 0.35, 1.0)
    first: int = 0

    def draw(self, problem: Problem, number: int, seed: int, max_width: int | None = None) -> list[Tensor]:
        """Return the start of this number, no hidden layer wider than `max_width`."""
        usual = usual_width(problem.samples, problem.Y.shape[1])
        width = round(usual * self.widths[(number + self.first) % len(self.widths)])
        widths = [min(width, max_width or width)] * (problem.depth - 1)
        scale = self.scales[number % len(self.scales)] ** (3.0 / problem.depth)
        return initial(problem, widths, _mixed_seed(seed, number), scale)


@dataclass(frozen=True)
class FineTuning:
    """Adam at a small rate from networks that L-BFGS has stopped at.

    Of sixty races of 8 s against plain Adam 6 were lost, by up to 0.4 %, before it and longer training of the starts,
    and 2, by up to 0.04 %, with both (docs/notes/2026-11-deep-penalties.md).

    Attributes:
        steps: of Adam, at most. 4,000 at a rate of 0.03 ended 0.02 % higher in one race of depth 3.
        rate: the first learning rate, relative to the root mean square of the weights.
        share: the part of the time limit that the steps of one batch may take.
    """

    steps: int = 2000
    rate: float = 0.02
    share: float = 0.15


@dataclass(frozen=True)
class Sifting:
    """A first, short training of many starts, of which the best are trained longer.

    In races of 8 s against plain Adam 96 starts that are sifted ended 0.2 % lower, on average, than 72 that all take
    2,000 steps (docs/notes/2026-11-deep-penalties.md).

    Attributes:
        steps: of Adam, at least and at most.
        part: of the starts that is trained longer. With a fifth of 144 starts three of ten solves ended up to 1.2 %
            higher, with a quarter of 96 one did, by 0.1 %.
        rate: the first rate of the longer training, relative to that of the short one.
        share: of the time of the whole training.
    """

    steps: tuple[int, int] = (400, 800)
    part: float = 1 / 3
    rate: float = 0.7
    share: float = 0.5


@dataclass(frozen=True)
class Exploration:
    """Adam on the loss itself from many random starts, all in one batch in float32.

    Attributes:
        starts: their widths and scales. With widths 1, 1.5 and 2, scales up to 1, 48 starts and 12 refined, five of six
            solves of depth 4 to 8 ended 0.2 to 1.8 % higher, and the sixth did not change.
        batches: of starts that are trained in all, where nobody says how many starts.
        together: starts of a batch; twice as many cost half as much time again on 12 samples.
        sifting: the short training of all of them; steps: of Adam from the best of these, at least and at most.
        rate: the first learning rate, relative to the root mean square of the starts' weights; a cosine takes it down.
        share: the part of the time limit that a batch may take.
        shallowest: the least depth at which Adam explores. At depth 3 it ends 0.3 % lower to 0.3 % higher than L-BFGS.
        least: the least lam at which Adam explores, relative to `usual_penalty`. At smaller ones its steps end far from
            minima: 2 % higher at depth 4 and 0.6 of that lam, 4 % on 100 digits and 0.4; but 0.7 % lower at depth 5
            and 1.1, and 5.6 % lower on 30 digits at depth 4 and 4.
        fewest: starts and steps; with fewer, L-BFGS through smoothed kinks explores instead.
        elite: starts that are refined, at most; promising: only those whose cost is at most this much above the best.
        call: what a step costs beside its products, in multiplications; speed: multiplications in a second.
        probe: steps that measure the time of a step.
        tuning: settings of `fine_tune`.
    """

    starts: RandomStarts = RandomStarts((1.5, 2.0), (0.5, 0.7, 0.35))
    batches: int = 2
    together: int = 96
    sifting: Sifting = Sifting()
    steps: tuple[int, int] = (1000, 3000)
    rate: float = 0.065
    share: float = 0.45
    shallowest: int = 4
    least: float = 1.0
    fewest: tuple[int, int] = (24, 400)
    elite: int = 8
    promising: float = 0.05
    call: float = 2e6
    speed: float = 4e9
    probe: int = 10
    tuning: FineTuning = FineTuning()

    def count(self, problem: Problem, seconds: float, most: int) -> int:
        """Return how many starts, up to `most`, to train together in the time; 0 if too few fit.

        The estimate comes from the sizes and the limit alone, so that the same problem gets the same starts.
        """
        small = problem.depth < self.shallowest or problem.lam < self.least * usual_penalty(problem)
        if small or problem.interpolates or problem.activation.is_linear:
            return 0
        width = round(
            usual_width(problem.samples, problem.Y.shape[1]) * sum(self.starts.widths) / len(self.starts.widths)
        )
        products = work(problem, [width] * (problem.depth - 1))
        least, few = self.fewest
        fitting = [(self.share * seconds * self.speed / steps - self.call) / products for steps in (few, self.steps[0])]
        if fitting[0] < least:
            return 0
        return min(most, self.together, max(least, int(fitting[1])))

    def draws(self, problem: Problem, seconds: float, untrained: int) -> int:
        """Return how many starts to draw in all, `untrained` where Adam does not explore."""
        trained = self.count(problem, seconds, self.together) > 0
        return self.batches * self.together if trained else untrained

    def train(self, problem: Problem, starts: Sequence[Weights], budget: Budget) -> list[list[Tensor]]:
        """Train the starts by Adam, the best after a few steps for longer; return each at its lowest."""
        begun, seconds, sifting = budget.seconds(), self.share * budget.time_limit, self.sifting
        first = self._trained(problem, starts, sifting.steps, self.rate, sifting.share * seconds, budget)
        ranked = sorted(range(len(first)), key=lambda k: evaluate(problem, first[k]).total)
        best = ranked[: math.ceil(sifting.part * len(first))]
        left = seconds - (budget.seconds() - begun)
        longer = self._trained(problem, [first[k] for k in best], self.steps, sifting.rate * self.rate, left, budget)
        return [longer[best.index(k)] if k in best else weights for k, weights in enumerate(first)]

    def _trained(
        self,
        problem: Problem,
        starts: Sequence[Weights],
        bounds: tuple[int, int],
        relative_rate: float,
        seconds: float,
        budget: Budget,
    ) -> list[list[Tensor]]:
        """Train by Adam for the upper bound of steps, or fewer, down to the lower one, where the seconds are short."""
        batch, point, rate = _packed(in_single(problem), starts, relative_rate)
        within, pace = replace(budget, time_limit=min(budget.time_limit, budget.seconds() + seconds)), CyclePace()
        pace.descend(Adam(batch.evaluate, point, AdamOptions(rate=rate)), self.probe, within)
        fewest, most = bounds
        most = max(fewest, min(most, self._affordable(problem, batch, seconds)))
        steps = min(most, pace.steps(most, within)[0])
        adam = Adam(batch.evaluate, point, AdamOptions(steps=steps, rate=rate))
        pace.descend(adam, steps, within)
        return _unpacked(problem, batch, adam)

    def fine_tune(self, problem: Problem, networks: Sequence[Weights], budget: Budget) -> list[list[Tensor]]:
        """Return the lowest networks that Adam meets at a small rate from given ones, in the problem's dtype.

        L-BFGS stops at kinks from which these steps still lead down. It takes no steps if too few would fit, or if all
        weights are 0.
        """
        if not any(bool(W.any()) for weights in networks for W in weights):
            return []  # the zero network: nothing sets the size of a step
        batch, point, rate = _packed(problem, networks, self.tuning.rate)
        steps = min(self.tuning.steps, self._affordable(problem, batch, self.tuning.share * budget.time_limit))
        if steps < self.fewest[1]:
            return []
        adam = Adam(batch.evaluate, point, AdamOptions(steps=steps, rate=rate))
        CyclePace().descend(adam, steps, budget)
        return _unpacked(problem, batch, adam)

    def _affordable(self, problem: Problem, batch: Batch, seconds: float) -> int:
        """Return how many steps of the batch fit into the time, by their multiplications alone."""
        products = sum(work(problem, widths) for widths in batch.widths)
        return int(min(seconds * self.speed / (self.call + products), 1e9))


def _packed(problem: Problem, networks: Sequence[Weights], rate: float) -> tuple[Batch, Tensor, float]:
    """Return the batch, its parameters, and the learning rate for weights of their size."""
    batch = Batch(problem, [[len(W) for W in weights[:-1]] for weights in networks])
    point = batch.pack([[W.to(problem.X) for W in weights] for weights in networks])
    return batch, point, rate * float(point[point != 0.0].square().mean().sqrt())


def _unpacked(problem: Problem, batch: Batch, adam: Adam) -> list[list[Tensor]]:
    """Return the lowest network of each row."""
    rows = zip(adam.best, batch.widths, strict=True)
    return [[W.to(problem.X) for W in batch.unpack(row, widths)] for row, widths in rows]


def usual_width(samples: int, outputs: int) -> int:
    """Neurons of a hidden layer of a random start, for N samples of n_L outputs."""
    return round(max(10.0, 2.0 * outputs, 3.0 * math.sqrt(samples)))


def _mixed_seed(seed: int, number: int) -> int:
    """Return a seed for start `number`, different for each pair."""
    return (seed * 1_000_003 + number) % 2**63
