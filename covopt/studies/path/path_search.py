"""The best network found at each lam of a path: warm starts from both neighbours, and where the next lam goes.

* Downward, each lam starts from the network of the next larger one; then values are solved again from the neurons of
  both neighbours beside their own, that which gained most the last time first, until none gains any more.
* The first values are spread evenly in log lam. The others go where the curve is known least: between two neighbours
  L* lies between their lines and the chord of their costs, and the next lam is where these are furthest apart.
* Where a bound needs a proof that takes long, the time left goes to the lam at which the proved gap is largest: the
  dual point proved there bounds its neighbours too (studies/path/between.py).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from covopt.answer.result import DualPoint, Result
from covopt.answer.solve import solve
from covopt.certify import proofs
from covopt.certify.proof import Proof
from covopt.model.problem import Problem
from covopt.model.weights import Cost, evaluate, preactivations
from covopt.runtime.loop import Budget, Callback, Certificate, Progress, Status
from covopt.studies.path import between
from covopt.studies.path.envelope import Envelope

# Rounds of one warm solve of two layers where no oracle is exact: later ones gain less than those of its neighbours.
ROUNDS = 3
# What counts as a gain, relative; what of its gain a value is expected to give to its neighbours.
GAIN, PASSED_ON = 1e-5, 0.5
# Neurons that a warm start takes from a network and its neighbours together.
MOST_NEURONS = 800
# The first values of lam, of all.
COARSE = 0.6
# The part of the gap that a proof may leave at its own value: some of it is lost between the values.
OWN = 0.5
# Proofs go on for another round where the last one left at most this part of the gap.
WORTHWHILE = 0.9
# The neighbours' neurons come as directions: by this factor, weights are too small to count.
DIRECTION = 1e-8
# A new lam is no nearer to its neighbours than this part of their distance, in log lam.
NEAREST = 0.25


@dataclass(frozen=True)
class Point:
    """One lam of a path.

    Attributes:
        lam: the strength of the penalty.
        weights: W_1 ... W_L of the best network found.
        cost: fit + lam norm, recomputed in float64.
        fit: C(F); norm: |W|^2.
        lower: the bound proved at this lam itself; None without one. certificate: what proves it.
        proof: what proves `lower`.
        status: of its last solve.
    """

    lam: float
    weights: list[Tensor]
    cost: Cost
    lower: float | None
    certificate: Certificate
    proof: Proof | None = None
    status: Status = Status.TIME_LIMIT

    @staticmethod
    def of(result: Result) -> Point:
        """What a solve found."""
        p, r = result.problem, result
        cost = evaluate(p, r.weights)
        return Point(p.lam, r.weights, cost, r.lower, r.certificate, r.proof, r.status)

    @property
    def width(self) -> int:
        """Neurons of the widest hidden layer."""
        return max(len(W) for W in self.weights[:-1])

    def better(self, other: Point | None) -> Point:
        """The cheaper network with the higher bound."""
        if other is None:
            return self
        cheap = self if self.cost.total <= other.cost.total else other
        high = self if (self.lower or 0.0) >= (other.lower or 0.0) else other
        return replace(cheap, lower=high.lower, certificate=high.certificate, proof=high.proof, status=self.status)


def feasible(point: Point) -> between.Feasible | None:
    """Its dual point, where it has one."""
    dual = DualPoint.of(point.proof)
    if dual is None:
        return None
    return between.Feasible(point.lam, torch.from_numpy(dual.Lambda), dual.maximum, str(point.certificate))


def at(problem: Problem, lam: float) -> Problem:
    """The question at one lam."""
    return replace(problem, lam=lam)


def envelope(problem: Problem, points: Sequence[Point]) -> Envelope:
    """What the points of a path say of every lam: their lines and bounds, and for two layers those of mixtures.

    Args:
        problem: the question, at any lam; points: from the largest lam down.
    """
    lines = [(p.cost.fit, p.cost.norm) for p in points]
    proved = [(p.lam, p.lower, str(p.certificate)) for p in points if p.lower is not None]
    if problem.depth == 2 and len(points):
        problem = replace(problem, X=problem.X.cpu(), Y=problem.Y.cpu())
        networks = [([W.cpu() for W in p.weights], p.cost.norm) for p in points]
        outputs = [(preactivations(problem, weights)[-1], norm) for weights, norm in networks]
        lines += between.mixed_lines(problem, outputs)
        duals = [dual for p in points if (dual := feasible(p)) is not None]
        proved += between.mixed_bounds(problem, duals)
    return Envelope.of(lines, proved)


class PathSearch:
    """Networks and bounds along lam.

    Args:
        problem: the question, at any lam.
        asked: keywords of `covopt.solve`, without lam and the time limit.
        budget: of all.
        callback: gets the progress of each solve, with the time of all.
        known: points of an earlier run.

    Attributes:
        provable: whether there are proofs that take long: two layers, no exact oracle.
    """

    def __init__(
        self,
        problem: Problem,
        asked: Mapping[str, object],
        budget: Budget,
        callback: Callback | None = None,
        known: Sequence[Point] = (),
    ) -> None:
        self.problem, self.budget, self.callback = problem, budget, callback
        self.points: dict[float, Point] = {point.lam: point for point in known}
        self._asked = dict(asked)
        self._certify, self._gap = str(asked["certify"]), float(str(asked["gap"]))
        kind = proofs.attainable(problem)
        self.provable = problem.depth == 2 and kind not in (Certificate.EXACT, Certificate.NONE)
        self._rounds = ROUNDS if problem.depth == 2 and kind is not Certificate.EXACT else None
        if asked.get("max_iterations") is not None:
            self._rounds = int(str(asked["max_iterations"]))
        self._gains: dict[float, float] = {}

    @property
    def ordered(self) -> list[Point]:
        """From the largest lam down."""
        return [self.points[lam] for lam in sorted(self.points, reverse=True)]

    def descend(self, lams: Sequence[float], until: float) -> None:
        """Solve the values that are new, from the largest down, until so much of the time is over; one at least."""
        new = [lam for lam in sorted(lams, reverse=True) if lam not in self.points]
        end = replace(self.budget, time_limit=until * self.budget.time_limit)
        for place, lam in enumerate(new):
            if self.points and self.budget.spent():
                return
            self.solve(lam, end.remaining() / (len(new) - place))

    def refine(self, count: int, until: float) -> None:
        """Add values where the curve is known least, until there are so many or so much of the time is over."""
        end = replace(self.budget, time_limit=until * self.budget.time_limit)
        while len(self.points) < count and not end.spent():
            lam = self.wanted()
            if lam is None:
                return
            self.solve(lam, end.remaining() / (count - len(self.points)))

    def wanted(self) -> float | None:
        """Where the next lam goes, if anywhere.

        To the largest proved gap, where each solve brings a proof. Else to where the lines of two neighbours and the
        chord of their costs are furthest apart.
        """
        lams = sorted(self.points)
        if self.problem.depth == 2 and not self.provable and self._certify != "none" and len(lams) > 1:
            gap, where = envelope(self.problem, self.ordered).gap(lams[0], lams[-1])
            place = bisect.bisect_left(lams, where)
            if gap > self._gap and place > 0 and where < lams[place]:
                return _between(lams[place - 1], lams[place], where)
        best, where = 0.0, None
        for p, q in pairwise(self.ordered):
            if not (p.cost.norm < q.cost.norm and q.lam < p.lam * (1.0 - GAIN)):
                continue
            kink = (p.cost.fit - q.cost.fit) / (q.cost.norm - p.cost.norm)
            kink = min(max(kink, q.lam), p.lam)
            share = (kink - q.lam) / (p.lam - q.lam)
            chord = (1.0 - share) * q.cost.total + share * p.cost.total
            height = q.cost.fit + kink * q.cost.norm
            apart = (height - chord) / height if height > 0.0 else 0.0
            if apart > best:
                best, where = apart, _between(q.lam, p.lam, kink)
        return where

    def improve(self, until: float) -> bool:
        """Solve values again from their neighbours' neurons, that which gained most the last time first.

        Until so much of the time is over; whether nothing is left to try: every value gained less than GAIN the last
        time, and none of its neighbours more since.
        """
        end = replace(self.budget, time_limit=until * self.budget.time_limit)
        while not end.spent():
            open_ = [lam for lam in self.points if self._gains.get(lam, math.inf) > GAIN]
            open_ = [lam for lam in open_ if self.points[lam].status is not Status.OPTIMAL]
            if not open_:
                return True
            # Of those that were not tried yet the smallest first: what it finds helps the others.
            self.solve(max(open_, key=lambda lam: (self._gains.get(lam, math.inf), -lam)), end.remaining())
        return False

    def prove(self, until: float = 1.0) -> None:
        """Prove bounds where the proved gap is largest, until it is reached, nothing is left to try, or the time is."""
        end, lams = replace(self.budget, time_limit=until * self.budget.time_limit), sorted(self.points)
        left, before = set(lams), 1.0
        while not end.spent():
            gap, where = envelope(self.problem, self.ordered).gap(lams[0], lams[-1])
            if gap <= self._gap:
                return
            if not left:  # once more, where that still helps
                if gap > WORTHWHILE * before:
                    return
                left, before = {lam for lam in lams if not self._proved(lam)}, gap
                if not left:
                    return
            lam = min(left, key=lambda each: abs(math.log(each / where)))
            share = end.remaining() / math.sqrt(len(left))  # a proof helps its neighbours too: some are enough
            left.remove(lam)
            self.solve(lam, share, self._certify)

    def solve(self, lam: float, seconds: float, certify: str = "fast") -> None:
        """Solve one value from what its neighbours have."""
        known, start = self.points.get(lam), self._start(lam)
        searching = certify == "fast"
        found = solve(
            self.problem.X,
            self.problem.Y,
            **{
                **self._asked,
                "lam": lam,
                "certify": "none" if self._certify == "none" else certify,
                "gap": self._gap if searching else OWN * self._gap,
                "init": start,
                "max_iterations": self._rounds if searching else None,
                "time_limit": max(seconds, 1e-3),
                "callback": self._told,
            },  # type: ignore[arg-type]
        )
        self.points[lam] = Point.of(found).better(known)
        if known is None:
            return
        gain = (known.cost.total - self.points[lam].cost.total) / max(known.cost.total, 1e-300)
        self._gains[lam] = gain
        if gain > GAIN:  # the neighbours are asked again, the more the larger it was
            for each in self._neighbours(lam):
                self._gains[each.lam] = max(self._gains.get(each.lam, math.inf), PASSED_ON * gain)

    def _proved(self, lam: float) -> bool:
        """Whether the bound at this value is within the gap that is wanted."""
        point = self.points[lam]
        return point.lower is not None and point.cost.total - point.lower <= self._gap * point.cost.total

    def _told(self, line: Progress) -> None:
        if self.callback is not None:
            self.callback(replace(line, seconds=self.budget.seconds()))

    def _neighbours(self, lam: float) -> list[Point]:
        above = min((each for each in self.points if each > lam), default=None)
        below = max((each for each in self.points if each < lam), default=None)
        return [self.points[each] for each in (above, below) if each is not None]

    def _start(self, lam: float) -> list[Tensor] | None:
        """Its own network and the neighbours' as one, cheapest at this lam first; for more layers the cheapest one."""
        known = [*self._neighbours(lam), *([self.points[lam]] if lam in self.points else [])]
        known = sorted(known, key=lambda point: point.cost.fit + lam * point.cost.norm)
        known = [point for point in known if point.width]
        if not known:
            return None
        if self.problem.depth > 2:
            return known[0].weights
        kept, width = known[:1], known[0].width
        for point in known[1:]:
            if width + point.width <= MOST_NEURONS:
                kept, width = [*kept, point], width + point.width
        first = torch.cat([kept[0].weights[0], *(DIRECTION * point.weights[0] for point in kept[1:])])
        W = kept[0].weights[1]
        inner = len(kept[0].weights[0])
        return [first, torch.cat([W[:, :inner], W.new_zeros(len(W), len(first) - inner), W[:, inner:]], dim=1)]


def _between(low: float, high: float, lam: float) -> float:
    """The value next to lam that keeps its distance from both ends."""
    inner = (high / low) ** NEAREST
    return min(max(lam, low * inner), high / inner)


def spread(top: float, ratio: float, count: int) -> list[float]:
    """Values from top down to ratio * top, even in their logarithm."""
    return [float(lam) for lam in np.geomspace(top, ratio * top, count)]
