"""The table of all kinds of proof, the tightest that a problem allows, and the cheap proofs."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from numpy.typing import NDArray

from covopt.certify.cones.branch import ConeTree
from covopt.certify.deep.angle import Angle
from covopt.certify.deep.convexity import Convexity
from covopt.certify.deep.flows import Laplacian
from covopt.certify.deep.linear import Linear
from covopt.certify.deep.loop import Loop
from covopt.certify.deep.one_input import OneInput
from covopt.certify.dual import Exact
from covopt.certify.free import FreeNorms
from covopt.certify.paths.paths import PathNorm
from covopt.certify.proof import Proof, Target, Unproved
from covopt.certify.relaxation.bound import Relaxation, SignBranching
from covopt.certify.relaxation.grouping import Grouped
from covopt.certify.shares.shares import Shares
from covopt.certify.spectral import Spectral
from covopt.model.problem import Problem
from covopt.model.weights import Weights, preactivations, rounding_of
from covopt.runtime.errors import InternalError
from covopt.runtime.loop import Budget, Certificate

PROOFS: tuple[type[Proof], ...] = (
    Exact,
    ConeTree,
    Relaxation,
    SignBranching,
    Grouped,
    OneInput,
    Shares,
    PathNorm,
    Laplacian,
    Linear,
    Angle,
    Loop,
    Convexity,
    Spectral,
    FreeNorms,
)
"""All kinds of proof, the tightest first."""


def attainable(problem: Problem) -> Certificate:
    """Return the tightest kind of proof that applies; NONE where none does."""
    return next((kind.kind for kind in PROOFS if kind.applies(problem)), Certificate.NONE)


def read_proof(certificate: Certificate, problem: Problem, lower: float, arrays: Mapping[str, NDArray]) -> Proof:
    """Return the stated proof that a file holds; one that proves nothing where an array is missing.

    Arrays that the kind does not need are ignored; one of another kind than its field raises a ValueError.
    """
    for kind in PROOFS:
        if kind.kind is certificate and isinstance(problem.biases, kind.biases):
            return kind.read(lower, arrays)
    unknown = f"No bound '{certificate}' is known for free biases; solve again."
    return Unproved(lower, "" if certificate is Certificate.NONE else unknown)


def spectral_proof(problem: Problem, seconds: float) -> Proof:
    """Return the bound for networks of every depth, not improved after `seconds`; unproved for losses without one."""
    if not Spectral.applies(problem):
        return Unproved(0.0)
    return Spectral.prove(problem, Target(stop=Budget(max(seconds, 0.05)).spent)).proof


def data_proof(problem: Problem, seconds: float) -> Proof:
    """Return the best bound that needs the data alone, spectral or another, improved for `seconds`, at least 0.05."""
    target = Target(stop=Budget(max(seconds, 0.05)).spent)
    best = spectral_proof(problem, seconds)
    if problem.depth == 2:
        return best
    problem = problem.to(torch.device("cpu"))  # small dense work, and a convex solver
    for kind in sorted(PROOFS, key=lambda kind: kind.effort):
        if target.stop():
            break
        proved = kind.prove(problem, target) if kind is not Spectral and kind.applies(problem) else None
        # A later kind has to prove more than rounding more.
        if proved is not None and proved.proof.lower > best.lower * (1.0 + 1e-9):
            best = proved.proof
    return best


def network_proof(problem: Problem, weights: Weights) -> Proof | None:
    """Return the bound from a two-layer network's own dual point, -grad C / (2 lam), where an oracle is exact.

    None for other depths, for `interpolate` (whose multiplier a network does not tell) and without such an oracle.
    """
    if problem.depth != 2 or (Lambda := problem.multiplier_at(preactivations(problem, weights)[-1])) is None:
        return None
    proved = Exact.prove(problem, Target(Lambda))
    return None if proved is None else proved.proof


def agreed(problem: Problem, weights: Weights, cost: float, lower: float) -> float:
    """Return the bound, at most the cost of a network (NaN if none fits) where rounding alone put it above.

    A bound that is not finite, or above the cost by more than rounding, raises an InternalError: one of the two is
    wrong.
    """
    if not math.isfinite(lower) or (lower > cost and lower > cost + rounding_of(problem, weights)):
        raise InternalError(
            f"The lower bound {lower:.12g} contradicts a network that costs {cost:.12g}, so nothing can be said; this"
            " is a defect of covopt: report it with the data."
        )
    return min(lower, cost) if lower > cost else lower
