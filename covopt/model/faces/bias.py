"""The two kinds of biases, and their effect on inputs, targets and weights of a layer.

Weights W = [A, b] (n, d + 1) map the values S (N, d) of the layer below to Z = S A^T + beta 1 b^T. The lightest weights
that do so are a least-squares problem, whose two sides depend on the kind of bias:

* penalised: |A|^2 + |b|^2 counts, so W^T = [S, beta 1]^+ Z;
* free: |A|^2 counts alone. With H = I - 11^T / N, A^T = (H S)^+ H Z, and b is the mean of Z - S A^T.

Leading dimensions of every array are a batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.psd import RankRule
from covopt.linalg.pseudo_inverse import least_squares
from covopt.model.problem import with_bias


@dataclass(frozen=True)
class Bias:
    """Biases that the penalty counts like every weight, with a column of `amount` = beta >= 0."""

    amount: float

    @property
    def column(self) -> str:
        """Return the bias column as a message names it, after a comma; empty without one."""
        return f", {self.amount:g}" if self.amount else ""

    def reduce(self, A: Float[Tensor, "... N n"]) -> Float[Tensor, "... N n"]:
        """Return the part of a layer's outputs that penalised weights must produce."""
        return A

    def inputs(self, S: Float[Tensor, "... N d"]) -> Float[Tensor, "... N k"]:
        """Return what the penalised weights act on."""
        return with_bias(S, self.amount)

    def reduce_covariance(self, K: Float[Tensor, "*b N N"]) -> Float[Tensor, "*b N N"]:
        """Return the covariance of `reduce(Z)` for K = Z Z^T, and of `inputs(S)` for K = Ks."""
        return K

    def penalised(self, W: Float[Tensor, "*b n k"]) -> Float[Tensor, "*b n k2"]:
        """Return the columns of W that the penalty counts."""
        return W

    def weights(
        self, S: Float[Tensor, "... N d"], Z: Float[Tensor, "... N n"], rule: RankRule
    ) -> Float[Tensor, "... n k"]:
        """Return the lightest W that maps S to Z, or to the nearest outputs where no W gives Z."""
        return least_squares(self.inputs(S), Z, rule).mT


@dataclass(frozen=True)
class FreeBias(Bias):
    """Biases that the penalty does not count; the column holds ones."""

    amount: float = 1.0

    def reduce(self, A: Float[Tensor, "... N n"]) -> Float[Tensor, "... N n"]:
        """Return H A; columns that are constant up to rounding become 0."""
        centred = A - A.mean(dim=-2, keepdim=True)
        rounding = 4.0 * torch.finfo(A.dtype).eps * A.detach().abs().amax(dim=-2, keepdim=True)
        return torch.where(centred.detach().abs().amax(dim=-2, keepdim=True) > rounding, centred, 0.0)

    def inputs(self, S: Float[Tensor, "... N d"]) -> Float[Tensor, "... N k"]:
        return self.reduce(S)

    def reduce_covariance(self, K: Float[Tensor, "*b N N"]) -> Float[Tensor, "*b N N"]:
        """Return H K H."""
        half = K - K.mean(dim=-2, keepdim=True)
        return half - half.mean(dim=-1, keepdim=True)

    def penalised(self, W: Float[Tensor, "*b n k"]) -> Float[Tensor, "*b n k2"]:
        return W[..., :-1]

    def weights(
        self, S: Float[Tensor, "... N d"], Z: Float[Tensor, "... N n"], rule: RankRule
    ) -> Float[Tensor, "... n k"]:
        V = least_squares(self.inputs(S), self.reduce(Z), rule)
        b = (Z - S @ V).mean(dim=-2, keepdim=True)
        return torch.cat([V, b], dim=-2).mT
