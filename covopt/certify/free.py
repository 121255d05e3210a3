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

Rounding: Lambda is orthogonal to the columns E of [1, X], of length 1, up to s = E^T Lambda. The bound is that of the
nearest point that is so exactly, which is off by at most |s|_F / sigma_min(E).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from numpy.typing import NDArray
from torch import Tensor

from covopt.certify.cones.branch import branch_and_bound, replay
from covopt.certify.dual import DualBound, DualProof, dual_bound, is_parabola, nothing
from covopt.certify.proof import Proof, Proved, Target, Unproved
from covopt.certify.spectral import SLACK
from covopt.linalg.rounding import EPS
from covopt.model.problem import Problem
from covopt.oracles.arrangement import has_rank_at_most
from covopt.oracles.exact import exact_oracle
from covopt.oracles.linear import LinearOracle
from covopt.oracles.oracle import Answer
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Certificate

UNKNOWN = "No bound '{kind}' is known for free biases; solve again."


def centred(values: Float[Tensor, "N k"]) -> Float[Tensor, "N k"]:
    """H V: the columns less their means."""
    return values - values.mean(dim=0)


def free_columns(problem: Problem) -> Float[Tensor, "N k"]:
    """E: 1 and, with a skip, the centred inputs that are not constant, to length 1."""
    X = problem.X.double()
    E = X.new_ones(len(X), 1)
    if problem.skip:
        varying = centred(X[:, (X - X[0]).any(dim=0)])
        E = torch.cat([E, varying / varying.abs().amax(dim=0)], dim=1)
    return E / E.norm(dim=0)


def orthogonal(problem: Problem, Lambda: Float[Tensor, "N m"]) -> Float[Tensor, "N m"]:
    """Lambda less its part along what is free, up to rounding."""
    E, Lambda = free_columns(problem), Lambda.double()
    if E.shape[1] == 1:
        return centred(Lambda)
    Q, _ = torch.linalg.qr(E)
    for _ in range(2):
        Lambda = Lambda - Q @ (Q.T @ Lambda)
    return Lambda


def _off(problem: Problem, Lambda: Float[Tensor, "N m"]) -> float:
    """At least the distance of Lambda from the points that are orthogonal to what is free."""
    E, N = free_columns(problem), problem.samples
    least = 1.0 if E.shape[1] == 1 else float(torch.linalg.svdvals(E).min()) - 2.0**-44 * E.shape[1] * math.sqrt(N)
    if E.shape[1] > N or least < 1e-6:  # E is too close to singular to say how far
        return math.inf
    # An entry of E is off by some units in the last place of itself, from centring and from the division.
    sums = (E.T @ Lambda).abs() + (2.0 * N + 8.0) * EPS * (E.abs().T @ Lambda.abs())
    return float(sums.norm()) / least * (1.0 + SLACK)


def has_exact(problem: Problem) -> bool:
    """Return True if the N questions without bias have exact oracles."""
    if problem.depth != 2:
        return False
    # More samples take too long at rank 3: the circles of each of the N questions cross N^2 times.
    most = 3 if problem.samples <= 200 else 2
    return problem.activation.is_linear or has_rank_at_most(centred(problem.X.double()), most)


def anchored(
    problem: Problem, Lambda: Float[Tensor, "N m"], stop: Callable[[], bool] = lambda: False
) -> tuple[Answer, Float[Tensor, " B"]]:
    """Return the best neurons at every sample's breakpoint: w (B, n_0), h and the proved M; b (B,).

    The bound is infinite where `stop` came first.
    """
    X, directions, values, biases, bound = problem.X.double(), [], [], [], 0.0
    Lambda = orthogonal(problem, Lambda)
    for row in X:
        if stop():
            bound = math.inf
            break
        seen = X - row
        oracle = LinearOracle(seen) if problem.activation.is_linear else exact_oracle(seen, problem.activation)
        if oracle is None:
            bound = math.inf
            continue
        answer = oracle(Lambda, X[:0])
        # Each difference of two inputs is rounded once, and sigma is 1-Lipschitz.
        bound = max(bound, answer.upper_bound + _differences(seen, Lambda))
        directions.append(answer.directions)
        values.append(answer.values)
        biases.append(-answer.directions @ row)
    if not directions:
        return Answer(X[:0], X.new_zeros(0), bound), X.new_zeros(0)
    h, order = torch.cat(values).sort(descending=True)
    return Answer(torch.cat(directions)[order], h, bound), torch.cat(biases)[order]


