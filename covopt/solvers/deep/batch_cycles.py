"""The cycles of mini-batch training (stream.py): the batches, learning rates, penalties and steps of each cycle.

Cycle 0 is the opening by schedule-free Muon, whose point is good at each step. Cycle 1 has large batches. Later ones
are smaller, because their noise leads to lower minima, and grow again, to end nearer to the minimum. If the inputs are
too many for SOAP, large batches take too long: batches then grow from the end of the opening on.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.weights import Cost, Weights
from covopt.solvers.training.batch import Batch
from covopt.solvers.training.descent import Adam, AdamOptions, Function
from covopt.solvers.training.exact_fit import usual_penalty
from covopt.solvers.training.matrices import SOAP, ScheduleFreeMuon, steps_on_matrices

BATCH = 256  # samples of the first step
WIDE = 2  # factor of the batches where the inputs are too many for SOAP, and a step on matrices takes as long as passes
GROWTH, SOON = 0.7, 300  # the batch of step k of the opening is (1 + k / SOON)^GROWTH times as large as the first one
OPENING = (500, 1000)  # the fewest and the most steps of the opening, unless `StoppingRule` stops it
EARLIEST, APART = 120, 1.5
"""The opening stops after EARLIEST steps or more, once cost times steps is larger than at an evaluation APART times
earlier. With 60 steps, 13 sets of 1,205 to 20,000 samples cost 12 % more after 0.5 s and 8 % more after 1.5 s."""
RISE = 1.03  # it also stops if the cost grows by this factor between evaluations, and is more penalty than loss
CYCLES = (400, 600)  # the steps of the cycle on large batches, and of the first one after it
ON_LARGE = 4096  # samples of these large batches; with 2,048, those sets cost 15 % more after 2 s
RATE = 2.5  # of the opening, over the number of layers, and relative to the weights, as all rates
LATER = 0.15  # rate of the cycles; with 0.3, 20,000 samples of 784 inputs end 1 % higher after 15 s, digits as low
FAST = 0.3  # of the cycle on large batches, if there is more loss than penalty; else weights grow around a small loss
LARGER, LONGER = 1.5, 1.5  # batches and steps of a cycle, relative to the one before
STEP = 64  # the sizes of batches are multiples of it, so that few of them need memory of their own


@dataclass(frozen=True)
class CyclePenalty:
    """The penalty of a start, (1 + (first - 1) share exp(-k / fall)) lam in step k of the first two cycles, then lam.

    If it falls in the opening alone, networks of five layers end 2 % higher on 1,797 digits.
    """

    first: float = 1.0  # the penalty of the first step, relative to lam; 1 if it does not fall

    def factor(self, cycle: int, step: int) -> float:
        """Return the penalty, relative to lam."""
        share, fall = ((1.0, SOON), (0.6, 100))[cycle] if cycle < 2 else (0.0, 1)
        return 1.0 + (self.first - 1.0) * share * math.exp(-step / fall)


def falling_penalty(problem: Problem) -> CyclePenalty:
    """Return a penalty that falls from six times lam, or from three times the usual lam if that is less.

    From six times lam in all cases, 4,756 samples cost 20 % more by six layers.
    """
    return CyclePenalty(min(6.0, 3.0 * usual_penalty(problem) / problem.lam))


class BatchCycle:
    """The gradients of a cycle on random batches, in float32, and its descent; cycle 0 is the opening."""

    def __init__(
        self,
        problem: Problem,
        weights: Weights,
        number: int,
        generator: torch.Generator,
        rate: float,
        penalty: CyclePenalty,
    ) -> None:
        self._problem, self._number, self._generator = problem, number, generator
        self._rate, self._penalty = rate, penalty
        self._widths = [len(W) for W in weights[:-1]]
        self._spread = problem.spread.in_parts(max(2, problem.spread.processes))
        self._batch, self._samples = Batch(problem, [self._widths], 1), 1
        self._start = self._batch.pack([[W.to(problem.X) for W in weights]])
        self._size, self._shape = float(self._start.square().mean().sqrt()), self._batch.stacks

    def descent(self, steps: int) -> Adam:
        """Return a descent of this number of steps, before the first one."""
        method = steps_on_matrices if self._number else ScheduleFreeMuon
        return method(self._function(), self._start, AdamOptions(steps, self._rate * self._size), self._shape)

    def network(self, x: Float[Tensor, "1 P"]) -> list[Tensor]:
        """Return the network at this point, in float64."""
        return [W.double() for W in self._batch.unpack(x[0], self._widths)]

    def _function(self) -> Function:
        """Return the gradient on one random batch after another; its value is not used."""
        steps = itertools.count(1)

        def slope(x: Float[Tensor, "1 P"]) -> tuple[Tensor, Tensor]:
            step = next(steps)
            lam = x.new_full((1, 1), self._penalty.factor(self._number, step) * self._problem.lam)
            count = batch_size(self._problem, self._number, step)
            rows, of_rows = self._spread.some(self._draw, len(self._problem.X), count)
            slopes = [self._memory(step).slopes(x, some, lam) for (some,) in of_rows.shares(rows)]
            return x.new_zeros(1), self._spread.averaged(torch.cat(slopes))[:1]

        return slope

    def _memory(self, step: int) -> Batch:
        """Return the memory for this step, for a part of its batch."""
        samples = max(1, batch_size(self._problem, self._number, step) // self._spread.parts)
        if samples != self._samples:
            self._batch, self._samples = Batch(self._problem, [self._widths], samples), samples
        return self._batch

    def _draw(self, rows: int, count: int) -> Int[Tensor, " k"]:
        """Draw the samples of a batch, with replacement, or take all; a part that has too few takes some twice."""
        if count >= rows:
            return torch.arange(count, device=self._problem.X.device) % rows
        return torch.randint(rows, (count,), generator=self._generator, device=self._problem.X.device)


class StoppingRule:
    """The rule that stops an opening: the costs evaluated so far, and the point of the lowest one."""

    def __init__(self) -> None:
        self._costs: list[tuple[int, float]] = []  # the step of each evaluation, and the cost there
        self._lowest_cost, self.lowest, self.stopped = math.inf, torch.empty(0), False

    def stops(self, step: int, cost: Cost, x: Tensor) -> bool:
        """Add an evaluation; return True if the cost rises, or falls more slowly than the number of steps grows."""
        if cost.total < self._lowest_cost:
            self._lowest_cost, self.lowest = cost.total, x.clone()
        rises = bool(self._costs) and cost.total > RISE * self._costs[-1][1] and 2.0 * cost.fit < cost.total
        earlier = [entry for entry in self._costs if APART * entry[0] <= step]
        slow = step >= EARLIEST and bool(earlier) and step * cost.total > math.prod(earlier[-1])
        self._costs.append((step, cost.total))
        self.stopped = rises or slow
        return self.stopped


def rate_of(problem: Problem, cycle: int, cost: Cost) -> float:
    """Return the rate of a cycle, relative to the weights, after one that ended at this cost."""
    if not cycle:
        return RATE / problem.depth
    return FAST if cycle == 1 and not is_wide(problem) and 2.0 * cost.fit > cost.total else LATER


def steps_of(cycle: int) -> int:
    """Return the number of steps of a cycle after the opening."""
    first, second = CYCLES
    return first if cycle == 1 else round(second * LONGER ** (cycle - 2))


def batch_size(problem: Problem, cycle: int, step: int) -> int:
    """Return how many samples a step takes, of all processes; in the opening, cycle 0, from step to step more."""
    if cycle == 1 and not is_wide(problem):
        return min(problem.samples, ON_LARGE)
    at, earlier = (OPENING[1], cycle - 1) if cycle else (step, 0)
    factor = (WIDE if is_wide(problem) else 1) * (1.0 + at / SOON) ** GROWTH * LARGER**earlier
    return min(problem.samples, STEP * round(factor * BATCH / STEP))


def is_wide(problem: Problem) -> bool:
    """Return True if the inputs are too many for SOAP."""
    return problem.X.shape[1] >= SOAP.largest
