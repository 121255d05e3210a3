"""Networks made to fit exactly: all layers together take the smallest correction, or the last layer takes it alone.

The correction is by Gauss-Newton steps of least norm. Before it comes a descent of the mean squared error with a small
penalty (`explored_problem`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy
import torch
from torch import Tensor

from covopt.linalg.psd import thin
from covopt.model.problem import Problem
from covopt.model.weights import Weights, flattened, inputs_from, inputs_of, preactivations, pulled_back, shaped_like
from covopt.runtime.loop import Stop
from covopt.solvers.training.tangent import linearised, misfit

PRODUCTS = 300  # products with J, at most, of a Gauss-Newton step
DENSE = 2.0**24
"""Multiplications with J as a matrix, at most; a step takes 2 ms where 300 products take 37 (25 rows of 3 outputs)."""
ROUNDED = 1e-14  # a fit that is off by no more than this, relative to max |Y|, is not made more exact


def explored_problem(problem: Problem) -> Problem:
    """Return the problem, or for `interpolate` a penalised mse whose minima are close."""
    loss = problem.smooth_loss
    return problem if loss is problem.loss else replace(problem, loss=loss, lam=usual_penalty(problem))


def usual_penalty(problem: Problem) -> float:
    """Return lam at which a fit pays about 1 % of |Y|^2 / N, by a rough guess of |W|^2."""
    inputs = float(torch.linalg.matrix_norm(problem.X, 2))
    targets = float(torch.linalg.matrix_norm(problem.Y, "nuc"))
    guess = problem.depth * (targets / inputs) ** (2.0 / problem.depth) if inputs * targets > 0.0 else 1.0
    return 1e-2 * max(float(problem.Y.square().sum()), 1e-300) / problem.samples / guess


def fit_exactly(problem: Problem, weights: Weights) -> list[Tensor]:
    """Change W_L as little as possible so that Z_L = Y if Y lies in Im Zs_{L-1}, else so that it is near."""
    Zs = inputs_of(problem, weights, problem.depth)
    return [*weights[:-1], weights[-1] + thin(Zs).solve(problem.Y - Zs @ weights[-1].T).T]


def nearest_fit(problem: Problem, weights: list[Tensor], stop: Stop = lambda: False) -> list[Tensor]:
    """Change W_1 ... W_L as little as possible for F = Y, exactly or as nearly as possible.

    Takes Gauss-Newton steps D, the smallest with J D = Y - F, while they bring F nearer to Y.
    """
    off, rounded = misfit(problem, weights), ROUNDED * float(problem.Y.abs().max())
    for _ in range(5):
        if off <= rounded or stop():
            break
        changed = [W + step for W, step in zip(weights, _least_step(problem, weights), strict=True)]
        still_off = misfit(problem, changed)
        if not still_off < off:
            break
        weights, off = changed, still_off
    return weights


def _least_step(problem: Problem, weights: list[Tensor]) -> list[Tensor]:
    """Return the smallest D = (D_1, ..., D_L) with J D = Y - F, J the derivative of F with respect to all weights."""
    Z = preactivations(problem, weights)
    off, size = _flat([problem.Y - Z[-1]]), sum(W.numel() for W in weights)
    if len(off) ** 2 * size <= DENSE:
        no_kinks = [torch.zeros_like(z, dtype=torch.bool) for z in Z[:-1]]
        J = _flat([linearised(problem, weights, no_kinks).rows()]).reshape(len(off), size)
        return _shaped(np.linalg.lstsq(J, off, rcond=ROUNDED)[0], weights)
    Zs, slopes = inputs_from(problem, Z), [problem.activation.derivative(z) for z in Z[:-1]]

    def times(x: np.ndarray) -> np.ndarray:
        D = _shaped(x, weights)
        change = Zs[0] @ D[0].T
        for slope, W, step, inputs in zip(slopes, weights[1:], D[1:], Zs[1:], strict=True):
            change = inputs @ step.T + (slope * change) @ W[:, : change.shape[1]].T
        return _flat([change])

    def transposed_times(x: np.ndarray) -> np.ndarray:
        pulled = pulled_back(problem, weights, Z, _shaped(x, [Z[-1]])[0])
        return _flat([M.T @ inputs for M, inputs in zip(pulled, Zs, strict=True)])

    J = scipy.sparse.linalg.LinearOperator((len(off), size), times, rmatvec=transposed_times, dtype=np.float64)
    options = {"atol": 0.0, "btol": ROUNDED, "conlim": 0.0, "maxiter": PRODUCTS}
    return _shaped(scipy.sparse.linalg.lsmr(J, off, **options)[0], weights)


def _flat(arrays: Sequence[Tensor]) -> np.ndarray:
    return flattened(arrays).detach().double().cpu().numpy()


def _shaped(flat: np.ndarray, like: Sequence[Tensor]) -> list[Tensor]:
    return shaped_like(torch.as_tensor(flat).to(like[0]), like)
