"""Which certifier proves what: a proof of a lower bound from a dual point, and the same proof checked from its arrays.

Every bound is D(Lambda) for a dual point Lambda and a proved M >= max_w h(w) (dual.py), or spectral, which needs no
dual point. M comes from an exact oracle; from branch and bound over cones of directions where the rank is small; or
from the doubly non-negative relaxation, with branches on the signs of samples, where the samples are few.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from covopt.certify.cones.branch import BranchOptions, branch_and_bound, replay
from covopt.certify.cones.tree import Tree
from covopt.certify.dual import DualBound, dual_bound
from covopt.certify.relaxation.bound import RelaxationOptions, RelaxedBound, Watch, check_maximum, relaxed_bound
from covopt.certify.relaxation.signs import Multipliers
from covopt.certify.spectral import spectral_bound
from covopt.errors import InternalError, ProblemError
from covopt.loop import Certificate
from covopt.model.problem import Problem
from covopt.model.weights import Weights, preactivations, rounding_of
from covopt.oracles.arrangement import has_rank_at_most
from covopt.oracles.exact import exact_oracle, has_exact_oracle
from covopt.oracles.linear import LinearOracle
from covopt.oracles.oracle import Answer, Oracle

# Trees over cones of directions close in seconds up to rank 5 and in minutes at rank 6; at 7 none was closed.
LARGEST_BRANCHING_RANK = 6
# Matrices of the relaxation have this order, N + rank + outputs, at most: one eigendecomposition for each step.
LARGEST_RELAXATION = 600
# Seconds that the spectral bound gets at least.
ROUGHLY = 0.05


@dataclass(frozen=True)
class Proof:
    """A proved lower bound, and what proves it.

    Attributes:
        lower: the bound, at least 0.
        certificate: the kind of proof.
        Lambda: the dual point, scaled to be feasible (N, m); None for `spectral`.
        maximum: a proved bound on h at Lambda, at most 1.
        evidence: what `recheck` needs besides.
    """

    lower: float
    certificate: Certificate
    Lambda: Float[Tensor, "N m"] | None = None
    maximum: float = math.nan
    evidence: dict[str, NDArray] = field(default_factory=dict)


def oracle_of(problem: Problem) -> Oracle | None:
    """An oracle that knows max h itself: linear networks, and data of rank at most 3; None where there is none."""
    if problem.activation.is_linear:
        return LinearOracle(problem.Xt)
    return exact_oracle(problem.Xt, problem.activation)


def exact_proof(problem: Problem, Lambda: Float[Tensor, "N m"], maximum: float) -> Proof:
    """The bound from an exact oracle's maximum at Lambda."""
    return _from_bound(dual_bound(problem, Lambda, maximum), Certificate.EXACT, {})


def spectral_proof(problem: Problem, seconds: float) -> Proof:
    """The bound that holds for every network of every depth, not improved any more after so many seconds."""
    deadline = time.perf_counter() + max(seconds, ROUGHLY)
    return Proof(spectral_bound(problem, stop=lambda: time.perf_counter() >= deadline), Certificate.SPECTRAL)


def network_proof(problem: Problem, weights: Weights) -> Proof | None:
    """The bound from a two-layer network's own dual point, -grad C / (2 lam), where an oracle knows the maximum.

    None for other depths, for `interpolate` (whose multiplier a network does not tell) and without such an oracle.
    """
    oracle = oracle_of(problem) if problem.depth == 2 and not problem.interpolates else None
    if oracle is None:
        return None
    Lambda = problem.loss.gradient(preactivations(problem, weights)[-1], problem.Y) / (-2.0 * problem.lam)
    return exact_proof(problem, Lambda, oracle(Lambda, problem.Xt[:0]).upper_bound)


def can_branch(problem: Problem) -> bool:
    """Whether branch and bound over cones of directions has a chance."""
    return has_rank_at_most(problem.Xt, LARGEST_BRANCHING_RANK)


def attainable(problem: Problem) -> Certificate:
    """The tightest kind of proof that applies to a problem of this depth, rank and size."""
    if problem.depth > 2:
        return Certificate.SPECTRAL
    if problem.activation.is_linear or has_exact_oracle(problem.Xt):
        return Certificate.EXACT
    if can_branch(problem):
        return Certificate.BRANCH_AND_BOUND
    return Certificate.RELAXATION if can_relax(problem) else Certificate.SPECTRAL


def branching_proof(
    problem: Problem,
    Lambda: Float[Tensor, "N m"],
    *,
    gap: float,
    time_limit: float,
    starts: Float[Tensor, "S d"],
    worth: float = 0.0,
) -> tuple[Proof, Answer]:
    """The bound from branch and bound at Lambda, and the directions above 1 that it met.

    Args:
        gap: relative gap wanted of the bound; the tree aims at M = 1 + gap / 4, because D falls by at most about twice
            as much as M - 1, relative, and the dual point takes its share.
        time_limit: seconds; a tree that is cut short proves less, and proves it all the same.
        starts: the active neurons' directions (S, n_0 + 1).
        worth: end when as much time again would take less than this part off what the bound lacks; 0: never.
    """
    found = branch_and_bound(
        problem.Xt,
        problem.activation,
        Lambda,
        target=1.0 + gap / 4.0,
        time_limit=time_limit,
        starts=starts,
        options=BranchOptions(worth=worth),
    )
    bound = dual_bound(problem, Lambda, found.upper_bound)
    proof = _from_bound(bound, Certificate.BRANCH_AND_BOUND, {"tree": found.tree.codes})
    return proof, Answer(found.directions, found.values)


