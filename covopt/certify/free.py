"""Bounds for two layers with free biases, which the penalty is not on (MATH.md section 4).

The output bias is free, so that D(Lambda) is finite only where Lambda^T 1 = 0, and it is then D of the same question
without biases. The constraint on Lambda is M = max h(w, b) <= 1 over |w| = 1 and every b,

    h(w, b) = |Lambda^T sigma(X w + b 1)|.

For one w it is convex in b between two breakpoints b = -x_j^T w and constant beyond the last on either side, because
Lambda^T 1 = 0. So the maximum lies at a breakpoint, and there the neuron sees the inputs from sample j without a bias:

    M = max_j max_w |Lambda^T sigma((X - 1 x_j^T) w)|,

N questions without bias of the rank of the centred inputs. At a breakpoint |b| <= rho, the largest distance of a sample
from the mean, once the inputs are centred there; so a bound M' on the neurons with amount of bias beta, unit in
(w, b / beta), gives M <= (1 + rho^2 / beta^2)^(1/2) M'. And sigma, which is 1-Lipschitz, widens no sample variance:
with H = I - 1 1^T / N, M <= |Lambda|_op |H X|_op. Derived.

Rounding: Lambda^T 1 is 0 up to s. The bound is that of the point Lambda - 1 s^T / N, whose rows are off by |s| / N.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.certify.cones.branch import BranchOptions, branch_and_bound, replay
from covopt.certify.cones.tree import Tree
from covopt.certify.dual import MISSING, ROUNDING, Proof, dual_bound
from covopt.errors import ProblemError
from covopt.loop import Certificate
from covopt.model.problem import Problem, with_bias
from covopt.oracles.arrangement import has_rank_at_most
from covopt.oracles.exact import exact_oracle
from covopt.oracles.linear import LinearOracle
from covopt.oracles.oracle import Answer

# Samples from which each of the N questions of rank 3 takes too long: their circles cross N^2 times each.
MOST_SPHERES = 200
# The largest rank of the centred inputs for branch and bound, which sees the bias as one more dimension.
LARGEST_BRANCHING_RANK = 5
# The amount of bias in branch and bound, relative to rho: what it adds to the bound is half of its inverse square.
REACH = 30.0
SLACK = 2.0**-40


def centred(values: Float[Tensor, "N k"]) -> Float[Tensor, "N k"]:
    """H V: the columns less their means."""
    return values - values.mean(dim=0)


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
    Lambda = centred(Lambda.double())
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
        bound = max(bound, found.upper_bound + ROUNDING * float(seen.norm()) * float(Lambda.norm()))
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
    """The best D(t H Lambda), M being proved at H Lambda.

    Of losses other than mse and exact fits nothing, because H Lambda may leave the domain of their conjugates.

    Args:
        problem: two layers with free biases.
        Lambda: any dual point (N, m), centred here.
        maximum: a proved bound on h at H Lambda, or infinity.
        certificate: what proves it.
    """
    Lambda, X = centred(Lambda.double()), problem.X.double()
    if problem.loss.name not in ("mse", "interpolate"):
        return Proof(0.0, Certificate.NONE, torch.zeros_like(Lambda), 0.0)
    # |s| / N^(1/2) = |1 s^T / N|_F, with the rounding of the sums.
    sums = Lambda.sum(dim=0).abs() + 2.0 * len(X) * ROUNDING * Lambda.abs().sum(dim=0)
    off = float(sums.norm()) / math.sqrt(len(X)) * (1.0 + SLACK)
    apart = 2.0 * float(centred(X).norm(dim=1).max()) * (1.0 + SLACK) + ROUNDING * float(X.abs().max())
    maximum = maximum * (1.0 + SLACK) + off * math.sqrt(len(X)) * apart
    found = dual_bound(replace(problem, beta=0.0, free=False), Lambda, maximum, certificate)
    size, moved = float(found.point.norm()), found.scale * off
    lost = 2.0 * problem.lam * moved * (float(problem.Y.double().norm()) + problem.allowed_misfit * problem.Y.numel())
    if not problem.interpolates:
        lost += float(problem.inverse_shares.max()) * problem.lam**2 * moved * (2.0 * size + moved)
    lower = found.lower - lost * (1.0 + SLACK)
    return replace(found, lower=lower) if lower > 0.0 else replace(found, lower=0.0)


def spectral_maximum(problem: Problem, Lambda: Float[Tensor, "N m"]) -> float:
    """|H Lambda|_op |H X|_op >= M, with its rounding."""
    parts = (centred(Lambda.double()), centred(problem.X.double()))
    sizes = [float(torch.linalg.matrix_norm(part, 2)) + 2.0**-44 * float(part.norm()) for part in parts]
    return sizes[0] * sizes[1] * (1.0 + SLACK)


def _seen(problem: Problem) -> tuple[Tensor, float, float]:
    """The centred inputs with a bias column, what M' is multiplied by, and what centring loses per |Lambda|_F."""
    Xc = centred(problem.X.double())
    rho = float(Xc.norm(dim=1).max()) * (1.0 + SLACK)
    stretch = math.sqrt(1.0 + REACH**-2) * (1.0 + SLACK)
    return with_bias(Xc, REACH * rho), stretch, 2.0 * ROUNDING * float(Xc.norm())


