"""Sums over samples, a chunk of rows at a time.

Every function of a two-layer network that the data enter is a sum over samples: its loss and gradient, Gram matrices of
its features, values of h. `Samples.total` adds such sums up chunk by chunk, so that memory beside the data stays that
of one chunk, and over all processes where the rows are spread (spread.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from covopt.model.loss import Weight
from covopt.model.problem import with_bias
from covopt.model.spread import ALONE, Alone, Choice


@dataclass(frozen=True)
class Samples:
    """Rows of inputs and targets that this process holds, and how their sums are taken.

    Attributes:
        Xt: inputs with their bias column (N, d), or without it (N, d - 1).
        Y: targets (N, m).
        weight: of the rows, of mean 1 over those of all processes; None where all are equal.
        chunk: rows taken at once.
        spread: of the processes that hold the rows.
        beta: what the bias column of each chunk is to hold; None where Xt has it.
    """

    Xt: Float[Tensor, "N d"]
    Y: Float[Tensor, "N m"]
    weight: Weight = None
    chunk: int = 4096
    spread: Alone = ALONE
    beta: float | None = None

    def total(self, part: Callable[[Tensor, Tensor, Weight], tuple[Tensor, ...]]) -> list[Tensor]:
        """Return the sums of part(Xt, Y, weight) over chunks and processes, tensor by tensor."""

        def added(Xt: Tensor, Y: Tensor, *weighed: Tensor) -> tuple[Tensor, ...]:
            sums: list[Tensor] = []
            chunks = Xt.split(self.chunk), Y.split(self.chunk)
            weights = weighed[0].split(self.chunk) if weighed else [None] * len(chunks[0])
            for inputs, targets, weight in zip(*chunks, weights, strict=True):
                parts = part(inputs if self.beta is None else with_bias(inputs, self.beta), targets, weight)
                sums = [a.add_(b) for a, b in zip(sums, parts, strict=True)] if sums else [p.clone() for p in parts]
            return tuple(sums)

        return list(self.spread.sums(added, self.Xt, self.Y, *([] if self.weight is None else [self.weight])))

    def some(self, choose: Choice, count: int) -> Samples:
        """Return about `count` of the samples of all processes, with their weights."""
        rows, spread = self.spread.some(choose, len(self.Xt), count)
        weight = None if self.weight is None else self.weight[rows]
        return replace(self, Xt=self.Xt[rows], Y=self.Y[rows], weight=weight, spread=spread)

    def shares(self) -> list[Samples]:
        """Return the samples of each part that this process holds, one object for each part."""
        weighed = [] if self.weight is None else [self.weight]
        return [
            replace(self, Xt=Xt, Y=Y, weight=weights[0] if weights else None, spread=ALONE)
            for Xt, Y, *weights in self.spread.shares(self.Xt, self.Y, *weighed)
        ]

    def count(self) -> int:
        """Return the number of samples of all processes."""
        return self.spread.samples(len(self.Xt))
