"""Bounds for two layers with free biases, which the penalty is not on (MATH.md section 4).

The output bias is free, so that D(Lambda) is finite only where Lambda^T 1 = 0, and it is then D of the same question
without biases. The constraint on Lambda is M = max h(w, b) <= 1 over |w| = 1 and every b,

    h(w, b) = |Lambda^T sigma(X w + b 1)|.

For one w it is convex in b between two breakpoints b = -x_j^T w and constant beyond the last on either side, because
Lambda^T 1 = 0. So the maximum lies at a breakpoint, and there the neuron sees the inputs from sample j without a bias:

    M = max_j max_w |Lambda^T sigma((X - 1 x_j^T) w)|,

N questions without bias of the rank of the centred inputs: each has its exact oracle, or a tree of cones of its own.
And sigma, which is 1-Lipschitz, widens no sample variance: with H = I - 1 1^T / N, M <= |Lambda|_op |H X|_op. Derived.

With a free linear skip D is finite only where Lambda^T X = 0 too. Then h is 0 beyond the last breakpoint, so that the
same questions prove M; and as the linear half of sigma_a(z) = ((1 + a) z + (1 - a) |z|) / 2 is lost on Lambda, the last
bound holds with the factor (1 - a) / 2.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from numpy.typing import NDArray
from torch import Tensor

from covopt.certify.cones.branch import branch_and_bound, replay
from covopt.certify.dual import PARABOLAS, DualProof, Exact, dual_bound
from covopt.certify.dual_space import distance, orthogonal, widened
from covopt.certify.proof import Proved, Target, Unproved
from covopt.certify.spectral import SLACK
from covopt.model.biases import Free, centred
from covopt.model.problem import Problem
from covopt.oracles.exact import inputs_have_rank_at_most
from covopt.oracles.oracle import Answer
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Certificate


def spectral_maximum(problem: Problem, Lambda: Float[Tensor, "N m"]) -> float:
    """|Lambda'|_op |H X|_op >= M, with a skip (1 - a) / 2 of it, with its rounding."""
    parts = (orthogonal(problem, Lambda), centred(problem.X.double()))
    sizes = [float(torch.linalg.matrix_norm(part, 2)) + 2.0**-44 * float(part.norm()) for part in parts]
    bent = 0.5 * (1.0 - problem.activation.slope) if problem.skip else 1.0
    return bent * sizes[0] * sizes[1] * (1.0 + SLACK)


@dataclass(frozen=True)
class FreeTrees(DualProof):
    """A bound whose maximum N trees over cones of directions prove.

    Attributes:
        tree: the codes of all trees, one after the other.
        counts: how many codes each tree has (N,).
    """

    tree: UInt8[np.ndarray, " _"]
    counts: Int[np.ndarray, " _"]

    kind: ClassVar[Certificate] = Certificate.BRANCH_AND_BOUND
    biases: ClassVar[tuple[type, ...]] = (Free,)
    losses: ClassVar[tuple[type, ...]] = PARABOLAS
    missing: ClassVar[str] = "The certificate '{kind}' comes without its evidence; solve again."

    @classmethod
    def suits(cls, problem: Problem) -> bool:
        """Return True if a tree at each breakpoint is affordable."""
        return inputs_have_rank_at_most(problem, 6)

    @classmethod
    def prove(cls, problem: Problem, target: Target, last: Any = None) -> Proved:
        """Grow a tree at each breakpoint; violators are rows (w, b) with |w| = 1."""
        Lambda = orthogonal(problem, target.point)
        maximum, codes, neurons = _trees(problem, Lambda, 1.0 + target.gap / 4.0, target.time_limit)
        tree, counts = np.concatenate([np.zeros(0, np.uint8), *codes]), np.array([*map(len, codes)], dtype=np.int64)
        proof = cls(*dual_bound(problem, target.point, maximum)[:3], tree=tree, counts=counts)
        if proof.lower > 0.0:
            proof = replace(proof, lower=min(proof.lower, proof.bound(problem)))
        return Proved(proof, neurons)

    def proved_maximum(self, problem: Problem) -> float:
        counts, N = self.counts, problem.samples
        fits = counts.shape == (N,) and bool((counts >= 0).all()) and int(counts.sum()) == len(self.tree)
        if not inputs_have_rank_at_most(problem, 6) or not fits:
            raise ProblemError(self.missing.format(kind=self.kind))
        point, bound = orthogonal(problem, self.Lambda), 0.0
        views = problem.biases.views(problem.X.double(), problem.beta)
        for view, part in zip(views, np.split(self.tree, counts.cumsum()[:-1]), strict=True):
            upper = replay(view.inputs, problem.activation, point, part, claimed=self.maximum)
            bound = max(bound, upper + view.rounding * float(point.norm()))
        return bound


