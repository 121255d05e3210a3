"""The third face of the loss: covariances (MATH.md section 3; [JGHG22, Prop. 3]).

    L_k(K, Z_L) = C(Z_L) + lam sum_{l=1}^{L} Tr[K_l (Ks_{l-1})^+],    K_L = Z_L Z_L^T,  Ks_0 = Zs_0 Zs_0^T,

over pairs (K_l, Ks_l), l = 1..L-1, in the cone S with Im K_l inside Im Ks_{l-1}. The pairs here are dense (N, N):
whoever can should stay with thin factors (`model.hidden`), which also keep twice the digits. A pair comes back to
representations by its atoms, not from the dense matrices: `references.atoms.AtomSet.to_representation`, then
`hidden.to_weights`.

The three faces agree, L(W) = L_r(Z) = L_k(K, Z_L), at weights of the form W_l = Z_l^T (Zs_{l-1}^T)^+.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.cholesky import AnyFactor, factorize
from covopt.linalg.psd import RANK_RULE, RankRule
from covopt.linalg.trace import trace_value
from covopt.model.hidden import Representations, check_representations
from covopt.model.problem import Problem, with_bias
from covopt.runtime.errors import ProblemError


class Pair(NamedTuple):
    """(K, Ks) of one hidden layer, or the derivatives of the loss in them; both (N, N), symmetric."""

    K: Float[Tensor, "N N"]
    Ks: Float[Tensor, "N N"]


def from_representations(problem: Problem, Z: Representations) -> tuple[list[Pair], Float[Tensor, "N nL"]]:
    """[(K_1, Ks_1), ..., (K_{L-1}, Ks_{L-1})] and Z_L; K_l = Z_l Z_l^T, Ks_l = Zs_l Zs_l^T.

    Raises:
        ProblemError: when the shapes of Z do not fit the problem.
    """
    check_representations(problem, Z)
    pairs = []
    for z in Z[:-1]:
        Zs = with_bias(problem.activation(z), problem.beta)
        pairs.append(Pair(z @ z.mT, Zs @ Zs.mT))
    return pairs, Z[-1]


def objective(
    problem: Problem, pairs: Sequence[Pair], ZL: Float[Tensor, "N nL"], rule: RankRule = RANK_RULE
) -> Float[Tensor, ""]:
    """L_k(K, Z_L). For `interpolate` the fit is 0 and Z_L = Y is the caller's constraint.

    Raises:
        ProblemError: unless there is one (N, N) pair for each hidden layer.
    """
    factors = _layer_factors(problem, pairs, rule)
    eye = _identity(problem)
    traces = [(pair.K * factor.solve_gram(eye)).sum() for pair, factor in zip(pairs, factors[:-1], strict=True)]
    norm = torch.stack([*traces, trace_value(ZL, factors[-1])]).sum()
    return problem.loss_at(ZL) + problem.lam * norm


def gradient(
    problem: Problem, pairs: Sequence[Pair], ZL: Float[Tensor, "N nL"], rule: RankRule = RANK_RULE
) -> tuple[list[Pair], Float[Tensor, "N nL"]]:
    """(dL_k/dK_l, dL_k/dKs_l), l = 1..L-1, symmetric, and dL_k/dZ_L, where Im K_l in Im Ks_{l-1} for every layer.

        dL_k/dK_l  = lam (Ks_{l-1})^+
        dL_k/dKs_l = -lam (Ks_l)^+ K_{l+1} (Ks_l)^+
        dL_k/dZ_L  = grad C + 2 lam (Ks_{L-1})^+ Z_L

    In Ks_l this holds along directions D that keep its rank, and from one side along those that raise it without
    coupling, (I - P) D P = 0 with P the projection on Im Ks_l. Any other positive semi-definite D acts through its
    Schur complement P D P - P D Q (Q D Q)^+ Q D P, Q = I - P, alone (derived), so the formula then promises too much
    descent.

    For `interpolate` the last entry is the penalty's part alone, Z_L = Y being fixed.
    """
    factors = _layer_factors(problem, pairs, rule)
    inverses = [factor.solve_gram(_identity(problem)) for factor in factors]
    above = [pair.K for pair in pairs[1:]] + [ZL @ ZL.mT]
    gradients = [
        Pair(problem.lam * inverses[layer], -problem.lam * inverses[layer + 1] @ K @ inverses[layer + 1])
        for layer, K in enumerate(above)
    ]
    by_ZL = 2.0 * problem.lam * factors[-1].solve_gram(ZL)
    if not problem.interpolates:
        by_ZL = by_ZL + problem.gradient_at(ZL)
    return gradients, by_ZL


def infeasibility(
    problem: Problem, pairs: Sequence[Pair], ZL: Float[Tensor, "N nL"], rule: RankRule = RANK_RULE
) -> float:
    """max_l |(I - P_{Im Ks_{l-1}}) K_l|_F / |K_l|_F over the layers (Z_L itself for the last), at most 1.

    Membership of the pairs in S is not judged here: an `AtomSet` proves it.
    """
    worst = 0.0
    images = [pair.K for pair in pairs] + [ZL]
    for image, factor in zip(images, _layer_factors(problem, pairs, rule), strict=True):
        size = float(image.norm())
        if size > 0.0:
            worst = max(worst, float(factor.reject(image).norm()) / size)
    return worst


def _layer_factors(problem: Problem, pairs: Sequence[Pair], rule: RankRule) -> list[AnyFactor]:
    """Ks_0 ... Ks_{L-1} decomposed; Ks_0 by its thin factor."""
    if len(pairs) != problem.depth - 1:
        raise ProblemError(
            f"There are {len(pairs)} pairs (K, Ks) and {problem.depth - 1} hidden layers; give one pair for each."
        )
    square = (problem.samples, problem.samples)
    for layer, pair in enumerate(pairs, start=1):
        if tuple(pair.K.shape) != square or tuple(pair.Ks.shape) != square:
            raise ProblemError(
                f"The covariances of layer {layer} have shapes {tuple(pair.K.shape)} and {tuple(pair.Ks.shape)}; both"
                f" must be {square}."
            )
    return [factorize(problem.Xt, rule)] + [factorize(root(pair.Ks), rule) for pair in pairs]


def root(B: Float[Tensor, "N N"]) -> Float[Tensor, "N N"]:
    """A factor of a dense positive semi-definite matrix, whose eigenvalues up to 16 N eps are rounding and count as 0.

    The root of that is far above the rank rule's tolerance: pass factors where you have them.
    """
    values, U = torch.linalg.eigh((B + B.mT) / 2.0)
    rounding = 16.0 * len(B) * torch.finfo(B.dtype).eps * values.max()
    return U * torch.where(values > rounding, values, 0.0).sqrt()


def _identity(problem: Problem) -> Float[Tensor, "N N"]:
    """I, to make B^+ I dense: the caller asked for covariances."""
    return torch.eye(problem.samples, dtype=problem.X.dtype, device=problem.X.device)
