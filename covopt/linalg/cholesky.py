"""Factors of full rank by Cholesky, and the choice between Cholesky and the singular values.

A factor Z (N, n) of full rank k = min(N, n) needs no singular values: with T = Z (n <= N) or T = Z^T, the Gram matrix
G = T^T T (k, k) = L L^T gives T^+ = G^{-1} T^T. Squaring loses half of the digits, so

* `factorize` uses Cholesky only if 1 / cond(G), which it estimates, is above the square root of the dtype's eps and far
  above what the rank rule would drop; otherwise `psd.thin` finds the rank;
* every solve is refined once with residuals formed with T itself, which restores the lost digits.

Source: Bjorck, Numerical Methods for Least Squares Problems, 2.4 and 6.6 (corrected semi-normal equations).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.linalg.psd import RANK_RULE, Factor, RankRule, thin


@dataclass(frozen=True)
class FullRankFactor:
    """A factor Z of full rank with L L^T = G, and the methods of `Factor`.

    Leading dimensions `*b` are a batch. With Tikhonov t > 0, `shifted` is the Cholesky factor of G + t I; else it is L.
    """

    Z: Float[Tensor, "*b N n"]
    L: Float[Tensor, "*b k k"]
    shifted: Float[Tensor, "*b k k"]
    rule: RankRule

    @property
    def tikhonov(self) -> float:
        """Return t, or 0 for the pseudo-inverse."""
        return self.rule.tikhonov

    @property
    def spans(self) -> bool:
        """Return True if Im Z is all of R^N."""
        return self.Z.shape[-1] >= self.Z.shape[-2]

    @property
    def rank(self) -> Int[Tensor, "*b"]:
        return torch.full(self.L.shape[:-2], self.L.shape[-1], dtype=torch.int64, device=self.L.device)

    def project(self, A: Float[Tensor, "*b N c"]) -> Float[Tensor, "*b N c"]:
        return A if self.spans else self.Z @ self._least_squares(A, self.L, 0.0)

    def reject(self, A: Float[Tensor, "*b N c"]) -> Float[Tensor, "*b N c"]:
        return A - self.project(A)

    def solve(self, A: Float[Tensor, "*b N c"]) -> Float[Tensor, "*b n c"]:
        if self.spans:
            return self._T @ self._gram(A, self.shifted, self.tikhonov)
        return self._least_squares(A, self.shifted, self.tikhonov)

    def solve_transposed(self, A: Float[Tensor, "*b n c"]) -> Float[Tensor, "*b N c"]:
        if self.spans:
            return self._least_squares(A, self.shifted, self.tikhonov)
        return self._T @ self._gram(A, self.shifted, self.tikhonov)

    def solve_gram(self, A: Float[Tensor, "*b N c"]) -> Float[Tensor, "*b N c"]:
        if self.spans:
            return self._gram(A, self.shifted, self.tikhonov)
        V = self._least_squares(A, self.L, 0.0)
        inside = self._T @ self._gram(V, self.shifted, self.tikhonov)
        return inside if self.tikhonov == 0.0 else inside + (A - self.Z @ V) / self.tikhonov

    @property
    def _T(self) -> Tensor:
        return self.Z.mT if self.spans else self.Z

    def _least_squares(self, A: Tensor, root: Tensor, t: float) -> Tensor:
        """Return (G + t I)^{-1} T^T A, refined once."""
        x = torch.cholesky_solve(self._T.mT @ A, root)
        residual = self._T.mT @ (A - self._T @ x)
        return x + torch.cholesky_solve(residual if t == 0.0 else residual - t * x, root)

    def _gram(self, C: Tensor, root: Tensor, t: float) -> Tensor:
        """Return (G + t I)^{-1} C, refined once."""
        y = torch.cholesky_solve(C, root)
        residual = C - self._T.mT @ (self._T @ y)
        return y + torch.cholesky_solve(residual if t == 0.0 else residual - t * y, root)


AnyFactor = Factor | FullRankFactor


def factorize(Z: Float[Tensor, "*b N n"], rule: RankRule = RANK_RULE) -> AnyFactor:
    """Decompose the factor Z of B = Z Z^T: by Cholesky if its rank is safely full, else by `thin`.

    A batch uses Cholesky only if it is safe for every member. Device and dtype are those of Z.
    """
    if Z.numel() == 0:
        return thin(Z, rule)
    L, failed = torch.linalg.cholesky_ex(lower_gram(Z if Z.shape[-1] >= Z.shape[-2] else Z.mT))
    if not _safe(L, failed, rule):
        return thin(Z, rule)
    if rule.tikhonov == 0.0:
        return FullRankFactor(Z, L, L, rule)
    eye = torch.eye(L.shape[-1], dtype=L.dtype, device=L.device)
    return FullRankFactor(Z, L, torch.linalg.cholesky_ex(L @ L.mT + rule.tikhonov * eye).L, rule)


def lower_gram(A: Float[Tensor, "*b k p"], block: int = 128) -> Float[Tensor, "*b k k"]:
    """Return A A^T on and below the diagonal blocks, all that Cholesky reads, for half the work."""
    k = A.shape[-2]
    G = A.new_zeros(*A.shape[:-1], k)
    for start in range(0, k, block):
        end = min(k, start + block)
        G[..., start:end, :end] = A[..., start:end, :] @ A[..., :end, :].mT
    return G


def solve_lower(A: Float[Tensor, "k k"], B: Float[Tensor, "k m"]) -> Float[Tensor, "k m"]:
    """Return A^-1 B from the lower triangle of A; NaN where rounding makes A indefinite."""
    factor, failed = torch.linalg.cholesky_ex(A)
    return torch.where(failed > 0, torch.nan, torch.cholesky_solve(B, factor))


def reciprocal_condition(L: Float[Tensor, "*b k k"], steps: int = 3, vectors: int = 4) -> Float[Tensor, "*b"]:
    """Estimate 1 / cond(L L^T) by power and inverse iterations, rarely more than a few times too large.

    Source: Dixon, Estimating extremal eigenvalues and condition numbers of matrices, SIAM J. Numer. Anal. 20 (1983).
    """
    start = torch.randn(L.shape[-1], vectors, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = y = start.to(L).expand(*L.shape[:-2], *start.shape)
    largest = smallest = L.new_ones(L.shape[:-2])
    for _ in range(steps):
        x, y = (v / v.norm(dim=-2, keepdim=True) for v in (x, y))
        x, y = L @ (L.mT @ x), torch.cholesky_solve(y, L)
        largest, smallest = (v.norm(dim=-2).amax(dim=-1) for v in (x, y))
    return 1.0 / (largest * smallest)


def _safe(L: Tensor, failed: Tensor, rule: RankRule) -> bool:
    """Return True if each G is accurate to half the digits and of full rank by the rank rule."""
    margin = 10.0  # the smallest singular value is an estimate: it must exceed the rank rule by this factor
    least = max((margin * rule.relative(L.dtype)) ** 2, torch.finfo(L.dtype).eps ** 0.5)
    # A failed member may hold NaN: every comparison with NaN is false.
    return bool(((failed == 0) & (reciprocal_condition(L) >= least)).all())
