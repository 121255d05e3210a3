"""The master's step: min over x >= 0 of a convex quadratic with a dense Hessian, by a primal active set.

It is warm-started and exact on the face that it ends on, and takes few steps when few coordinates change sides. Every
loop is counted: where it does not finish, or where numbers leave float64 or nothing can be factorised, what was reached
before is the answer, from which the master's next step goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from covopt.runtime.loop import Stop


@dataclass
class _Point:
    """x >= 0, the gradient there, and which coordinates move."""

    x: Float[Tensor, " n"]
    gradient: Float[Tensor, " n"]
    moving: Bool[Tensor, " n"]


def nonnegative_quadratic(
    H: Float[Tensor, "n n"],
    g: Float[Tensor, " n"],
    start: Float[Tensor, " n"],
    stop: Stop = lambda: False,
    pivots: int = 25,
) -> Float[Tensor, " n"]:
    """Minimise g^T (x - start) + (x - start)^T H (x - start) / 2 over x >= 0.

    The result is never worse than `start` >= 0. `stop` is asked between steps; once it is true, or after this number of
    pivots, the best point so far is returned.
    """
    if not len(start) or not bool(torch.isfinite(H).all() and torch.isfinite(g).all()):
        return start
    if H.is_cuda:  # hundreds of short steps, each of which the processor has to see
        return nonnegative_quadratic(H.cpu(), g.cpu(), start.cpu(), stop, pivots).to(start.device)
    # Unit diagonal: gradients and steps of different columns become comparable. Entries below 1e-30 of the largest
    # count as that much, so that their columns do not overflow.
    diagonal = H.diagonal()
    D = diagonal.clamp_min(max(torch.finfo(H.dtype).tiny, 1e-30 * float(diagonal.max()))).rsqrt()
    scaled = D[:, None] * H * D
    point = _Point(start / D, D * g, start > 0)
    # Stop when no scaled gradient points inwards by more than this part of the largest at the start.
    tolerance = 1e-11 * float(point.gradient.abs().max())
    for _ in range(pivots):
        if stop():
            break
        rows = point.moving.nonzero()[:, 0]
        full = _face_step(scaled, point, rows) if len(rows) else True
        if full is None:
            break
        if not full:
            continue
        inward = torch.where(point.moving, 0.0, -point.gradient)
        worst = float(inward.max())
        if worst <= tolerance:
            break
        # Half of the worst violators, but never so many that the face becomes a guess.
        count = min(int((inward > 0.5 * worst).sum()), max(1, int(point.moving.sum()) // 4))
        point.moving[inward.topk(count).indices] = True
    return point.x * D


def _face_step(H: Tensor, point: _Point, rows: Tensor) -> bool | None:
    """Take Newton's step on the moving coordinates; True if feasible whole, None without one."""
    across = H.index_select(0, rows)
    face = across.index_select(1, rows)
    factor = _cholesky(face)
    if factor is None:
        return None
    step = -torch.cholesky_solve(point.gradient[rows][:, None], factor)[:, 0]
    if not bool(torch.isfinite(step).all()):
        return None
    x = point.x[rows]
    negative = x + step < 0
    if not bool(negative.any()):
        _move(across, point, rows, step)
        return True
    length = float((x[negative] / -step[negative]).min())
    clipped = (x + step).clamp_min(0.0) - x
    gradient = point.gradient[rows]

    def change(move: Tensor) -> float:
        return float(gradient @ move + 0.5 * move @ (face @ move))

    if change(clipped) < change(length * step):
        _move(across, point, rows, clipped)
        gone = rows[negative]
    else:
        _move(across, point, rows, length * step)
        gone = rows[negative & (point.x[rows] <= 1e-15 * point.x.max())]
    point.x[gone] = 0.0
    point.moving[gone] = False
    return False


def _move(across: Tensor, point: _Point, rows: Tensor, step: Tensor) -> None:
    """Move the coordinates `rows` by `step`; `across` holds those rows of H."""
    point.x[rows] += step
    point.x.clamp_min_(0.0)
    point.gradient += step @ across


def _cholesky(H: Tensor) -> Tensor | None:
    """Return a Cholesky factor of H plus a ridge, raised up to five times until that succeeds, or None."""
    # Relative to the diagonal, so that nearly equal columns do not break the factorisation.
    diagonal, ridge = H.diagonal().max(), 1e-13
    for _ in range(6):
        raised = H.clone()
        raised.diagonal().add_(ridge * diagonal)
        factor, failed = torch.linalg.cholesky_ex(raised)
        if not int(failed):
            return factor
        ridge *= 1e3
    return None
