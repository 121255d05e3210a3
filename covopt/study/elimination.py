"""Narrower and narrower networks: neurons are taken out of a good one, and what is left descends.

At each step a few candidates are made, which differ in the neurons that go or are merged, descend as one batch
(homotopy.py), and the cheapest is the start of the next step. Nothing is proved here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from covopt.cone.reduce import balance
from covopt.model.problem import Problem
from covopt.model.weights import Weights, evaluate
from covopt.solvers.batch import buckets
from covopt.solvers.exact_fit import explored_problem, fit_exactly, penalised
from covopt.solvers.homotopy import EXPLORING, POLISHING, REFINING, descend
from covopt.solvers.pruning import parts, with_parts
from covopt.solvers.trainer import initial

# Of the smallest neurons, how many are looked at one by one.
LOOKED_AT = 12
# Activations in one batch, at most.
LARGEST = 10_000_000

Stop = Callable[[], bool]


def cost_of(problem: Problem, weights: Weights) -> float:
    """The cost in float64; infinite for `interpolate` where the network does not fit."""
    cost = evaluate(problem, [W.double() for W in weights])
    return cost.total if problem.allows(cost.residual) and math.isfinite(cost.total) else math.inf


def narrowed(problem: Problem, weights: Weights, widths: Sequence[int], stop: Stop) -> list[Tensor]:
    """The cheapest network found whose hidden layers have at most these widths, on the way down from `weights`."""
    candidates = [_without(problem, weights, widths, rule) for rule in (_smallest, _cheapest, _merged)]
    smooth = explored_problem(problem)
    found = descend(smooth, candidates, REFINING, stop)
    best = min(found, key=lambda each: evaluate(smooth, each).total)
    return _exact(problem, best, stop) if problem.interpolates else best


def drawn(problem: Problem, widths: Sequence[Sequence[int]], seeds: Sequence[int], stop: Stop) -> list[list[Tensor]]:
    """For each entry of `widths` the cheapest of the networks that random starts with these seeds lead to."""
    smooth = explored_problem(problem)
    starts = [(place, initial(smooth, each, seed)) for place, each in enumerate(widths) for seed in seeds]
    costs = torch.full((len(widths),), math.inf, dtype=torch.float64)
    best: list[list[Tensor]] = [initial(smooth, each, 0) for each in widths]
    for members in buckets(problem, [widths[starts[i][0]] for i in range(len(starts))], LARGEST):
        explored = descend(smooth, [starts[i][1] for i in members], EXPLORING, stop)
        explored = descend(smooth, explored, REFINING, stop)
        for i, weights in zip(members, explored, strict=True):
            place, cost = starts[i][0], cost_of(smooth, weights)
            if cost < float(costs[place]):
                costs[place], best[place] = cost, weights
    return [_exact(problem, weights, stop) for weights in best] if problem.interpolates else best


def _exact(problem: Problem, weights: list[Tensor], stop: Stop) -> list[Tensor]:
    """A network that fits, or nearly where so few neurons cannot."""
    return fit_exactly(problem, weights) if stop() else penalised(problem, weights, POLISHING, stop)


def _without(problem: Problem, weights: Weights, widths: Sequence[int], rule: Callable) -> list[Tensor]:
    """Fewer neurons layer by layer, from the last one down, chosen by the rule."""
    current = list(weights)
    for layer in range(problem.depth - 1, 0, -1):
        while len(current[layer - 1]) > widths[layer - 1]:
            excess = len(current[layer - 1]) - widths[layer - 1]
            current = rule(problem, current, layer, excess)
    return current


def _sizes(weights: Weights, layer: int) -> Tensor:
    incoming, outgoing = parts(weights, layer)
    return incoming.norm(dim=1) * outgoing.norm(dim=1)


def _dropped(weights: Weights, layer: int, gone: Tensor) -> list[Tensor]:
    incoming, outgoing = parts(weights, layer)
    kept = torch.ones(len(incoming), dtype=torch.bool, device=incoming.device)
    kept[gone] = False
    return with_parts(weights, layer, incoming[kept], outgoing[kept])


def _smallest(problem: Problem, weights: Weights, layer: int, excess: int) -> list[Tensor]:
    """Without the neurons of the least |u||v|."""
    return _dropped(weights, layer, _sizes(weights, layer).argsort(stable=True)[:excess])


def _cheapest(problem: Problem, weights: Weights, layer: int, excess: int) -> list[Tensor]:
    """Without the one, among the smallest, whose loss costs least; far above the target, without several."""
    if excess > LOOKED_AT:
        return _smallest(problem, weights, layer, excess - LOOKED_AT)
    smooth = explored_problem(problem)
    order = _sizes(weights, layer).argsort(stable=True)[:LOOKED_AT]
    without = [_dropped(weights, layer, k) for k in order]
    return min(without, key=lambda each: evaluate(smooth, each).total)


def _merged(problem: Problem, weights: Weights, layer: int, excess: int) -> list[Tensor]:
    """With the two made one whose sum is the nearest to both, where that costs less than dropping one."""
    if excess > LOOKED_AT:
        return _smallest(problem, weights, layer, excess - LOOKED_AT)
    incoming, outgoing = parts(weights, layer)
    # In unit form a neuron is a direction w with the outputs |u| v; two of them on their mean direction lose about
    # (1 - cosine) of the smaller.
    lengths = incoming.norm(dim=1, keepdim=True)
    units, values = torch.nn.functional.normalize(incoming, dim=1), lengths * outgoing
    sizes = values.norm(dim=1)
    loss = (1.0 - units @ units.T) * torch.minimum(sizes[:, None], sizes[None, :])
    loss.fill_diagonal_(math.inf)
    i, j = divmod(int(loss.argmin()), len(loss))
    direction = sizes[i] * units[i] + sizes[j] * units[j]
    joined, value = balance(torch.nn.functional.normalize(direction, dim=0)[None], (values[i] + values[j])[None])
    rest = _dropped(weights, layer, torch.tensor([i, j], device=incoming.device))
    kept_in, kept_out = parts(rest, layer)
    together = with_parts(rest, layer, torch.cat([kept_in, joined]), torch.cat([kept_out, value]))
    alone = _cheapest(problem, weights, layer, excess)
    smooth = explored_problem(problem)
    return min((together, alone), key=lambda each: evaluate(smooth, each).total) if len(incoming) > 1 else alone
