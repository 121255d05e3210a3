"""The forces on hidden representations: attraction and repulsion.

See MATH.md section 2 and [JGHG22, section 3]. Layer l enters two terms of L_r only, |Z_l^T (Zs_{l-1}^T)^+|^2 and
|Z_{l+1}^T (Zs_l^T)^+|^2. The derivative of the first pulls the samples together, that of the second pushes them apart:

    attraction   2 (Ks_{l-1})^+ Z_l
    repulsion   -2 sigma'(Z_l) * [ (Ks_l)^+ K_{l+1} (Ks_l)^+ Zs_l ]   without its bias column

both (N, n_l), in units of lam; sigma' at 0 as in `Activation.derivative`. They are derivatives: Z_l moves against them.

**When they cancel.** At a local minimum their sum vanishes wherever Zs_l has full row rank N, after projection on
Im Zs_{l-1} and away from zeros of Z_l. With rank(Zs_l) < N moving Z_l alone is infeasible and a part remains, that of
directions in which Im Zs_l would turn away from Z_{l+1}.

Everything goes through the thin factors Zs_{l-1} and Zs_l: with A = (Ks_l)^+ Z_{l+1} and W = Z_{l+1}^T (Zs_l^T)^+ the
bracket is A W, and no (N, N) matrix is formed.

**Trained networks.** The singular values of a trained layer fall to zero without a gap, and the pseudo-inverse divides
by the smallest of them, where training has decided nothing: the forces are then noise. Tikhonov's (Ks + t I)^{-1} takes
the place of Ks^+, as in the paper's figure. `tikhonov_for` chooses t if the caller gives none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from covopt.linalg.cholesky import factorize
from covopt.linalg.psd import RANK_RULE, RankRule
from covopt.model.faces.setting import read_tikhonov
from covopt.model.problem import Problem
from covopt.model.weights import Weights, inputs_from, preactivations
from covopt.runtime.errors import ProblemError

Representations = Sequence[Float[Tensor, "N _"]]


@dataclass(frozen=True)
class Forces:
    """Attraction and repulsion on hidden layer l, of [JGHG22, section 3]; the module's text has their formulas.

    Attributes:
        attraction, repulsion: (N, n_l), derivatives of the loss in units of lam (Z_l moves against them).
        feasible_repulsion: its projection on Im Zs_{l-1}, where Z_l can move and the attraction lies (N, n_l).
        imbalance: |attraction + feasible_repulsion|_F / |attraction|_F; 0 at local minima where Zs_l has full row
            rank N, Z_l has no zeros and t is 0.
        full_rank: True if Zs_l has full row rank.
        tikhonov: t; above 0, (Ks + t I)^{-1} was used in place of Ks^+.
    """

    attraction: NDArray[np.float64]
    repulsion: NDArray[np.float64]
    feasible_repulsion: NDArray[np.float64]
    imbalance: float
    full_rank: bool
    tikhonov: float


def layer_forces(problem: Problem, Z: Representations, layer: int, rule: RankRule = RANK_RULE) -> Forces:
    """Return the forces on Z_l, l = `layer` from 1 to L - 1, in O(N n min(N, n))."""
    check_layer(problem, layer)
    inputs = inputs_from(problem, Z)
    z, Zs = Z[layer - 1], inputs[layer]
    factor = factorize(Zs, rule)
    A, W = factor.solve_gram(Z[layer]), factor.solve(Z[layer]).mT
    if rule.tikhonov > 0.0:
        W = A.mT @ Zs
    below = factorize(inputs[layer - 1], rule)
    attraction = 2.0 * below.solve_gram(z)
    repulsion = -2.0 * problem.activation.derivative(z) * (A @ W)[:, :-1]
    feasible = below.project(repulsion)
    size, remainder = float(attraction.norm()), float((attraction + feasible).norm())
    return Forces(
        attraction=attraction.cpu().numpy(),
        repulsion=repulsion.cpu().numpy(),
        feasible_repulsion=feasible.cpu().numpy(),
        imbalance=remainder / size if size > 0.0 else remainder,
        full_rank=int(factor.rank) == len(z),
        tikhonov=rule.tikhonov,
    )


def check_layer(problem: Problem, layer: int) -> None:
    """Refuse a layer that is no hidden one."""
    if not 1 <= layer < problem.depth:
        raise ProblemError(f"Layer {layer} is no hidden layer; give one from 1 to {problem.depth - 1}.")


def tikhonov_for(problem: Problem, Z: Representations, layer: int) -> float:
    """Return t for the forces on Z_l: 0, or 1e-4 of |Ks| if some singular value is small.

    Small is below 1e-3 of the largest. Layers of trained networks reach down to 1e-11. On digits 7, 8, 9 (N = 42,
    L = 3, Adam) the cosine of attraction and negative repulsion is 0.3 to 0.8 with this t, and -0.08 to 0.10 with
    t = 0. Where a solve has such values too, t moves the imbalance little.
    """
    inputs = inputs_from(problem, Z)
    small = False
    for Zs in inputs[layer - 1 : layer + 1]:
        s = torch.linalg.svdvals(Zs)
        small |= bool((RANK_RULE.keeps(s) & (s < 1e-3 * s[:1])).any())
    return 1e-4 * float(torch.linalg.matrix_norm(inputs[layer], 2)) ** 2 if small else 0.0


def forces_on(problem: Problem, weights: Weights, layer: int, tikhonov: float | None = None) -> Forces:
    """Return the forces on a hidden layer; t is by default `tikhonov_for`."""
    check_layer(problem, layer)
    Z = preactivations(problem, weights)
    rule = read_tikhonov(tikhonov_for(problem, Z, layer) if tikhonov is None else tikhonov)
    return layer_forces(problem, Z, layer, rule)
