"""Fit R(L) = k L + R1 + R2 / L + ... to the costs of a range of depths.

The depths are split where the dimension changes. On each range R0 is the integer k, not fitted, and R - k L is fitted
by R1 + R2 / L + R3 / L^2, least squares in float64. The bands are hulls of other plausible fits:

* two and four terms in place of three;
* the same three terms without each depth in turn;
* costs that are lower by up to the spread of the two best starts at each depth: a search ends above the minimum, never
  below it, so that noise enters on one side. The fit is linear in the costs, so the hull over all of these is exact.

`good` is false if the expansion does not describe the range: the residuals are larger than noise, or the coefficients
depend on the part of the range that is fitted. A fit proves nothing, and the band is not a confidence interval.

Source: Jacot, Bottleneck Structure in Learned Features (2023), section 2: R(f; L) = L R0 + R1 + R2 / L + O(1 / L^2);
its section D.1 has a function for which this fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

# Terms of the fit; terms of the other fits in its band; minimum number of depths in a range.
TERMS, OTHERS, FEWEST = 3, (2, 4), 4
# Tolerances of a good fit: residuals relative to |R1| + |R2| / L + 1 at the smallest depth; changes of R2 in other
# windows relative to |R2| + 1.
ROUGH, DRIFT = 3e-4, 0.25

Band = tuple[float, float, float]
"""(the estimate, the lower end, the upper end)."""


@dataclass(frozen=True)
class Expansion:
    """The fit of one range of depths.

    Attributes:
        first, last: the depths of the range.
        R0: the integer that is not fitted.
        R1, R2: with their bands.
        rms: of the residuals.
        good: whether the expansion describes the range.
    """

    first: int
    last: int
    R0: int
    R1: Band
    R2: Band
    rms: float
    good: bool

    def summary(self) -> dict[str, object]:
        """Return the entries for JSON."""
        ends = {"from": self.first, "to": self.last, "R0": self.R0}
        return {**ends, "R1": list(self.R1), "R2": list(self.R2), "rms": self.rms, "good": self.good}


def expansions(
    depths: Sequence[int],
    costs: Sequence[float],
    dimensions: Sequence[int],
    spreads: Sequence[float] | None = None,
    proved: tuple[float | None, float | None] = (None, None),
) -> list[Expansion]:
    """Fit each range of at least four neighbouring depths of equal dimension.

    Args:
        depths: ascending.
        costs: the lowest known at each.
        dimensions: of each network.
        spreads: a guess of how far each cost may be above the minimum; None: 0.
        proved: ends of an interval for R1 if R0 = 1, None if there is none; they cut off the band.
    """
    allowances = spreads if spreads is not None else [0.0] * len(depths)
    fits = []
    for k, members in groupby(range(len(depths)), key=lambda place: dimensions[place]):
        places = [place for place in members if math.isfinite(costs[place])]
        if len(places) < FEWEST:
            continue
        at, above, spread = (np.array([values[place] for place in places]) for values in (depths, costs, allowances))
        fitted = _fitted(k, at.astype(np.float64), above.astype(np.float64), spread.astype(np.float64))
        fits.append(replace(fitted, R1=_cut(fitted.R1, *proved)) if k == 1 else fitted)
    return fits


def _fitted(
    k: int, L: Float[np.ndarray, " n"], costs: Float[np.ndarray, " n"], spread: Float[np.ndarray, " n"]
) -> Expansion:
    y = costs - k * L
    best = _solution(L, TERMS) @ y
    ends = np.array([best[:2], best[:2]])
    for map_of, mask in _maps(L):
        value = map_of @ y[mask]
        low = value - (np.maximum(map_of, 0.0) @ spread[mask])
        high = value + (np.maximum(-map_of, 0.0) @ spread[mask])
        ends = np.array([np.minimum(ends[0], low[:2]), np.maximum(ends[1], high[:2])])
    residuals = y - _powers(L, TERMS) @ best
    rms = float(np.sqrt(np.mean(residuals**2)))
    size = abs(best[0]) + abs(best[1]) / L[0] + 1.0
    good = rms <= ROUGH * size + float(spread.max()) and _agrees(L, y, float(best[1]), spread)
    R1, R2 = ((float(best[i]), float(ends[0, i]), float(ends[1, i])) for i in (0, 1))
    return Expansion(int(L[0]), int(L[-1]), k, R1, R2, rms, bool(good))


def _agrees(L: NDArray[np.float64], y: NDArray[np.float64], R2: float, spread: NDArray[np.float64]) -> bool:
    """Return True if both halves of the range (overlapping if short) give nearly the same R2."""
    half = max(FEWEST, math.ceil(0.6 * len(L)))
    if half >= len(L):
        return True
    estimates = []
    for part in (slice(None, half), slice(-half, None)):
        solution = _solution(L[part], TERMS)
        estimates.append((float(solution[1] @ y[part]), float(np.abs(solution[1]) @ spread[part])))
    (one, off), (other, further) = estimates
    return abs(one - other) <= DRIFT * (abs(R2) + 1.0) + off + further


def _maps(L: NDArray[np.float64]) -> Iterator[tuple[NDArray[np.float64], NDArray[np.bool_]]]:
    """Yield linear maps from costs to coefficients, each with the depths that it uses."""
    everything = np.ones(len(L), dtype=bool)
    for terms in (*OTHERS, TERMS):
        if terms <= len(L):
            yield _solution(L, terms), everything
    for left_out in range(len(L)):
        mask = everything.copy()
        mask[left_out] = False
        yield _solution(L[mask], min(TERMS, int(mask.sum()))), mask


def _powers(L: NDArray[np.float64], terms: int) -> NDArray[np.float64]:
    return L[:, None] ** -np.arange(terms)


def _solution(L: NDArray[np.float64], terms: int) -> NDArray[np.float64]:
    """Return the pseudo-inverse (terms, n); scaled columns keep the digits of large depths."""
    scales = L[0] ** np.arange(terms)
    return scales[:, None] * np.linalg.pinv(_powers(L, terms) * scales, rcond=1e-14)


def _cut(band: Band, low: float | None, high: float | None) -> Band:
    """Cut the band to the proved interval."""
    bottom, top = -math.inf if low is None else low, math.inf if high is None else high
    value, lower, upper = (min(max(end, bottom), top) for end in band)
    return value, lower, upper
