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

Basis = Float[Tensor, "k d"]


@dataclass(frozen=True)
class View:
    """The samples as the training sees them."""

    basis: Basis | None  # a basis of the directions that they see; None for all
    exact: Samples  # the samples in the dtype of the data
    rough: Samples  # in float32

    @staticmethod
    def of(exact: Samples, basis: Basis | None) -> View:
        """Return these samples, whose Xt has no bias column yet, in the directions of `basis`."""
        beta, weight = exact.beta, None if exact.weight is None else exact.weight.float()
        assert beta is not None
        if basis is None:
            Xt = exact.Xt.new_full((len(exact.Xt), exact.Xt.shape[1] + 1), beta, dtype=torch.float32)
            Xt[:, :-1] = exact.Xt  # with_bias of a copy in float32 would be one copy more
        else:
            directions, bias = basis[:, :-1].T, beta * basis[:, -1]

            def part(X: Tensor) -> Tensor:
                Z = X.new_empty(len(X), len(bias))
                for chunk, out in zip(X.split(exact.chunk), Z.split(exact.chunk), strict=True):
                    torch.addmm(bias, chunk, directions, out=out)
                return Z

            seen = exact.spread.mapped(part, exact.Xt)
            exact, Xt = replace(exact, Xt=seen, beta=None), seen.float()
        return View(basis, exact, replace(exact, Xt=Xt, Y=exact.Y.float(), weight=weight, beta=None))

    def outward(self, U: Float[Tensor, "n k"]) -> Float[Tensor, "n d"]:
        """Hidden weights for all directions."""
        return U if self.basis is None else U @ self.basis.to(U)


def leading_directions(samples: Samples, start: Float[Tensor, "d k"]) -> Basis:
    """Return an orthonormal basis of about k leading right singular vectors of Xt, in rows.

    Some of the samples are enough, and so is float32. `start` holds normal numbers, in the dtype of the basis.
    """

    def powers(B: Tensor) -> Tensor:
        def part(Xt: Tensor, Y: Tensor, weight: Weight) -> tuple[Tensor]:
            return (Xt.T @ (Xt @ B),)

        return samples.total(part)[0]

    B = start
    for _ in range(2):  # more bring the networks nowhere sooner
        B = torch.linalg.qr(powers(B.to(samples.Xt)).to(start))[0]
    return B.T.contiguous()
