"""The master's step: min over x >= 0 of a convex quadratic with a dense Hessian.

Two methods share the work. The primal active set is warm-started and exact on the face that it ends on, and takes few
steps when few coordinates change sides. Where it does not finish at once, Mehrotra's predictor-corrector method does,
in about fifteen factorisations whatever happens, and the active set cleans up after it. Every loop is counted; where
numbers leave float64 or nothing can be factorised, what was reached before is the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor


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
    stop: Callable[[], bool] = lambda: False,
    pivots: int = 25,
    centering_steps: int = 50,
) -> Float[Tensor, " n"]:
    """Minimise g^T (x - start) + (x - start)^T H (x - start) / 2 over x >= 0.

    The result is never worse than `start` >= 0. `stop` is asked between steps; once it is true, the best point so far
    is returned. The active set takes at most `pivots` steps, and as many again after the interior point, which takes at
    most `centering_steps`.
    """
    if not len(start) or not bool(torch.isfinite(H).all() and torch.isfinite(g).all()):
        return start
    if H.is_cuda:  # hundreds of short steps, each of which the processor has to see
        options = stop, pivots, centering_steps
        return nonnegative_quadratic(H.cpu(), g.cpu(), start.cpu(), *options).to(start.device)
    # Unit diagonal: gradients and steps of different columns become comparable. Entries below 1e-30 of the largest
    # count as that much, so that their columns do not overflow.
    diagonal = H.diagonal()
    D = diagonal.clamp_min(max(torch.finfo(H.dtype).tiny, 1e-30 * float(diagonal.max()))).rsqrt()
    scaled = D[:, None] * H * D
    point = _Point(start / D, D * g, start > 0)
    # Stop when no scaled gradient points inwards by more than this part of the largest at the start.
    tolerance = 1e-11 * float(point.gradient.abs().max())
    if not _active_set(scaled, point, tolerance, pivots, stop):
        interior = _interior_point(scaled, point, centering_steps, stop)
        move = interior - point.x
        if float(point.gradient @ move + 0.5 * move @ (scaled @ move)) < 0:
            point = _Point(interior, point.gradient + scaled @ move, interior > 0)
            _active_set(scaled, point, tolerance, pivots, stop)
    return point.x * D


def _active_set(H: Tensor, point: _Point, tolerance: float, pivots: int, stop: Callable[[], bool]) -> bool:
    """Take primal active-set steps on `point`, in place; True if they ended, also by `stop`."""
    for _ in range(pivots):
        if stop():
            return True
        rows = point.moving.nonzero()[:, 0]
        if len(rows):
            full = _face_step(H, point, rows)
            if full is None:
                return False
            if not full:
                continue
        inward = torch.where(point.moving, 0.0, -point.gradient)
        worst = float(inward.max())
        if worst <= tolerance:
            return True
        # Half of the worst violators, but never so many that the face becomes a guess.
        count = min(int((inward > 0.5 * worst).sum()), max(1, int(point.moving.sum()) // 4))
        point.moving[inward.topk(count).indices] = True
    return False


def _face_step(H: Tensor, point: _Point, rows: Tensor) -> bool | None:
    """Take Newton's step on the moving coordinates; True if feasible whole, None without one."""
    face = H[rows][:, rows]
    factor = _cholesky(face)
    if factor is None:
        return None
    step = -torch.cholesky_solve(point.gradient[rows][:, None], factor)[:, 0]
    if not bool(torch.isfinite(step).all()):
        return None
    x = point.x[rows]
    negative = x + step < 0
    if not bool(negative.any()):
        _move(H, point, rows, step)
        return True
    length = float((x[negative] / -step[negative]).min())
    clipped = (x + step).clamp_min(0.0) - x
    gradient = point.gradient[rows]

    def change(move: Tensor) -> float:
        return float(gradient @ move + 0.5 * move @ (face @ move))

    if change(clipped) < change(length * step):
        _move(H, point, rows, clipped)
        gone = rows[negative]
    else:
        _move(H, point, rows, length * step)
        gone = rows[negative & (point.x[rows] <= 1e-15 * point.x.max())]
    point.x[gone] = 0.0
    point.moving[gone] = False
    return False


def _move(H: Tensor, point: _Point, rows: Tensor, step: Tensor) -> None:
    point.x[rows] += step
    point.x.clamp_min_(0.0)
    point.gradient += H[:, rows] @ step


def _interior_point(H: Tensor, start: _Point, steps: int, stop: Callable[[], bool]) -> Float[Tensor, " n"]:
    """Minimise c^T x + x^T H x / 2, x >= 0, z = H x + c >= 0, by Mehrotra's method.

    Source: Nocedal, Wright, Numerical Optimization, 16.6. Coordinates with x < z at the end are set to zero: with a
    unit diagonal, a coordinate step from x would reach the boundary there.
    """
    c = start.gradient - H @ start.x
    size, slope = max(float(start.x.max()), 1e-3), max(float(start.gradient.abs().max()), 1e-300)
    x = start.x.clamp_min(1e-2 * size)
    z = (H @ x + c).clamp_min(1e-2 * slope)
    for _ in range(steps):
        residual, gap = z - (H @ x + c), float(x @ z) / len(x)
        if gap <= 1e-13 * size * slope and float(residual.abs().max()) <= 1e-10 * slope:
            break
        if stop():
            return start.x
        factor = _cholesky(H + torch.diag(z / x))
        if factor is None:
            break
        dx, dz = _newton_direction(factor, x, z, residual, -x * z)
        ahead = float((x + _longest(x, dx) * dx) @ (z + _longest(z, dz) * dz)) / len(x)
        dx, dz = _newton_direction(factor, x, z, residual, (ahead / gap) ** 3 * gap - x * z - dx * dz)
        length = 0.995 * min(_longest(x, dx), _longest(z, dz))
        ahead_x, ahead_z = x + length * dx, z + length * dz
        if not bool((ahead_x > 0).all() and (ahead_z > 0).all() and torch.isfinite(ahead_x + ahead_z).all()):
            break
        x, z = ahead_x, ahead_z
    return torch.where(x < z, 0.0, x)


def _newton_direction(factor: Tensor, x: Tensor, z: Tensor, residual: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Solve z + dz = H (x + dx) + c, z dx + x dz = target, by the factor of H + diag(z / x)."""
    dx = torch.cholesky_solve((target / x + residual)[:, None], factor)[:, 0]
    return dx, (target - z * dx) / x


def _longest(x: Tensor, step: Tensor) -> float:
    """Return the largest t <= 1 with x + t step >= 0."""
    falling = step < 0
    return min(1.0, float((x[falling] / -step[falling]).min())) if bool(falling.any()) else 1.0


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
