"""Quadratic programmes with bounds."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def bounded_quadratic(
    Q: Float[Tensor, "p p"], q: Float[Tensor, " p"], low: Float[Tensor, " p"], high: Float[Tensor, " p"]
) -> Float[Tensor, " p"]:
    """Minimise e . Q e / 2 - q . e over low <= e <= high, with low <= 0 <= high, by projected Newton steps.

    Source: Bertsekas, Projected Newton methods for optimization problems with simple constraints (1982).
    """
    steps, close, shortest = 40, 1e-13, 1e-9
    e, value = torch.zeros_like(q), 0.0
    ridge = 1e-12 * Q.diagonal().mean()
    for _ in range(steps):
        slope = Q @ e - q
        rows = (~(((e <= low) & (slope > 0.0)) | ((e >= high) & (slope < 0.0)))).nonzero()[:, 0]
        if not len(rows) or float(slope[rows].abs().max()) <= close * float(q.abs().max()):
            break
        face = Q[rows][:, rows]
        face.diagonal().add_(ridge)
        step, part = torch.linalg.solve_ex(face, -slope[rows]).result, 1.0
        while True:
            trial = e.index_put((rows,), torch.clamp(e[rows] + part * step, low[rows], high[rows]))
            lower = float(trial @ (0.5 * (Q @ trial) - q))
            if lower < value - 1e-16 * abs(value):
                break
            part /= 2.0
            if part < shortest:
                return e
        e, value = trial, lower
    return e