@dataclass(frozen=True)
class FreeNorms(DualProof):
    """A bound whose maximum the norms of the dual point and of the centred inputs bound."""

    kind: ClassVar[Certificate] = Certificate.SPECTRAL
    biases: ClassVar[tuple[type, ...]] = (Free,)
    losses: ClassVar[tuple[type, ...]] = PARABOLAS

    @classmethod
    def prove(cls, problem: Problem, target: Target, last: Any = None) -> Proved:
        maximum = spectral_maximum(problem, target.point)
        return Proved(cls(*dual_bound(problem, target.point, maximum)[:3]))

    def proved_maximum(self, problem: Problem) -> float:
        return spectral_maximum(problem, self.Lambda)


def prove(problem: Problem, Lambda: Float[Tensor, "N m"], seconds: float, gap: float) -> Proved:
    """Return the best proof at Lambda' within so many seconds, and the neurons that its trees met."""
    deadline = time.perf_counter() + seconds
    target = Target(Lambda, gap=gap, stop=lambda: time.perf_counter() >= deadline)
    best = Proved(Unproved(0.0))
    for kind in (FreeNorms, Exact if Exact.applies(problem) else FreeTrees):
        remaining = max(0.0, deadline - time.perf_counter())
        proved = kind.prove(problem, replace(target, time_limit=remaining)) if kind.applies(problem) else None
        if proved is not None:
            proof = max(best.proof, proved.proof, key=lambda proof: proof.lower)
            best = Proved(proof, proved.violators or best.violators)
    return best


def _trees(
    problem: Problem, point: Float[Tensor, "N m"], target: float, seconds: float
) -> tuple[float, list[NDArray], Answer | None]:
    """Return a bound on h at an orthogonal point, the tree at each breakpoint that proves it, and the best neurons."""
    deadline, bound = time.perf_counter() + seconds, 0.0
    codes: list[NDArray] = []
    rows: list[Tensor] = []
    values: list[Tensor] = []
    views = problem.biases.views(problem.X.double(), problem.beta)
    for trees, view in zip(range(problem.samples, 0, -1), views, strict=True):
        remaining = deadline - time.perf_counter()
        if remaining <= 0.0:  # the roots alone take long where there are many samples
            bound, codes = math.inf, []
            break
        share = min(remaining, 4.0 * remaining / trees)  # most trees need less than theirs
        tree = branch_and_bound(view.inputs, problem.activation, point, target=target, time_limit=share)
        bound = max(bound, tree.upper_bound + view.rounding * float(point.norm()))
        codes.append(tree.tree)
        rows.append(view.rows(tree.directions))
        values.append(tree.values)
    return bound, codes, Answer(torch.cat(rows), torch.cat(values)) if rows else None


def proved_maximum(
    problem: Problem, Lambda: Float[Tensor, "N m"], seconds: float, attained: float, near: float
) -> float:
    """Return a proved bound on h at the orthogonal part of Lambda, from norms and from trees.

    Args:
        problem: two layers with free biases; Lambda: any dual point (N, m).
        seconds: for the trees, which end once their bounds are this `near`, relative, to what is `attained`.
    """
    point = orthogonal(problem, Lambda)
    maximum = spectral_maximum(problem, Lambda)
    if seconds > 0.0 and inputs_have_rank_at_most(problem, 6):
        maximum = min(maximum, _trees(problem, point, (1.0 + near) * attained, seconds)[0])
    return widened(problem, distance(problem, point), maximum)
