"""Fine-tuning: descents of the loss from given weights, without new neurons.

Ordinary training ends near kinks, z_i = 0 for some samples, about which Adam hovers: the gradient there is large, and
yet little is to be gained. So what is left is measured and not read off the gradient: L-BFGS on the loss itself, kinks
and all, begun again without its memory until that gains nothing. Descents through rounded kinks (homotopy.py) would end
lower, but elsewhere: they leave local minima, which training does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.weights import Weights, evaluate
from covopt.solvers.deep.pruning import balanced
from covopt.solvers.training.exact_fit import fit_by_multipliers, fit_exactly
from covopt.solvers.training.homotopy import POLISHING, HomotopyOptions, descend

PASS = HomotopyOptions(factors=(0.0,), slow=1e-6, window=100, memory=20)
"""A pass: L-BFGS until 100 turns gain less than 1e-6 of the loss."""


def train_further(
    problem: Problem,
    networks: Sequence[Weights],
    stop: Callable[[], bool] = lambda: False,
    options: HomotopyOptions = PASS,
    passes: int = 10,
) -> tuple[list[list[Tensor]], bool]:
    """Fine-tune all these networks together; their widths stay.

    Args:
        problem: of any depth and loss; for `interpolate` the networks have to fit.
        networks: weights.
        stop: asked before each turn.
        options: the descents of a pass.
        passes: the maximum number of passes.

    Returns:
        Networks, each at no higher cost than its start (without a gain the start itself, bit for bit), and whether the
        descent stalled before it was stopped.
    """
    if problem.interpolates:
        return [_shorter(problem, list(weights), stop) for weights in networks], not stop()
    current = [list(weights) for weights in networks]
    costs = [evaluate(problem, weights).total for weights in current]
    going, stalled = [*range(len(current))], False
    for _ in range(passes):
        if stop() or not going:
            break
        starts = [_cheaper(problem, current[k], balanced(current[k])) for k in going]
        descended = descend(problem, starts, options, stop)
        falling = []
        for k, weights in zip(going, descended, strict=True):
            cost = evaluate(problem, weights).total
            if cost < costs[k]:
                falling += [k] if costs[k] - cost > 1e-4 * costs[k] else []
                current[k], costs[k] = weights, cost
        going = falling
        stalled = not going
    return current, stalled and not stop()


def _cheaper(problem: Problem, before: list[Tensor], after: list[Tensor]) -> list[Tensor]:
    return after if evaluate(problem, after).total < evaluate(problem, before).total else before


def _shorter(problem: Problem, weights: list[Tensor], stop: Callable[[], bool]) -> list[Tensor]:
    """Return an exact fit of less |W|^2 by the method of multipliers, or the given one."""
    lowest, shortest = evaluate(problem, weights).total, weights
    for candidate in (fit_exactly(problem, balanced(weights)), fit_by_multipliers(problem, weights, POLISHING, stop)):
        cost = evaluate(problem, candidate)
        if problem.allows(cost.residual) and cost.total < lowest:
            lowest, shortest = cost.total, candidate
    return shortest