def _branches(problem: Problem) -> bool:
    return problem.depth == 2 and has_rank_at_most(centred(problem.X.double()), LARGEST_BRANCHING_RANK)


def prove(problem: Problem, Lambda: Float[Tensor, "N m"], seconds: float, gap: float) -> Proof:
    """The best bound at H Lambda that so many seconds allow: exact where oracles are, else branch and bound."""
    deadline = time.perf_counter() + seconds
    found = [free_bound(problem, Lambda, spectral_maximum(problem, Lambda), Certificate.SPECTRAL)]
    if has_exact(problem):
        answer, _ = anchored(problem, Lambda, lambda: time.perf_counter() >= deadline)
        found.append(free_bound(problem, Lambda, answer.upper_bound))
    elif _branches(problem) and problem.loss.name in ("mse", "interpolate"):
        Xt, stretch, lost = _seen(problem)
        point = centred(Lambda.double())
        tree = branch_and_bound(
            Xt,
            problem.activation,
            point,
            target=1.0 + gap / 4.0,
            time_limit=max(0.0, deadline - time.perf_counter()),
            options=BranchOptions(worth=0.0),
        )
        maximum = stretch * tree.upper_bound + lost * float(point.norm())
        proof = free_bound(problem, Lambda, maximum, Certificate.BRANCH_AND_BOUND)
        if proof.lower > 0.0:
            found.append(replace(proof, lower=0.0, evidence={"tree": tree.tree.codes}))
            found[-1] = replace(found[-1], lower=check(problem, found[-1]))
    return max(found, key=lambda proof: proof.lower)


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
    Lambda = proof.point
    if Lambda.shape != problem.Y.shape or not bool(torch.isfinite(Lambda).all()):
        raise ProblemError(MISSING)
    if problem.depth != 2 or proof.certificate not in _MAXIMA:
        raise ProblemError(f"No bound '{proof.certificate}' is known for free biases; solve again.")
    return free_bound(problem, Lambda, _MAXIMA[proof.certificate](problem, proof), proof.certificate).lower


def _exact_maximum(problem: Problem, proof: Proof) -> float:
    if not has_exact(problem):
        raise ProblemError("The certificate says exact, but no oracle is exact for data of this rank; solve again.")
    return anchored(problem, proof.point)[0].upper_bound


def _tree_maximum(problem: Problem, proof: Proof) -> float:
    if "tree" not in proof.evidence or not _branches(problem):
        raise ProblemError("The certificate 'branch-and-bound' comes without its evidence; solve again.")
    Xt, stretch, lost = _seen(problem)
    point, tree = centred(proof.point.double()), Tree(proof.evidence["tree"])
    return stretch * replay(Xt, problem.activation, point, tree, claimed=proof.maximum) + lost * float(point.norm())


_MAXIMA: Mapping[Certificate, Callable[[Problem, Proof], float]] = {
    Certificate.EXACT: _exact_maximum,
    Certificate.BRANCH_AND_BOUND: _tree_maximum,
    Certificate.SPECTRAL: lambda problem, proof: spectral_maximum(problem, proof.point),
}
