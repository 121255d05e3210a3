"""The space of the dual points of two layers, orthogonal to all outputs of zero cost (MATH.md section 4).

Rounding: Lambda is orthogonal to the columns E, of length 1, up to s = E^T Lambda. A bound is that of the nearest point
that is so exactly, which is off by at most |s|_F / sigma_min(E).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.certify.spectral import SLACK
from covopt.linalg.rounding import EPS
from covopt.model.biases import centred
from covopt.model.problem import Problem


def orthogonal(problem: Problem, Lambda: Float[Tensor, "N m"]) -> Float[Tensor, "N m"]:
    """Return Lambda less its part along the free outputs, up to rounding."""
    E, Lambda = problem.biases.free_columns(problem.X.double()), Lambda.double()
    if E.shape[1] <= 1:
        return centred(Lambda) if E.shape[1] else Lambda
    Q, _ = torch.linalg.qr(E)
    for _ in range(2):
        Lambda = Lambda - Q @ (Q.T @ Lambda)
    return Lambda


def distance(problem: Problem, Lambda: Float[Tensor, "N m"]) -> float:
    """Return an upper bound on the distance of Lambda from the points orthogonal to the free outputs."""
    E, N = problem.biases.free_columns(problem.X.double()), problem.samples
    if not E.shape[1]:
        return 0.0
    least = 1.0 if E.shape[1] == 1 else float(torch.linalg.svdvals(E).min()) - 2.0**-44 * E.shape[1] * math.sqrt(N)
    if E.shape[1] > N or least < 1e-6:  # E is too close to singular to say how far
        return math.inf
    # An entry of E is off by some units in the last place of itself, from centring and from the division.
    sums = (E.T @ Lambda).abs() + (2.0 * N + 8.0) * EPS * (E.abs().T @ Lambda.abs())
    return float(sums.norm()) / least * (1.0 + SLACK)


def widened(problem: Problem, off: float, maximum: float) -> float:
    """Return a bound on h at the exactly orthogonal point, at a distance of `off` from the one with `maximum`."""
    if off == 0.0:
        return maximum
    X = problem.X.double()
    apart = 2.0 * float(centred(X).norm(dim=1).max()) * (1.0 + SLACK) + EPS * float(X.abs().max())
    return maximum * (1.0 + SLACK) + off * math.sqrt(len(X)) * apart


def lost(problem: Problem, Lambda: Float[Tensor, "N m"], off: float) -> float:
    """Return an upper bound on D(Lambda) - D at the exactly orthogonal point, at a distance of `off`."""
    if off == 0.0:
        return 0.0
    targets = float(problem.Y.double().norm()) + problem.allowed_misfit * problem.Y.numel()
    bent = float(problem.dual_curvature.max()) * problem.lam * (2.0 * float(Lambda.norm()) + off)
    return problem.lam * off * (2.0 * targets + bent) * (1.0 + SLACK)
