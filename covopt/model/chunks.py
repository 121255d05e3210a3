"""Sums over samples, a chunk of rows at a time: the one place that several devices would have to agree on.

Every function of a two-layer network that the data enter is a sum over samples: its loss and gradient, Gram matrices of
its features, values of h. `Samples.total` adds such sums up chunk by chunk, so that memory beside the data stays that
of one chunk, and hands the total to one `reduce`. Where each process of a `torch.distributed` group holds its own rows,
`all_reduced` makes each total that of all rows, and everything built on it gives all processes the same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.model.loss import Weight
from covopt.model.problem import with_bias

Reduce = Callable[[Tensor], Tensor]
"""The sum over all processes of a vector of local sums."""


def local(total: Float[Tensor, " k"]) -> Float[Tensor, " k"]:
    """One process holds all rows: the local sum is the sum."""
    return total


def all_reduced(total: Float[Tensor, " k"]) -> Float[Tensor, " k"]:
    """The sum over the default process group of `torch.distributed`, which the caller has set up."""
    torch.distributed.all_reduce(total)
    return total


@dataclass(frozen=True)
class Samples:
    """Rows of inputs and targets that this process holds, and how their sums are taken.

    Attributes:
        Xt: inputs with their bias column (N, d), or without it (N, d - 1).
        Y: targets (N, m).
        weight: of the rows, of mean 1 over those of all processes; None where all are equal.
        chunk: rows taken at once.
        reduce: `local`, or `all_reduced` where other processes hold other rows.
        beta: what the bias column of each chunk is to hold; None where Xt has it.
    """

    Xt: Float[Tensor, "N d"]
    Y: Float[Tensor, "N m"]
    weight: Weight = None
    chunk: int = 4096
    reduce: Reduce = local
    beta: float | None = None

    def total(self, part: Callable[[Tensor, Tensor, Weight], tuple[Tensor, ...]]) -> list[Tensor]:
        """sum over chunks of part(Xt, Y, weight), each of the tensors that `part` returns; over all processes."""
        sums: list[Tensor] = []
        chunks = self.Xt.split(self.chunk), self.Y.split(self.chunk)
        weights = [None] * len(chunks[0]) if self.weight is None else self.weight.split(self.chunk)
        for Xt, Y, weight in zip(*chunks, weights, strict=True):
            parts = part(Xt if self.beta is None else with_bias(Xt, self.beta), Y, weight)
            sums = [a.add_(b) for a, b in zip(sums, parts, strict=True)] if sums else [p.clone() for p in parts]
        flat = self.reduce(torch.cat([each.flatten() for each in sums]))
        pieces = flat.split([each.numel() for each in sums])
        return [piece.view(each.shape) for piece, each in zip(pieces, sums, strict=True)]

    def on(self, rows: Int[Tensor, " n"]) -> Samples:
        """Some of the rows, with their weights."""
        return replace(
            self, Xt=self.Xt[rows], Y=self.Y[rows], weight=None if self.weight is None else self.weight[rows]
        )

    def count(self) -> int:
        """The number of samples of all processes."""
        return int(self.reduce(torch.tensor([len(self.Xt)], dtype=torch.float64, device=self.Xt.device))[0])
