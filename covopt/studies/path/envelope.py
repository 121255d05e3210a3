"""Bounds on the minimum at every lam, between the solved values too (MATH.md section 10).

L*(lam) = min_W C(W) + lam |W|^2 is the minimum of functions that are linear in lam and do not fall, one for each
network: so it is concave and does not fall, at every depth and for every loss.

* From above: every network is a line, fit + lam norm, and U is the lowest of them.
* From below: proved bounds at some lam are points below the curve, and so is every chord between two of them. L is the
  concave hull of all, with (0, 0), since L* >= 0; beyond the largest lam it is the last bound.
* Both are piecewise linear, so that (U - L) / U is a ratio of linear functions, hence monotone, between two kinks: the
  largest relative gap of a whole range is found at one of finitely many kinks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

# Relative rounding of a value on a line or a chord, and of the place of a kink.
ROUNDING = 1e-13


@dataclass(frozen=True)
class Envelope:
    """Bounds on L* at every lam.

    Attributes:
        fits, norms: of networks: L*(lam) <= fit + lam norm.
        lams, lowers: the concave hull of the proved bounds, lam ascending, (0, 0) first.
        kinds: the proof of each of its points, as the caller names it.
    """

    fits: Float[np.ndarray, " k"]
    norms: Float[np.ndarray, " k"]
    lams: Float[np.ndarray, " v"]
    lowers: Float[np.ndarray, " v"]
    kinds: tuple[str, ...]

    @staticmethod
    def of(lines: Iterable[tuple[float, float]], proved: Iterable[tuple[float, float, str]]) -> Envelope:
        """Build the envelope from (fit, norm) of networks and (lam, lower, kind) of proofs."""
        drawn = np.array([line for line in lines if math.isfinite(sum(line))], dtype=np.float64).reshape(-1, 2)
        hull = [(0.0, 0.0, "")]
        for point in sorted(point for point in proved if point[1] > 0.0):
            while len(hull) > 1 and _below(hull[-2], hull[-1], point):
                hull.pop()
            hull.append(point)
        while len(hull) > 1 and hull[-1][1] <= hull[-2][1]:  # L* does not fall
            hull.pop()
        lams, lowers = (np.array([point[place] for point in hull], dtype=np.float64) for place in (0, 1))
        return Envelope(drawn[:, 0], drawn[:, 1], lams, lowers, tuple(point[2] for point in hull))

    def upper(self, lam: float) -> float:
        """Return the lowest line at lam; infinite without any."""
        return float((self.fits + lam * self.norms).min(initial=math.inf))

    def lower(self, lam: float) -> float:
        """Return the hull at lam, less its rounding; 0 if nothing is proved."""
        return float(np.interp(lam, self.lams, self.lowers)) * (1.0 - ROUNDING)

    def kind(self, lam: float) -> str:
        """Return the kind of the bound at the chord's larger end, or at the point itself."""
        place = int(np.searchsorted(self.lams, lam * (1.0 - ROUNDING)))
        return self.kinds[min(place, len(self.kinds) - 1)]

    def gap(self, low: float, high: float) -> tuple[float, float]:
        """Return the largest (U - L) / U over low <= lam <= high with rounding, and its lam."""
        inside = [float(lam) for lam in self.lams if low < lam < high]
        gaps = [(self._gap_at(lam), lam) for lam in (low, *self.kinks(low, high), *inside, high)]
        worst, where = max(gaps, default=(1.0, low))
        return min(1.0, worst + ROUNDING), where

    def kinks(self, low: float, high: float) -> list[float]:
        """Return the lam at which the lowest line changes within low < lam < high, ascending."""
        places: list[float] = []
        at = low
        values = self.fits + at * self.norms
        line = int(np.lexsort((self.norms, values))[0]) if len(values) else 0
        while len(values):
            flatter = np.flatnonzero(self.norms < self.norms[line])
            crossings = (self.fits[flatter] - self.fits[line]) / (self.norms[line] - self.norms[flatter])
            if not len(flatter) or not crossings.min() < high:
                break
            at = max(at, float(crossings.min()))
            if at > low:
                places.append(at)
            nearest = flatter[crossings <= crossings.min()]
            line = int(nearest[self.norms[nearest].argmin()])
        return places

    def _gap_at(self, lam: float) -> float:
        upper, lower = self.upper(lam), self.lower(lam)
        if not math.isfinite(upper):
            return 1.0
        return max(0.0, (upper - lower) / upper) if upper > 0.0 else 0.0


def _below(a: tuple[float, float, str], b: tuple[float, float, str], c: tuple[float, float, str]) -> bool:
    """Return True if b is not above the chord from a to c, lam ascending."""
    return bool((b[1] - a[1]) * (c[0] - a[0]) <= (c[1] - a[1]) * (b[0] - a[0]))
