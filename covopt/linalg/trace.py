"""Tr[K B^+] for K = Z Z^T and B = Zs Zs^T given by thin factors, and its adjoint.

Write A = B^+ Z (N, n), W = Z^T (Zs^T)^+ = A^T Zs (n, d), P = B B^+ the projection on Im B, R = (I - P) Z. Then

    f(Z, Zs) = Tr[K B^+] = |Z^T (Zs^T)^+|_F^2 = |W|_F^2.

**Derivation of the adjoint.** Along a path on which the rank of B is constant, B^+ is differentiable and (Golub,
Pereyra)

    dB^+ = -B^+ dB B^+  +  (B^+)^2 dB (I - P)  +  (I - P) dB (B^+)^2.

The last two terms are there because the range of B, and with it P, turns. Hence

    df = Tr[B^+ dK] - Tr[B^+ K B^+ dB] + 2 Tr[(I - P) K (B^+)^2 dB],

and, with dK = dZ Z^T + Z dZ^T and dB = dZs Zs^T + Zs dZs^T,

    grad_Z f = 2 A,      grad_Zs f = -2 A W + 2 R (Zs^+ A)^T.

**What holds.**
* Range condition Im Z in Im Zs: R = 0. The turning of the range costs nothing to first order (f is that of the
  projection P Z, and Z leaves it at first order, so its square at second order), and grad_Z = 2 A, grad_Zs = -2 A W.
* Without the range condition, the term with R is part of the gradient of f; f ignores the part of Z outside Im Zs.
* Every direction dZs keeps the rank when Zs has full rank min(N, d). Otherwise the formulas are exact along directions
  with (I - P) dZs (I - Zs^+ Zs) = 0 (the tangent space of the matrices of that rank, in which grad_Zs lies); along a
  direction that raises the rank f itself jumps in general (upwards under the range condition), because what had been
  zero rows of Zs become conditions that W must meet exactly.
* Tikhonov t > 0: f_t = Tr[K (B + t I)^{-1}] is smooth everywhere; with A = (B + t I)^{-1} Z its gradients are
  grad_Z = 2 A and grad_Zs = -2 A A^T Zs.

Source: [JGHG22, Prop. 1 and section 3]; Golub, Pereyra, The differentiation of pseudo-inverses and nonlinear least
squares problems whose variables separate, SIAM J. Numer. Anal. 10 (1973).
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from covopt.linalg.cholesky import AnyFactor


def trace_value(Z: Float[Tensor, "*b N n"], factor: AnyFactor) -> Float[Tensor, "*b"]:
    """Return f for an already decomposed Zs."""
    if factor.tikhonov == 0.0:
        return factor.solve(Z).square().sum(dim=(-2, -1))
    return (Z * factor.solve_gram(Z)).sum(dim=(-2, -1))


def trace_gradients(
    Z: Float[Tensor, "*b N n"], Zs: Float[Tensor, "*b N d"], factor: AnyFactor
) -> tuple[Float[Tensor, "*b N n"], Float[Tensor, "*b N d"]]:
    """Return (grad_Z f, grad_Zs f) = (2 A, -2 A W + 2 R (Zs^+ A)^T) from the decomposed Zs."""
    # A = B^+ Z and W^T = Zs^T A = Zs^+ Z; the one that takes less work is computed first.
    if factor.tikhonov > 0.0 or factor.spans:
        A = factor.solve_gram(Z)
        return 2.0 * A, -2.0 * (A @ (Zs.mT @ A).mT)
    V = factor.solve(Z)
    A = factor.solve_transposed(V)
    by_Zs = -2.0 * (A @ V.mT)
    return 2.0 * A, by_Zs + 2.0 * (factor.reject(Z) @ factor.solve(A).mT)
