"""A proved verdict on whether a two-layer optimum is the only one, or why there is none.

From a dual point whose gap to a polished network is tiny (`polish`, `plane.excess`), the directions that the neurons
of an optimum can have are listed (`candidates`). Let phi_k d_k^T, d_k = Lambda*^T phi_k, be what a neuron of direction
k and size 1 adds to the outputs. The outputs F* of all optima are the same, because the squared error is strictly
convex, and so is the output bias; the optima are {c >= 0 : sum_k c_k phi_k d_k^T = F* - bias}.

**Unique.** The phi_k d_k^T of all candidates are linearly independent: the smallest singular value of the matrix with
these columns is above what is not known about it.

**Not unique.** The linear part is free (`polytope`), or h is 1 on whole arcs (`continuum`).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from covopt.answer.uniqueness import candidates as directions
from covopt.answer.uniqueness.arcs import Circle
from covopt.answer.uniqueness.continuum import continuum
from covopt.answer.uniqueness.plane import BITS, Plane, columns_used
from covopt.answer.uniqueness.polish import Neurons, gather, polish
from covopt.answer.uniqueness.polytope import polytope
from covopt.answer.uniqueness.uniqueness import UNDECIDED, UNIQUE, Examined, Uniqueness, undecided
from covopt.model.biases import PENALISED
from covopt.model.problem import Problem
from covopt.model.weights import Weights, check_network
from covopt.runtime.errors import ProblemError

UNCLEAR = (
    "On an arc of directions the dual point is too close to constant, or its maximum too close to a kink, to tell which"
    " neurons an optimum can have."
)
POLISHED = 1e-18  # a relative gap above this is too wide to list the candidates


def decide(problem: Problem, weights: Weights) -> Uniqueness:
    """Decide whether the optimal network of a two-layer problem is the only one, from one that is next to it.

    Source: derived, MATH.md section 4, "The set of all optima"; the set of optima as a polytope is from Mishkin and
    Pilanci, Optimal Sets and Solution Paths of ReLU Networks (arXiv 2306.00119), and Kim and Pilanci (arXiv
    2411.07729).
    """
    return examine(problem, weights).uniqueness


def examine(problem: Problem, weights: Weights) -> Examined:
    """Return the verdict of `decide`, with another optimum if there are several."""
    beyond = _beyond(problem, weights)
    if beyond:
        return undecided(beyond)
    plane = Plane.of(problem)
    circle = Circle(plane)
    return _examined(circle, polish(plane, _neurons(problem, plane, circle, weights)))


def _beyond(problem: Problem, weights: Weights) -> str:
    """Say why a problem cannot be decided; empty if it can."""
    if problem.depth != 2:
        return "Uniqueness is decided for two layers only."
    if problem.biases != PENALISED:
        return "Uniqueness is not decided for free biases."
    if not problem.ridge:
        return "Uniqueness is decided for the mean squared error only."
    if problem.activation.is_linear:
        return "Uniqueness is not decided for linear networks."
    if len(columns_used(problem)) > 2:
        return "The inputs and their bias column have more than two columns; uniqueness is decided for at most two."
    N, m = problem.Y.shape
    # The multiplications of whole numbers on all arcs, and the order of the matrices of Newton's method.
    if N * N * m > 250_000 or len(weights[0]) * m > 400:
        return "The problem is too large to be decided in exact arithmetic."
    return ""


def _neurons(problem: Problem, plane: Plane, circle: Circle, weights: Weights) -> Neurons:
    W1, W2 = (W.detach().double().cpu().numpy() for W in weights)
    used = columns_used(problem)
    W, V = np.zeros((len(W1), 2)), W2[:, :-1].T
    W[:, : len(used)] = W1[:, used]
    # Squares neither overflow nor underflow next to 1.
    sizes = [2.0 ** math.frexp(float(np.abs(A).max(initial=0.0)))[1] for A in (W, V)]
    return gather(circle, W / sizes[0], V / sizes[1], plane.units * Fraction(sizes[0]) * Fraction(sizes[1]))


def _examined(circle: Circle, neurons: Neurons) -> Examined:
    plane = circle.plane
    bias, residual = plane.residuals(neurons.directions, neurons.V)
    Lambda, scale = plane.dual_point(residual), 1 << BITS
    free = _is_free(plane, Lambda)
    if free:
        Lambda, scale = plane.orthogonal(Lambda, scale)
    scale = circle.feasible(Lambda, scale)
    excess = _above(plane.excess(neurons.directions, neurons.V, Lambda, scale))
    cost = float(plane.cost(neurons.directions, neurons.V, bias, residual))
    if not excess <= POLISHED * cost:
        return undecided("The network could not be brought close enough to an optimum.")
    estimate = directions.optimum(plane, Lambda, scale, excess)
    candidates = directions.find(circle, Lambda, scale, estimate.delta)
    if candidates is None:
        return undecided(UNCLEAR)
    if candidates.whole:
        return _whole(circle, neurons, candidates, Lambda, scale)
    return _single(plane, neurons, candidates.single, estimate, free)


def _above(excess: Fraction) -> float:
    """Return a float at or above it, which cannot underflow."""
    return max(float(excess) * (1.0 + directions.ROUNDING), 1e-300)


def _single(
    plane: Plane, neurons: Neurons, candidates: list[directions.Candidate], estimate: directions.Optimum, free: bool
) -> Examined:
    """Return the verdict where finitely many directions are possible."""
    if not candidates:
        return Examined(Uniqueness(UNIQUE, "No neuron can be part of an optimum.", 0, (0, 0), (0, 0), 0))
    c = directions.amounts(neurons, candidates)
    if c is None:
        return undecided("The network has a neuron that no optimum can have.", candidates=len(candidates))
    matrix = directions.features(plane, candidates)
    if (only := _independent(matrix, c, estimate)) is not None:
        return Examined(only)
    several = polytope(plane, candidates, c, estimate) if free else None
    if several is not None:
        return several
    return undecided(
        f"The {len(c)} neurons that an optimum can have are linearly dependent in what they add to the outputs, up to"
        " what is known of them, and no second optimum is proved.",
        candidates=len(c),
        independence=matrix.smallest,
    )


def _whole(circle: Circle, neurons: Neurons, candidates: directions.Found, Lambda: NDArray, scale: int) -> Examined:
    """Return the verdict where h may be 1 throughout some arcs."""
    plane, arcs = circle.plane, [arc.start for arc in candidates.whole]
    scale = circle.bounded(Lambda, scale, arcs)
    excess = _above(plane.excess(neurons.directions, neurons.V, Lambda, scale))
    estimate = directions.optimum(plane, Lambda, scale, excess)
    again = directions.find(circle, Lambda, scale, estimate.delta)
    if again is None or [arc.start for arc in again.whole] != arcs or any(k.blurred for k in again.single):
        return undecided(UNCLEAR)
    several = continuum(circle, neurons, again, estimate)
    return undecided(UNCLEAR) if several is None else several


def _is_free(plane: Plane, Lambda: NDArray) -> bool:
    """Return True if Lambda^T X' is 0 up to rounding, 1e-20 of sum_i |Lambda_i| |x_i|, and X' has rank 2."""
    if not plane.spans:
        return False
    pulled = plane.X.T @ Lambda
    mass = np.abs(plane.X).T @ np.abs(Lambda)
    return all(abs(int(p)) <= 1e-20 * int(s) for p, s in zip(pulled.ravel(), mass.ravel(), strict=True))


def _independent(matrix: directions.Columns, c: NDArray[np.float64], estimate: directions.Optimum) -> Uniqueness | None:
    """Prove that all candidates are linearly independent, and count neurons; None if unproved."""
    if not matrix.independent:
        return None
    certain = int((c > matrix.distance(c, estimate.outputs, estimate.off)).sum())
    return Uniqueness(
        UNIQUE,
        "The neurons that an optimum can have are linearly independent in what they add to the outputs.",
        *(len(c), (certain, len(c)), (certain, len(c)), 0, matrix.smallest),
    )


def mixed(one: Weights, other: Weights, t: float) -> list[Float[Tensor, "_ _"]]:
    """Return a two-layer network with outputs (1 - t) times those of `one` plus t of `other`.

    It has the neurons of both, scaled by (1 - t)^(1/2) and t^(1/2) in both layers, and mixed output biases. It costs at
    most (1 - t) times the cost of `one` plus t times that of `other`. For t = 0 or 1 it is one of the two.
    """
    if t in (0.0, 1.0):
        return [W.clone() for W in (one, other)[int(t)]]
    parts = [((1.0 - t) ** 0.5, one), (t**0.5, other)]
    bias = sum(size * size * W[1][:, -1:] for size, W in parts)
    hidden = torch.cat([size * W[0] for size, W in parts])
    return [hidden, torch.cat([*(size * W[1][:, :-1] for size, W in parts), torch.as_tensor(bias)], dim=1)]


def inner(problem: Problem, weights: Weights) -> list[Float[Tensor, "_ _"]]:
    """Return an optimum inside the set of all optima, or the only one; raise a ProblemError if that is not decided."""
    facts = examine(problem, weights)
    if facts.uniqueness.verdict == UNDECIDED:
        raise ProblemError(
            f"Whether there are other optima is not decided ({facts.uniqueness.reason.rstrip('.')}); give the other"
            " network."
        )
    if facts.uniqueness.verdict == UNIQUE or facts.directions is None or facts.outputs is None or facts.bias is None:
        return [W.clone() for W in weights]
    used = columns_used(problem)
    sizes = np.sqrt(np.linalg.norm(facts.outputs, axis=1, keepdims=True))
    hidden = np.zeros((len(sizes), problem.Xt.shape[1]))
    hidden[:, used] = sizes * facts.directions[:, : len(used)]
    outer = np.hstack([(facts.outputs / sizes).T, facts.bias[:, None]])
    return [torch.from_numpy(W).to(problem.X.device) for W in (hidden, outer)]


def segment(problem: Problem, weights: Weights, other: Weights | None, steps: int) -> list[list[Tensor]]:
    """Return at least two networks of two layers from one to `other`, or to an optimum inside the set of all."""
    if problem.depth != 2:
        raise ProblemError(
            f"Mixtures are of networks of two layers, and these have {problem.depth}; ask this of depth 2."
        )
    if steps < 2:
        raise ProblemError(f"The number of steps is {steps}; give a whole number of at least 2.")
    if other is None:
        other = inner(problem, weights)
    check_network(problem, other)
    return [mixed(weights, other, float(t)) for t in np.linspace(0.0, 1.0, steps)]
