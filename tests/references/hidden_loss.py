"""The loss of hidden representations, differentiable in them, and gradients without autograd.

`trace_quotient` is f(Z, Zs) = Tr[K B^+], K = Z Z^T, B = Zs Zs^T. With A = B^+ Z, W = A^T Zs, P = B B^+, R = (I - P) Z,

    df = Tr[B^+ dK] - Tr[B^+ K B^+ dB] + 2 Tr[(I - P) K (B^+)^2 dB],

along a path of constant rank (Golub, Pereyra), because dB^+ = -B^+ dB B^+ + (B^+)^2 dB (I - P) + (I - P) dB (B^+)^2. So
grad_Z f = 2 A and grad_Zs f = -2 A W + 2 R (Zs^+ A)^T; with Tikhonov A = (B + t I)^{-1} Z and grad_Zs = -2 A A^T Zs.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from covopt.linalg.cholesky import AnyFactor, FullRankFactor, factorize
from covopt.linalg.psd import RANK_RULE, RankRule
from covopt.linalg.pseudo_inverse import trace_value
from covopt.model.forces import Representations
from covopt.model.problem import Problem
from covopt.model.weights import inputs_from


def trace_quotient(
    Z: Float[Tensor, "*b N n"], Zs: Float[Tensor, "*b N d"], rule: RankRule = RANK_RULE
) -> Float[Tensor, "*b"]:
    """Return f = Tr[Z Z^T (Zs Zs^T)^+] (with Tikhonov, f_t), differentiable once in both."""
    return _TraceQuotient.apply(Z, Zs, rule)  # type: ignore[return-value]


def trace_gradients(
    Z: Float[Tensor, "*b N n"], Zs: Float[Tensor, "*b N d"], factor: AnyFactor
) -> tuple[Float[Tensor, "*b N n"], Float[Tensor, "*b N d"]]:
    """Return (grad_Z f, grad_Zs f) from the decomposed Zs; of A and W^T = Zs^T A, what takes less work comes first."""
    if factor.tikhonov > 0.0 or (isinstance(factor, FullRankFactor) and factor.spans):
        A = factor.solve_gram(Z)
        return 2.0 * A, -2.0 * (A @ (Zs.mT @ A).mT)
    V = factor.solve(Z)
    A = factor.solve_transposed(V)
    return 2.0 * A, -2.0 * (A @ V.mT) + 2.0 * (factor.reject(Z) @ factor.solve(A).mT)


class _TraceQuotient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, Z: Tensor, Zs: Tensor, rule: RankRule) -> Tensor:
        ctx.factor = factorize(Zs, rule)
        ctx.save_for_backward(Z, Zs)
        return trace_value(Z, ctx.factor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        Z, Zs = ctx.saved_tensors
        by_Z, by_Zs = trace_gradients(Z, Zs, ctx.factor)
        scale = upstream[0][..., None, None]
        return scale * by_Z, scale * by_Zs, None


def objective(problem: Problem, Z: Representations, rule: RankRule = RANK_RULE) -> Float[Tensor, ""]:
    """Return L_r(Z), differentiable in Z, which has to be feasible; for `interpolate` Z_L = Y is the caller's."""
    norm = torch.stack([trace_quotient(z, Zs, rule) for z, Zs in zip(Z, inputs_from(problem, Z), strict=True)]).sum()
    return problem.loss_at(Z[-1]) + problem.lam * norm


def gradient(problem: Problem, Z: Representations, rule: RankRule = RANK_RULE) -> list[Float[Tensor, "N _"]]:
    """The partial derivatives of L_r, shapes (N, n_l); each layer moves alone.

    They are minus the sum of the forces of MATH.md section 2:

        dL_r/dZ_l = 2 lam A_l - 2 lam sigma'(Z_l) * [A_{l+1} W_{l+1} without its bias column],  l < L,
        dL_r/dZ_L = 2 lam A_L + grad C,

    A_l = (Ks_{l-1})^+ Z_l and W_l as in `to_weights`; off the feasible set with the range term of `linalg.trace`. Exact
    where the rank of each Zs_l is locally constant and Z_l has no zeros. For `interpolate` the last entry is the
    penalty's part alone, Z_L = Y being fixed.
    """
    parts = [trace_gradients(z, Zs, factorize(Zs, rule)) for z, Zs in zip(Z, inputs_from(problem, Z), strict=True)]
    gradients = [problem.lam * by_Z for by_Z, _ in parts]
    for layer in range(problem.depth - 1):
        slopes = problem.activation.derivative(Z[layer])
        gradients[layer] = gradients[layer] + problem.lam * slopes * parts[layer + 1][1][:, :-1]
    if not problem.interpolates:
        gradients[-1] = gradients[-1] + problem.gradient_at(Z[-1])
    return gradients


def to_weights(problem: Problem, Z: Representations, rule: RankRule = RANK_RULE) -> list[Float[Tensor, "_ _"]]:
    """Return [W_1, ..., W_L] of least norm with Z_l = Zs_{l-1} W_l^T.

    W_l = Z_l^T (Zs_{l-1}^T)^+, shape (n_l, n_{l-1} + 1). Off the feasible set layer l gives P_{Im Zs_{l-1}} Z_l on the
    given Zs_{l-1}, which is not Z_l: project first. With Tikhonov t > 0 these are ridge weights, which reproduce Z up
    to O(t) only.
    """
    return [factorize(Zs, rule).solve(z).mT for z, Zs in zip(Z, inputs_from(problem, Z), strict=True)]
