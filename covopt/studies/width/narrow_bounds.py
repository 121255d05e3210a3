"""Lower bounds on the cost of networks of width n, from the rank and from the kinks.

Let S_n hold the outputs F of all networks of width n. For depth 2 and mse any dual point Lambda (|Lambda^T sigma(Xt w)|
<= 1 for all unit w) bounds the penalty, lam |W|^2 >= 2 lam <Lambda, F> - lam beta^2 |Lambda^T 1|^2, so that, completing
the square,

    L_n  >=  min over F in S_n of (1/N) |F - Y|_F^2 + 2 lam <Lambda, F> - lam beta^2 |Lambda^T 1|^2
          =  D(Lambda) + (1/N) dist(Y - N lam Lambda, S_n)^2.

With weights w of the samples, N lam Lambda_i / w_i stands for N lam Lambda_i, and distances are those of the rows times
w^(1/2), whose rank is no larger (spectral.py).

At the best Lambda, Y - N lam Lambda are the outputs of the best network of any width: the bound is the level, plus the
distance of narrow networks from those. Lambda = 0 needs no dual point and holds at every depth. The distance is bounded
by
* the rank: H F (F for beta = 0) has rank at most n, and the tail of the singular values is the distance (n neurons in
  the last hidden layer);
* the kinks: with one input F is piecewise linear in it, with at most prod_l (n_l + 1) pieces (certify/pieces.py).

With free biases only Lambda = 0 is used, whose distances hold for any price of the weights. With a free linear skip
there is no bound: outputs of width n then have any rank.

`interpolate` needs an F in S_n near Y itself: within the misfit that counts as exact. In addition, spectral.py bounds
the cost by the rank at every depth, and a layer of one neuron puts the outputs on a curve (certify/rank_one.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from covopt.answer.result import DualPoint
from covopt.certify.dual import dual_bound
from covopt.certify.pieces import least_squares
from covopt.certify.rank_one import rank_one
from covopt.certify.spectral import CHARGED, spectral_bound, weighted_rows
from covopt.model.biases import PENALISED
from covopt.model.problem import Problem
from covopt.runtime.errors import counted
from covopt.studies.width.width_bounds import WidthBound

# Subtracted from each bound for the rounding of its last operations, relative.
ROUNDING = 2.0**-46
ONE_NEURON = "a layer of one neuron puts all outputs on one curve [J23a, Prop. 10], which costs more"


@dataclass(frozen=True)
class NarrowBound:
    """A proved lower bound on the cost of every network of one width, and its reason."""

    lower: float
    reason: str


def narrow_bounds(
    problem: Problem, layer: int | None = None, dual: DualPoint | None = None, most: int = 1
) -> list[NarrowBound]:
    """Bound the cost at width n = 0, 1, ... from below, up to the last bound above the level.

    Args:
        problem: data, loss and penalty.
        layer: the layer of width n, the others of any width; None: all of them.
        dual: a dual point with the proved maximum of h there, for depth 2.
        most: maximum number of widths.
    """
    if problem.biases.skipped(problem.X).shape[1]:
        return []
    # In a layer below the last hidden one a neuron bounds no rank; without any neuron outputs are constant.
    N, mu, penalised = problem.samples, problem.ridge, problem.biases == PENALISED
    ranks = problem.Y.shape[1] if mu and layer in (None, problem.depth - 1) else 1
    level, points = 0.0, [torch.zeros_like(problem.Y)]
    if dual is not None and problem.depth == 2 and mu and penalised:
        bound = dual_bound(problem, torch.as_tensor(dual.Lambda).to(problem.Y), dual.maximum)
        level, points = bound.lower, [points[0], bound.Lambda]
    # For mse and interpolate the bound is `offset` plus the squared distance of such outputs to a target.
    distances = [_Distances(problem, Lambda, layer, most) for Lambda in points]
    offsets = [0.0, level]
    # A fit counts as exact up to this, |F - Y|_F^2.
    allowed = N * problem.Y.shape[1] * problem.allowed_misfit**2 * (1.0 + 2.0**-40)
    bounds: list[NarrowBound] = []
    for n in range(most):
        near: list[tuple[float, str]] = []
        if mu == 0.0:
            near += [(math.inf, why) for square, why in distances[0].squares(n) if square > allowed]
            near += [(rank_one(problem).bound(problem.depth), ONE_NEURON)] if n == 1 and penalised else []
        elif n < ranks and penalised:
            near.append((spectral_bound(problem, rank=n), _rank_reason(n)))
        if mu:
            for offset, distance in zip(offsets, distances, strict=False):
                near += [((offset + square / N) * (1.0 - ROUNDING), why) for square, why in distance.squares(n)]
        lower, reason = max(near, key=lambda pair: pair[0], default=(0.0, ""))
        if not lower > level * (1.0 + 2.0**-30):
            break
        bounds.append(NarrowBound(lower, reason))
    return bounds


def needed(narrow: Sequence[NarrowBound], cost: float) -> WidthBound:
    """Return the fewest neurons that a network of at most this cost needs, and the reason."""
    width = next((n for n, bound in enumerate(narrow) if not bound.lower > cost), len(narrow))
    if not math.isfinite(cost) or not width:
        return WidthBound(0, "nothing is proved")
    return WidthBound(width, narrow[width - 1].reason)


class _Distances:
    """Lower bounds on |F - (Y - N lam Lambda)|_F^2 over outputs F of narrow networks."""

    def __init__(self, problem: Problem, Lambda: Tensor, layer: int | None, most: int) -> None:
        Y, shift = problem.Y.double(), problem.lam * problem.inverse_shares[:, None] * Lambda.double()
        T = Y - shift
        # The rounding of the target.
        size = float(problem.weighted(Y).norm() + problem.weighted(shift).norm())
        self._moved = 2.0**-50 * size if bool(shift.any()) else 0.0
        tails = _tails(problem, T)
        self._tails = tails if layer in (None, problem.depth - 1) else tails[:1]
        self._depth, self._squares = problem.depth, None
        if problem.X.shape[1] == 1 and (layer is None or problem.depth == 2):
            pieces = min(_pieces(most, problem.depth), problem.samples)
            weight = None if problem.weight is None else problem.weight.double().cpu().numpy()
            self._squares = least_squares(problem.X[:, 0].double().cpu().numpy(), T.cpu().numpy(), pieces, weight)

    def squares(self, n: int) -> list[tuple[float, str]]:
        """Return lower bounds for networks of width n, each with its reason."""
        bounds = []
        if n < len(self._tails):
            bounds.append((self._of(float(self._tails[n])), _rank_reason(n)))
        if self._squares is not None:
            pieces = _pieces(n, self._depth)
            if pieces <= len(self._squares):
                text = f"with {counted(n, 'neuron')} a function of one input has at most"
                why = f"{text} {counted(pieces, 'linear piece')}, and costs more"
                bounds.append((self._of(self._squares[pieces - 1]), why))
        return bounds

    def _of(self, square: float) -> float:
        if not math.isfinite(square):  # overflow proves nothing
            return 0.0
        return max(0.0, math.sqrt(square) * (1.0 - 2.0**-50) - self._moved) ** 2


def _pieces(n: int, depth: int) -> int:
    """Return (n + 1)^(L - 1), the most linear pieces of a function of one input.

    A neuron is zero once at most on each piece of its input, so that a layer multiplies the pieces by n + 1.
    """
    return (n + 1) ** (depth - 1)


def _tails(problem: Problem, T: Tensor) -> Tensor:
    """Return lower bounds on min |F - T|_F^2 over outputs F of n = 0, 1, ... neurons.

    They are the tails of the squared singular values; those of H T if the bias adds a constant to the outputs.
    """
    centred = weighted_rows(problem, T, problem.beta > 0.0)
    # Rounding: of each singular value as in spectral.py, and of the centring relative to T itself.
    charged = CHARGED * (max(T.shape) * float(centred.norm()) + len(T) * float(problem.weighted(T).norm()))
    s = (torch.linalg.svdvals(centred) - charged).clamp_min(0.0)
    return s.square().flip(0).cumsum(0).flip(0) * (1.0 - ROUNDING)


def _rank_reason(n: int) -> str:
    return (
        f"width {n} gives outputs of rank {n}, which cost more"
        if n
        else "width 0 gives constant outputs, which cost more"
    )
