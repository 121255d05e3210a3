"""Prove lim R(L) / L of finite data, and an interval for the remainder if it is 1.

| | R0 | why |
|---|---|---|
| linear networks | rank of X^+ Y, without their means where there is a bias | Schatten norms of a product |
| bias, Y constant | 0 | the bias of the last layer alone |
| bias, else | 1 | a pair of samples from below; the inputs on a line from above |
| no bias, Y = 0; y_i = c_i v, c_i >= 0 | 0; 1 | the singular values from below; a homogeneous number from above |
| no bias, else, ReLU | 2 | the angle of two targets from below; two numbers from above |

An exact fit may miss targets by the allowed misfit; if that could move the data to another row of the table, R0 is
None. Leaky ReLU without bias has no proof of the last row here.

**R1**, where R0 = 1: R(L) - L >= L (r^(2/L) - 1) >= 2 log r with r the ratio of the spectral bound, the same at every
depth; and R(L') - L' <= |W|^2 - L for all L' >= L and any network of depth L that fits, if one hidden layer has one
neuron whose outputs are not negative: neurons of weight 1 pass it on.

Source: Jacot, Implicit Bias of Large Depth Networks (2023), Theorem 1, for functions; for finite data MATH.md, 5.

**Fit.** R(L) = k L + R1 + R2 / L + ... is fitted to the costs of a range of depths.

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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from covopt.certify.spectral import CHARGED, spectral_bound
from covopt.completely_positive.rational import integers
from covopt.model.problem import Problem
from covopt.model.weights import Weights, evaluate, preactivations

# Subtracted from the ends of R1 for rounding, relative to their terms.
SLACK = 2.0**-40
UNSURE = "the targets differ by no more than the misfit that counts as exact"


@dataclass(frozen=True)
class Limit:
    """The proved behaviour of the cost at large depth."""

    R0: int | None  # lim R(L) / L; None if nothing is proved
    reason: str  # the reason, for readers
    low: float | None = None  # lim inf R(L) - L is not below it; None if it is not proved
    high: float | None = None  # lim sup R(L) - L is not above it; None if it is not proved

    def summary(self) -> dict[str, object]:
        """Return the entries for JSON."""
        return {"R0": self.R0, "reason": self.reason, "R1": [self.low, self.high]}


def limit_of(problem: Problem, networks: Iterable[tuple[Problem, Weights]] = ()) -> Limit | None:
    """Return lim R(L) / L, and an interval for the remainder if it is 1; None with a penalty.

    The depth of the problem does not matter. Networks that fit at some depth, each with its problem, bound R1 if they
    have a layer of one neuron.
    """
    if problem.stated_lam is not None:
        return None
    R0, reason = _slope(problem.double())
    if R0 != 1 or problem.activation.is_linear:
        return Limit(R0, reason)
    ratio = spectral_bound(replace(problem, depth=2)) / 2.0
    low = None
    if 0.0 < ratio < math.inf:
        log = 2.0 * math.log(ratio)
        low = log - SLACK * (1.0 + abs(log))
    ends = [end for question, weights in networks if (end := _excess(question, weights)) is not None]
    return Limit(R0, reason, low, min(ends, default=None))


def _excess(problem: Problem, weights: Weights) -> float | None:
    """Return |W|^2 - L, rounded up, if the network bounds R1 as above; else None."""
    cost = evaluate(problem, weights)
    if not (problem.allows(cost.residual) and math.isfinite(cost.total)):
        return None
    hidden = preactivations(problem, weights)[:-1]
    # Outputs of a hidden ReLU layer are never negative; those of a leaky one may be.
    narrow = [Z.shape[1] == 1 and (problem.activation.slope == 0.0 or bool((Z >= 0.0).all())) for Z in hidden]
    return cost.norm * (1.0 + SLACK) - problem.depth if any(narrow) else None


def _slope(p: Problem) -> tuple[int | None, str]:
    Y, missed = p.Y.cpu(), p.allowed_misfit * (1.0 + SLACK)
    if not bool(Y.any()):
        return 0, "all targets are zero, and so is the network"
    if p.activation.is_linear:
        return _linear_rank(Y, p.beta, missed)
    if p.beta > 0.0:
        apart = float((Y.amax(dim=0) - Y.amin(dim=0)).max())
        if apart == 0.0:
            return 0, "the targets are constant, and the bias of the last layer alone gives a constant"
        if apart <= 2.0 * missed:
            return None, UNSURE
        return 1, "the targets differ, so at least one dimension must pass all layers, and with a bias one is enough"
    if _on_one_ray(Y):
        if float(Y.abs().max()) <= missed:
            return None, UNSURE
        return 1, "the targets are non-negative multiples of one vector, so one neuron in each layer is enough"
    if p.activation.slope != 0.0:
        return None, "for leaky ReLU without bias the limit is only known to be between 1 and 2"
    if not _spread_in_angle(Y, missed):
        return None, UNSURE
    return 2, "two targets point in different directions, and without bias one dimension cannot carry both"


def _linear_rank(Y: Float[Tensor, "N m"], beta: float, missed: float) -> tuple[int | None, str]:
    """Return the rank of the linear map, unless the allowed misfit could change it."""
    values = torch.linalg.svdvals(Y - Y.mean(dim=0) if beta > 0.0 else Y)
    charged = missed * math.sqrt(Y.numel()) + CHARGED * max(Y.shape) * float(Y.norm())
    rank = int((values > charged).sum())
    tail = float(values[rank:].norm())
    means = " (centred)" if beta > 0.0 else ""
    if tail > missed:
        return None, UNSURE
    return rank, f"every layer of a linear network must have the rank of the targets{means}"


def _on_one_ray(Y: Float[Tensor, "N m"]) -> bool:
    """Return True if y_i = c_i v with all c_i >= 0, in exact arithmetic."""
    rows = integers(Y.numpy())
    i, j = np.argwhere(rows)[0]
    along = rows[:, j] * rows[i, j]
    return bool((along >= 0).all() and (np.outer(rows[:, j], rows[i]) == rows * rows[i, j]).all())


def _spread_in_angle(Y: Float[Tensor, "N m"], missed: float) -> bool:
    """Return True if some target keeps an angle to the largest one within the allowed misfit."""
    sizes = Y.norm(dim=1)
    largest = int(sizes.argmax())
    moved = missed * math.sqrt(Y.shape[1])
    far = sizes > 2.0 * moved
    apart = (Y[far] / sizes[far, None] - Y[largest] / sizes[largest]).norm(dim=1)
    # The chord of the angle; each target turns by at most asin(moved / size), at most pi / 2 times that.
    turns = 0.5 * math.pi * moved * (1.0 / sizes[far] + 1.0 / float(sizes[largest]))
    return bool((apart > turns + 2.0**-40).any()) if float(sizes[largest]) > 2.0 * moved else False


# Terms of the fit; terms of the other fits in its band; minimum number of depths in a range.
TERMS, OTHERS, FEWEST = 3, (2, 4), 4
# Tolerances of a good fit: residuals relative to |R1| + |R2| / L + 1 at the smallest depth; changes of R2 in other
# windows relative to |R2| + 1.
ROUGH, DRIFT = 3e-4, 0.25

Band = tuple[float, float, float]
"""(the estimate, the lower end, the upper end)."""


@dataclass(frozen=True)
class Expansion:
    """The fit of one range of depths."""

    first: int  # the first depth of the range
    last: int  # the last one
    R0: int  # the integer that is not fitted
    R1: Band  # the estimate, with its band
    R2: Band  # the same
    rms: float  # the root mean square of the residuals
    good: bool  # True if the expansion describes the range

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
        depths, costs, dimensions: ascending; the lowest cost known at each, and the dimension of its network.
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
    rms = float(np.sqrt(np.mean((y - _powers(L, TERMS) @ best) ** 2)))
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