def free_bound(problem: Problem, Lambda: Float[Tensor, "N m"], maximum: float) -> DualBound:
    """Return the best D(t Lambda'), M being proved at Lambda', the part of Lambda orthogonal to what is free.

    Of losses other than mse and exact fits nothing, because Lambda' may leave the domain of their conjugates.

    Args:
        problem: two layers with free biases.
        Lambda: any dual point (N, m); Lambda' is made here.
        maximum: a proved bound on h at Lambda', or infinity.
    """
    Lambda = orthogonal(problem, Lambda)
    off = _off(problem, Lambda)
    if not is_parabola(problem) or not math.isfinite(off):
        return nothing(Lambda)
    maximum = _widened(problem, off, maximum)
    bound = dual_bound(replace(problem, beta=0.0, free=False, skip=False), Lambda, maximum)
    size, moved = float(bound.Lambda.norm()), bound.scale * off
    lost = 2.0 * problem.lam * moved * (float(problem.Y.double().norm()) + problem.allowed_misfit * problem.Y.numel())
    if not problem.interpolates:
        lost += float(problem.inverse_shares.max()) * problem.lam**2 * moved * (2.0 * size + moved)
    return bound._replace(lower=max(0.0, bound.lower - lost * (1.0 + SLACK)))


def _widened(problem: Problem, off: float, maximum: float) -> float:
    """Return a bound on h at the exactly orthogonal point, which is `off` from that of `maximum`."""
    X = problem.X.double()
    apart = 2.0 * float(centred(X).norm(dim=1).max()) * (1.0 + SLACK) + EPS * float(X.abs().max())
    return maximum * (1.0 + SLACK) + off * math.sqrt(len(X)) * apart


def spectral_maximum(problem: Problem, Lambda: Float[Tensor, "N m"]) -> float:
    """|Lambda'|_op |H X|_op >= M, with a skip (1 - a) / 2 of it, with its rounding."""
    parts = (orthogonal(problem, Lambda), centred(problem.X.double()))
    sizes = [float(torch.linalg.matrix_norm(part, 2)) + 2.0**-44 * float(part.norm()) for part in parts]
    bent = 0.5 * (1.0 - problem.activation.slope) if problem.skip else 1.0
    return bent * sizes[0] * sizes[1] * (1.0 + SLACK)


def _branches(problem: Problem) -> bool:
    """Return True if N trees over cones are affordable."""
    return problem.depth == 2 and has_rank_at_most(centred(problem.X.double()), 6)


@dataclass(frozen=True)
class _FreeProof(DualProof):
    """A bound from a dual point, for two layers with free biases."""

    free: ClassVar[bool] = True
    missing: ClassVar[str] = "The certificate '{kind}' comes without its evidence; solve again."

    @classmethod
    def applies(cls, problem: Problem) -> bool:
        return problem.depth == 2 and is_parabola(problem)

    def certified(self, problem: Problem) -> tuple[float, float]:
        """Return (M, lower): M on what is exactly orthogonal to what is free."""
        self.check_point(problem)
        maximum = self.proved_maximum(problem)
        return widened(problem, self.Lambda, maximum), free_bound(problem, self.Lambda, maximum).lower


@dataclass(frozen=True)
class FreeExact(_FreeProof):
    """A bound whose maximum the exact oracles of the N questions compute."""

    kind: ClassVar[Certificate] = Certificate.EXACT

    @classmethod
    def applies(cls, problem: Problem) -> bool:
        return super().applies(problem) and has_exact(problem)

    @classmethod
    def prove(cls, problem: Problem, target: Target, last: Any = None) -> Proved:
        """Ask the oracles; nothing is proved where `target.stop` comes first."""
        answer, _ = anchored(problem, target.point, target.stop)
        return Proved(cls(*free_bound(problem, target.point, answer.upper_bound)[:3]))

    def proved_maximum(self, problem: Problem) -> float:
        if not has_exact(problem):
            raise ProblemError("The certificate says exact, but no oracle is exact for data of this rank; solve again.")
        return anchored(problem, self.Lambda)[0].upper_bound


