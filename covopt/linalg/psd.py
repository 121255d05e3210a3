"""The rule for numerical rank, and ranges, projections and pseudo-inverses that follow it.

A positive semi-definite matrix B (N, N) is given by a thin factor Z (N, n) with B = Z Z^T. Everything uses the thin
singular value decomposition Z = U diag(s) V^T, O(N n min(N, n)) operations; no (N, N) matrix is formed. A singular
value that `RankRule` does not keep counts as zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from covopt.runtime.errors import ProblemError


@dataclass(frozen=True)
class RankRule:
    """The rule for which singular values count, and whether a Tikhonov inverse is used."""

    single = 1e-5  # the same as `double`, in float32

    double: float = 1e-10  # in float64, singular values of a factor above this part of the largest count
    # t >= 0; with t > 0, (B + t I)^{-1} replaces B^+, and inverses use no rank. Ranges and projections still follow
    # the rank rule
    tikhonov: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.double < 1.0:
            raise ProblemError("The rank tolerance is relative; give a number from 0 to below 1.")
        if not 0.0 <= self.tikhonov < float("inf"):
            raise ProblemError(f"tikhonov is {self.tikhonov:g}; give 0 for the pseudo-inverse, or a number above 0.")

    def relative(self, dtype: torch.dtype) -> float:
        """Return the tolerance relative to the largest singular value."""
        return self.single if dtype == torch.float32 else self.double

    def keeps(self, s: Float[Tensor, "*b k"]) -> Bool[Tensor, "*b k"]:
        """Return True for the singular values of a factor that count as non-zero."""
        zero = s.new_zeros((*s.shape[:-1], 1))  # the maximum of no values
        return s > self.relative(s.dtype) * torch.cat([zero, s], dim=-1).amax(dim=-1, keepdim=True)


RANK_RULE = RankRule()


@dataclass(frozen=True)
class Factor:
    """A factor Z = U diag(s) V^T of B = Z Z^T, decomposed; dimensions `*b` are a batch.

    `significant` is 1 where the rule keeps s, else 0, and `inverse` is 1/s there, else 0 (with Tikhonov t:
    s / (s^2 + t) everywhere).

    Source: Golub, Van Loan, Matrix Computations, 5.5.
    """

    U: Float[Tensor, "*b N k"]
    s: Float[Tensor, "*b k"]
    V: Float[Tensor, "*b n k"]
    significant: Float[Tensor, "*b k"]
    inverse: Float[Tensor, "*b k"]
    tikhonov: float

    @property
    def rank(self) -> Int[Tensor, "*b"]:
        """Return the numerical rank of Z and of B."""
        return self.significant.sum(dim=-1).to(torch.int64)

    def project(self, A: Float[Tensor, "*b N c"]) -> Float[Tensor, "*b N c"]:
        """Return P_{Im Z} A."""
        return self.U @ (self.significant[..., None] * (self.U.mT @ A))

    def reject(self, A: Float[Tensor, "*b N c"]) -> Float[Tensor, "*b N c"]:
        """Return (I - P_{Im Z}) A."""
        return A - self.project(A)

    def solve(self, A: Float[Tensor, "*b N c"]) -> Float[Tensor, "*b n c"]:
        """Return Z^+ A, the least-norm least-squares solution; with Tikhonov Z^T (B + t I)^{-1} A."""
        return self.V @ (self.inverse[..., None] * (self.U.mT @ A))

    def solve_transposed(self, A: Float[Tensor, "*b n c"]) -> Float[Tensor, "*b N c"]:
        """Return (Z^T)^+ A; with Tikhonov, (B + t I)^{-1} Z A."""
        return self.U @ (self.inverse[..., None] * (self.V.mT @ A))

    def solve_gram(self, A: Float[Tensor, "*b N c"]) -> Float[Tensor, "*b N c"]:
        """Return B^+ A = (Z Z^T)^+ A; with Tikhonov, (B + t I)^{-1} A."""
        coefficients = self.U.mT @ A
        if self.tikhonov == 0.0:
            return self.U @ (self.inverse.square()[..., None] * coefficients)
        outside = (A - self.U @ coefficients) / self.tikhonov
        return self.U @ (coefficients / (self.s.square() + self.tikhonov)[..., None]) + outside


def thin(Z: Float[Tensor, "*b N n"], rule: RankRule = RANK_RULE) -> Factor:
    """Decompose the factor Z of B = Z Z^T in O(N n min(N, n)); device and dtype are those of Z."""
    U, s, Vh = torch.linalg.svd(Z, full_matrices=False)
    significant = rule.keeps(s).to(s.dtype)
    return Factor(U, s, Vh.mT, significant, _inverse(s, significant, rule.tikhonov), rule.tikhonov)


def triangle(chunks: Iterable[Float[Tensor, "_ n"]]) -> Float[Tensor, "_ n"]:
    """Return R with R^T R = Z^T Z, where Z stacks the rows of all chunks.

    R has Z's singular values and row space; a single chunk is returned as it is. Memory holds one chunk and n rows.

    Source: Demmel, Grigori, Hoemmen, Langou, Communication-optimal parallel and sequential QR (2012).
    """
    remaining_chunks = iter(chunks)
    R = next(remaining_chunks)
    for chunk in remaining_chunks:
        R = torch.linalg.qr(torch.cat([R, chunk]), mode="r").R
    return R


def row_space(Z: Float[Tensor, "N n"], rule: RankRule = RANK_RULE) -> Float[Tensor, "r n"]:
    """Return orthonormal rows that span Im Z^T: the right singular vectors the rule keeps.

    The rank is that of Z, or that of Z with columns of norm 1 if it is larger, so that a column of size 10^12 does not
    hide one of size 1.
    """
    factor = thin(Z, rule)
    rank, largest = int(factor.rank), min(Z.shape)
    if 0 < rank < largest:
        sizes = Z.norm(dim=0)
        triangle = torch.linalg.qr(Z / torch.where(sizes > 0, sizes, 1.0), mode="r").R
        rank = max(rank, int(rule.keeps(torch.linalg.svdvals(triangle)).sum()))
    return factor.V.T[:rank]


def _inverse(s: Tensor, significant: Tensor, tikhonov: float) -> Tensor:
    if tikhonov > 0.0:
        return s / (s.square() + tikhonov)
    return significant / torch.where(significant > 0, s, torch.ones_like(s))
