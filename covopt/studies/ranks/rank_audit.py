"""Audit the ranks of a network's weights, layer by layer, and explain them.

The audit covers threshold, stable and functional ranks; the rank that the decayed initial weights alone give; the rank
of a batch's gradient; the bounds from one batch and from the last steps; and whether the network can be at rest
(MATH.md section 9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.rounding import largest
from covopt.model import ranks
from covopt.model.batch_bound import BatchBound, least
from covopt.model.noise import Noise
from covopt.model.problem import Problem
from covopt.model.recursion import Decay, Past, StepwiseDecay, Window, window
from covopt.model.weights import Weights, check_network
from covopt.records.record import plain
from covopt.runtime.errors import ProblemError
from covopt.studies.ranks.architectures import PLAIN, Architecture


@dataclass(frozen=True)
class LayerRanks:
    """The facts on the rank of one weight matrix; None if unknown or meaningless."""

    layer: int  # l = 1 ... L
    shape: tuple[int, int]  # the shape of W_l
    values: Float[Tensor, " r"]  # singular values of W_l, descending
    rank: dict[float, int]  # tolerance -> #{s_i > tolerance |W|}
    stable_rank: float  # |W|^2 / s_1^2
    functional_rank: int  # the smallest r whose best rank-r replacement raises C by at most 1 %
    predicted: dict[float, int] | None  # tolerance -> the rank that the decayed initial weights alone give
    gradient_rank: int | None  # the largest rank of the gradients of the drawn batches
    gradient_bound: int | None  # an upper bound on it
    window: Window | None  # steps that still affect the weights, at the smallest tolerance, and the bound on the rank
    batch_bound: BatchBound | None  # the chain of bounds from one batch, the smallest of the drawn ones
    noise: Noise | None  # the size of the batches' moves in the layer
    residual: float | None  # |grad L^lam| / (2 lam |W|)
    dead: int | None  # number of neurons without effect; None for the last layer, and behind normalisations

    def summary(self) -> dict[str, object]:
        """Return the entries for JSON; the tails are relative to |W|, of ranks from 0 to full."""
        size = ranks.frobenius(self.values)
        tails = [ranks.tail(self.values / size, r) if size > 0.0 else 0.0 for r in range(len(self.values) + 1)]
        return plain({name: value for name, value in vars(self).items() if name != "values"} | {"tail": tails})


def audit_ranks(
    problem: Problem,
    weights: Weights,
    *,
    architecture: Architecture = PLAIN,
    tolerances: Sequence[float] = (1e-3,),
    batch_size: int | None = None,
    decay: Decay | StepwiseDecay | None = None,
    steps: int | None = None,
    start: Weights | None = None,
    seed: int = 0,
) -> list[LayerRanks]:
    """Measure the ranks of each layer of a network, and their explanations.

    Args:
        problem, weights, architecture: the network; lam = 0 is allowed here.
        tolerances: of the threshold ranks, relative to |W_l|_F.
        batch_size: B of the training; None leaves out the facts on batches.
        decay: its recursion; None if there is none (Adam, AdamW) or it is unknown: no window, no prediction.
        steps: T of the training.
        start: the weights at its start; with decay and steps they give the predicted rank.
        seed: of the batches.
    """
    check_network(problem, weights)
    if start is not None and [W.shape for W in start] != [W.shape for W in weights]:
        raise ProblemError("The start has other shapes than the network; give the network's own first weights.")
    for tolerance in tolerances:
        ranks.check_tolerance(tolerance)
    noises, chains = _of_batches(problem, weights, architecture, batch_size, seed)
    functional, totals, audits = architecture.functional_ranks(problem, weights), [None] * len(weights), []
    if batch_size is not None:
        totals = architecture.total_ranks(problem, weights)
    layers = zip(weights, noises, chains, totals, strict=True)
    for layer, (W, (noise, residual), chain, total) in enumerate(layers, start=1):
        values, past, predicted = torch.linalg.svdvals(W), [], None
        if start is not None and decay is not None and steps is not None:
            first = torch.linalg.svdvals(start[layer - 1])
            past, retained, norm = [Past(steps, largest(first))], decay.kept(steps), ranks.frobenius(values)
            predicted = {tolerance: ranks.predicted_rank(first, retained, norm, tolerance) for tolerance in tolerances}
        audits.append(
            LayerRanks(
                layer=layer,
                shape=(W.shape[0], W.shape[1]),
                values=values,
                rank={tolerance: ranks.threshold_rank(values, tolerance) for tolerance in tolerances},
                stable_rank=ranks.stable_rank(values),
                functional_rank=functional[layer - 1],
                predicted=predicted,
                gradient_rank=None if chain is None else chain.gradient_rank,
                gradient_bound=None if chain is None else chain.rank_bound,
                window=_window(W, batch_size, total, decay, min(tolerances), past),
                batch_bound=chain,
                noise=None if batch_size is None else noise,
                residual=residual,
                dead=architecture.dead(problem, weights, layer) if layer < len(weights) else None,
            )
        )
    return audits


def _of_batches(
    problem: Problem, weights: Weights, architecture: Architecture, batch_size: int | None, seed: int
) -> tuple[list[tuple[Noise | None, float | None]], Sequence[BatchBound | None]]:
    """Return noise, residual and chain of each layer: the smallest of 30 batches; without batches, residuals."""
    if batch_size is None:
        return architecture.noises(problem, weights, problem.samples), [None] * len(weights)
    noises = architecture.noises(problem, weights, batch_size)
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randperm(problem.samples, generator=generator)[:batch_size] for _ in range(30)]
    chains = [architecture.bounds(problem, weights, rows.to(problem.X.device)) for rows in drawn]
    return noises, [least(layer) for layer in zip(*chains, strict=True)]


def _window(
    W: Float[Tensor, "n d"],
    batch_size: int | None,
    total: int | None,
    decay: Decay | StepwiseDecay | None,
    tolerance: float,
    past: Sequence[Past],
) -> Window | None:
    if decay is None or batch_size is None or total is None:
        return None
    rank, norm = min(batch_size, total), ranks.frobenius(W)
    memory = window(decay, tolerance=tolerance, norm=norm, rank=rank, total=total, width=min(W.shape), past=past)
    rounding = 1e-5  # of training in float32, relative to W: it has any rank, so that smaller tolerances have no bound
    return memory if memory is None or tolerance >= rounding else replace(memory, bound=None)
