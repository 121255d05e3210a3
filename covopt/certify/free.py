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
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from covopt.certify.cones.branch import BranchOptions, branch_and_bound, replay
from covopt.certify.cones.tree import Tree
from covopt.certify.dual import MISSING, ROUNDING, Proof, dual_bound
from covopt.model.problem import Problem
from covopt.oracles.arrangement import has_rank_at_most
from covopt.oracles.exact import exact_oracle
from covopt.oracles.linear import LinearOracle
from covopt.oracles.oracle import Answer
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Certificate

# Samples from which each of the N questions of rank 3 takes too long: their circles cross N^2 times each.
MOST_SPHERES = 200
# The largest rank of the centred inputs for branch and bound, in N trees.
LARGEST_BRANCHING_RANK = 6
# The least sigma_min(E): below, nothing is printed.
DEPENDENT = 1e-6
# A tree may take so many times its share of the time: most need less.
GREED = 4.0
SLACK = 2.0**-40
WORTHLESS = BranchOptions(worth=0.0)
Met = tuple[Float[Tensor, "B n0"], Float[Tensor, " B"], Float[Tensor, " B"]]


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
    if not problem.skip:
        return centred(Lambda.double())
    Q, _ = torch.linalg.qr(free_columns(problem))
    Lambda = Lambda.double()
    for _ in range(2):
        Lambda = Lambda - Q @ (Q.T @ Lambda)
    return Lambda


def _off(problem: Problem, Lambda: Float[Tensor, "N m"]) -> float:
    """At least the distance of Lambda from the points that are orthogonal to what is free."""
    E, N = free_columns(problem), problem.samples
    least = 1.0 if E.shape[1] == 1 else float(torch.linalg.svdvals(E).min()) - 2.0**-44 * E.shape[1] * math.sqrt(N)
    if E.shape[1] > N or least < DEPENDENT:
        return math.inf
    # An entry of E is off by some units in the last place of itself, from centring and from the division.
    sums = (E.T @ Lambda).abs() + (2.0 * N + 8.0) * ROUNDING * (E.abs().T @ Lambda.abs())
    return float(sums.norm()) / least * (1.0 + SLACK)


def has_exact(problem: Problem) -> bool:
    """Whether the N questions without bias have exact oracles."""
    if problem.depth != 2:
        return False
    Xc = centred(problem.X.double())
    most = 3 if problem.samples <= MOST_SPHERES else 2
    return problem.activation.is_linear or has_rank_at_most(Xc, most)


