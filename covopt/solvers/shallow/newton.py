"""Newton's method on the outputs of fixed neurons, for losses that are no least squares.

The quadratic models of ConvexDatafit use one curvature for each sample, the largest of its outputs'. Where the outputs
of a sample differ in theirs by orders of magnitude such steps crawl. As long as no v_k vanishes,

    C(Phi V + beta 1 b^T) + lam (2 sum_k |v_k| + |b|^2)

is smooth, with the Hessian sum_i P_i P_i^T x H_i + 2 lam (I - v v^T / |v|^2) / |v| in the blocks of the neurons,
P = [Phi, beta 1] and H_i that of the sample's loss (derived; tested against automatic differentiation, and the minima
against a conic solver). Sizes: Phi (N, n), V (n, m), b (m,), H_i (m, m), with the share q_i of the sample in it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.model.loss import CrossEntropy
from covopt.model.problem import Problem


def refine(
    problem: Problem,
    Phi: Float[Tensor, "N n"],
    V: Float[Tensor, "n m"],
    b: Float[Tensor, " m"],
    tolerance: float,
    stop: Callable[[], bool],
) -> tuple[Float[Tensor, "n m"], Float[Tensor, " m"]] | None:
    """Return V and b of lower cost with all v_k nonzero; None if too large or without gain.

    Args:
        problem: depth 2.
        Phi: the features of the neurons.
        V, b: where to begin; no row of V is zero.
        tolerance: a step that gains less than this, relative, is the last.
        stop: asked between steps.
    """
    (N, m), beta = problem.Y.shape, problem.bias(1)
    P = torch.cat([Phi, Phi.new_full((N, int(beta > 0.0)), beta)], dim=1)
    n, rows = len(V), P.shape[1]
    # At most 300 unknowns, and 3e7 multiplications for one Hessian.
    if rows * m > 300 or problem.samples * rows**2 * m**2 > 3e7 or not n:
        return None
    x = torch.cat([V, b[None]]) if beta > 0.0 else V
    first = at = _cost(problem, P, x, n)
    for _ in range(20):
        moved = None if stop() else _step(problem, P, x, n, at)
        if moved is None:
            break
        x, new = moved
        done, at = at - new <= max(tolerance, 1e-14) * at, new
        if done:
            break
    return (x[:n], x[n] if beta > 0.0 else b) if at < first else None


def _step(problem: Problem, P: Tensor, x: Tensor, n: int, at: float) -> tuple[Tensor, float] | None:
    """One step with a line search; None where none lowers the cost."""
    gradient, H = derivatives(problem, P, x, n)
    largest = float(H.diagonal().max())
    # The ridge is added to the diagonal, relative to its largest entry; the next where the last leaves no descent.
    for ridge in (1e-12, 1e-8, 1e-4):
        raised = H.clone()
        raised.diagonal().add_(ridge * largest)
        factor, failed = torch.linalg.cholesky_ex(raised)
        if int(failed):
            continue
        step = -torch.cholesky_solve(gradient.reshape(-1, 1), factor).reshape(x.shape)
        slope = float((gradient * step).sum())
        towards = -(x[:n] * step[:n]).sum(dim=1) / x[:n].square().sum(dim=1)
        # Beyond v_k = 0 the cost has a kink: one step goes 0.95 of the way there at most, for any k.
        length = min(1.0, 0.95 / max(float(towards.max()), 1e-300))
        for _ in range(12):
            new = _cost(problem, P, x + length * step, n)
            if new < at + 1e-4 * length * slope:
                return x + length * step, new
            length /= 2.0
    return None


def _cost(problem: Problem, P: Tensor, x: Tensor, n: int) -> float:
    penalty = 2.0 * x[:n].norm(dim=1).sum() + x[n:].square().sum()
    return float(problem.loss_at(P @ x) + problem.lam * penalty)


def hessians(problem: Problem, F: Float[Tensor, "N m"]) -> Float[Tensor, "N m m"]:
    """Return H_i, the second derivative of C in sample i's outputs; curvatures if separable."""
    shares = problem.shares.to(F)[:, None, None]
    if type(problem.loss) is not CrossEntropy:
        return shares * torch.diag_embed(problem.loss.curvatures(F, problem.Y))
    p = torch.softmax(F, dim=1)
    # p (1 - p) through the other classes: 1 - p of a certain class would be rounding.
    complement = p @ (1.0 - torch.eye(p.shape[1], dtype=p.dtype, device=p.device))
    curvature = -p[:, :, None] * p[:, None, :]
    curvature.diagonal(dim1=1, dim2=2).copy_(p * complement)
    return shares * curvature


def derivatives(
    problem: Problem, P: Float[Tensor, "N r"], x: Float[Tensor, "r m"], n: int
) -> tuple[Float[Tensor, "r m"], Float[Tensor, "rm rm"]]:
    """Return gradient and Hessian of the cost in x: the rows v_k of n neurons and, if any, b."""
    m, r, lam = problem.Y.shape[1], len(x), problem.lam
    F = P @ x
    identity = torch.eye(m, dtype=x.dtype, device=x.device)
    H, slopes = problem.spread.sums(
        lambda P, H_i, G: (torch.einsum("ia,icd,ib->acbd", P, H_i, P), P.T @ G),
        *(P, hessians(problem, F), problem.gradient_at(F)),
    )
    lengths = x[:n].norm(dim=1, keepdim=True)
    unit = x[:n] / lengths
    bend = (identity - unit[:, :, None] * unit[:, None, :]) / lengths[:, :, None]
    neurons = torch.arange(n, device=x.device)
    H[neurons, :, neurons, :] += 2.0 * lam * bend
    last = torch.arange(n, r, device=x.device)
    H[last, :, last, :] += 2.0 * lam * identity
    gradient = slopes + 2.0 * lam * torch.cat([unit, x[n:]])
    return gradient, H.reshape(r * m, r * m)
