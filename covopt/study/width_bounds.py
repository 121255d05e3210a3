"""What is proved of the width at which the plateau starts, without looking at any network (MATH.md section 6).

Let n_l be the least width of hidden layer l (the others as wide as they like; `layer=None`: all of them equal) at which
the minimum equals that over all widths. From above, in any network of any widths, from the top layer down:

* keep Z_{l+1}: it is sum_k c_k sigma(z_k) v_k^T with |w_k| = |v_k| = 1, c_k >= 0 and the cost 2 sum_k c_k, in a space
  of N n_{l+1} dimensions; a basic solution has at most so many c_k > 0;
* keep Ks_l: it is sum_k t_k sigma(z_k) sigma(z_k)^T + beta^2 11^T with t = 1, and Tr[K_l Ks_{l-1}^+] is linear in
  t >= 0; a basic solution has at most N(N+1)/2. With Ks_l, the range and the cost of layer l + 1 stay.

Neither touches the other layers: n_l <= min(N(N+1)/2, N n_{l+1}) for all l at once (docs/notes/2026-11-plateau.md).
N(N+1) is [JGHG22, Prop. 7], 4N for one input and one output [JGHG22, Prop. 15], and for inputs with orthonormal rows
(no bias, ReLU, interpolate) n_1 is the cp-rank of (Y Y^T)^(1/2), where that is completely positive [JGHG22, Prop. 14].
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from covopt.certify.completely_positive import CPRank, cp_rank
from covopt.certify.connected import Verdict
from covopt.certify.spectral import spectral_bound
from covopt.model.problem import Problem

# X X^T = c I up to this, relative: the rounding of the data.
ORTHOGONAL = 1e-12


@dataclass(frozen=True)
class WidthBound:
    """One proved end of an interval for a width, and why it holds."""

    width: int
    reason: str


def upper_bounds(problem: Problem, layer: int | None = None) -> list[WidthBound]:
    """Widths that suffice for the minimum over all widths, each with its reason."""
    N, last = problem.samples, problem.depth - 1
    half = N * (N + 1) // 2
    sharp = [problem.Y.shape[1]]
    for _ in range(last, (1 if layer is None else layer) - 1, -1):
        sharp.append(min(half, N * sharp[-1]))
    found = [
        WidthBound(N * (N + 1), "N (N + 1) [JGHG22, Prop. 7]"),
        WidthBound(max(sharp[1:]) if layer is None else sharp[-1], "min(N (N + 1) / 2, N n_{l+1}), basic solutions"),
    ]
    scalar = problem.X.shape[1] == problem.Y.shape[1] == 1
    if problem.depth == 2 and scalar:
        found.append(WidthBound(4 * N, "4 N, one input and one output [JGHG22, Prop. 15]"))
    return found


def narrow_bounds(problem: Problem, layer: int | None = None) -> list[float]:
    """A proved lower bound on the cost of every network of width n, for n = 0, 1, ..., n_L - 1.

    The outputs of such a network, less the bias, have rank at most n (spectral.py). In a layer below the last hidden
    one a neuron bounds no rank, and only n = 0 is known.
    """
    ranks = problem.Y.shape[1] if layer in (None, problem.depth - 1) else 1
    return [spectral_bound(problem, rank=n) for n in range(ranks)]


def covariance_rank(problem: Problem, time_limit: float, seed: int = 0) -> CPRank | None:
    """The cp-rank that is the width of the minimiser [JGHG22, Prop. 14]; None where the proposition does not apply."""
    plain = problem.depth == 2 and problem.beta == 0.0 and problem.activation.slope == 0.0
    if not (plain and problem.interpolates):
        return None
    gram = problem.X @ problem.X.T
    scale = float(gram.diagonal().mean())
    eye = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    if not float((gram - scale * eye).abs().max()) <= ORTHOGONAL * scale:
        return None
    U, s, _ = torch.linalg.svd(problem.Y, full_matrices=False)
    answer = cp_rank((U * s) @ U.T, time_limit=time_limit, seed=seed)
    return answer if answer.verdict is Verdict.POSITIVE else None


def needed(bounds: list[float], level: float) -> int:
    """The fewest neurons that the bounds of `narrow_bounds` allow a network of at most this cost."""
    return next((n for n, bound in enumerate(bounds) if not bound > level), len(bounds)) if math.isfinite(level) else 0
