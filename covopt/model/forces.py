"""The forces on hidden representations: attraction and repulsion (MATH.md section 2; [JGHG22, section 3]).

Layer l enters two terms of L_r only, |Z_l^T (Zs_{l-1}^T)^+|^2 and |Z_{l+1}^T (Zs_l^T)^+|^2. The derivative of the first
pulls the samples together, that of the second pushes them apart:

    attraction   2 (Ks_{l-1})^+ Z_l
    repulsion   -2 sigma'(Z_l) * [ (Ks_l)^+ K_{l+1} (Ks_l)^+ Zs_l ]   without its bias column

both (N, n_l), in units of lam; sigma' at 0 as in `Activation.derivative`. They are derivatives: Z_l moves against them.

**When they cancel.** At a local minimum their sum vanishes wherever Zs_l has full row rank N, after projection on
Im Zs_{l-1} and away from zeros of Z_l. With rank(Zs_l) < N moving Z_l alone is infeasible and a part remains, that of
directions in which Im Zs_l would turn away from Z_{l+1}.

Everything goes through the thin factors Zs_{l-1} and Zs_l: with A = (Ks_l)^+ Z_{l+1} and W = Z_{l+1}^T (Zs_l^T)^+ the
bracket is A W, and no (N, N) matrix is formed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from covopt.errors import ProblemError
from covopt.linalg.cholesky import factorize
from covopt.linalg.psd import RANK_RULE, RankRule
from covopt.model.hidden import Representations, layer_inputs
from covopt.model.problem import Problem
from covopt.model.weights import Weights, preactivations


@dataclass(frozen=True)
class LayerForces:
    """The two forces on hidden layer l, each (N, n_l), in units of lam.

    Attributes:
        layer: l, from 1 to L - 1.
        Z: Z_l.
        attraction: 2 (Ks_{l-1})^+ Z_l.
        repulsion: -2 sigma'(Z_l) * [(Ks_l)^+ K_{l+1} (Ks_l)^+ Zs_l] without its bias column.
        feasible_repulsion: P_{Im Zs_{l-1}} repulsion, the part that can move Z_l; the attraction lies in that range.
        full_rank: whether Zs_l has full row rank N, where the forces cancel at a local minimum.
    """

    layer: int
    Z: Float[Tensor, "N n"]
    attraction: Float[Tensor, "N n"]
    repulsion: Float[Tensor, "N n"]
    feasible_repulsion: Float[Tensor, "N n"]
    full_rank: bool

    @property
    def imbalance(self) -> float:
        """|attraction + feasible_repulsion|_F / |attraction|_F; 0 where they cancel."""
        size = float(self.attraction.norm())
        rest = float((self.attraction + self.feasible_repulsion).norm())
        return rest / size if size > 0.0 else rest


def layer_forces(problem: Problem, Z: Representations, layer: int, rule: RankRule = RANK_RULE) -> LayerForces:
    """The forces on Z_l, l = `layer` from 1 to L - 1, in O(N n min(N, n)).

    Raises:
        ProblemError: a layer that is no hidden one, or shapes of Z that do not fit.
    """
    if not 1 <= layer < problem.depth:
        raise ProblemError(f"Layer {layer} is no hidden layer; give one from 1 to {problem.depth - 1}.")
    inputs = layer_inputs(problem, Z)
    here, Zs = Z[layer - 1], inputs[layer]
    factor = factorize(Zs, rule)
    A, W = factor.solve_gram(Z[layer]), factor.solve(Z[layer]).mT
    if rule.tikhonov > 0.0:
        W = A.mT @ Zs
    below = factorize(inputs[layer - 1], rule)
    repulsion = -2.0 * problem.activation.derivative(here) * (A @ W)[:, :-1]
    return LayerForces(
        layer=layer,
        Z=here,
        attraction=2.0 * below.solve_gram(here),
        repulsion=repulsion,
        feasible_repulsion=below.project(repulsion),
        full_rank=int(factor.rank) == len(here),
    )


@dataclass(frozen=True)
class Forces:
    """Attraction 2 (Ks_{l-1})^+ Z_l and repulsion -2 sigma'(Z_l) * [(Ks_l)^+ K_{l+1} (Ks_l)^+ Zs_l] on hidden layer l.

    Source: [JGHG22, section 3].

    Attributes:
        attraction, repulsion: (N, n_l), derivatives of the loss in units of lam (Z_l moves against them).
        feasible_repulsion: its projection on Im Zs_{l-1}, where Z_l can move and the attraction lies (N, n_l).
        imbalance: |attraction + feasible_repulsion|_F / |attraction|_F; 0 at local minima where Zs_l has full row
            rank N and Z_l has no zeros.
        full_rank: whether it has.
    """

    attraction: NDArray[np.float64]
    repulsion: NDArray[np.float64]
    feasible_repulsion: NDArray[np.float64]
    imbalance: float
    full_rank: bool


def forces_on(problem: Problem, weights: Weights, layer: int) -> Forces:
    """Those on a hidden layer of a network, as NumPy arrays."""
    found = layer_forces(problem, preactivations(problem, weights), layer)
    return Forces(
        attraction=found.attraction.cpu().numpy(),
        repulsion=found.repulsion.cpu().numpy(),
        feasible_repulsion=found.feasible_repulsion.cpu().numpy(),
        imbalance=found.imbalance,
        full_rank=found.full_rank,
    )
