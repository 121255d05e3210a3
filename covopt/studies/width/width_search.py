"""Search the network of lowest cost for each width, by rounds of descents from many starts.

A round makes starts for each width n (neighbours.py): the best network of the next larger width with neurons removed,
that of the next smaller one with neurons split or added, its own with a neuron exchanged, and random networks. All
widths of a group descend together as batches (homotopy.py); the next round passes better networks on. Small networks of
two layers start from sets of kinks instead, and descend by Newton's method (newton.py). The search ends when
PATIENCE rounds in a row, each with more random starts than the one before, gained nothing at any width, and every width
from the smallest that is not excluded to the start of the plateau was tried; or when the bounds leave nothing to gain.
Nothing is proved here; `plateau` derives its bounds from the networks of the search.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from covopt.answer.result import Result
from covopt.model.problem import Problem
from covopt.runtime.loop import Budget, Callback, Progress, Status
from covopt.solvers.deep.descent import descent_for
from covopt.solvers.incumbent import cost_of
from covopt.solvers.training import newton
from covopt.solvers.training.batch import buckets, work
from covopt.solvers.training.exact_fit import explored_problem, fit_exactly
from covopt.solvers.training.homotopy import EXPLORING, POLISHING, REFINING, HomotopyOptions, descend
from covopt.solvers.training.trainer import initial
from covopt.studies.continuation import Continuation
from covopt.studies.width import neighbours

# Relative distances above the level that count as on the plateau.
EPS = (0.1, 0.01, 0.001)
# Default number of widths of a curve.
WIDTHS = 24
# Rounds in a row without a gain after which the search ends; smallest relative gain that counts.
PATIENCE, GAIN = 3, 1e-5
# Random starts grow from round to round, up to this many times `starts`; width 1 gets NARROW_FACTOR times as many,
# width 2 half of that.
MOST_DRAWS, NARROW_FACTOR = 16, 4
# One in this many random starts has neurons of the widest known network.
EVERY_CHOSEN = 4
# One in KEPT random starts of a width is refined after exploring; POLISHED of all its starts are polished.
KEPT, POLISHED = 4, 3
# Most good random starts stand out after few iterations, and the slowest of a batch delay the others.
EXPLORE, REFINE = replace(EXPLORING, iterations=60), replace(REFINING, iterations=150)
# Maximum starts and multiplications an iteration of widths that descend together; maximum activations in a batch.
MOST_STARTS, MOST_WORK, MOST_ACTIVATIONS = 160, 1e8, 10_000_000
# Maximum number of networks in the pool of a width, and of starts of Newton's method at a time.
POOL, MOST_KINKS = 8, 192
# Only networks below this multiple of the best cost of their width are refined.
PROMISING = 1.02
# Number of widths to try if the solver's network has no neuron and is not proved to be the minimum.
FEW_WIDTHS = 3


@dataclass(frozen=True)
class Point:
    """A network of one width: the best found, or one that still descends."""

    width: int  # n
    source: str  # solver, wider or narrower (the neighbour that it descends from), exchange or draw
    weights: list[Tensor]  # W_1 ... W_L
    cost: float = math.inf  # the cost of the weights in float64; infinite before it is computed


class WidthSearch(Continuation[int, list[Point]]):
    """The search for networks of all widths.

    `best` has a few networks of each width, in order of their cost, from which neighbours start. Their costs are
    those that descents lower: with `interpolate` they need not fit.

    Args:
        result: the solver's result.
        layer: the layer whose width varies; None: all of them.
        starts: random networks for each width in the first round.
        narrow: proved lower bounds on the cost at widths 0, 1, ...; infinite if no network fits.

    Attributes:
        points: the curve: the network of lowest cost of each width.
    """

    def __init__(
        self,
        result: Result,
        layer: int | None,
        budget: Budget,
        starts: int,
        narrow: Sequence[float],
        callback: Callback | None,
    ) -> None:
        super().__init__(budget, callback)
        self.problem: Problem = result.problem
        self._result, self._layer = result, layer
        self._gap, self._starts, self._narrow = result.target or 0.0, starts, narrow
        self._smooth = explored_problem(result.problem)
        self._first = max(1, next((n for n, bound in enumerate(narrow) if math.isfinite(bound)), len(narrow)))
        self.top = max(result.widths) if layer is None else result.widths[layer - 1]
        solved = result.cost if math.isfinite(result.cost) else math.inf
        self.points = {self.top: Point(self.top, "solver", result.weights, solved)}
        self.best = {self.top: [self._judged(Point(self.top, "solver", list(result.weights)))]}
        self._grid: list[int] = []
        self._growing, self._number = False, 0

    def run(self, widths: Sequence[int] | None) -> Status:
        """Fill `points`; return the status, OPTIMAL if every width is proved at its minimum."""
        self._growing = widths is None
        if widths is None and self.top == 0 and not self._proved(0):
            self._grid = list(range(1, FEW_WIDTHS + 1))
        else:
            self._grid = sorted(set(widths)) if widths is not None else _grid(self._first, self.top)
        status = self.improve(self.budget, PATIENCE)
        while status is Status.CONVERGED and widths is None and (untried := self._untried()):
            self._grid = sorted(untried.union(self._grid))
            status = self.improve(self.budget, PATIENCE)
        return status

    def is_optimal(self) -> bool:
        """Return True if no network of these widths can cost less, up to the target gap."""
        return all(self._proved(n) for n in self._grid)

    def round(self, budget: Budget) -> bool:
        """Search the grid once, downward in even rounds; return True if any width gained."""
        gained = False
        # If no network of a width fits, and none of the next larger width either, more starts cannot help.
        fitting = min(self.best) - 1 if self._number else 0
        open_widths = [n for n in self._grid if not self._proved(n) and n >= max(self._first, fitting)]
        for group in self._groups(open_widths if self._number % 2 else open_widths[::-1]):
            if budget.spent():
                break
            if newton.has_newton(self.problem, group[0]) and self._layer in (None, 1):
                gained = self._advance_small(group[0]) or gained
            else:
                gained = self._advance(group) or gained
        self._number += 1
        closer = self._closer() if self._growing else set()
        self._grid = sorted(closer.union(self._grid))
        return gained or bool(closer)

    def _groups(self, widths: Sequence[int]) -> Iterator[list[int]]:
        """Yield groups of neighbouring widths that descend together in little time."""
        group, load, crowd = [], 0.0, 0
        for n in widths:
            count = self._draws(n)
            multiplications = count * work(self.problem, self._widths(n))
            full = load + multiplications > MOST_WORK or crowd + count > MOST_STARTS
            full = full or newton.has_newton(self.problem, n)
            if group and full:
                yield group
                group, load, crowd = [], 0.0, 0
            group, load, crowd = [*group, n], load + multiplications, crowd + count
        if group:
            yield group

    def _advance(self, group: Sequence[int]) -> bool:
        """Descend from all starts of these widths; polish and offer the best of each width."""
        explored = self._descended([start for n in group for start in self._drawn(n)], EXPLORE)
        selected = [c for n in group for c in _cheapest(explored, n, max(POLISHED, self._draws(n) // KEPT))]
        near = [start for n in group if not self.budget.spent() for start in self._near(n)]
        refined = self._descended([*near, *selected], REFINE)
        polished = self._descended([c for n in group for c in _cheapest(refined, n, POLISHED)], POLISHING)
        gains = [self._offer(n, polished) for n in group]
        return any(gains)

    def _advance_small(self, n: int) -> bool:
        """Descend from sets of kinks by Newton's method; return True if the curve gained."""
        # The solver's network first, which takes little time.
        own = [] if self._number else self.best.get(n, [])
        gained = self._offer(n, self._descended_by_newton(own, newton.KINKS_REFINING))
        explored = self._descended_by_newton(self._kinks(n), newton.KINKS_EXPLORING)
        candidates = [*explored, *self._descended_by_newton(explored, newton.KINKS_POLISHING)]
        best = self.best[n][0].cost if n in self.best else math.inf
        promising = [candidate for candidate in _cheapest(candidates, n, POOL) if candidate.cost <= PROMISING * best]
        return self._offer(n, [*candidates, *self._descended_by_newton(promising, newton.KINKS_REFINING)]) or gained

    def _descended_by_newton(self, starts: Sequence[Point], options: newton.NewtonOptions) -> list[Point]:
        networks = [start.weights for start in starts]
        if not networks:
            return []
        down = newton.descend_by_newton(self.problem, networks, starts[0].width, options, self.budget.pace())
        return [self._judged(replace(starts[i], weights=weights)) for i, weights in down]

    def _kinks(self, n: int) -> list[Point]:
        """Return starts of kinks: half of them random, if any are, half varied from near pools."""
        generator = torch.Generator().manual_seed((self._result.seed + 7919 * n + 104729 * self._number) % 2**63)
        draws = min(4 * self._draws(n), MOST_KINKS)
        below, above = self.neighbours(n)
        places = (("wider", above), ("exchange", n), ("narrower", below))
        near = [(source, self.best[k]) for source, k in places if k in self.best]
        sources, directions = [], []
        problem = self.problem.to(torch.device("cpu"))  # thousands of steps on a few numbers
        for k in range(draws or POOL * len(near)):
            if near and (k % 2 or not draws):
                source, pool = near[k // 2 % len(near)]
                weights = pool[int(torch.randint(len(pool), (1,), generator=generator))].weights
                made = neighbours.vary_kinks(problem, [W.cpu() for W in weights], n, generator)
            else:
                source, made = "draw", neighbours.draw_kinks(problem, n, generator)
            sources.append(source)
            directions.append(made)
        if not directions:
            return []
        fitted = neighbours.fit_kinks(self.problem, torch.stack(directions).to(self.problem.X))
        return [Point(n, source, weights) for source, weights in zip(sources, fitted, strict=True)]

    def _judged(self, candidate: Point) -> Point:
        """Return the candidate with the cost that orders its pool."""
        return replace(candidate, cost=cost_of(self._lowered(candidate.width), candidate.weights))

    def _lowered(self, n: int) -> Problem:
        """Return the problem whose cost the descents at width n lower."""
        return self.problem if newton.has_newton(self.problem, n) else self._smooth

    def _drawn(self, n: int) -> list[Point]:
        """Return random networks; every EVERY_CHOSEN-th takes neurons of the widest network."""
        seed = self._result.seed + sum(self._draws(n, number) for number in range(self._number))
        widest, candidates = self.best[max(self.best)][0].weights, []
        for k in range(self._draws(n)):
            seed = (seed + 1) % 2**63
            if k % EVERY_CHOSEN == 0 and not neighbours.fits(widest, self._widths(n)):
                candidates.append(Point(n, "wider", neighbours.chosen(widest, self._widths(n), seed)))
            else:
                scale = 1.0 if k % 2 and self.problem.depth == 2 else None
                candidates.append(Point(n, "draw", initial(self._smooth, self._widths(n), seed, scale)))
        return candidates

    def _draws(self, n: int, number: int | None = None) -> int:
        """Return the number of random networks of a round: more in later ones, and at widths 1 and 2."""
        number = self._number if number is None else number
        return self._starts * max(1, NARROW_FACTOR // n) * min(2**number, MOST_DRAWS)

    def _near(self, n: int) -> list[Point]:
        """Return starts from the best networks of the next widths and its own, if they are new."""
        widths, seed, layer = self._widths(n), self._result.seed + self._number, self._layer
        below, above = self.neighbours(n)
        candidates: list[Point] = []
        if above is not None and self._is_fresh(above, n):
            made = neighbours.narrowed(self._smooth, self.best[above][0].weights, widths)
            candidates += [Point(n, "wider", network) for network in made]
        if below is not None and self._is_fresh(below, n) and neighbours.fits(self.best[below][0].weights, widths):
            made = neighbours.widened(self._smooth, self.best[below][0].weights, widths, seed, layer)
            candidates += [Point(n, "narrower", network) for network in made]
        if n in self.best:
            own = self.best[n][0].weights
            made = neighbours.exchanged(self._smooth, own, widths, seed, layer)
            made += [own] if self._is_fresh(n, n) else []
            candidates += [Point(n, "exchange", network) for network in made if neighbours.fits(network, widths)]
        return candidates

    def _is_fresh(self, giver: int, taker: int) -> bool:
        return self.is_new(self.best[giver][0], giver, taker, "start")

    def _descended(self, starts: Sequence[Point], options: HomotopyOptions) -> list[Point]:
        candidates: list[Point] = []
        sizes = [[len(W) for W in start.weights[:-1]] for start in starts]
        for members in buckets(self.problem, sizes, MOST_ACTIVATIONS) if starts else []:
            down = descend(self._smooth, [starts[i].weights for i in members], options, self.budget.pace())
            for i, weights in zip(members, down, strict=True):
                candidates.append(self._judged(replace(starts[i], weights=weights)))
        return candidates

    def _offer(self, n: int, candidates: Sequence[Point]) -> bool:
        """Put candidates into the pool and onto the curve; return True if the curve gained."""
        pool, gained = self.best.get(n, []), False
        fitting = self._lowered(n) is not self.problem
        for best in _cheapest(candidates, n, POLISHED):
            if not math.isfinite(best.cost) or (pool and not best.cost < pool[0].cost and not fitting):
                break
            fitted = self._fitted(best.weights) if fitting else best.weights
            gained = self._keep(replace(best, weights=fitted, cost=cost_of(self.problem, fitted))) or gained
        if merged := _cheapest([*pool, *candidates], n, POOL):
            self.best[n] = merged
        self.report(Progress(len(self.points), self.budget.seconds(), self.level, self._result.lower, n))
        return gained

    def _keep(self, point: Point) -> bool:
        """Put a point on the curve; return True if it lowers the curve enough to continue."""
        before = min((p.cost for p in self.points.values() if p.width <= point.width), default=math.inf)
        old = self.points.get(point.width)
        if math.isfinite(point.cost) and (old is None or point.cost < old.cost):
            self.points[point.width] = point
        return point.cost < before * (1.0 - GAIN) if math.isfinite(before) else math.isfinite(point.cost)

    def _fitted(self, weights: list[Tensor]) -> list[Tensor]:
        """Return a network that fits, or nearly fits if it has too few neurons."""
        if self.budget.spent():
            return fit_exactly(self.problem, weights)
        return descent_for(self.problem).at_fixed_widths(weights, self.budget.spent)

    @property
    def level(self) -> float:
        """The lowest cost of any width."""
        return min(point.cost for point in self.points.values())

    def _start(self, eps: float) -> int:
        """Return the width of the narrowest known network on the plateau."""
        return min(n for n, point in self.points.items() if point.cost <= (1.0 + eps) * self.level)

    def _closer(self) -> set[int]:
        """Return widths halfway down from the plateau's start to the next tried one, for each eps."""
        middles = set()
        for inside in map(self._start, EPS):
            below = max((n for n in {*self.points, *self._grid} if n < inside), default=self._first - 1)
            if inside - below > 1:
                middles.add((inside + below) // 2)
        return middles

    def _untried(self) -> set[int]:
        """Return widths below the start of the plateau that no proof excludes and no search tried."""
        return {*range(self._first, self._start(EPS[-1]))} - {*self._grid}

    def _proved(self, n: int) -> bool:
        """Return True if no network of width n can cost less than the best, up to the target gap."""
        bounds = [0.0 if self._result.lower is None else self._result.lower]
        bounds += [self._narrow[n]] if n < len(self._narrow) else []
        lowest = min((point.cost for point in self.points.values() if point.width <= n), default=math.inf)
        return max(bounds) == math.inf or lowest <= (1.0 + self._gap) * max(bounds)

    def _widths(self, n: int) -> list[int]:
        return widths_at(self._result.widths, self._layer, n)


def widths_at(solved: list[int], layer: int | None, n: int) -> list[int]:
    """Return the hidden widths at n: all n, or the solver's with n in the layer."""
    return [n] * len(solved) if layer is None else [*solved[: layer - 1], n, *solved[layer:]]


def _cheapest(candidates: Sequence[Point], n: int, count: int) -> list[Point]:
    """Return the best few candidates of width n with different costs."""
    best: list[Point] = []
    for candidate in sorted((c for c in candidates if c.width == n and c.cost < math.inf), key=lambda c: c.cost):
        if len(best) < count and (not best or candidate.cost > best[-1].cost * (1.0 + GAIN)):
            best.append(candidate)
    return best


def _grid(first: int, top: int) -> list[int]:
    """Return all widths from `first` to `top`, or WIDTHS of them, denser at small ones."""
    first = min(first, top)
    if top - first < WIDTHS:
        return list(range(first, top + 1))
    return sorted({round(n) for n in np.geomspace(first, top, WIDTHS)})
