"""Bounds for two layers with free biases, which the penalty is not on (MATH.md section 4).

The output bias is free, so that D(Lambda) is finite only where Lambda^T 1 = 0, and it is then D of the same problem
without biases. The constraint on Lambda is M = max h(w, b) <= 1 over |w| = 1 and every b,

    h(w, b) = |Lambda^T sigma(X w + b 1)|.

For one w it is convex in b between two breakpoints b = -x_j^T w and constant beyond the last on either side, because
Lambda^T 1 = 0. So the maximum lies at a breakpoint, and there the neuron sees the inputs from sample j without a bias:

    M = max_j max_w |Lambda^T sigma((X - 1 x_j^T) w)|,

N problems without bias of the rank of the centred inputs: each has its exact oracle, or a tree of cones of its own.
And sigma, which is 1-Lipschitz, widens no sample variance: with H = I - 1 1^T / N, M <= |Lambda|_op |H X|_op. Derived.

With a free linear skip D is finite only where Lambda^T X = 0 too. Then h is 0 beyond the last breakpoint, so that the
same problems prove M; and as the linear half of sigma_a(z) = ((1 + a) z + (1 - a) |z|) / 2 is lost on Lambda, the last
bound holds with the factor (1 - a) / 2.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.certify.cones.branch import ConeTree, trees
from covopt.certify.dual import PARABOLAS, DualProof, Exact, dual_bound
from covopt.certify.dual_space import distance, orthogonal, widened
from covopt.certify.proof import Proved, Target, Unproved
from covopt.certify.spectral import SLACK
from covopt.model.biases import Free, centred
from covopt.model.problem import Problem
from covopt.oracles.exact import inputs_have_rank_at_most
from covopt.runtime.loop import Certificate


def spectral_maximum(problem: Problem, Lambda: Float[Tensor, "N m"]) -> float:
    """|Lambda'|_op |H X|_op >= M, with a skip (1 - a) / 2 of it, with its rounding."""
    parts = (orthogonal(problem, Lambda), centred(problem.X.double()))
    sizes = [float(torch.linalg.matrix_norm(part, 2)) + 2.0**-44 * float(part.norm()) for part in parts]
    return problem.biases.bent_part(problem.activation.slope) * sizes[0] * sizes[1] * (1.0 + SLACK)


@dataclass(frozen=True)
class FreeNorms(DualProof):
    """A bound whose maximum the norms of the dual point and of the centred inputs bound."""

    kind: ClassVar[Certificate] = Certificate.SPECTRAL
    biases: ClassVar[tuple[type, ...]] = (Free,)
    losses: ClassVar[tuple[type, ...]] = PARABOLAS

    @classmethod
    def prove(cls, problem: Problem, target: Target, last: Any = None) -> Proved:
        return Proved(cls(*dual_bound(problem, target.point, spectral_maximum(problem, target.point))[:3]))

    def proved_maximum(self, problem: Problem) -> float:
        return spectral_maximum(problem, self.Lambda)


def prove(problem: Problem, Lambda: Float[Tensor, "N m"], seconds: float, gap: float) -> Proved:
    """Return the best proof at Lambda' within this number of seconds, and the neurons that its trees met."""
    deadline = time.perf_counter() + seconds
    target = Target(Lambda, gap=gap, stop=lambda: time.perf_counter() >= deadline)
    best = Proved(Unproved(0.0))
    for kind in (FreeNorms, Exact if Exact.applies(problem) else ConeTree):
        remaining = max(0.0, deadline - time.perf_counter())
        proved = kind.prove(problem, replace(target, time_limit=remaining)) if kind.applies(problem) else None
        if proved is not None:
            proof = max(best.proof, proved.proof, key=lambda proof: proof.lower)
            best = Proved(proof, proved.violators or best.violators)
    return best


def proved_maximum(
    problem: Problem, Lambda: Float[Tensor, "N m"], seconds: float, attained: float, near: float
) -> float:
    """Return a proved bound on h at the orthogonal part of Lambda, from norms and, if there are seconds, from trees.

    The trees end once their bounds are this `near`, relative, to what is `attained`.
    """
    point = orthogonal(problem, Lambda)
    maximum = spectral_maximum(problem, Lambda)
    if seconds > 0.0 and inputs_have_rank_at_most(problem, 6):
        maximum = min(maximum, trees(problem, point, Target(time_limit=seconds), (1.0 + near) * attained).upper_bound)
    return widened(problem, distance(problem, point), maximum)
