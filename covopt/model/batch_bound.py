"""Bounds on the rank of the weights from one batch.

[GP22, Theorem 1] and sharper ones (MATH.md section 9). For every W, lam > 0 and batch S of B, trained or not, with G
the gradient of the batch's loss without its penalty, P, Q the projections on the column and row space of G,

    tail_B(W) <= min(|W - P W|, |W - W Q|) <= min_c |W - c G| <= |grad L_S^lam| / (2 lam),

since rank G <= B: the first three come from a matrix of rank <= B near W, and c = -1/(2 lam) is one c.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.linalg.psd import RANK_RULE
from covopt.linalg.rounding import largest
from covopt.model.noise import factors
from covopt.model.problem import Problem
from covopt.model.ranks import frobenius, tail
from covopt.model.weights import Weights


@dataclass(frozen=True)
class BatchBound:
    """The chain of one layer and one batch, relative to |W|_F; the first two are at most 1."""

    tail: float  # tail_B(W) / |W|, the truth
    projection: float  # the distance of W to the column or row space of the batch's gradient, the nearer one
    angle: float  # sin of the angle between W and the gradient
    # |grad L_S^lam| / (2 lam |W|), as in the paper: at 1 and above it says nothing. None for lam = 0
    theorem: float | None
    gradient_rank: int  # rank of the gradient, by the house's rule
    rank_bound: int  # its upper bound: B, and `total_ranks`

    def summary(self) -> dict[str, float | None]:
        """Return the chain for JSON."""
        return {"tail": self.tail, "projection": self.projection, "angle": self.angle, "theorem": self.theorem}


def batch_bound(problem: Problem, weights: Weights, rows: Int[Tensor, " B"]) -> list[BatchBound]:
    """Return the chain of each layer, l = 1 ... L, for the batch of these rows of the data.

    W = 0 has the chain 0, 0, 0; lam = 0 is allowed here. A ProblemError refuses `interpolate`, which has no gradient.

    Source: P1 ([GP22, Lemma 1] for any number of outputs) and P2 of MATH.md section 9; `theorem` is [GP22, (10)].
    """
    batch = problem.on(rows)
    bounds = [min(len(rows), most) for most in total_ranks(problem, weights)]
    layers = zip(weights, factors(batch, weights), bounds, strict=True)
    return [rank_chain(W, *_scaled(delta, Zs), problem.lam, len(rows), bound) for W, (delta, Zs), bound in layers]


def total_ranks(problem: Problem, weights: Weights) -> list[int]:
    """Return an upper bound, for each layer, on the rank of any sum of gradients.

    All gradients of a layer share a row or a column space. In the first layer the rows of a gradient are in the span of
    the inputs [X, beta 1]; in the last one of cross-entropy its columns sum to 0, since the derivatives of a sample's
    loss by its outputs do.

    Source: P1 of MATH.md section 9.
    """
    most = [min(W.shape) for W in weights]
    most[0] = min(most[0], int(RANK_RULE.keeps(torch.linalg.svdvals(problem.Xt)).sum()))
    if problem.loss.name == "cross_entropy":
        most[-1] = min(most[-1], problem.Y.shape[1] - 1)
    return most


def least(chains: Sequence[BatchBound]) -> BatchBound:
    """Return the best of several batches' bounds, number by number; the largest gradient rank."""
    return BatchBound(
        tail=chains[0].tail,
        projection=min(chain.projection for chain in chains),
        angle=min(chain.angle for chain in chains),
        theorem=min([chain.theorem for chain in chains if chain.theorem is not None], default=None),
        gradient_rank=max(chain.gradient_rank for chain in chains),
        rank_bound=chains[0].rank_bound,
    )


def _scaled(delta: Float[Tensor, "B n"], Zs: Float[Tensor, "B d"]) -> tuple[Float[Tensor, "n d"], float]:
    """Return the gradient delta^T Zs as a matrix times a scale, which may be 0 or infinite."""
    d, h = largest(delta), largest(Zs)
    return (delta / (d or 1.0)).T @ (Zs / (h or 1.0)), d * h


def rank_chain(
    W: Float[Tensor, "n d"], G: Float[Tensor, "n d"], scale: float, lam: float, batch: int, bound: int
) -> BatchBound:
    """Return the chain of one layer, whose gradient is scale G, for a batch of `batch` samples.

    The scale may be 0 or infinite; `bound` is a bound on the rank of G.
    """
    U, s, Vt = torch.linalg.svd(G, full_matrices=False)
    rank, size = int(RANK_RULE.keeps(s).sum()), frobenius(W)
    if size == 0.0:
        return BatchBound(0.0, 0.0, 0.0, None, rank, bound)
    W = W / size
    theorem = frobenius(scale / (2.0 * lam * size) * G + W) if lam > 0.0 else math.inf
    theorem = theorem if math.isfinite(theorem) else None
    distance = tail(torch.linalg.svdvals(W), batch)
    if rank == 0:
        return BatchBound(distance, 1.0, 1.0, theorem, 0, bound)
    held = s > max(G.shape) * torch.finfo(G.dtype).eps * s[0]  # all of G but its rounding
    P, Q = U[:, held], Vt[held]
    projection = min(frobenius(W - P @ (P.T @ W)), frobenius(W - (W @ Q.T) @ Q))
    direction = G / frobenius(G)
    angle = frobenius(W - (W * direction).sum() * direction)
    return BatchBound(distance, projection, angle, theorem, rank, bound)
