"""Starts of deep solves: from two layers, outer layers first, and the best of random ones.

* **From two layers.** The answer of two layers, with identity layers between and all layers in balance (insertion.py):
  there at once, and the representation cost is not above it.
* **Outer layers first.** At a large depth the middle of a good network is the identity on a few dimensions, and its two
  ends are shallow maps into these and out of them. So networks of depth 4 with widths (n, k, n) are drawn, descend, and
  get identity layers at the layer of k neurons. Random networks of full depth lose the signal.
* **The best of random ones.** Of many random starts the most promising descend further; the others are dropped.

Source: Jacot, Implicit Bias of Large Depth Networks (2023), Theorem 1: the upper bound is this construction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.units import at_depth
from covopt.model.weights import Weights, evaluate
from covopt.runtime.loop import Budget, Stop
from covopt.solvers.deep.exploration import RandomStarts
from covopt.solvers.deep.insertion import at_place, deepened
from covopt.solvers.options import SolveOptions
from covopt.solvers.shallow.alternation import Alternation
from covopt.solvers.shallow.stream_options import suits_streaming
from covopt.solvers.training.exact_fit import explored_problem
from covopt.solvers.training.homotopy import EXPLORING, REFINING, descend
from covopt.solvers.training.trainer import initial

# Layers of the networks whose ends come first, and the hidden layer of k neurons.
ENDS, MIDDLE = 4, 2
# Draws of such networks for each k, and how many of all are refined.
DRAWN, REFINED = 3, 2
# How they explore: until 20 turns gain less than 0.4 %. With 0.1 % that takes twice as long, and networks end as low.
COARSELY = replace(EXPLORING, slow=4e-3)
# The part of the time limit that the answer of two layers may take, and its rounds at most: rough, as all layers
# descend from it, and brief where starts that are trained follow, which end lower.
ROUGHLY, BRIEFLY = (0.25, 6), (0.05, 3)
# Rounds after which no exact fit is expected any more; until then they begin again with four times as many, in half of
# the time.
FITTING = 1000


def from_two_layers(
    problem: Problem, budget: Budget, seed: int, effort: tuple[float, int] = ROUGHLY
) -> list[list[Tensor]]:
    """Return the two-layer solution, deepened in every way; nothing for streamed data.

    `effort` is the part of the time limit that they may take, and how many there are at most.
    """
    shallow, (share, rounds) = at_depth(problem, 2), effort
    if suits_streaming(shallow, share * budget.time_limit):
        return []
    limit = budget.seconds() + min(budget.remaining(), share * budget.time_limit)
    options = SolveOptions(replace(budget, time_limit=limit, max_iterations=rounds), certify="none", seed=seed)
    weights = Alternation(shallow, options).solve().weights
    longer = budget.rest(0.5)
    while not shallow.allows(evaluate(shallow, weights).residual) and rounds < FITTING and not longer.spent():
        rounds *= 4
        more = replace(options, budget=replace(longer, max_iterations=rounds))
        weights = Alternation(shallow, more).solve().weights
    return deepened(shallow, weights, problem)


def draws_to_descend(depth: int) -> RandomStarts:
    """Return the random starts that descend through smoothed kinks."""
    if depth == 3:  # at larger scales they reach the lowest minima, of low rank, less often
        return RandomStarts(scales=(0.5, 0.35, 0.2))
    return RandomStarts(first=int(depth > ENDS))  # of the few that come first, the first is not the narrowest


def lowest_of_random(problem: Problem, count: int, seed: int, max_width: int | None, stop: Stop) -> list[list[Tensor]]:
    """Return the two networks to which the most promising of `count` random starts descend.

    The starts of exact fits descend at a penalty. Of 100 random sets of 2 to 5 samples 12 cost more than 1 % above the
    best of 60 s after 5 s without these networks, and of these 12 only 3 with them (docs/notes/2026-11-shares.md).
    """
    smooth, starts = explored_problem(problem), draws_to_descend(problem.depth)
    networks = [starts.draw(smooth, number, seed, max_width) for number in range(count)]
    for options, most in ((EXPLORING, 6), (REFINING, 2)):
        networks = descend(smooth, networks, options, stop)
        networks = sorted(networks, key=lambda weights: evaluate(smooth, weights).total)[:most]
    return networks


class Built(NamedTuple):
    """A network of depth L whose middle layers are the identity on `rank` dimensions."""

    rank: int
    weights: list[Tensor]


def ends_first(
    problem: Problem, ranks: Sequence[int], width: int, seed: int, stop: Stop, *, of_each: bool = False
) -> list[Built]:
    """Build networks of these ranks, outer layers first; return them lowest cost first.

    The depth is at least 4, and `width` that of the hidden layers at both ends. An exact fit is ranked by its penalised
    problem. `of_each` refines the most promising start of each rank, instead of the most promising ones of all.
    """
    short = at_depth(problem, ENDS)
    smooth = explored_problem(short)
    owners = [k for k in ranks for _ in range(DRAWN)]
    draws = [initial(smooth, [width, k, width], seed + number, 1.0) for number, k in enumerate(owners)]
    explored = descend(smooth, draws, COARSELY, stop)
    order = sorted(range(len(draws)), key=lambda number: _promise(problem, short, explored[number]))
    most = [next(n for n in order if owners[n] == k) for k in dict.fromkeys(ranks)] if of_each else order[:REFINED]
    refined = descend(smooth, [explored[number] for number in most], REFINING, stop)
    built = [
        Built(owners[number], network)
        for number, weights in zip(most, refined, strict=True)
        for network in at_place(short, weights, problem, MIDDLE)
    ]
    judged = explored_problem(problem)
    costs = [evaluate(judged, candidate.weights).total for candidate in built]
    order = sorted((cost, number) for number, cost in enumerate(costs) if math.isfinite(cost))
    return [built[number] for _, number in order]


def most_ranks(problem: Problem) -> int:
    """Return the largest useful rank: dimensions of inputs or outputs, and one for the mean."""
    return min(problem.samples, problem.X.shape[1], problem.Y.shape[1]) + 1


def _promise(problem: Problem, short: Problem, weights: Weights) -> float:
    """Return the network's cost at full depth, identity layers included."""
    deep = at_place(short, weights, problem, MIDDLE)
    costs = [evaluate(explored_problem(problem), network).total for network in deep]
    return min((cost for cost in costs if math.isfinite(cost)), default=math.inf)
