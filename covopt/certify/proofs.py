"""Proofs of lower bounds: the cheap ones, the tightest kind that a problem allows, and any proof checked again."""

from __future__ import annotations

import math
import time

from jaxtyping import Float
from torch import Tensor

from covopt.certify import free
from covopt.certify.certifiers import CERTIFIERS, certifier_of, oracle_of
from covopt.certify.deep.certifiers import deep_proof
from covopt.certify.dual import Proof, dual_bound
from covopt.certify.spectral import LOSSES, spectral_bound
from covopt.model.problem import Problem
from covopt.model.weights import Weights, preactivations, rounding_of
from covopt.runtime.errors import InternalError
from covopt.runtime.interrupts import interrupted
from covopt.runtime.loop import Certificate

# Seconds that the spectral bound gets at least.
ROUGHLY = 0.05


def spectral_proof(problem: Problem, seconds: float) -> Proof:
    """The bound that holds for every network of every depth, not improved any more after so many seconds.

    It is 0, and the proof none, for losses of which no such bound is known.
    """
    if problem.loss.name not in LOSSES:
        return Proof(0.0, Certificate.NONE)
    deadline = time.perf_counter() + max(seconds, ROUGHLY)
    return Proof(spectral_bound(problem, stop=lambda: time.perf_counter() >= deadline), Certificate.SPECTRAL)


def data_proof(problem: Problem, seconds: float) -> Proof:
    """The best bound that needs the data alone: the spectral one, and for three layers and more its rivals.

    Args:
        problem: the question.
        seconds: after so many nothing is improved any more, but for `ROUGHLY`.
    """
    deadline = time.perf_counter() + max(seconds, ROUGHLY)
    first = spectral_proof(problem, seconds)
    if problem.depth == 2:
        return first
    return deep_proof(problem, first, lambda: interrupted() or time.perf_counter() >= deadline)


def network_proof(problem: Problem, weights: Weights) -> Proof | None:
    """The bound from a two-layer network's own dual point, -grad C / (2 lam), where an oracle knows the maximum.

    None for other depths, for `interpolate` (whose multiplier a network does not tell) and without such an oracle.
    """
    oracle = oracle_of(problem) if problem.depth == 2 and not problem.interpolates else None
    if oracle is None:
        return None
    Lambda: Float[Tensor, "N m"] = problem.gradient_at(preactivations(problem, weights)[-1])
    Lambda = Lambda / (-2.0 * problem.lam)
    return dual_bound(problem, Lambda, oracle(Lambda, problem.Xt[:0]).upper_bound)


def attainable(problem: Problem) -> Certificate:
    """The tightest kind of proof that applies to a problem of this loss, depth, rank and size; NONE where none does."""
    if problem.free:
        return free.attainable(problem)
    return next((kind for kind, each in CERTIFIERS.items() if each.applies(problem)), Certificate.NONE)


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
    if proof.certificate is Certificate.NONE:
        return 0.0
    return free.check(problem, proof) if problem.free else certifier_of(proof).check(problem, proof)
