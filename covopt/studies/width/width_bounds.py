"""Proved bounds on the start of the plateau that need no network (MATH.md section 6).

Let n_l be the smallest width of hidden layer l (the others of any width; `layer=None`: all of them equal) at which the
minimum equals that over all widths. From above, in any network of any widths, from the top layer down:

* keep Z_{l+1}: it is sum_k c_k sigma(z_k) v_k^T with |w_k| = |v_k| = 1, c_k >= 0 and the cost 2 sum_k c_k, in a space
  of N n_{l+1} dimensions; a basic solution has at most that many c_k > 0;
* keep Ks_l: it is sum_k t_k sigma(z_k) sigma(z_k)^T + beta^2 11^T with t = 1, and Tr[K_l Ks_{l-1}^+] is linear in
  t >= 0; a basic solution has at most N(N+1)/2. With Ks_l, the range and the cost of layer l + 1 stay.

Neither touches the other layers: n_l <= min(N(N+1)/2, N n_{l+1}) for all l at once (docs/notes/2026-11-plateau.md).
N(N+1) is [JGHG22, Prop. 7, by Lemma 10], 4N for one input and one output [JGHG22, Prop. 15], and for inputs with
orthonormal rows (no bias, ReLU, interpolate) n_1 is the cp-rank of (Y Y^T)^(1/2), if that is completely positive
[JGHG22, Prop. 14].

**Narrow networks.** The rank and the kinks bound the cost of networks of width n from below.

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
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from covopt.answer.result import DualPoint
from covopt.answer.uniqueness.uniqueness import UNIQUE, Uniqueness
from covopt.certify.dual import dual_bound
from covopt.certify.pieces import least_squares
from covopt.certify.rank_one import rank_one
from covopt.certify.spectral import CHARGED, spectral_bound, weighted_rows
from covopt.completely_positive import rational
from covopt.completely_positive.answer import CPRank
from covopt.completely_positive.completely_positive import cp_rank
from covopt.completely_positive.connected import Verdict
from covopt.completely_positive.ends import exact_rank
from covopt.model.biases import PENALISED
from covopt.model.loss import mean_loss
from covopt.model.problem import Problem
from covopt.runtime.errors import counted

SAMPLES = 200
"""Maximum number of samples for a cp-rank."""
ROUNDED = 2.0**-40
"""Above the rounding of a computed root, and below the tolerance of `cp_rank`, relative. The root is multiplied by 1 +
this as well, so that rounded numbers with few digits do not count as exact data."""


@dataclass(frozen=True)
class WidthBound:
    """One proved end of an interval for a width, and its reason."""

    width: int
    reason: str


BASIC = "min(N (N + 1) / 2, N n) neurons are enough for N samples and n neurons in the next layer"


def upper_bounds(problem: Problem, layer: int | None = None) -> list[WidthBound]:
    """Return widths that suffice for the minimum over all widths, each with its reason."""
    N, last = problem.samples, problem.depth - 1
    half = N * (N + 1) // 2
    sharp = [problem.Y.shape[1]]
    for _ in range(last, (1 if layer is None else layer) - 1, -1):
        sharp.append(min(half, N * sharp[-1]))
    bounds = [
        WidthBound(N * (N + 1), "N (N + 1) neurons are always enough for N samples [JGHG22, Prop. 7]"),
        WidthBound(max(sharp[1:]) if layer is None else sharp[-1], BASIC),
    ]
    if not mean_loss(problem.smooth_loss, 0.0 * problem.Y, problem.Y, problem.weight):
        bounds.append(WidthBound(0, "without neurons the cost is 0, and no cost is below 0"))
    scalar = problem.X.shape[1] == problem.Y.shape[1] == 1
    if problem.depth == 2 and scalar and problem.biases == PENALISED:
        bounds.append(WidthBound(4 * N, "4 N neurons are enough for one input and one output [JGHG22, Prop. 15]"))
    return bounds


def of_optima(optima: Uniqueness) -> tuple[list[WidthBound], list[WidthBound]]:
    """Bound the width of the narrowest optimum of two layers, below and above, by the set of all optima."""
    if optima.fewest is None:
        return [], []
    only = "the optimum, which is the only one" if optima.verdict == UNIQUE else "the narrowest optimum"
    low, high = (WidthBound(width, f"neurons of {only}") for width in optima.fewest)
    return [low], [high]


def of_rank(rank: CPRank | None) -> tuple[list[WidthBound], list[WidthBound]]:
    """Bound the minimiser's width, below and above, by its cp-rank."""
    if rank is None:
        return [], []
    unique = f"cp-rank of the unique minimiser [JGHG22, Prop. 14]: {rank.lower_reason}"
    minimiser = f"cp-rank of the minimiser [JGHG22, Prop. 14]: {rank.upper_reason}"
    lower = [] if rank.lower is None else [WidthBound(rank.lower, unique)]
    return lower, [] if rank.upper is None else [WidthBound(rank.upper, minimiser)]


