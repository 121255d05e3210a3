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
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from covopt.answer.uniqueness.uniqueness import UNIQUE, Uniqueness
from covopt.completely_positive import rational
from covopt.completely_positive.answer import CPRank
from covopt.completely_positive.completely_positive import cp_rank
from covopt.completely_positive.connected import Verdict
from covopt.completely_positive.ends import exact_rank
from covopt.model.biases import PENALISED
from covopt.model.problem import Problem

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


def upper_bounds(problem: Problem, layer: int | None = None) -> list[WidthBound]:
    """Return widths that suffice for the minimum over all widths, each with its reason."""
    N, last = problem.samples, problem.depth - 1
    half = N * (N + 1) // 2
    sharp = [problem.Y.shape[1]]
    for _ in range(last, (1 if layer is None else layer) - 1, -1):
        sharp.append(min(half, N * sharp[-1]))
    bounds = [
        WidthBound(N * (N + 1), "N (N + 1) [JGHG22, Prop. 7]"),
        WidthBound(max(sharp[1:]) if layer is None else sharp[-1], "min(N (N + 1) / 2, N n_{l+1}), basic solutions"),
    ]
    scalar = problem.X.shape[1] == problem.Y.shape[1] == 1
    if problem.depth == 2 and scalar and problem.biases == PENALISED:
        bounds.append(WidthBound(4 * N, "4 N, one input and one output [JGHG22, Prop. 15]"))
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
    unit = max((float(entry).as_integer_ratio()[1] for entry in M.flat), default=1)
    return rational.integers(M), unit


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
