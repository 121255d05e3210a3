"""The cheapest network for each width: from the solver's one down, from random starts, and around the start sought.

Nothing is proved here; `plateau` says what the networks found prove.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from covopt.loop import Budget, Callback, Progress
from covopt.model.problem import Problem
from covopt.result import Result
from covopt.study.elimination import cost_of, drawn, narrowed

# How far above the level counts as on the plateau.
EPS = (0.1, 0.01, 0.001)
# Widths of a curve, where nobody says which; and the first pass over them takes every so many.
WIDTHS, COARSE = 24, 4


@dataclass(frozen=True)
class Point:
    """The cheapest network found of one width.

    Attributes:
        width: n.
        cost: recomputed from `weights` in float64.
        weights: W_1 ... W_L.
        source: solver, elimination or starts.
    """

    width: int
    cost: float
    weights: list[Tensor]
    source: str


class WidthSearch:
    """Networks of all widths: from the solver's one downwards, from random starts, and around the starts."""

    def __init__(
        self,
        result: Result,
        layer: int | None,
        budget: Budget,
        starts: int,
        narrow: list[float],
        gap: float,
        callback: Callback | None,
    ) -> None:
        self.problem: Problem = result.problem
        self._result, self._layer, self._budget, self._callback = result, layer, budget, callback
        self._gap = gap
        self._seeds = range(result.seed, result.seed + starts)
        self._first = max(1, next((n for n, bound in enumerate(narrow) if math.isfinite(bound)), len(narrow)))
        self.top = max(result.widths) if layer is None else result.widths[layer - 1]
        solved = result.cost if math.isfinite(result.cost) else math.inf
        self.points = {self.top: Point(self.top, solved, result.weights, "solver")}

    def run(self, widths: Sequence[int] | None) -> None:
        """Fill `points`."""
        if self.top == 0:
            return
        grid = sorted(set(widths)) if widths is not None else _grid(self._first, self.top)
        self._down([n for n in grid[::COARSE] if n < self.top])
        self._draw([n for n in grid if n >= self._first])
        self._down([n for n in grid if n < self.top])
        if widths is None:
            self._close_in()

    def _down(self, widths: Sequence[int]) -> None:
        """Backward elimination, each width from the best network of those above."""
        for n in sorted((n for n in widths if not self._proved(n)), reverse=True):
            if self._budget.spent():
                return
            above = min((k for k in self.points if k > n), default=None)
            if above is None:
                continue
            start, target = self.points[above].weights, self._widths(n)
            fits = all(len(W) <= width for W, width in zip(start[:-1], target, strict=True))
            found = start if fits else narrowed(self.problem, start, target, self._budget.spent)
            self._offer(n, found, "elimination")

    def _draw(self, widths: Sequence[int]) -> None:
        widths = [n for n in widths if not self._proved(n)]
        if self._seeds and widths and not self._budget.spent():
            found = drawn(self.problem, [self._widths(n) for n in widths], self._seeds, self._budget.spent)
            for n, weights in zip(widths, found, strict=True):
                self._offer(n, weights, "starts")

    def _close_in(self) -> None:
        """Widths between the narrowest that is within (1 + eps) of the level and the one below it, by halves."""
        tried: set[int] = set()
        while not self._budget.spent():
            level = min(point.cost for point in self.points.values())
            middles = set()
            for eps in EPS:
                inside = min(n for n, point in self.points.items() if point.cost <= (1.0 + eps) * level)
                below = max((n for n in {*self.points, *tried} if n < inside), default=self._first - 1)
                if inside - below > 1:
                    middles.add((inside + below) // 2)
            if not middles:
                return
            self._down(sorted(middles))
            self._draw(sorted(middles))
            tried |= middles  # where nothing fitted, the next turn must not come again

    def _proved(self, n: int) -> bool:
        """Whether the network known of width n is proved to be at the minimum, up to the target gap."""
        lower = self._result.lower
        return n in self.points and lower is not None and self.points[n].cost <= (1.0 + self._gap) * lower

    def _offer(self, n: int, weights: list[Tensor], source: str) -> None:
        cost = cost_of(self.problem, weights)
        if math.isfinite(cost) and (n not in self.points or cost < self.points[n].cost):
            self.points[n] = Point(n, cost, weights, source)
        if self._callback is not None:
            best = min(point.cost for point in self.points.values())
            self._callback(Progress(len(self.points), self._budget.seconds(), best, self._result.lower, n))

    def _widths(self, n: int) -> list[int]:
        return widths_at(self._result.widths, self._layer, n)


def widths_at(solved: list[int], layer: int | None, n: int) -> list[int]:
    """Hidden widths at n: all n, or the solver's with n in the layer."""
    if layer is None:
        return [n] * len(solved)
    return [*solved[: layer - 1], n, *solved[layer:]]


def _grid(first: int, top: int) -> list[int]:
    """All widths from `first` to `top`, or WIDTHS of them, closer together where they are small."""
    first = min(first, top)
    if top - first < WIDTHS:
        return list(range(first, top + 1))
    return sorted({round(n) for n in np.geomspace(first, top, WIDTHS)})