def anchored(
    problem: Problem, Lambda: Float[Tensor, "N m"], stop: Callable[[], bool] = lambda: False
) -> tuple[Answer, Float[Tensor, " B"]]:
    """The best neurons at every sample's breakpoint: unit w (B, n_0) with h and the proved M, and their b (B,).

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
        found = oracle(Lambda, X[:0])
        # Each difference of two inputs is rounded once, and sigma is 1-Lipschitz.
        bound = max(bound, found.upper_bound + _differences(seen, Lambda))
        directions.append(found.directions)
        values.append(found.values)
        biases.append(-found.directions @ row)
    if not directions:
        return Answer(X[:0], X.new_zeros(0), bound), X.new_zeros(0)
    h, order = torch.cat(values).sort(descending=True)
    return Answer(torch.cat(directions)[order], h, bound), torch.cat(biases)[order]


def free_bound(
    problem: Problem, Lambda: Float[Tensor, "N m"], maximum: float, certificate: Certificate = Certificate.EXACT
) -> Proof:
    """The best D(t Lambda'), M being proved at Lambda', the part of Lambda orthogonal to what is free.

    Of losses other than mse and exact fits nothing, because Lambda' may leave the domain of their conjugates.

    Args:
        problem: two layers with free biases.
        Lambda: any dual point (N, m); Lambda' is made here.
        maximum: a proved bound on h at Lambda', or infinity.
        certificate: what proves it.
    """
    Lambda = orthogonal(problem, Lambda)
    off = _off(problem, Lambda)
    if problem.loss.name not in ("mse", "interpolate") or not math.isfinite(off):
        return Proof(0.0, Certificate.NONE, torch.zeros_like(Lambda), 0.0)
    maximum = _widened(problem, off, maximum)
    found = dual_bound(replace(problem, beta=0.0, free=False, skip=False), Lambda, maximum, certificate)
    size, moved = float(found.point.norm()), found.scale * off
    lost = 2.0 * problem.lam * moved * (float(problem.Y.double().norm()) + problem.allowed_misfit * problem.Y.numel())
    if not problem.interpolates:
        lost += float(problem.inverse_shares.max()) * problem.lam**2 * moved * (2.0 * size + moved)
    lower = found.lower - lost * (1.0 + SLACK)
    return replace(found, lower=lower) if lower > 0.0 else replace(found, lower=0.0)


def _widened(problem: Problem, off: float, maximum: float) -> float:
    """A bound on h at the point that is exactly orthogonal to what is free, and `off` from the one of `maximum`."""
    X = problem.X.double()
    apart = 2.0 * float(centred(X).norm(dim=1).max()) * (1.0 + SLACK) + ROUNDING * float(X.abs().max())
    return maximum * (1.0 + SLACK) + off * math.sqrt(len(X)) * apart


def spectral_maximum(problem: Problem, Lambda: Float[Tensor, "N m"]) -> float:
    """|Lambda'|_op |H X|_op >= M, with a skip (1 - a) / 2 of it, with its rounding."""
    parts = (orthogonal(problem, Lambda), centred(problem.X.double()))
    sizes = [float(torch.linalg.matrix_norm(part, 2)) + 2.0**-44 * float(part.norm()) for part in parts]
    bent = 0.5 * (1.0 - problem.activation.slope) if problem.skip else 1.0
    return bent * sizes[0] * sizes[1] * (1.0 + SLACK)


def _branches(problem: Problem) -> bool:
    return problem.depth == 2 and has_rank_at_most(centred(problem.X.double()), LARGEST_BRANCHING_RANK)


def prove(problem: Problem, Lambda: Float[Tensor, "N m"], seconds: float, gap: float) -> Proof:
    """The best bound at Lambda' that so many seconds allow: exact where oracles are, else branch and bound."""
    return prove_and_meet(problem, Lambda, seconds, gap)[0]


def prove_and_meet(
    problem: Problem, Lambda: Float[Tensor, "N m"], seconds: float, gap: float
) -> tuple[Proof, Met | None]:
    """As `prove`; and the neurons that branch and bound met: unit w (B, n_0), b and h (B,)."""
    met: Met | None = None
    deadline = time.perf_counter() + seconds
    found = [free_bound(problem, Lambda, spectral_maximum(problem, Lambda), Certificate.SPECTRAL)]
    if has_exact(problem):
        answer, _ = anchored(problem, Lambda, lambda: time.perf_counter() >= deadline)
        found.append(free_bound(problem, Lambda, answer.upper_bound))
    elif _branches(problem) and problem.loss.name in ("mse", "interpolate"):
        left = max(0.0, deadline - time.perf_counter())
        maximum, evidence, met = _trees(problem, orthogonal(problem, Lambda), 1.0 + gap / 4.0, left)
        proof = free_bound(problem, Lambda, maximum, Certificate.BRANCH_AND_BOUND)
        if proof.lower > 0.0:
            found.append(replace(proof, lower=0.0, evidence=evidence))
            found[-1] = replace(found[-1], lower=min(proof.lower, check(problem, found[-1])))
    return max(found, key=lambda proof: proof.lower), met


def _trees(
    problem: Problem, point: Float[Tensor, "N m"], target: float, seconds: float
) -> tuple[float, dict[str, NDArray], Met | None]:
    """A bound on h at an orthogonal point, proved by a tree at each breakpoint; these, and the best neurons."""
    deadline, bound, codes, met = time.perf_counter() + seconds, 0.0, [], []
    for left, row in zip(range(problem.samples, 0, -1), problem.X.double(), strict=True):
        seen = problem.X.double() - row
        remaining = deadline - time.perf_counter()
        if remaining <= 0.0:  # the roots alone take long where there are many samples
            return math.inf, {}, _best(met)
        share = min(remaining, GREED * remaining / left)
        tree = branch_and_bound(seen, problem.activation, point, target=target, time_limit=share, options=WORTHLESS)
        bound = max(bound, tree.upper_bound + _differences(seen, point))
        codes.append(tree.tree.codes)
        met.append((tree.directions, -tree.directions @ row, tree.values))
    evidence = {"tree": np.concatenate(codes), "counts": np.array([len(each) for each in codes])}
    return bound, evidence, _best(met)


def _best(met: list[tuple[Tensor, Tensor, Tensor]]) -> Met | None:
    if not met:
        return None
    W, b, values = (torch.cat(each) for each in zip(*met, strict=True))
    return W, b, values


def _differences(seen: Tensor, point: Tensor) -> float:
    """What rounding differences of inputs once may add to h: sigma is 1-Lipschitz."""
    return ROUNDING * float(seen.norm()) * float(point.norm())


def attainable(problem: Problem) -> Certificate:
    """The tightest kind of proof that applies."""
    if problem.depth > 2 or problem.loss.name not in ("mse", "interpolate"):
        return Certificate.NONE
    if has_exact(problem):
        return Certificate.EXACT
    return Certificate.BRANCH_AND_BOUND if _branches(problem) else Certificate.SPECTRAL


def check(problem: Problem, proof: Proof) -> float:
    """The lower bound that stored arrays prove, by dual feasibility anew; 0 where they prove nothing.

    Raises:
        ProblemError: arrays are missing or do not fit the problem.
    """
    return free_bound(problem, proof.point, _maximum(problem, proof), proof.certificate).lower


def maximum_at(problem: Problem, proof: Proof) -> tuple[float, float]:
    """(M, lower): the proved maximum of h at a stored dual point, which no lam changes, and the bound at the problem's.

    Raises:
        ProblemError: as `check`.
    """
    maximum = _maximum(problem, proof)
    lower = free_bound(problem, proof.point, maximum, proof.certificate).lower
    return widened(problem, proof.point, maximum), lower


def widened(problem: Problem, Lambda: Float[Tensor, "N m"], maximum: float) -> float:
    """A bound on h at what is exactly orthogonal to what is free, of a bound on it at Lambda'."""
    return _widened(problem, _off(problem, orthogonal(problem, Lambda)), maximum)


def proved_maximum(
    problem: Problem, Lambda: Float[Tensor, "N m"], seconds: float, attained: float, near: float
) -> float:
    """A proved bound on h at the part of Lambda that is orthogonal to what is free: by norms, and in time by trees.

    Args:
        problem: two layers with free biases; Lambda: any dual point (N, m).
        seconds: for the trees, which end once their bounds are this `near`, relative, to what is `attained`.
    """
    point = orthogonal(problem, Lambda)
    found = spectral_maximum(problem, Lambda)
    if seconds > 0.0 and _branches(problem):
        found = min(found, _trees(problem, point, (1.0 + near) * attained, seconds)[0])
    return widened(problem, Lambda, found)


def _maximum(problem: Problem, proof: Proof) -> float:
    Lambda = proof.point
    if Lambda.shape != problem.Y.shape or not bool(torch.isfinite(Lambda).all()):
        raise ProblemError(MISSING)
    if problem.depth != 2 or proof.certificate not in _MAXIMA:
        raise ProblemError(f"No bound '{proof.certificate}' is known for free biases; solve again.")
    return _MAXIMA[proof.certificate](problem, proof)


def _exact_maximum(problem: Problem, proof: Proof) -> float:
    if not has_exact(problem):
        raise ProblemError("The certificate says exact, but no oracle is exact for data of this rank; solve again.")
    return anchored(problem, proof.point)[0].upper_bound


def _tree_maximum(problem: Problem, proof: Proof) -> float:
    counts, codes = proof.evidence.get("counts"), proof.evidence.get("tree")
    if counts is None or codes is None or not _branches(problem) or not _split(counts, len(codes), problem.samples):
        raise ProblemError("The certificate 'branch-and-bound' comes without its evidence; solve again.")
    point, bound = orthogonal(problem, proof.point), 0.0
    for row, part in zip(problem.X.double(), np.split(codes, counts.cumsum()[:-1]), strict=True):
        seen = problem.X.double() - row
        upper = replay(seen, problem.activation, point, Tree(part), claimed=proof.maximum)
        bound = max(bound, upper + _differences(seen, point))
    return bound


def _split(counts: NDArray, codes: int, samples: int) -> bool:
    """Whether these are lengths of so many trees with so many codes together."""
    return counts.shape == (samples,) and bool((counts >= 0).all()) and int(counts.sum()) == codes


_MAXIMA: Mapping[Certificate, Callable[[Problem, Proof], float]] = {
    Certificate.EXACT: _exact_maximum,
    Certificate.BRANCH_AND_BOUND: _tree_maximum,
    Certificate.SPECTRAL: lambda problem, proof: spectral_maximum(problem, proof.point),
}
