"""Whether weights are stationary where neurons sit on kinks: the gradient is a set there, and 0 may lie in it.

At a kink z_ik = 0 the derivative of sigma_a may be any number in [a, 1] (Clarke's subdifferential), so W_l is
stationary if some choice gives W_l^T = Zs_{l-1}^T M_l (MATH.md section 5). Neuron by neuron, from the last layer down,
the best choice is a least-squares problem with bounds. Below the last hidden layer the choices above are held, so that
what is found there is an upper bound on the distance to the subdifferential.

Source: Clarke, Optimization and Nonsmooth Analysis (1983), chapter 2.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from scipy.optimize import lsq_linear
from torch import Tensor

from covopt.linalg.psd import thin
from covopt.model.problem import Problem
from covopt.model.stationarity import duals, inputs_of
from covopt.model.weights import Weights, inputs_from, preactivations

# z_ik is on the kink when it is at most this part of |Zs_i| |w_k|: solvers and trainings come that near.
KINK = 1e-4


def multiplier(problem: Problem, weights: Weights) -> Float[Tensor, "N nL"] | None:
    """M_L: from the loss; for `interpolate` from W_L^T = Zs_{L-1}^T Lambda, None where rank(Zs_{L-1}) < N."""
    if not problem.interpolates:
        return duals(problem, weights)[-1]
    factor = thin(inputs_of(problem, weights, problem.depth))
    return factor.solve_transposed(problem.penalised(weights[-1]).T) if int(factor.rank) == problem.samples else None


def residuals(problem: Problem, weights: Weights, Lambda: Float[Tensor, "N nL"]) -> list[float]:
    """|W_l - M_l^T Zs_{l-1}|_F / |W_l|_F for l = 1 ... L, with the best slopes at kinks; free biases count as 0 in W_l.

    Args:
        problem: the question.
        weights: W_1 ... W_L.
        Lambda: M_L, as `multiplier` gives it.
    """
    Z, M = preactivations(problem, weights), Lambda
    inputs = inputs_from(problem, Z)
    found: list[float] = []
    for layer in range(problem.depth, 0, -1):
        W, Zs = weights[layer - 1], inputs[layer - 1]
        if layer < problem.depth:
            M = _with_slopes(problem, W, Zs, Z[layer - 1], M @ weights[layer][:, :-1])
        pulled = problem.penalised(W)
        size, off = float(pulled.norm()), float((pulled - M.T @ Zs).norm())
        found.append(off / size if size > 0.0 else off)
    return found[::-1]


def _with_slopes(problem: Problem, W: Tensor, Zs: Tensor, Z: Tensor, above: Tensor) -> Float[Tensor, "N _"]:
    """M_l = sigma'(Z_l) * above, with slopes at kinks that bring Zs_{l-1}^T M_l nearest to W_l^T."""
    M = problem.activation.derivative(Z) * above
    kinks = Z.abs() <= KINK * torch.outer(Zs.norm(dim=1), W.norm(dim=1))
    if problem.activation.is_linear:
        return M
    for k in kinks.any(dim=0).nonzero()[:, 0].tolist():
        on = kinks[:, k]
        columns, free = Zs[on].T * above[on, k], M[:, k].masked_fill(on, 0.0)
        target = problem.penalised(W[k : k + 1])[0] - Zs.T @ free
        best = lsq_linear(columns.cpu().numpy(), target.cpu().numpy(), bounds=(problem.activation.slope, 1.0))
        M[on, k] = torch.as_tensor(best.x, dtype=M.dtype, device=M.device) * above[on, k]
    return M
