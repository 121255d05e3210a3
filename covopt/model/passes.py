"""Passes over the samples with memory for one chunk of rows.

They compute sums, largest values and triangles over rows. A network's hidden representations (N, n_l) are never held
for all samples, only outputs (N, n_L) are. `parts_of` splits a problem into those of consecutive rows; C and its
gradient are the sums of the parts' own, each times n / N.

Every function of a two-layer network that the data enter is a sum over samples: its loss and gradient, Gram matrices of
its features, values of h. `Samples.total` adds these up, over all processes where the rows are spread (spread.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.psd import triangle
from covopt.model.loss import Weight
from covopt.model.problem import Problem, with_bias
from covopt.model.spread import ALONE, Alone, Choice
from covopt.model.weights import Weights, carried, inputs_from, outputs, preactivations, pulled_back


@dataclass(frozen=True)
class Samples:
    """Rows of inputs and targets that this process holds, and how their sums are taken."""

    Xt: Float[Tensor, "N d"]  # inputs with their bias column (N, d), or without it (N, d - 1)
    Y: Float[Tensor, "N m"]  # targets (N, m)
    weight: Weight = None  # of the rows, with mean 1 over all processes; None where all are equal
    chunk: int = 4096  # rows taken at once
    spread: Alone = ALONE  # the processes that hold the rows
    beta: float | None = None  # the bias column of each chunk; None where Xt has it
    dtype: torch.dtype | None = None  # that of each chunk, float32 at least for Y and weights; None: that of Xt

    @property
    def precision(self) -> torch.dtype:
        """Return the dtype of a chunk."""
        return self.dtype or self.Xt.dtype

    def total(self, part: Callable[[Tensor, Tensor, Weight], tuple[Tensor, ...]]) -> list[Tensor]:
        """Return the sums of part(Xt, Y, weight) over chunks and processes, tensor by tensor."""

        def added(Xt: Tensor, Y: Tensor, *weighed: Tensor) -> tuple[Tensor, ...]:
            sums: list[Tensor] = []
            chunks = Xt.split(self.chunk), Y.split(self.chunk)
            weights = weighed[0].split(self.chunk) if weighed else [None] * len(chunks[0])
            for inputs, targets, weight in zip(*chunks, weights, strict=True):
                parts = part(*self._given(inputs, targets, weight))
                sums = [a.add_(b) for a, b in zip(sums, parts, strict=True)] if sums else [p.clone() for p in parts]
            return tuple(sums)

        return list(self.spread.sums(added, self.Xt, self.Y, *([] if self.weight is None else [self.weight])))

    def some(self, choose: Choice, count: int) -> Samples:
        """Return a copy of about `count` of the samples of all processes, with their weights."""
        rows, spread = self.spread.some(choose, len(self.Xt), count)
        weight = None if self.weight is None else self.weight[rows]
        return replace(self, Xt=self.Xt[rows], Y=self.Y[rows], weight=weight, spread=spread).copied()

    def copied(self) -> Samples:
        """Return these samples with their bias column, in the dtype of chunks."""
        return Samples(*self._given(self.Xt, self.Y, self.weight), self.chunk, self.spread)

    def _given(self, inputs: Tensor, targets: Tensor, weight: Weight) -> tuple[Tensor, Tensor, Weight]:
        """Return these rows with their bias column, in the dtype of chunks."""
        if self.dtype is not None:
            dtype = torch.promote_types(self.dtype, torch.float32)
            inputs, targets = inputs.to(self.dtype), targets.to(dtype)
            weight = None if weight is None else weight.to(dtype)
        return inputs if self.beta is None else with_bias(inputs, self.beta), targets, weight

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


CHUNK = 1024  # rows of a chunk; up to this number, passes compute what whole matrices would, bit for bit
MANY = 2e9  # samples times weights, above which no computation takes hundreds of passes


def has_many(problem: Problem, weights: Weights) -> bool:
    """Return True if hundreds of passes over the samples take minutes; never for exact fits."""
    return not problem.interpolates and problem.samples * sum(W.numel() for W in weights) > MANY


def parts_of(problem: Problem) -> Iterator[tuple[slice, Problem]]:
    """Yield the problem on rows 0 ... CHUNK - 1, on the next ones, and so on, as views."""
    for start in range(0, problem.samples, CHUNK):
        rows = slice(start, min(start + CHUNK, problem.samples))
        yield rows, problem.on(rows)


def all_outputs(problem: Problem, weights: Weights) -> Float[Tensor, "N nL"]:
    """Return F of all samples."""
    return torch.cat([outputs(part, weights, part.X) for _, part in parts_of(problem)])


def loss_and_slopes(problem: Problem, weights: Weights) -> tuple[float, list[Float[Tensor, "_ _"]]]:
    """Return C(F) and dC/dW_1 ... dC/dW_L in float64, in one pass; a ProblemError refuses `interpolate`.

    Arrays as wide as a layer have the dtype of X.
    """
    fit, slopes = 0.0, [W.new_zeros(W.shape, dtype=torch.float64) for W in weights]
    rounded = [W.to(problem.X) for W in weights]
    for _, part in parts_of(problem):
        Z = preactivations(part, rounded)
        exact, share = part.double(), part.samples / problem.samples
        fit += share * float(exact.loss_at(Z[-1].double()))
        pull = share * exact.gradient_at(Z[-1].double())
        M = pulled_back(part, rounded, Z, pull.to(problem.X))
        for slope, m, Zs in zip(slopes, M, inputs_from(part, Z), strict=True):
            slope += m.T @ Zs
    return fit, slopes


def inputs_at(problem: Problem, weights: Weights, layer: int) -> Iterator[Float[Tensor, "n d"]]:
    """Yield Zs_{l-1} of one chunk of rows after the other, l = `layer` = 1 ... L."""
    for _, part in parts_of(problem):
        yield carried(part, weights[: layer - 1], with_bias(part.X, problem.beta))


def inputs_triangle(problem: Problem, weights: Weights, layer: int) -> Float[Tensor, "_ d"]:
    """Return R with the singular values and row space of Zs_{l-1}, centred with free biases."""
    if not problem.free:
        return triangle(inputs_at(problem, weights, layer))
    mean = torch.as_tensor(sum(Zs[:, :-1].sum(dim=0) for Zs in inputs_at(problem, weights, layer))) / problem.samples
    return triangle(Zs[:, :-1] - mean for Zs in inputs_at(problem, weights, layer))
