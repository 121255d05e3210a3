"""Directions of a tree: those that attain much, and walls between those that a node mixes."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.certify.relaxation.ground import Ground


def climb(
    ground: Ground, Lambda: Float[Tensor, "N m"], w: Float[Tensor, "S r"], steps: int
) -> tuple[float, Float[Tensor, " r"]]:
    """Maximise h by power steps w <- P^T (sigma' * Lambda Lambda^T sigma); return h and the unit w."""
    best, where = 0.0, torch.nn.functional.normalize(w[0], dim=0)
    for _ in range(steps + 1):
        w = torch.nn.functional.normalize(w, dim=1)
        z = w @ ground.P.T
        slope = torch.where(z > 0, 1.0, torch.full((), ground.slope, dtype=z.dtype, device=z.device))
        outputs = (slope * z) @ Lambda
        value, place = outputs.norm(dim=1).max(dim=0)
        if float(value) > best:
            best, where = float(value), w[place]
        w = (slope * (outputs @ Lambda.T)) @ ground.P
    return best, where


def rough_maximum(ground: Ground, Lambda: Float[Tensor, "N m"]) -> tuple[float, Float[Tensor, " r"]]:
    """`climb` from random directions, roughly: it gives h its scale."""
    starts = torch.randn(64, ground.rank, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return climb(ground, Lambda, starts.to(ground.P), steps=30)


def dividing_wall(moments: Float[Tensor, "n r"], weight: Float[Tensor, " N"]) -> Float[Tensor, " r"]:
    """Return the normal a that divides best, of few combinations of top eigenvectors of E[w w^T].

    `moments` are E[(w, p, n) w^T]. Where a^T w has one sign on everything that the node mixes, so has every entry of
    E[(p, n) a^T w]; so the smaller of the norms of their positive and negative parts is what counts.
    """
    r = moments.shape[1]
    top = torch.linalg.eigh(moments[:r])[1][:, -3:]
    k = top.shape[1]
    pairs = [(i, j, sign) for i in range(k) for j in range(i) for sign in (1.0, -1.0)]
    normals = torch.stack(list(top.T) + [(top[:, i] + sign * top[:, j]) / math.sqrt(2.0) for i, j, sign in pairs])
    sides = weight.repeat(2)[:, None] * (moments[r:] @ normals.T)
    divided = torch.minimum(sides.clamp_min(0.0).norm(dim=0), sides.clamp_max(0.0).norm(dim=0))
    return normals[int(divided.argmax())]
