"""Differentiable pseudo-inverses: of a thin factor times a right-hand side, and of a dense matrix.

**Least squares.** V = Zs^+ Z (d, n) is the matrix of least norm among those that minimise |Z - Zs V|. With R = Z - Zs V
and Q = Zs^+ Zs, as long as the rank of Zs is constant (Golub, Pereyra),

    dV = Zs^+ dZ - Zs^+ dZs V + Zs^+ (Zs^+)^T dZs^T R + (I - Q) dZs^T (Zs^+)^T V.

With Tikhonov t > 0, V = (Zs^T Zs + t I)^{-1} Zs^T Z minimises |V|^2 + |Z - Zs V|^2 / t, and with M the inverse

    dV = M Zs^T dZ - M Zs^T dZs V + M dZs^T R.

**Dense matrices.** For B positive semi-definite of constant rank and P = B B^+,

    dB^+ = -B^+ dB B^+ + (B^+)^2 dB (I - P) + (I - P) dB (B^+)^2.

**Traces.** For K = Z Z^T and B = Zs Zs^T, given by thin factors, Tr[K B^+] = |Z^T (Zs^T)^+|_F^2.

Source: [JGHG22, Prop. 1 and section 3]; Golub, Pereyra, The differentiation of pseudo-inverses and nonlinear least
squares problems whose variables separate, SIAM J. Numer. Anal. 10 (1973).
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from covopt.linalg.cholesky import AnyFactor, factorize
from covopt.linalg.psd import RANK_RULE, RankRule


def least_squares(
    Zs: Float[Tensor, "... N d"], Z: Float[Tensor, "... N n"], rule: RankRule = RANK_RULE
) -> Float[Tensor, "... d n"]:
    """Return V = Zs^+ Z, or the ridge solution with Tikhonov.

    Differentiable (once) in both arguments. Leading dimensions are a batch; Z may have more of them than Zs.
    """
    return _LeastSquares.apply(Zs, Z, rule)  # type: ignore[return-value]


def pseudo_inverse(
    B: Float[Tensor, "*b N N"], size: Float[Tensor, "*b"], tikhonov: float = 0.0
) -> Float[Tensor, "*b N N"]:
    """Return B^+, or (B + t I)^{-1} with Tikhonov t > 0, for a positive semi-definite B.

    Differentiable (once) in B. B was computed from numbers of magnitude `size`: eigenvalues up to 16 N eps of it are
    rounding.
    """
    if tikhonov > 0.0:
        return torch.linalg.inv(B + tikhonov * torch.eye(B.shape[-1], dtype=B.dtype, device=B.device))
    return _PseudoInverse.apply(B, size)  # type: ignore[return-value]


def eigenvectors_of_range(
    B: Float[Tensor, "*b N N"], size: Float[Tensor, "*b"]
) -> tuple[Float[Tensor, "*b N"], Float[Tensor, "*b N N"]]:
    """Return eigenvalues and eigenvectors (columns) of B, 0 where the eigenvalue is rounding."""
    values, U = torch.linalg.eigh((B + B.mT) / 2.0)
    noise = 16.0 * B.shape[-1] * torch.finfo(B.dtype).eps * torch.maximum(size, values[..., -1])
    significant = values > noise[..., None]
    return torch.where(significant, values, 0.0), U * significant[..., None, :]


class _LeastSquares(torch.autograd.Function):
    """V with the gradients of this module's derivation."""

    @staticmethod
    def forward(ctx: Any, Zs: Tensor, Z: Tensor, rule: RankRule) -> Tensor:
        factor = factorize(Zs, rule)
        V = factor.solve(Z)
        ctx.save_for_backward(Zs, Z, V)
        ctx.factor = factor
        return V

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, Tensor, None]:  # type: ignore[override]
        (Zs, Z, V), factor, G = ctx.saved_tensors, ctx.factor, upstream[0]
        by_Z = factor.solve_transposed(G)
        if not ctx.needs_input_grad[0]:
            return None, by_Z, None
        R = Z - Zs @ V
        if factor.tikhonov > 0.0:
            by_Zs = R @ ((G - Zs.mT @ by_Z) / factor.tikhonov).mT
        else:
            outside = G - Zs.mT @ by_Z  # (I - Q) G
            by_Zs = R @ factor.solve(by_Z).mT + factor.solve_transposed(V) @ outside.mT
        by_Zs = by_Zs - by_Z @ V.mT
        return by_Zs.sum_to_size(Zs.shape), by_Z, None


class _PseudoInverse(torch.autograd.Function):
    """B^+ with the gradient of this module's derivation."""

    @staticmethod
    def forward(ctx: Any, B: Tensor, size: Tensor) -> Tensor:
        values, U = eigenvectors_of_range(B, size)
        inverse = (U / torch.where(values > 0.0, values, 1.0)[..., None, :]) @ U.mT
        ctx.save_for_backward(inverse, U @ U.mT)
        return inverse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        inverse, P = ctx.saved_tensors
        G = (upstream[0] + upstream[0].mT) / 2.0
        half = inverse @ (inverse @ (G - G @ P))
        return half + half.mT - inverse @ G @ inverse, None


def trace_value(Z: Float[Tensor, "*b N n"], factor: AnyFactor) -> Float[Tensor, "*b"]:
    """Return Tr[K B^+] for an already decomposed Zs; with Tikhonov, Tr[K (B + t I)^{-1}]."""
    if factor.tikhonov == 0.0:
        return factor.solve(Z).square().sum(dim=(-2, -1))
    return (Z * factor.solve_gram(Z)).sum(dim=(-2, -1))
