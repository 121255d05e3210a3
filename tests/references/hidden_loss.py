"""The loss of hidden representations, differentiable in them, and gradients without autograd.

`trace_quotient` is f of `covopt.linalg.trace` with the gradients of that module's derivation.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from covopt.linalg.cholesky import factorize
from covopt.linalg.psd import RANK_RULE, RankRule
from covopt.linalg.trace import trace_gradients, trace_value
from covopt.model.hidden import Representations, _partials, layer_inputs, projected_loss
from covopt.model.problem import Problem


def trace_quotient(
    Z: Float[Tensor, "*b N n"], Zs: Float[Tensor, "*b N d"], rule: RankRule = RANK_RULE
) -> Float[Tensor, "*b"]:
    """Return f = Tr[Z Z^T (Zs Zs^T)^+] (with Tikhonov, f_t), differentiable once in both."""
    return _TraceQuotient.apply(Z, Zs, rule)  # type: ignore[return-value]


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
    """Return L_r(Z), differentiable in Z.

    The part of Z_l outside Im Zs_{l-1} costs nothing, so keep Z feasible. For `interpolate` the fit is 0 and Z_L = Y is
    the caller's constraint.
    """
    pairs = zip(Z, layer_inputs(problem, Z), strict=True)
    norm = torch.stack([trace_quotient(z, Zs, rule) for z, Zs in pairs]).sum()
    return problem.loss_at(Z[-1]) + problem.lam * norm


def gradient(problem: Problem, Z: Representations, rule: RankRule = RANK_RULE) -> list[Float[Tensor, "N _"]]:
    """The partial derivatives of L_r, shapes (N, n_l); each layer moves alone."""
    inputs = layer_inputs(problem, Z)
    return _partials(problem, Z, inputs, [factorize(Zs, rule) for Zs in inputs])


def feasible_gradient(problem: Problem, Z: Representations, rule: RankRule = RANK_RULE) -> list[Float[Tensor, "N _"]]:
    """The gradient of Z -> L_r(project(Z)) at a feasible Z, shapes (N, n_l); not for `interpolate`."""
    return projected_loss(problem, Z, rule).gradient
