"""Bounds on the minimum at every lam, between the solved values too (MATH.md section 10).

The cost C(W) + lam |W|^2 of each network is linear and nondecreasing in lam. The minimum L*(lam) over all networks is
therefore concave and nondecreasing, at every depth and for every loss.

* Upper bound U: the minimum of the lines fit + lam norm of all given networks.
* Lower bound L: proved bounds are points on or below the curve. Because the curve is concave, chords between two such
  points are below it too. L is the concave hull of these points and (0, 0), since L* >= 0. Beyond the largest lam, L is
  constant.
* The largest relative gap: U and L are piecewise linear. Between two kinks, (U - L) / U is a ratio of linear functions,
  hence monotone. So its maximum over a range lies at a kink or at an end of the range.

**Mixtures.** In two layers, networks and dual points of neighbouring lam are mixed, without a solver.

The problem is convex over mixtures of neurons, and so is the set of dual feasible points, which does not depend on lam.

* Networks p and q, the neurons of p scaled by (1 - t)^(1/2) in both layers, those of q by t^(1/2), the output biases
  mixed: F = (1 - t) F_p + t F_q costs C(F) + lam ((1 - t) |W_p|^2 + t |W_q|^2) or less, |b|^2 being convex. One more
  line for each t.
* max_w h(w) of (1 - t) Lambda_p + t Lambda_q is at most (1 - t) M_p + t M_q, whatever the lam at which these maxima
  were proved. D_lam of the mixture, for the best t, is a bound at every lam, with the proofs of p and of q.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from covopt.answer.result import DualPoint
from covopt.certify.dual import dual_bound
from covopt.model.problem import Problem

# Relative rounding error of a value on a line or a chord, and of the lam of a kink.
ROUNDING = 1e-13


@dataclass(frozen=True)
class Envelope:
    """Bounds on L* at every lam."""

    fits: Float[np.ndarray, " k"]  # C(F) of each network: L*(lam) <= fit + lam norm
    norms: Float[np.ndarray, " k"]  # |W|^2 of each
    lams: Float[np.ndarray, " v"]  # vertices of the concave hull of the proved bounds, ascending, (0, 0) first
    lowers: Float[np.ndarray, " v"]  # the bounds there
    kinds: tuple[str, ...]  # the kind of proof of each vertex, as the caller names it

    @staticmethod
    def of(lines: Iterable[tuple[float, float]], proved: Iterable[tuple[float, float, str]]) -> Envelope:
        """Build the envelope from (fit, norm) of networks and (lam, lower, kind) of proofs."""
        finite = np.array([line for line in lines if math.isfinite(sum(line))], dtype=np.float64).reshape(-1, 2)
        hull = [(0.0, 0.0, "")]
        for point in sorted(point for point in proved if point[1] > 0.0):
            while len(hull) > 1 and _below(hull[-2], hull[-1], point):
                hull.pop()
            hull.append(point)
        while len(hull) > 1 and hull[-1][1] <= hull[-2][1]:  # L* is nondecreasing: the bound before holds here too
            hull.pop()
        lams, lowers = (np.array([point[axis] for point in hull], dtype=np.float64) for axis in (0, 1))
        return Envelope(finite[:, 0], finite[:, 1], lams, lowers, tuple(point[2] for point in hull))

    def upper(self, lam: float) -> float:
        """Return U(lam), the lowest line; infinite without networks."""
        return float((self.fits + lam * self.norms).min(initial=math.inf))

    def lower(self, lam: float) -> float:
        """Return L(lam) less its rounding error; 0 if nothing is proved."""
        return float(np.interp(lam, self.lams, self.lowers)) * (1.0 - ROUNDING)

    def kind(self, lam: float) -> str:
        """Return the kind of proof of the vertex at lam, or else of the next one above."""
        vertex = int(np.searchsorted(self.lams, lam * (1.0 - ROUNDING)))
        return self.kinds[min(vertex, len(self.kinds) - 1)]

    def gap(self, low: float, high: float) -> tuple[float, float]:
        """Return the maximum of (U - L) / U over low <= lam <= high, rounded up, and its lam."""
        inside = [float(lam) for lam in self.lams if low < lam < high]
        gaps = [(self._gap_at(lam), lam) for lam in (low, *self.kinks(low, high), *inside, high)]
        worst, where = max(gaps, default=(1.0, low))
        return min(1.0, worst + ROUNDING), where

    def kinks(self, low: float, high: float) -> list[float]:
        """Return each lam, low < lam < high, at which another line becomes the lowest, ascending."""
        changes: list[float] = []
        lam = low
        values = self.fits + lam * self.norms
        line = int(np.lexsort((self.norms, values))[0]) if len(values) else 0
        while len(values):
            # The next lowest line is flatter, and the first of these to cross the current one.
            flatter = np.flatnonzero(self.norms < self.norms[line])
            crossings = (self.fits[flatter] - self.fits[line]) / (self.norms[line] - self.norms[flatter])
            if not len(flatter) or not crossings.min() < high:
                break
            lam = max(lam, float(crossings.min()))
            if lam > low:
                changes.append(lam)
            nearest = flatter[crossings <= crossings.min()]
            line = int(nearest[self.norms[nearest].argmin()])
        return changes

    def _gap_at(self, lam: float) -> float:
        upper, lower = self.upper(lam), self.lower(lam)
        if not math.isfinite(upper):
            return 1.0
        return max(0.0, (upper - lower) / upper) if upper > 0.0 else 0.0


def _below(a: tuple[float, float, str], b: tuple[float, float, str], c: tuple[float, float, str]) -> bool:
    """Return True if b is not above the chord from a to c, lam ascending."""
    return bool((b[1] - a[1]) * (c[0] - a[0]) <= (c[1] - a[1]) * (b[0] - a[0]))


# Number of mixtures of two networks, and of values of lam between two dual points at which a mixture is evaluated.
MIXTURES, PLACES = 7, 7
# Evaluations in the search for the best mixture of two dual points.
EVALUATIONS = 12
GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)


Feasible = tuple[float, DualPoint, str]
"""The lam for which a dual point was found, the point, and the kind of the proof of its maximum."""


def mixed_lines(problem: Problem, networks: list[tuple[Float[Tensor, "N m"], float]]) -> Iterator[tuple[float, float]]:
    """Yield (fit, norm) of mixtures of neighbours; networks are given by (F, norm)."""
    for (F, norm), (G, other) in pairwise(networks):
        for t in np.arange(1, MIXTURES + 1) / (MIXTURES + 1):
            fit = float(problem.loss_at((1.0 - t) * F + t * G))
            yield fit, (1.0 - t) * norm + t * other


def mixed_bounds(problem: Problem, points: list[Feasible]) -> Iterator[tuple[float, float, str]]:
    """Yield (lam, lower, kind) between neighbouring dual points, sorted from the largest lam."""
    for (high, p, kind), (low, q, other) in pairwise(points):
        for lam in np.geomspace(high, low, PLACES + 2)[1:-1].tolist():
            # Such a bound needs two proofs; exact with another kind is that kind.
            yield lam, _best(replace(problem, lam=lam), p, q), other if kind == "exact" else kind


def _best(problem: Problem, p: DualPoint, q: DualPoint) -> float:
    """Return the best D over mixtures of p and q; it has one peak, D being concave there."""

    def bound(t: float) -> float:
        mixed = torch.from_numpy((1.0 - t) * p.Lambda + t * q.Lambda)
        return dual_bound(problem, mixed, ((1.0 - t) * p.maximum + t * q.maximum) * (1.0 + 2.0**-50)).lower

    return max(bound(0.0), bound(1.0), _peak(bound))


def _peak(f: Callable[[float], float]) -> float:
    """Return the largest value that a golden-section search on [0, 1] sees."""
    low, high = 0.0, 1.0
    a, b = 1.0 - GOLDEN, GOLDEN
    at_a, at_b = f(a), f(b)
    best = max(at_a, at_b)
    for _ in range(EVALUATIONS - 2):
        if at_a < at_b:
            low, a, at_a = a, b, at_b
            b = low + GOLDEN * (high - low)
            at_b = f(b)
        else:
            high, b, at_b = b, a, at_a
            a = high - GOLDEN * (high - low)
            at_a = f(a)
        best = max(best, at_a, at_b)
    return best
