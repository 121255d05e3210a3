"""Edges between samples: quadratic forms that no activation increases (MATH.md section 5).

Row e of B (E, N) has the entries s_e at sample i_e and -s'_e at sample j_e, s, s' >= 0, so that Q = B^T B is positive
semidefinite with no positive entry off its diagonal. So |B sigma(Z)|_F <= |B Z|_F for slopes |a| <= 1: with z = p - m,
p, m >= 0 apart, z^T Q z - sigma(z)^T Q sigma(z) = (1 - a^2) m^T Q m - 2 (1 - a) p^T Q m >= 0, because
p^T Q m <= 0. If s = s', Q 1 = 0, and the bias columns have no effect. With the reach

    a >= max_w |B sigma(Xt w)|, |w| = 1     (at most |B X|_op, and |B Xt|_op where some s differs from its s'),

every network has |B F|_* <= a rho, rho = prod_l |W_l|_F, and |W|^2 >= L rho^(2/L). ranks.py proves more of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.certify.spectral import CHARGED
from covopt.linalg.rounding import to_unit_scale
from covopt.model.problem import Problem
from covopt.oracles.exact import exact_oracle

# Up to this number of samples times edges, the exact maximum over all neurons takes less than a second.
MOST_CROSSINGS = 40_000


@dataclass(frozen=True)
class Edges:
    """Pairs of samples, and their entries in the rows of B."""

    pairs: Int[Tensor, "_ _"]  # samples i and j of each edge (E, 2)
    sizes: Float[Tensor, "_ _"]  # s and s' (E, 2), in [0, 1]

    def fits(self, problem: Problem) -> bool:
        """Return True if these are edges between the problem's samples, with s = s' if it has a bias."""
        if self.pairs.shape != self.sizes.shape or self.pairs.shape[1:] != (2,) or not len(self.pairs):
            return False
        if bool((self.pairs < 0).any()) or bool((self.pairs >= problem.samples).any()):
            return False
        if not bool(((self.sizes >= 0.0) & (self.sizes <= 1.0)).all()):
            return False
        balanced = bool((self.sizes[:, 0] == self.sizes[:, 1]).all())
        # An edge from a sample to itself must not have a negative part.
        loops = (self.pairs[:, 0] == self.pairs[:, 1]) & (self.sizes[:, 1] > 0.0)
        return (balanced or problem.beta == 0.0) and not bool(loops.any())

    def rows(self, A: Float[Tensor, "N n"]) -> Float[Tensor, "E n"]:
        """Return B A."""
        first, second = A[self.pairs[:, 0]], A[self.pairs[:, 1]]
        s, t = self.sizes[:, :1], self.sizes[:, 1:]
        # With equal sizes the difference is taken first: it is exact if samples are close.
        return torch.where(s == t, s * (first - second), s * first - t * second)

    def scattered(self, flow: Float[Tensor, "E m"], samples: int) -> Float[Tensor, "N m"]:
        """Return B^T W."""
        out = flow.new_zeros(samples, flow.shape[1])
        out.index_add_(0, self.pairs[:, 0], self.sizes[:, :1] * flow)
        return out.index_add_(0, self.pairs[:, 1], -self.sizes[:, 1:] * flow)

    def absolute_rows(self, A: Float[Tensor, "N n"]) -> Float[Tensor, "E n"]:
        """Return |B| |A|."""
        return self.sizes[:, :1] * A[self.pairs[:, 0]].abs() + self.sizes[:, 1:] * A[self.pairs[:, 1]].abs()

    def absolute_scattered(self, flow: Float[Tensor, "E m"], samples: int) -> Float[Tensor, "N m"]:
        """Return |B|^T |W|."""
        out = flow.new_zeros(samples, flow.shape[1])
        for k in (0, 1):
            out.index_add_(0, self.pairs[:, k], self.sizes[:, k, None] * flow.abs())
        return out

    def dense(self, samples: int) -> Float[Tensor, "E N"]:
        """Return B."""
        return self.rows(torch.eye(samples, dtype=torch.float64))

    def image(self, A: Float[Tensor, "N n"]) -> tuple[Float[Tensor, "E n"], float]:
        """Return B A, and a bound on its rounding and on that of its singular values."""
        differences = self.rows(A)
        s, t = self.sizes[:, :1], self.sizes[:, 1:]
        terms = torch.where(s == t, 0.0, self.absolute_rows(A))
        moved = max(differences.shape) * CHARGED * float(differences.norm()) + CHARGED * float(terms.norm())
        return differences, moved

    def reach(self, problem: Problem) -> float:
        """Return an upper bound on max_w |B sigma(Xt w)| over unit directions w."""
        X, size = to_unit_scale(problem.X.double())
        image, moved = self.image(X)
        reach = size * (float(torch.linalg.svdvals(image)[0]) + moved) * (1.0 + 2.0**-50)
        if problem.samples * len(self.pairs) > MOST_CROSSINGS or problem.activation.is_linear:
            return reach
        oracle = exact_oracle(problem.Xt.double(), problem.activation)
        if oracle is None:
            return reach
        return min(reach, oracle(self.dense(problem.samples).T, problem.Xt[:0]).upper_bound)

    def targets(self, problem: Problem) -> tuple[Float[Tensor, "E m"], float, float]:
        """Return B Y / s, a bound on |B F / s - B Y / s|_F for all outputs F that fit and on the rounding, and s."""
        Y, size = to_unit_scale(problem.Y.double())
        image, moved = self.image(Y)
        # Each entry of F - Y is at most eps, which moves a singular value by at most |B (F - Y)|_F.
        missed = problem.allowed_misfit / size * math.sqrt(Y.shape[1]) * float(self.sizes.sum(dim=1).norm())
        return image, moved + missed * (1.0 + 2.0**-40), size

    def stretch(self, problem: Problem) -> float:
        """Return an upper bound on |B A|_F / (sum_i q_i |a_i|^2)^(1/2), over all A."""
        touched, places = self.pairs.unique(return_inverse=True)
        Q = self.sizes.new_zeros(len(touched), len(touched))
        s, t = self.sizes.T
        for entries, i, j in ((s * s, 0, 0), (t * t, 1, 1), (-s * t, 0, 1), (-s * t, 1, 0)):
            Q.index_put_((places[:, i], places[:, j]), entries, accumulate=True)
        roots = problem.inverse_shares[touched].sqrt()
        Q *= roots[:, None] * roots
        rounding = CHARGED * (len(Q) + len(s)) * float(Q.trace())
        return math.sqrt(float(torch.linalg.eigvalsh(Q)[-1]) + rounding) * (1.0 + 2.0**-40)


def power(ratio: float, depth: int) -> float:
    """Return L ratio^(2/L), the smallest |W|^2 of layers whose norms have this product."""
    return depth * min(ratio, 1e300) ** (2.0 / depth) if ratio > 0.0 and math.isfinite(ratio) else 0.0
