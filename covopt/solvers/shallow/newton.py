"""Newton's method for the output weights of fixed neurons, for losses other than squared errors.

The quadratic models of ConvexDatafit use one curvature for each sample: the maximum over its outputs. If the curvatures
of the outputs differ by orders of magnitude, such steps make little progress. As long as no v_k vanishes, the cost

    C(Phi V + beta 1 b^T) + lam (2 sum_k |v_k| + |b|^2)

is smooth. Its Hessian is sum_i P_i P_i^T x H_i (Kronecker products), plus 2 lam (I - v v^T / |v|^2) / |v| in the block
of each neuron and 2 lam I in that of b. Here P = [Phi, beta 1], and H_i is the Hessian of the loss of sample i, its
share q_i included. Tests compare the formula with automatic differentiation, and the minima with a conic solver.
Shapes: Phi (N, n), V (n, m), b (m,), H_i (m, m).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.model.problem import Problem
from covopt.runtime.loop import Stop


def refine(
    problem: Problem,
    Phi: Float[Tensor, "N n"],
    V: Float[Tensor, "n m"],
    b: Float[Tensor, " m"],
    tolerance: float,
    stop: Stop,
) -> tuple[Float[Tensor, "n m"], Float[Tensor, " m"]] | None:
    """Return V and b of lower cost, all v_k nonzero; None if there is no gain, or too much work.

    Phi holds the features of the neurons. No row of the first V is zero. A step ends it that lowers the cost by less
    than `tolerance`, relative.
    """
    (N, m), beta = problem.Y.shape, problem.bias(1)
    P = torch.cat([Phi, Phi.new_full((N, int(beta > 0.0)), beta)], dim=1)
    n, rows = len(V), P.shape[1]
    # A step is affordable up to 300 unknowns and 3e7 multiplications for a Hessian.
    if rows * m > 300 or problem.samples * rows**2 * m**2 > 3e7 or not n:
        return None
    x = torch.cat([V, b[None]]) if beta > 0.0 else V
    initial_cost = cost = _cost(problem, P, x, n)
    smallest_gain = max(tolerance, 1e-14)  # gains below 1e-14 are rounding errors
    for _ in range(20):
        improvement = None if stop() else _step(problem, P, x, n, cost)
        if improvement is None:
            break
        x, new = improvement
        done, cost = cost - new <= smallest_gain * cost, new
        if done:
            break
    return (x[:n], x[n] if beta > 0.0 else b) if cost < initial_cost else None


def _step(problem: Problem, P: Tensor, x: Tensor, n: int, cost: float) -> tuple[Tensor, float] | None:
    """Return the point and cost after a step with line search; None if no step gains."""
    gradient, H = derivatives(problem, P, x, n)
    largest = float(H.diagonal().max())
    # Relative to the largest diagonal entry; a larger ridge is tried if no step with a smaller one lowers the cost.
    for ridge in (1e-12, 1e-8, 1e-4):
        raised = H.clone()
        raised.diagonal().add_(ridge * largest)
        factor, failed = torch.linalg.cholesky_ex(raised)
        if int(failed):
            continue
        step = -torch.cholesky_solve(gradient.reshape(-1, 1), factor).reshape(x.shape)
        slope = float((gradient * step).sum())
        shrinkage = -(x[:n] * step[:n]).sum(dim=1) / x[:n].square().sum(dim=1)
        # The cost has a kink at v_k = 0: a step shrinks v_k by at most 95 %, for every k.
        length = min(1.0, 0.95 / max(float(shrinkage.max()), 1e-300))
        for _ in range(12):
            new = _cost(problem, P, x + length * step, n)
            if new < cost + 1e-4 * length * slope:  # Armijo's condition
                return x + length * step, new
            length /= 2.0
    return None


def _cost(problem: Problem, P: Tensor, x: Tensor, n: int) -> float:
    penalty = 2.0 * x[:n].norm(dim=1).sum() + x[n:].square().sum()
    return float(problem.loss_at(P @ x) + problem.lam * penalty)


def derivatives(
    problem: Problem, P: Float[Tensor, "N r"], x: Float[Tensor, "r m"], n: int
) -> tuple[Float[Tensor, "r m"], Float[Tensor, "rm rm"]]:
    """Return gradient and Hessian of the cost in x: rows v_k of n neurons, then any b."""
    m, r, lam = problem.Y.shape[1], len(x), problem.lam
    F = P @ x
    identity = torch.eye(m, dtype=x.dtype, device=x.device)
    H, slopes = problem.spread.sums(
        lambda P, H_i, G: (torch.einsum("ia,icd,ib->acbd", P, H_i, P), P.T @ G),
        *(P, problem.hessians_at(F), problem.gradient_at(F)),
    )
    lengths = x[:n].norm(dim=1, keepdim=True)
    unit = x[:n] / lengths
    norm_hessians = (identity - unit[:, :, None] * unit[:, None, :]) / lengths[:, :, None]
    neurons = torch.arange(n, device=x.device)
    H[neurons, :, neurons, :] += 2.0 * lam * norm_hessians
    bias = torch.arange(n, r, device=x.device)
    H[bias, :, bias, :] += 2.0 * lam * identity
    gradient = slopes + 2.0 * lam * torch.cat([unit, x[n:]])
    return gradient, H.reshape(r * m, r * m)
