"""Make networks of one width from others: remove, split, add or exchange neurons.

Each function returns starts for descents; none of them descends, and none proves anything.

**Kinks** are the lines on which the outputs bend; sets of them give starts for networks of two layers. A direction w
puts the kink of a neuron where w . (x, beta) = 0: with one input at a point, at a sample or between two. Outer weights
by ridge regression give an interpolant of the targets, or come near one. New sets are random, or vary the kinks of good
networks: some are dropped, merged, added or replaced. Nothing here descends or proves anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
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
    grown = _with_missing(problem, _dropped(weights, place, smallest[seed % len(smallest)]), widths, seed, layer)
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
        wider = torch.cat([incoming, halves - turn]), torch.cat([outgoing, outgoing[largest]])
        current = with_parts(current, layer, *wider)
    return current


def _without(problem: Problem, weights: Weights, widths: Sequence[int], rule: Callable) -> list[Tensor]:
    """Remove neurons by the rule, layer by layer from the last one down."""
    current = list(weights)
    for layer in range(problem.depth - 1, 0, -1):
        while len(current[layer - 1]) > widths[layer - 1]:
            current = rule(problem, current, layer, len(current[layer - 1]) - widths[layer - 1])
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
    without = [_dropped(weights, layer, k) for k in _sizes(weights, layer).argsort(stable=True)[:LOOKED_AT]]
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


# Share of random kinks that go through a sample, as those of optima often do.
THROUGH_SAMPLES = 0.5
# The ridge relative to the mean square of the hidden values.
RIDGE = 1e-3
# Share of the steps to fewer kinks that merge two; the others drop one.
MERGING = 0.5


def draw_kinks(problem: Problem, count: int, generator: torch.Generator) -> Float[Tensor, "count d"]:
    """Return unit directions whose kinks separate neighbouring samples along random axes."""
    X, rows = problem.X, []
    for _ in range(count):
        axis = torch.randn(X.shape[1], generator=generator, dtype=torch.float64)
        axis = axis / axis.norm()
        places = (X @ axis).sort().values
        i, shift, at_sample = (float(r) for r in torch.rand(3, generator=generator, dtype=torch.float64))
        low = min(int(i * len(places)), len(places) - 1)
        high = min(low + 1, len(places) - 1)
        offset = places[low] + (0.0 if at_sample < THROUGH_SAMPLES else shift) * (places[high] - places[low])
        bias = -offset / problem.beta if problem.beta > 0.0 else 0.0 * offset
        rows.append(torch.cat([axis, bias[None]]))
    return torch.nn.functional.normalize(torch.stack(rows), dim=1)


def vary_kinks(problem: Problem, weights: Weights, width: int, generator: torch.Generator) -> Float[Tensor, "width d"]:
    """Return directions near a network's: fewer by merges and drops, or with new ones."""
    W1, W2 = weights
    unit = torch.nn.functional.normalize(W1, dim=1)
    sizes = W1.norm(dim=1) * W2[:, :-1].norm(dim=0)
    if len(unit) == width:  # replace one
        unit, sizes = _without_kink(unit, sizes, _pick(len(unit), generator))
    while len(unit) > width:
        i = _pick(len(unit), generator)
        if float(torch.rand(1, generator=generator)) < MERGING:
            # Merging two neurons with near directions into their mean changes the outputs least.
            near = (unit @ unit[i]).index_fill(0, torch.tensor([i]), -2.0)
            j = int(near.topk(min(2, len(near) - 1)).indices[_pick(min(2, len(near) - 1), generator)])
            mean = torch.nn.functional.normalize(sizes[i] * unit[i] + sizes[j] * unit[j], dim=0)
            unit, sizes = unit.clone(), sizes.clone()
            unit[j], sizes[j] = mean, sizes[i] + sizes[j]
        unit, sizes = _without_kink(unit, sizes, i)
    return torch.cat([unit, draw_kinks(problem, width - len(unit), generator)]) if len(unit) < width else unit


def fit_kinks(problem: Problem, directions: Float[Tensor, "B n d"]) -> list[list[Tensor]]:
    """Return balanced networks with these kinks, with outer weights by ridge regression."""
    hidden = problem.activation(problem.Xt @ directions.mT)
    A = torch.cat([hidden, torch.full_like(hidden[..., :1], problem.bias(1))], dim=2)
    gram = A.mT @ A
    ridge = RIDGE * gram.diagonal(dim1=1, dim2=2).mean(dim=1)
    gram.diagonal(dim1=1, dim2=2).add_(ridge[:, None] + torch.finfo(gram.dtype).tiny)
    outer = torch.linalg.solve_ex(gram, A.mT @ problem.Y)[0]
    networks = []
    for rows, V in zip(directions, outer, strict=True):
        W1, v = balance(rows, V[:-1])
        networks.append([W1, torch.cat([v.T, V[-1][:, None]], dim=1)])
    return networks


def _without_kink(unit: Tensor, sizes: Tensor, i: int) -> tuple[Tensor, Tensor]:
    remaining = torch.arange(len(unit)) != i
    return unit[remaining], sizes[remaining]


def _pick(count: int, generator: torch.Generator) -> int:
    return int(torch.randint(count, (1,), generator=generator))