@dataclass(frozen=True)
class FreeTrees(_FreeProof):
    """A bound whose maximum N trees over cones of directions prove.

    Attributes:
        tree: the codes of all trees, one after the other.
        counts: how many codes each tree has (N,).
    """

    tree: UInt8[np.ndarray, " _"]
    counts: Int[np.ndarray, " _"]

    kind: ClassVar[Certificate] = Certificate.BRANCH_AND_BOUND

    @classmethod
    def applies(cls, problem: Problem) -> bool:
        """Return True if trees are affordable, and no oracle is exact."""
        return super().applies(problem) and not has_exact(problem) and _branches(problem)

    @classmethod
    def prove(cls, problem: Problem, target: Target, last: Any = None) -> Proved:
        """Grow a tree at each breakpoint; violators are rows (w, b) with |w| = 1."""
        Lambda = orthogonal(problem, target.point)
        maximum, codes, neurons = _trees(problem, Lambda, 1.0 + target.gap / 4.0, target.time_limit)
        tree, counts = np.concatenate([np.zeros(0, np.uint8), *codes]), np.array([*map(len, codes)], dtype=np.int64)
        proof = cls(*free_bound(problem, target.point, maximum)[:3], tree=tree, counts=counts)
        if proof.lower > 0.0:
            proof = replace(proof, lower=min(proof.lower, proof.bound(problem)))
        return Proved(proof, neurons)

    def proved_maximum(self, problem: Problem) -> float:
        counts, N = self.counts, problem.samples
        fits = counts.shape == (N,) and bool((counts >= 0).all()) and int(counts.sum()) == len(self.tree)
        if not _branches(problem) or not fits:
            raise ProblemError(self.missing.format(kind=self.kind))
        point, bound = orthogonal(problem, self.Lambda), 0.0
        for row, part in zip(problem.X.double(), np.split(self.tree, counts.cumsum()[:-1]), strict=True):
            seen = problem.X.double() - row
            upper = replay(seen, problem.activation, point, part, claimed=self.maximum)
            bound = max(bound, upper + _differences(seen, point))
        return bound


@dataclass(frozen=True)
class FreeNorms(_FreeProof):
    """A bound whose maximum the norms of the dual point and of the centred inputs bound."""

    kind: ClassVar[Certificate] = Certificate.SPECTRAL

    @classmethod
    def prove(cls, problem: Problem, target: Target, last: Any = None) -> Proved:
        maximum = spectral_maximum(problem, target.point)
        return Proved(cls(*free_bound(problem, target.point, maximum)[:3]))

    def proved_maximum(self, problem: Problem) -> float:
        return spectral_maximum(problem, self.Lambda)


FREE: tuple[type[Proof], ...] = (FreeExact, FreeTrees, FreeNorms)
"""The kinds of proof for free biases, the tightest first."""


def prove(problem: Problem, Lambda: Float[Tensor, "N m"], seconds: float, gap: float) -> Proved:
    """Return the best proof at Lambda' within so many seconds, and the neurons that its trees met."""
    deadline = time.perf_counter() + seconds
    target = Target(Lambda, gap=gap, stop=lambda: time.perf_counter() >= deadline)
    best = Proved(Unproved(0.0))
    for kind in reversed(FREE):
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
    for trees, row in zip(range(problem.samples, 0, -1), problem.X.double(), strict=True):
        seen = problem.X.double() - row
        remaining = deadline - time.perf_counter()
        if remaining <= 0.0:  # the roots alone take long where there are many samples
            bound, codes = math.inf, []
            break
        share = min(remaining, 4.0 * remaining / trees)  # most trees need less than theirs
        tree = branch_and_bound(seen, problem.activation, point, target=target, time_limit=share)
        bound = max(bound, tree.upper_bound + _differences(seen, point))
        codes.append(tree.tree)
        rows.append(torch.cat([tree.directions, -(tree.directions @ row)[:, None]], dim=1))
        values.append(tree.values)
    return bound, codes, Answer(torch.cat(rows), torch.cat(values)) if rows else None


def _differences(seen: Tensor, point: Tensor) -> float:
    """Bound what rounding the differences of inputs adds to h: sigma is 1-Lipschitz."""
    return EPS * float(seen.norm()) * float(point.norm())


def widened(problem: Problem, Lambda: Float[Tensor, "N m"], maximum: float) -> float:
    """Return a bound on h at the exactly orthogonal point from a bound on it at Lambda'."""
    return _widened(problem, _off(problem, orthogonal(problem, Lambda)), maximum)


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
    if seconds > 0.0 and _branches(problem):
        maximum = min(maximum, _trees(problem, point, (1.0 + near) * attained, seconds)[0])
    return widened(problem, Lambda, maximum)
