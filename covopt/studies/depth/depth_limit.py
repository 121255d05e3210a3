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
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.certify.spectral import CHARGED, spectral_bound
from covopt.model.problem import Problem
from covopt.model.weights import Weights, evaluate, preactivations

# Subtracted from the ends of R1 for rounding, relative to their terms.
SLACK = 2.0**-40
UNSURE = "targets differ by no more than what counts as an exact fit"


@dataclass(frozen=True)
class Limit:
    """The proved behaviour of the cost at large depth.

    Attributes:
        R0: lim R(L) / L; None if nothing is proved.
        reason: the reason, for readers.
        low, high: lim inf and lim sup of R(L) - L lie between them; None if no end is proved.
    """

    R0: int | None
    reason: str
    low: float | None = None
    high: float | None = None

    def summary(self) -> dict[str, object]:
        """Return the entries for JSON."""
        return {"R0": self.R0, "reason": self.reason, "R1": [self.low, self.high]}


def limit_of(problem: Problem, networks: Iterable[tuple[Problem, Weights]] = ()) -> Limit | None:
    """Return lim R(L) / L, and an interval for the remainder if it is 1; None with a penalty.

    Args:
        problem: an exact fit at any depth of 3 or more, X (N, n_0), Y (N, n_L); its depth does not matter.
        networks: that fit at some depth, each with its problem; those with a layer of one neuron bound R1.
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
        return 1, "the targets differ, which one dimension must carry through all layers, and with a bias one can"
    if _on_one_ray(Y):
        if float(Y.abs().max()) <= missed:
            return None, UNSURE
        return 1, "the targets are non-negative multiples of one vector, which one non-negative neuron a layer carries"
    if p.activation.slope != 0.0:
        return None, "leaky ReLU without bias: between 1 and 2, and no more is proved"
    if not _spread_in_angle(Y, missed):
        return None, UNSURE
    return 2, "two targets point in different directions, and without bias no one dimension carries both"


def _linear_rank(Y: Float[Tensor, "N m"], beta: float, missed: float) -> tuple[int | None, str]:
    """Return the rank of the linear map, unless the allowed misfit could change it."""
    values = torch.linalg.svdvals(Y - Y.mean(dim=0) if beta > 0.0 else Y)
    charged = missed * math.sqrt(Y.numel()) + CHARGED * max(Y.shape) * float(Y.norm())
    rank = int((values > charged).sum())
    tail = float(values[rank:].norm())
    means = " without their means" if beta > 0.0 else ""
    if tail > missed:
        return None, UNSURE
    return rank, f"linear networks: the rank of the targets{means}, which all layers must have"


def _on_one_ray(Y: Float[Tensor, "N m"]) -> bool:
    """Return True if y_i = c_i v with all c_i >= 0, in exact arithmetic."""
    rows = [[Fraction(value) for value in row] for row in Y.tolist()]
    first = next(row for row in rows if any(row))
    place = next(i for i, value in enumerate(first) if value)
    return all(
        row[place] * first[place] >= 0
        and all(row[place] * first[i] == row[i] * first[place] for i in range(len(first)))
        for row in rows
    )


def _spread_in_angle(Y: Float[Tensor, "N m"], missed: float) -> bool:
    """Return True if some target keeps an angle to the largest one within the allowed misfit."""
    sizes = Y.norm(dim=1)
    largest = int(sizes.argmax())
    moved = missed * math.sqrt(Y.shape[1])
    far = sizes > 2.0 * moved
    units = Y[far] / sizes[far, None]
    apart = (units - Y[largest] / sizes[largest]).norm(dim=1)
    # The chord of the angle; each target turns by at most asin(moved / size), at most pi / 2 times that.
    turns = 0.5 * math.pi * moved * (1.0 / sizes[far] + 1.0 / float(sizes[largest]))
    return bool((apart > turns + 2.0**-40).any()) if float(sizes[largest]) > 2.0 * moved else False
