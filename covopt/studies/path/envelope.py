"""Bounds on the minimum at every lam, between the solved values too (MATH.md section 10).

The cost C(W) + lam |W|^2 of each network is linear and nondecreasing in lam. The minimum L*(lam) over all networks is
therefore concave and nondecreasing, at every depth and for every loss.

* Upper bound U: the minimum of the lines fit + lam norm of all given networks.
* Lower bound L: proved bounds are points on or below the curve. Because the curve is concave, chords between two such
  points are below it too. L is the concave hull of these points and (0, 0), since L* >= 0. Beyond the largest lam, L is
  constant.
* The largest relative gap: U and L are piecewise linear. Between two kinks, (U - L) / U is a ratio of linear functions,
  hence monotone. So its maximum over a range lies at a kink or at an end of the range.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

# Relative rounding error of a value on a line or a chord, and of the lam of a kink.
ROUNDING = 1e-13


@dataclass(frozen=True)
class Envelope:
    """Bounds on L* at every lam.

    Attributes:
        fits, norms: fit and norm of each network, so that L*(lam) <= fit + lam norm.
        lams, lowers: vertices of the concave hull of the proved bounds, lam ascending, (0, 0) first.
        kinds: the kind of proof of each vertex, as the caller names it.
    """

    fits: Float[np.ndarray, " k"]
    norms: Float[np.ndarray, " k"]
    lams: Float[np.ndarray, " v"]
    lowers: Float[np.ndarray, " v"]
    kinds: tuple[str, ...]

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
