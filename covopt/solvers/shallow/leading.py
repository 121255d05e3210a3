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

    basis: Basis | None  # a basis of the directions that the steps see; None for all
    outside: Float[Tensor, "n d"] | None  # hidden weights outside of them, which stay as they are; None for 0
    exact: Samples  # the samples in the dtype of the data; in the directions of `basis` where `outside` is None
    rough: Samples  # those of steps, in float32: in the directions of `basis`, then the preactivations of `outside`

    @staticmethod
    def of(exact: Samples, basis: Basis | None, outside: Tensor | None = None, held: torch.dtype | None = None) -> View:
        """Return these samples in the directions of `basis`; with `outside`, they are held in the dtype `held`."""
        if basis is not None and outside is not None:
            carried = _carried(exact, torch.cat([basis.to(outside), outside]), held)
            return View(basis, outside, exact, replace(carried, dtype=torch.float32))
        if basis is not None:
            exact = _carried(exact, basis.to(exact.Xt))
        rough = replace(exact, dtype=torch.float32)
        return View(basis, None, exact, rough if exact.Xt.numel() > FEW_ENTRIES else rough.copied())

    def inward(self, U: Float[Tensor, "n _"]) -> Float[Tensor, "n _"]:
        """Return the part of these hidden weights that the steps change."""
        return U if self.basis is None or self.outside is None else U @ self.basis.T.to(U)

    def completed(self, U: Float[Tensor, "n k"]) -> Float[Tensor, "n _"]:
        """Return the hidden weights on `exact` whose part is U."""
        return U if self.basis is None or self.outside is None else U @ self.basis.to(U) + self.outside.to(U)

    def outward(self, U: Float[Tensor, "n _"]) -> Float[Tensor, "n d"]:
        """Return hidden weights on `exact` in all directions."""
        return U if self.basis is None or self.outside is not None else U @ self.basis.to(U)


def _carried(samples: Samples, directions: Float[Tensor, "k d"], dtype: torch.dtype | None = None) -> Samples:
    """Return the samples in these directions, in this dtype; None: that of the directions."""

    def part(X: Tensor) -> Tensor:
        Z = directions.new_empty(len(X), len(directions), dtype=dtype)
        for chunk, out in zip(X.split(samples.chunk), Z.split(samples.chunk), strict=True):
            chunk = chunk if samples.beta is None else with_bias(chunk, samples.beta)
            out.copy_(chunk.to(directions) @ directions.T)
        return Z

    return replace(samples, Xt=samples.spread.mapped(part, samples.Xt), beta=None)


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
