"""Make networks of one width from others: remove, split, add or exchange neurons.

Each function returns starts for descents; none of them descends, and none proves anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.weights import Weights, evaluate
from covopt.oracles.neurons import balance
from covopt.solvers.deep.missing_neuron import find_missing_neuron
from covopt.solvers.deep.pruning import parts, with_parts

# Number of smallest neurons that are tried one by one.
LOOKED_AT = 12
# Starts of the search for a missing neuron; the smallest neurons take turns to be exchanged for one.
ESCAPES, EXCHANGED = 16, 3
# The halves of a split neuron are turned apart by about this angle.
TURNED = 0.3


def narrowed(problem: Problem, weights: Weights, widths: Sequence[int]) -> list[list[Tensor]]:
    """Return networks of at most these widths, with neurons dropped (by two rules) or merged."""
    if fits(weights, widths):
        return [list(weights)]
    return [_without(problem, weights, widths, rule) for rule in (_smallest, _cheapest, _merged)]


def widened(
    problem: Problem, weights: Weights, widths: Sequence[int], seed: int, layer: int | None
) -> list[list[Tensor]]:
    """Return networks of larger widths: large neurons split, and a missing neuron added."""
    starts = [_split(weights, widths, seed)]
    with_missing = _with_missing(problem, weights, widths, seed, layer)
    return starts if with_missing is None else [_split(with_missing, widths, seed), *starts]


def exchanged(
    problem: Problem, weights: Weights, widths: Sequence[int], seed: int, layer: int | None
) -> list[list[Tensor]]:
    """Replace one of the smallest neurons, chosen by the seed, by a missing one."""
    place = _varied(problem, layer)
    if len(weights[place - 1]) < 2:
        return []
    smallest = _sizes(weights, place).argsort(stable=True)[:EXCHANGED]
    dropped = _dropped(weights, place, smallest[seed % len(smallest)])
    grown = _with_missing(problem, dropped, widths, seed, layer)
    return [] if grown is None else [_split(grown, widths, seed)]


def chosen(weights: Weights, widths: Sequence[int], seed: int) -> list[Tensor]:
    """Choose neurons of each hidden layer at random, large ones more often."""
    generator = torch.Generator().manual_seed(seed)
    current = list(weights)
    for layer, width in enumerate(widths, start=1):
        sizes = _sizes(current, layer).double().cpu()
        if len(sizes) > width:
            # The largest of log(size) + Gumbel noise: a draw without replacement with probabilities like the sizes.
            noise = -torch.rand(len(sizes), generator=generator, dtype=torch.float64).log().neg().log()
            order = (sizes.clamp_min(1e-300).log() + noise).argsort(descending=True)
            current = _dropped(current, layer, order[width:].to(weights[0].device))
    return current


def fits(weights: Weights, widths: Sequence[int]) -> bool:
    """Return True if no hidden layer is wider than its width."""
    return all(len(W) <= width for W, width in zip(weights[:-1], widths, strict=True))


def _varied(problem: Problem, layer: int | None) -> int:
    """Return the layer that gets the missing neuron; only in the last one its test is exact."""
    return problem.depth - 1 if layer is None else layer


def _with_missing(
    problem: Problem, weights: Weights, widths: Sequence[int], seed: int, layer: int | None
) -> list[Tensor] | None:
    """Add the missing neuron of a search; None without room, or if none lowers the cost."""
    place = _varied(problem, layer)
    if len(weights[place - 1]) >= widths[place - 1]:
        return None
    escape = find_missing_neuron(problem, weights, place, starts=ESCAPES, seed=seed)
    return escape.network(problem, weights) if escape.size > 0.0 else None


def _split(weights: Weights, widths: Sequence[int], seed: int) -> list[Tensor]:
    """Split the largest neurons into two halves turned apart, until it has these widths."""
    generator = torch.Generator().manual_seed(seed)
    current = list(weights)
    for layer, width in enumerate(widths, start=1):
        count = len(current[layer - 1])
        missing = min(width - count, count)
        if missing <= 0:
            continue
        incoming, outgoing = parts(current, layer)
        largest = _sizes(current, layer).argsort(descending=True, stable=True)[:missing]
        halves = incoming[largest] * math.sqrt(0.5)
        turn = torch.randn(halves.shape, generator=generator, dtype=torch.float64).to(halves)
        turn *= TURNED * halves.norm(dim=1, keepdim=True) / turn.norm(dim=1, keepdim=True).clamp_min(1e-300)
        incoming, outgoing = incoming.clone(), outgoing.clone()
        incoming[largest] = halves + turn
        outgoing[largest] *= math.sqrt(0.5)
        current = with_parts(
            current, layer, torch.cat([incoming, halves - turn]), torch.cat([outgoing, outgoing[largest]])
        )
    return current


def _without(problem: Problem, weights: Weights, widths: Sequence[int], rule: Callable) -> list[Tensor]:
    """Remove neurons by the rule, layer by layer from the last one down."""
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
    remaining = torch.ones(len(incoming), dtype=torch.bool, device=incoming.device)
    remaining[gone] = False
    return with_parts(weights, layer, incoming[remaining], outgoing[remaining])


def _smallest(problem: Problem, weights: Weights, layer: int, excess: int) -> list[Tensor]:
    """Drop the neurons of the smallest |u||v|."""
    return _dropped(weights, layer, _sizes(weights, layer).argsort(stable=True)[:excess])


def _cheapest(problem: Problem, weights: Weights, layer: int, excess: int) -> list[Tensor]:
    """Drop the small neuron whose loss costs least; far above the target, drop several."""
    if excess > LOOKED_AT:
        return _smallest(problem, weights, layer, excess - LOOKED_AT)
    order = _sizes(weights, layer).argsort(stable=True)[:LOOKED_AT]
    without = [_dropped(weights, layer, k) for k in order]
    return min(without, key=lambda network: evaluate(problem, network).total)


def _merged(problem: Problem, weights: Weights, layer: int, excess: int) -> list[Tensor]:
    """Merge the two neurons nearest to their sum, unless dropping one costs less."""
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
    without_pair = _dropped(weights, layer, torch.tensor([i, j], device=incoming.device))
    kept_in, kept_out = parts(without_pair, layer)
    together = with_parts(without_pair, layer, torch.cat([kept_in, joined]), torch.cat([kept_out, value]))
    alone = _cheapest(problem, weights, layer, excess)
    return min((together, alone), key=lambda network: evaluate(problem, network).total) if len(incoming) > 1 else alone
