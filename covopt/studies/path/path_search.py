"""Search the best network at each lam of a path by warm starts, and choose the next lam.

* Downward, each lam starts from the network of the next larger one. Then values are solved again from their own neurons
  and those of both neighbours, the value with the largest last gain first, until none gains any more.
* The first values are spread evenly in log lam. The others go where the bounds are widest: between two neighbours L*
  lies between their lines and the chord of their costs, and the next lam is where these are furthest apart.
* If bounds need slow proofs, the remaining time goes to the lam at which the proved gap is largest: the dual point
  proved there bounds its neighbours too (studies/path/envelope.py).
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
from covopt.certify import proofs
from covopt.certify.proof import Proof
from covopt.model.problem import Problem
from covopt.model.weights import Cost, evaluate, preactivations
from covopt.runtime.loop import Budget, Callback, Certificate, Status
from covopt.studies.continuation import Continuation
from covopt.studies.path.envelope import Envelope, mixed_bounds, mixed_lines

# Rounds of one warm solve of two layers without an exact oracle: later rounds gain less than those of its neighbours.
ROUNDS = 3
# Smallest relative gain that counts; share of its gain that a value is expected to pass on to its neighbours.
GAIN, PASSED_ON = 1e-5, 0.5
# Maximum number of neurons of a warm start, from a network and its neighbours together.
MOST_NEURONS = 800
# Share of the values of lam that are spread evenly first.
COARSE = 0.6
# Share of the target gap that a proof aims at in its own value: between the values some of it is lost.
OWN = 0.5
# Proofs continue for another round if the last one reduced the gap to at most this share.
WORTHWHILE = 0.9
# Scale of the neighbours' weights in a warm start: too small to count, so that only their directions enter.
DIRECTION = 1e-8
# Minimum distance of a new lam from its neighbours, relative to the distance between them, in log lam.
NEAREST = 0.25


@dataclass(frozen=True)
class Point:
    """One lam of a path."""

    lam: float  # the strength of the penalty
    weights: list[Tensor]  # W_1 ... W_L of the best network found
    cost: Cost  # C(F) + lam |W|^2 and its parts, recomputed in float64
    lower: float | None  # the bound proved at this lam itself; None without one
    certificate: Certificate  # the kind of its proof
    proof: Proof | None = None  # the proof of `lower`
    status: Status = Status.TIME_LIMIT  # the status of its last solve

    @staticmethod
    def of(result: Result) -> Point:
        """Return the point of a solve."""
        p, r = result.problem, result
        return Point(p.lam, r.weights, evaluate(p, r.weights), r.lower, r.certificate, r.proof, r.status)

    @property
    def width(self) -> int:
        """Neurons of the widest hidden layer."""
        return max(len(W) for W in self.weights[:-1])

    def better(self, other: Point | None) -> Point:
        """Return the network of lower cost, with the higher of the two bounds."""
        if other is None:
            return self
        cheap = self if self.cost.total <= other.cost.total else other
        high = self if (self.lower or 0.0) >= (other.lower or 0.0) else other
        return replace(cheap, lower=high.lower, certificate=high.certificate, proof=high.proof, status=self.status)


def at(problem: Problem, lam: float) -> Problem:
    """Return the problem at one lam."""
    return replace(problem, lam=lam)


def envelope(problem: Problem, points: Sequence[Point]) -> Envelope:
    """Return the bounds at every lam by points, from the largest lam down; for two layers mixtures count."""
    lines = [(p.cost.fit, p.cost.norm) for p in points]
    proved = [(p.lam, p.lower, str(p.certificate)) for p in points if p.lower is not None]
    if problem.depth == 2 and len(points):
        problem = replace(problem, X=problem.X.cpu(), Y=problem.Y.cpu())
        networks = [([W.cpu() for W in p.weights], p.cost.norm) for p in points]
        lines += mixed_lines(problem, [(preactivations(problem, weights)[-1], norm) for weights, norm in networks])
        duals = [(p.lam, DualPoint.of(p.proof), str(p.certificate)) for p in points]
        proved += mixed_bounds(problem, [(lam, dual, kind) for lam, dual, kind in duals if dual is not None])
    return Envelope.of(lines, proved)


class PathSearch(Continuation[float, Point]):
    """The search for networks and bounds along lam, from a problem at any lam and earlier points in any order.

    `provable` is true if slow proofs apply: two layers, no exact oracle.
    """

    def __init__(
        self,
        problem: Problem,
        options: Mapping[str, object],
        budget: Budget,
        callback: Callback | None = None,
        earlier: Sequence[Point] = (),
    ) -> None:
        super().__init__(budget, callback, options, {point.lam: point for point in earlier})
        self.problem = problem
        self._certify, self._gap = str(options["certify"]), float(str(options["gap"]))
        kind = proofs.attainable(problem)
        self.provable = problem.depth == 2 and kind not in (Certificate.EXACT, Certificate.NONE)
        self._rounds = ROUNDS if problem.depth == 2 and kind is not Certificate.EXACT else None
        if options.get("max_iterations") is not None:
            self._rounds = int(str(options["max_iterations"]))
        self._gains: dict[float, float] = {}

    @property
    def ordered(self) -> list[Point]:
        """The points from the largest lam down."""
        return [self.best[lam] for lam in sorted(self.best, reverse=True)]

    def descend(self, lams: Sequence[float], until: float) -> None:
        """Solve the new values from the largest down, at least one, within a share of the time."""
        new = [lam for lam in sorted(lams, reverse=True) if lam not in self.best]
        for lam, turn in self.budget.part(until).turns(new):
            if self.best and self.budget.spent():
                return
            self.advance(lam, turn.remaining())

    def refine(self, count: int, until: float) -> None:
        """Add values of lam where the bounds are widest, up to a count or a share of the time."""
        end = self.budget.part(until)
        while len(self.best) < count and not end.spent() and (lam := self.wanted()) is not None:
            self.advance(lam, end.remaining() / (count - len(self.best)))

    def wanted(self) -> float | None:
        """Return the next lam to solve, if any.

        It is the lam of the largest proved gap if each solve brings a proof. Else it is the lam at which the lines of
        two neighbours and the chord of their costs are furthest apart.
        """
        lams = sorted(self.best)
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

    def round(self, budget: Budget) -> bool:
        """Solve the value with the largest last gain again; return False if there is none left.

        A value is left out if it gained less than GAIN the last time, and none of its neighbours more since.
        """
        open_ = [lam for lam in self.best if self._gains.get(lam, math.inf) > GAIN]
        open_ = [lam for lam in open_ if self.best[lam].status is not Status.OPTIMAL]
        if open_:
            # Among values without a second solve the smallest comes first: its neurons help the others.
            self.advance(max(open_, key=lambda lam: (self._gains.get(lam, math.inf), -lam)), budget.remaining())
        return bool(open_)

    def prove(self, until: float = 1.0) -> None:
        """Prove bounds at the largest proved gap until the target, the time, or no lam is left."""
        end, lams = self.budget.part(until), sorted(self.best)
        remaining, before = set(lams), 1.0
        while not end.spent():
            gap, where = envelope(self.problem, self.ordered).gap(lams[0], lams[-1])
            if gap <= self._gap:
                return
            if not remaining:  # another round, if the last one helped
                if gap > WORTHWHILE * before:
                    return
                remaining, before = {lam for lam in lams if not self._proved(lam)}, gap
                if not remaining:
                    return
            lam = min(remaining, key=lambda value: abs(math.log(value / where)))
            # A proof helps its neighbours too, so that not all are needed.
            share = end.remaining() / math.sqrt(len(remaining))
            remaining.remove(lam)
            self.advance(lam, share, self._certify)

    def advance(self, lam: float, seconds: float, certify: str = "fast") -> None:
        """Solve one value from its own network and those of its neighbours."""
        earlier, searching = self.best.get(lam), certify == "fast"
        result = self.solve(
            at(self.problem, lam),
            lam=lam,
            certify="none" if self._certify == "none" else certify,
            gap=self._gap if searching else OWN * self._gap,
            init=self._start(lam),
            max_iterations=self._rounds if searching else None,
            time_limit=max(seconds, 1e-3),
        )
        self.best[lam] = Point.of(result).better(earlier)
        if earlier is None:
            return
        gain = (earlier.cost.total - self.best[lam].cost.total) / max(earlier.cost.total, 1e-300)
        self._gains[lam] = gain
        if gain > GAIN:  # solve the neighbours again, earlier after a larger gain
            for neighbour in self.neighbours(lam):
                if neighbour is not None:
                    self._gains[neighbour] = max(self._gains.get(neighbour, math.inf), PASSED_ON * gain)

    def _proved(self, lam: float) -> bool:
        """Return True if the bound at this value is within the target gap."""
        point = self.best[lam]
        return point.lower is not None and point.cost.total - point.lower <= self._gap * point.cost.total

    def _start(self, lam: float) -> list[Tensor] | None:
        """Return the networks of this lam and its neighbours as one, or the best if they are deep."""
        below, above = self.neighbours(lam)
        points = [self.best[value] for value in (above, below, lam) if value in self.best]
        candidates = sorted((p for p in points if p.width), key=lambda p: p.cost.fit + lam * p.cost.norm)
        if not candidates:
            return None
        if self.problem.depth > 2:
            return candidates[0].weights
        chosen, width = candidates[:1], candidates[0].width
        for point in candidates[1:]:
            if width + point.width <= MOST_NEURONS:
                chosen, width = [*chosen, point], width + point.width
        first = torch.cat([chosen[0].weights[0], *(DIRECTION * point.weights[0] for point in chosen[1:])])
        W = chosen[0].weights[1]
        hidden = len(chosen[0].weights[0])
        return [first, torch.cat([W[:, :hidden], W.new_zeros(len(W), len(first) - hidden), W[:, hidden:]], dim=1)]


def _between(low: float, high: float, lam: float) -> float:
    """Return the value nearest to lam that keeps its distance from both ends."""
    margin = (high / low) ** NEAREST
    return min(max(lam, low * margin), high / margin)


def spread(top: float, ratio: float, count: int) -> list[float]:
    """Return values from top down to ratio * top, even in their logarithm."""
    return [float(lam) for lam in np.geomspace(top, ratio * top, count)]
