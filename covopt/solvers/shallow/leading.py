"""The few leading directions of the inputs, in which networks on many samples begin.

A step of training takes about as many multiplications as the inputs have directions. With an orthonormal basis Q (k, d)
of k of them, the network of hidden weights U (n, k) on Xt Q^T is the one of U Q on Xt, and costs the same, because
|U Q| = |U|: so what is learned in few directions is a network for all of them. The leading right singular vectors of Xt
are the directions in which weights of a given size do most; a part of the samples tells them well enough.

Source: Halko, Martinsson, Tropp, Finding structure with randomness (2011), algorithm 4.4, for the basis.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.model.loss import Weight
from covopt.model.passes import Samples
from covopt.model.problem import with_bias

Basis = Float[Tensor, "k d"]
FEW_ENTRIES = 2**25  # up to which inputs are copied in float32; without a copy steps take 7 % longer


@dataclass(frozen=True)
class View:
    """The samples as the training sees them."""

    basis: Basis | None  # a basis of the directions that they see; None for all
    exact: Samples  # the samples in the dtype of the data
    rough: Samples  # the same, of which chunks and batches are in float32

    @staticmethod
    def of(exact: Samples, basis: Basis | None) -> View:
        """Return these samples in the directions of `basis`."""
        if basis is not None:
            beta = exact.beta

            def part(X: Tensor) -> Tensor:
                Z = X.new_empty(len(X), len(basis))
                for chunk, out in zip(X.split(exact.chunk), Z.split(exact.chunk), strict=True):
                    torch.mm(chunk if beta is None else with_bias(chunk, beta), basis.T, out=out)
                return Z

            exact = replace(exact, Xt=exact.spread.mapped(part, exact.Xt), beta=None)
        rough = replace(exact, dtype=torch.float32)
        return View(basis, exact, rough if exact.Xt.numel() > FEW_ENTRIES else rough.copied())

    def outward(self, U: Float[Tensor, "n k"]) -> Float[Tensor, "n d"]:
        """Hidden weights for all directions."""
        return U if self.basis is None else U @ self.basis.to(U)


def leading_directions(samples: Samples, start: Float[Tensor, "d k"]) -> Basis:
    """Return an orthonormal basis of about k leading right singular vectors of Xt, in rows.

    Some of the samples are enough, and so is float32. `start` holds normal numbers, in the dtype of the basis.
    """

    def powers(B: Tensor) -> Tensor:
        def part(Xt: Tensor, Y: Tensor, weight: Weight) -> tuple[Tensor]:
            return (Xt.T @ (Xt @ B.to(Xt)),)

        return samples.total(part)[0]

    B = start
    for _ in range(2):  # more bring the networks nowhere sooner
        B = torch.linalg.qr(powers(B).to(start))[0]
    return B.T.contiguous()
