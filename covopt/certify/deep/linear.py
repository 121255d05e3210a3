"""The minimum cost of an exact fit by a linear network, from singular values (MATH.md section 5).

A linear network computes F = X A + 1 c^T with A = A_1^T ... A_L^T, and sum_l |A_l|_F^2 >= L sum_i s_i(A)^(2/L). For any
matrix P (k, N), with P 1 = 0 where there is a bias, P X A = P F, so that s_i(P F) <= |P X|_op s_i(A). P is the
computed pseudo-inverse of H X; its own |P X|_op is bounded from above, so its rounding does not matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from covopt.certify.proof import DeepProof, Proved, Target
from covopt.certify.spectral import CHARGED, SLACK
from covopt.linalg.psd import thin
from covopt.linalg.rounding import to_unit_scale
from covopt.model.problem import Problem
from covopt.runtime.loop import Certificate


@dataclass(frozen=True)
class Linear(DeepProof):
    """A bound from the singular values of the smallest linear map that fits."""

    kind: ClassVar[Certificate] = Certificate.LINEAR

    @classmethod
    def suits(cls, problem: Problem) -> bool:
        return problem.activation.is_linear

    @classmethod
    def prove(cls, problem: Problem, target: Target, last: Any = None) -> Proved:
        return cls(0.0).proved(problem)

    def bound(self, problem: Problem) -> float:
        """Return L sum_i s_i^(2/L), rounding and the allowed misfit included; 0 for other problems."""
        if not self.applies(problem):
            return 0.0
        X, size = to_unit_scale(problem.X.double())
        Y, height = to_unit_scale(problem.Y.double())
        factor = thin(X - X.mean(dim=0) if problem.beta != 0.0 else X)
        regular = factor.significant > 0
        P = factor.inverse[regular, None] * factor.U[:, regular].T
        P = P - P.mean(dim=1, keepdim=True) if problem.beta != 0.0 else P
        if not len(P):
            return 0.0
        # A bound on the distance of P to P less its exact row means, which annihilates the biases.
        lost = (problem.samples + 16) * CHARGED * float(P.norm())
        reach = float(torch.linalg.matrix_norm(P @ X, 2)) + lost * float(X.norm())
        values = torch.linalg.svdvals(P @ Y)
        missed = problem.allowed_misfit / height * (Y.numel() ** 0.5)
        missed = missed * float(torch.linalg.matrix_norm(P, 2)) * (1.0 + SLACK)
        values = (values - missed - lost * float(Y.norm())).clamp_min(0.0)
        powers = (values[values > 0.0] / reach) ** (2.0 / problem.depth)
        units = 2.0 / problem.depth * (math.log(height) - math.log(size)) if len(powers) else 0.0
        return problem.depth * float(powers.sum()) * math.exp(min(units, 690.0)) * (1.0 - SLACK)
