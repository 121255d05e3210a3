"""Fewer neurons in hidden layers at no higher cost, wider copies, and copies of lower rank.

Dead neurons go, aligned ones are merged. Wider copies let descents leave a basin, and fits become exact. The local
minima of many layers differ by what their middle layers pass on: training a copy of lower rank ends at another one.

Two layers have more to go by (solvers/shallow/networks.py): there, what is left is optimised again after each merge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.weights import Weights, evaluate
from covopt.oracles.neurons import balance, merge
from covopt.runtime.loop import Stop

# What a smaller network may cost more, relative: rounding.
ROUNDING = 1e-10


def parts(weights: Weights, layer: int) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n m"]]:
    """Return incoming u (n_l, n_{l-1} + 1) and outgoing weights v (n_l, n_{l+1}) of a layer."""
    return weights[layer - 1], weights[layer][:, :-1].T


def with_parts(
    weights: Weights, layer: int, incoming: Float[Tensor, "n d"], outgoing: Float[Tensor, "n m"]
) -> list[Tensor]:
    """Return the network with these neurons in hidden layer `layer`; the next bias stays."""
    changed = list(weights)
    changed[layer - 1] = incoming
    changed[layer] = torch.cat([outgoing.T, weights[layer][:, -1:]], dim=1)
    return changed


def balanced(weights: Weights) -> list[Tensor]:
    """Rescale each neuron to |u| = |v|, layer by layer until they agree; the outputs stay.

    At a minimum neurons are balanced ([J23a, Prop. 12]); a sweep never raises |W|^2, and a few sweeps suffice.
    """
    current, before = list(weights), math.inf
    for _ in range(20):
        for layer in range(1, len(current)):
            incoming, outgoing = parts(current, layer)
            current = with_parts(current, layer, *balance(incoming, outgoing))
        size = float(torch.stack([W.square().sum() for W in current]).sum())
        if not size < before:
            break
        before = size
    return current


def reduced(problem: Problem, weights: Weights, stop: Stop = lambda: False) -> list[Tensor]:
    """Remove dead neurons and merge aligned ones wherever the cost does not rise."""
    ways: list[Callable[..., list[Tensor]]] = [  # the harmless first
        *(partial(_merged, cosine=cosine) for cosine in (1e-12, 1e-9, 1e-7, 1e-5, 1e-3)),
        *(partial(_without_small, part=part) for part in (1e-12, 1e-8, 1e-5, 1e-3)),
    ]
    best = _better(problem, list(weights), balanced(weights))
    for layer in range(1, problem.depth):
        for smaller in ways:
            if stop():
                return best
            best = _smaller(problem, best, smaller(best, layer), layer)
        best = _without_dead_layer(problem, best, layer)
    return best


def reduced_on_few(problem: Problem, weights: Weights, stop: Stop = lambda: False) -> list[Tensor]:
    """Run `reduced` on at most 4,096 of the samples; keep the result if the full cost allows."""
    smaller = reduced(problem.evenly(4096), weights, stop)
    return list(weights) if stop() else _better(problem, list(weights), smaller)


def _merged(weights: Weights, layer: int, cosine: float) -> list[Tensor]:
    """Merge neurons within an angle, given as 1 - cosine."""
    incoming, outgoing = parts(weights, layer)
    if len(incoming) < 2 or not bool((incoming.norm(dim=1) * outgoing.norm(dim=1) > 0).any()):
        return list(weights)
    merged = merge(incoming, outgoing, cosine)
    return with_parts(weights, layer, *balance(merged.directions, merged.outputs))


def mergeable(weights: Weights, layer: int) -> list[list[int]]:
    """Return groups of neurons of hidden layer `layer` with one direction, to a cosine of 1 - 1e-6."""
    incoming, outgoing = parts(weights, layer)
    if not len(incoming) or not bool((incoming.norm(dim=1) * outgoing.norm(dim=1) > 0).any()):
        return []
    groups = merge(incoming, outgoing, 1e-6).group.tolist()
    members: dict[int, list[int]] = {}
    for neuron, group in enumerate(groups):
        if group >= 0:
            members.setdefault(group, []).append(neuron)
    return [group for group in members.values() if len(group) > 1]


def _without_small(weights: Weights, layer: int, part: float) -> list[Tensor]:
    """Remove neurons below this part of the largest |u||v| of their layer."""
    incoming, outgoing = parts(weights, layer)
    sizes = incoming.norm(dim=1) * outgoing.norm(dim=1)
    is_large = sizes > part * sizes.max() if len(sizes) else sizes > 0
    return with_parts(weights, layer, incoming[is_large], outgoing[is_large])


def _without_dead_layer(problem: Problem, weights: list[Tensor], layer: int) -> list[Tensor]:
    """Remove the neurons of a layer through which only rounding passes."""
    incoming, outgoing = parts(weights, layer)
    empty = with_parts(weights, layer, incoming[:0], outgoing[:0])
    old, new = evaluate(problem, weights).total, evaluate(problem, empty).total
    return _smaller(problem, weights, empty, layer) if abs(new - old) <= ROUNDING * old else weights


def _smaller(problem: Problem, before: list[Tensor], after: list[Tensor], layer: int) -> list[Tensor]:
    """Return `after` if it has fewer neurons, costs no more and fits as well, up to rounding."""
    return _better(problem, before, after) if len(after[layer - 1]) < len(before[layer - 1]) else before


def _better(problem: Problem, before: list[Tensor], after: list[Tensor]) -> list[Tensor]:
    old, new = evaluate(problem, before), evaluate(problem, after)
    fits = problem.fits_as_well(new.residual, old.residual)
    return after if fits and new.total <= old.total * (1.0 + ROUNDING) else before


def widened(
    weights: Weights, more: Sequence[int], strength: float, generator: torch.Generator, widest: int | None = None
) -> list[Tensor]:
    """Return a copy with `more` neurons of random weights in each hidden layer, none wider than `widest`.

    `strength` is the root mean square of their weights, relative to the layer's; if it is small enough, the copy stays
    in its basin.
    """

    def wider(old: Tensor, rows: int) -> Tensor:
        size = old.square().mean().sqrt() if old.numel() else old.new_zeros(())
        noise = torch.randn(rows, old.shape[1], generator=generator, dtype=old.dtype, device=generator.device)
        return torch.cat([old, strength * size * noise.to(old.device)])

    grown = list(weights)
    for layer, number in enumerate(more, start=1):
        incoming, outgoing = parts(grown, layer)
        if widest is not None:
            number = max(0, min(number, widest - len(incoming)))
        grown = with_parts(grown, layer, wider(incoming, number), wider(outgoing, number))
    return grown


def of_lower_rank(weights: Weights, generator: torch.Generator) -> list[Tensor]:
    """Return a copy whose middle layers lose the smaller half of their directions and get noise."""
    significant, noise = 0.2, 0.25  # relative to the largest singular value; to the layer's root mean square
    lower = list(weights)
    for layer, W in enumerate(weights[1:-1], start=1):
        A = W[:, :-1]
        if not bool(A.any()):
            continue
        U, sizes, Vt = torch.linalg.svd(A, full_matrices=False)
        rank = max(1, int((sizes > significant * sizes[0]).sum()) // 2)
        random = torch.randn(A.shape, generator=generator, dtype=A.dtype, device=generator.device).to(A.device)
        cut = (U[:, :rank] * sizes[:rank]) @ Vt[:rank] + noise * A.square().mean().sqrt() * random
        lower[layer] = torch.cat([cut, W[:, -1:]], dim=1)
    return lower
