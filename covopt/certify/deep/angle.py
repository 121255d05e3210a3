"""A bound from the angle between two samples, for exact fits by ReLU networks without biases (MATH.md section 5).

Phi(u, v) is the area of the parallelogram of u and v if u . v >= 0, and |u| |v| if u . v <= 0. It is half the minimum
of Tr K Q, K the Gram matrix of u and v, over the positive semidefinite 2 x 2 matrices Q with det Q = 1 and no positive
off-diagonal entry. A ReLU does not increase Phi, and a linear layer A multiplies it by at most |A|_F^2 / 2. So

    R >= 2 L max_{i,j} (Phi(y_i, y_j) / Phi(x_i, x_j))^(1/L),

which grows with slope 2 in L; the pair bound grows with slope 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.certify.proof import DeepProof, Proved, Target
from covopt.certify.spectral import SLACK
from covopt.linalg.rounding import to_unit_scale
from covopt.model.problem import Problem
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Certificate

# Rounding error of areas and inner products for each column, relative to |u| |v|.
CHARGED = 2.0**-50


@dataclass(frozen=True)
class Angle(DeepProof):
    """A bound from the angle between two samples."""

    pair: Int[np.ndarray, " _"]  # the two samples (2,)

    kind: ClassVar[Certificate] = Certificate.ANGLE
    missing: ClassVar[str] = "The stored pair is missing or does not fit the data; solve again."

    @classmethod
    def suits(cls, problem: Problem) -> bool:
        """Return True for ReLU networks without biases."""
        return problem.beta == 0.0 and problem.activation.slope == 0.0 and problem.samples > 1

    @classmethod
    def prove(cls, problem: Problem, target: Target, last: Any = None) -> Proved:
        return cls(0.0, np.array(best_pair(problem))).proved(problem)

    def bound(self, problem: Problem) -> float:
        """Return the bound from the pair; 0 if it does not apply or proves nothing."""
        pair = self.pair.tolist()
        if len(pair) != 2 or not all(0 <= k < problem.samples for k in pair):
            raise ProblemError(self.missing)
        X, size = to_unit_scale(problem.X.double()[pair])
        Y, height = to_unit_scale(problem.Y.double()[pair])
        above = float(_above(X[:1], X[1:])[0])
        below = float(_below(Y[:1], Y[1:], problem.allowed_misfit / height)[0])
        if not self.applies(problem) or not above > 0.0 or not below > 0.0:
            return 0.0
        exponent = (math.log(below) - math.log(above) + 2.0 * (math.log(height) - math.log(size))) / problem.depth
        largest = 700.0  # math.exp overflows above 709
        return 2.0 * problem.depth * math.exp(min(exponent, largest)) * (1.0 - SLACK)


def best_pair(problem: Problem) -> tuple[int, int]:
    """Return the two samples with the largest bound, among the first 1,000."""
    samples = 1000  # the number of pairs is quadratic
    X, _ = to_unit_scale(problem.X.double()[:samples])
    Y, height = to_unit_scale(problem.Y.double()[:samples])
    best, pair = -1.0, (0, 1)
    for i in range(len(X) - 1):
        below = _below(Y[i : i + 1], Y[i + 1 :], problem.allowed_misfit / height)
        ratio = below / _above(X[i : i + 1], X[i + 1 :]).clamp_min(1e-300)
        k = int(ratio.argmax())
        if float(ratio[k]) > best:
            best, pair = float(ratio[k]), (i, i + 1 + k)
    return pair


def parallelograms(
    u: Float[Tensor, "#M n"], v: Float[Tensor, "M n"]
) -> tuple[Float[Tensor, " M"], Float[Tensor, " M"], Float[Tensor, " M"]]:
    """Return |u| |v|, the area of the parallelogram and u . v, row by row."""
    lengths, product = u.norm(dim=1) * v.norm(dim=1), (u * v).sum(dim=1)
    orthogonal = v - (product / u.square().sum(dim=1).clamp_min(1e-300))[:, None] * u
    return lengths, u.norm(dim=1) * orthogonal.norm(dim=1), product


def _above(u: Float[Tensor, "1 n"], v: Float[Tensor, "M n"]) -> Float[Tensor, " M"]:
    """Return an upper bound on Phi; an angle that may be obtuse counts as obtuse."""
    lengths, area, product = parallelograms(u, v)
    lost = (u.shape[1] + 8) * CHARGED * lengths
    return torch.where(product > lost, torch.minimum(area + lost, lengths + lost), lengths + lost)


def _below(u: Float[Tensor, "1 n"], v: Float[Tensor, "M n"], missed: float) -> Float[Tensor, " M"]:
    """Return a lower bound on Phi if each entry of u and v is off by at most `missed`."""
    lengths, area, product = parallelograms(u, v)
    shift = missed * math.sqrt(u.shape[1]) * (1.0 + 2.0**-40)  # a norm, rounded up
    moved = shift * (u.norm(dim=1) + v.norm(dim=1)) + shift * shift + (u.shape[1] + 8) * CHARGED * lengths
    # Phi is at least the area; it is |u| |v| if the angle is obtuse whatever the shift and the rounding.
    return torch.where(product < -moved, lengths - moved, area - moved).clamp_min(0.0)