def covariance_rank(problem: Problem, time_limit: float, seed: int = 0) -> CPRank | None:
    """Bound the cp-rank that is the minimiser's width [JGHG22, Prop. 14], if that applies.

    The rows of X must be orthogonal and of one length in exact arithmetic. The upper end is None unless the root of
    Y Y^T is known without rounding (`_root`) and the answer is exact.
    """
    plain = problem.depth == 2 and problem.beta == 0.0 and problem.activation.slope == 0.0
    if not (plain and problem.ridge == 0.0 and problem.samples <= SAMPLES):
        return None
    X, Y = problem.X.double().cpu().numpy(), problem.Y.double().cpu().numpy()
    rows, _ = _fractions(X)
    gram = rows @ rows.T
    if not (gram == gram[0, 0] * np.eye(len(gram), dtype=object)).all():
        return None
    root, is_exact = _root(X, Y)
    answer = cp_rank(root, time_limit=time_limit, seed=seed)
    if answer.verdict is not Verdict.POSITIVE:
        return None
    return answer if is_exact and answer.exact else replace(answer, exact=False, upper=None, upper_reason=None)


def _fractions(M: NDArray[np.float64]) -> tuple[NDArray[np.object_], int]:
    """Return (whole numbers, q) whose quotient is M."""
    return rational.integers(M), max((float(entry).as_integer_ratio()[1] for entry in M.flat), default=1)


def _root(X: NDArray[np.float64], Y: NDArray[np.float64]) -> tuple[NDArray[np.float64], bool]:
    """Return (A with the cp-rank of (Y Y^T)^(1/2), whether A is exact).

    * Y >= 0, at most one entry in a row not zero: the columns y are orthogonal, (Y Y^T)^(1/2) is the sum of the
      y y^T / |y|, and scaling rows and columns, which leaves the cp-rank, makes them blocks of ones.
    * X square and Y X^T symmetric and positive semi-definite: the root is a multiple of Y X^T.
    * Otherwise it is computed. It is zero between rows that no chain of rows with Y Y^T != 0 joins; no other zero is
      certain, and a tiny entry replaces each possible one.
    """
    pattern = (Y > 0.0).astype(np.float64)
    if (Y >= 0.0).all() and (pattern.sum(axis=1) <= 1).all():
        return pattern @ pattern.T, True
    if X.shape == Y.shape == (len(X), len(X)):
        product, (x, unit_x), (y, unit_y) = Y @ X.T, _fractions(X), _fractions(Y)
        z, unit = _fractions(product)
        exact = bool((z * (unit_x * unit_y) == y @ x.T * unit).all() and (product == product.T).all())
        if exact and (rational.is_definite(product) or exact_rank(product) is not None):
            return product, True
    U, s, _ = np.linalg.svd(Y, full_matrices=False)
    A = (U * s) @ U.T * (1.0 + ROUNDED)
    y, _ = _fractions(Y)
    _, component = connected_components(y @ y.T != 0)
    joined = component[:, None] == component
    small = ROUNDED * float(np.abs(A).max(initial=0.0))
    return np.where(joined, np.where(np.abs(A) <= small, small, (A + A.T) / 2.0), 0.0), False


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