def can_relax(problem: Problem) -> bool:
    """Whether the relaxation's matrices are small enough."""
    most = LARGEST_RELAXATION - problem.samples - problem.Y.shape[1]
    return most >= 0 and has_rank_at_most(problem.Xt, most)


def relaxation_proof(
    problem: Problem,
    Lambda: Float[Tensor, "N m"],
    *,
    target: float,
    refuted: float,
    time_limit: float,
    start: RelaxedBound | None = None,
    worth: float = 0.0,
    callback: Watch | None = None,
) -> tuple[Proof, RelaxedBound]:
    """The bound from the doubly non-negative relaxation, Lambda optimised against it or its tree grown at Lambda.

    Args:
        target: a bound that is good enough.
        refuted: end as soon as a direction with h above this is met at Lambda.
        time_limit: seconds.
        start: what an earlier call returned for the same problem.
        worth: as for `branching_proof`.
        callback: called with the seconds so far and the best bound so far.
    """
    found = relaxed_bound(
        problem,
        Lambda,
        time_limit=time_limit,
        target=target,
        refuted=refuted,
        start=start,
        callback=callback,
        options=RelaxationOptions(worth=worth),
    )
    parts = found.multipliers
    evidence = {name: getattr(parts, name).detach().cpu().numpy() for name in ("splits", "walls", "values")}
    proof = Proof(found.lower, found.certificate, found.Lambda, found.maximum, evidence)
    # The repair of rounding is not homogeneous in Lambda: state what the scaled point proves.
    return replace(proof, lower=min(proof.lower, recheck(problem, proof))), found


def agreed(problem: Problem, weights: Weights, cost: float, lower: float) -> float:
    """The bound, cut off at the cost of a network that answers the question where rounding alone put it above.

    Args:
        problem: the question.
        weights: of the network.
        cost: what it costs; NaN where no network answers the question.
        lower: a bound that is said to be proved.

    Raises:
        InternalError: the bound is not finite, or above the cost by more than rounding: one of the two is wrong.
    """
    if not math.isfinite(lower) or (lower > cost and lower > cost + rounding_of(problem, weights)):
        raise InternalError(
            f"The lower bound {lower:.12g} contradicts a network that costs {cost:.12g}, so nothing can be said; this"
            " is a defect of covopt: report it with the data."
        )
    return min(lower, cost) if lower > cost else lower


def recheck(problem: Problem, proof: Proof) -> float:
    """The lower bound that the stored arrays prove, by dual feasibility anew; the solver is not run.

    Whatever the arrays hold, what comes back is a true bound (0 where they prove nothing).

    Raises:
        ProblemError: where arrays are missing or do not fit the problem.
    """
    if proof.certificate is Certificate.SPECTRAL:
        return spectral_bound(problem)
    if proof.certificate is Certificate.NONE:
        return 0.0
    Lambda = proof.Lambda
    if Lambda is None or Lambda.shape != problem.Y.shape:
        raise ProblemError("The stored dual point is missing or does not have the shape of Y; certify the run again.")
    if not bool(torch.isfinite(Lambda).all()):
        raise ProblemError("The stored dual point has NaN or infinite entries; certify the run again.")
    return dual_bound(problem, Lambda, _maximum(problem, Lambda, proof)).lower


def _maximum(problem: Problem, Lambda: Tensor, proof: Proof) -> float:
    """A proved bound on max h at Lambda from the evidence."""
    if proof.certificate is Certificate.EXACT:
        oracle = oracle_of(problem)
        if oracle is None:
            raise ProblemError(
                "The certificate says exact, but no oracle is exact for data of this rank; certify the run again."
            )
        return oracle(Lambda, problem.Xt[:0]).upper_bound
    if proof.certificate is Certificate.BRANCH_AND_BOUND and "tree" in proof.evidence:
        tree = Tree(np.asarray(proof.evidence["tree"]))
        return replay(problem.Xt, problem.activation, Lambda, tree, claimed=proof.maximum)
    if proof.certificate in (Certificate.RELAXATION, Certificate.BRANCH_AND_BOUND):
        names = ("splits", "walls", "values")
        if all(name in proof.evidence for name in names):
            splits, walls, values = (torch.from_numpy(np.asarray(proof.evidence[name])) for name in names)
            multipliers = Multipliers(splits.long(), walls.double(), values.double())
            return check_maximum(problem.Xt, problem.activation, Lambda, multipliers)
    raise ProblemError(f"The certificate '{proof.certificate}' comes without its evidence; certify the run again.")


def _from_bound(bound: DualBound, certificate: Certificate, evidence: dict[str, NDArray]) -> Proof:
    return Proof(bound.lower, certificate, bound.Lambda, bound.maximum, evidence)
