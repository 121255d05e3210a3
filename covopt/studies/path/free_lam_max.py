"""Bound lam_max with free biases, from which on a constant or affine function is optimal.

That function F_0 does not depend on lam. So Lambda(lam) = A / lam with A = -grad C(F_0) / 2, which is orthogonal
to the unpenalised columns: lam_max = max h at A (MATH.md sections 4 and 10).
"""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor

from covopt.certify.dual import strongest
from covopt.certify.dual_space import distance, orthogonal, widened
from covopt.certify.free import proved_maximum
from covopt.model.affine import Affine
from covopt.model.biases import centred
from covopt.model.problem import Problem
from covopt.oracles.breakpoints import rows_of
from covopt.oracles.breakpoints import strongest as best_neuron
from covopt.oracles.exact import problem_has_exact_oracle

# Ascents of the search for the lower end; relative distance to it at which a proof is good enough.
ASCENTS, NEAR = 200, 1e-3
# Relative rounding of an end; rounding of Y minus its unpenalised part, relative to Y.
ROUNDING, LOST = 1e-12, 2.0**-46


def free_ends(problem: Problem, seconds: float, seed: int) -> tuple[float, float]:
    """Return the ends of an interval for lam_max of two layers.

    They are nearly equal if an oracle is exact. The upper end is infinite if unpenalised columns depend on one another,
    up to rounding.

    Args:
        problem: mse or cross-entropy with free biases, in float64.
        seconds: for a slow proof of the upper end; 0: by norms.
        seed: of the search for the lower end.
    """
    A = slope(problem)
    if not bool(A.any()):
        return 0.0, 0.0
    Xc = centred(problem.X)
    # |sigma(X w + b)| <= 2 N^(1/2) max |x| at a breakpoint; the error of A is the rounding of Y.
    off = LOST * float((problem.shares[:, None] * problem.Y).norm()) * 2.0 * float(Xc.norm(dim=1).max())
    off *= math.sqrt(problem.samples)
    if problem_has_exact_oracle(problem):
        answer, off_space = strongest(problem, A), distance(problem, orthogonal(problem, A))
        low, high = float(answer.values[0]), widened(problem, off_space, answer.upper_bound)
    else:
        neuron = best_neuron(
            problem.X, problem.activation, A / A.norm(), rows_of(problem.X[:0], A[:0, 0]), ASCENTS, seed
        )
        low = 0.0 if neuron is None else neuron[2] * float(A.norm())
        high = proved_maximum(problem, A, seconds, low, NEAR)
    return max(0.0, low * (1.0 - ROUNDING) - off), high + off


def slope(problem: Problem) -> Float[Tensor, "N m"]:
    """Return A = -grad C(F_0) / 2."""
    Y, shares = problem.Y, problem.shares[:, None]
    if problem.loss.name == "cross_entropy":  # F_0 = log p, also where a class is missing
        return 0.5 * shares * (Y - problem.mean(Y))
    Xc = problem.X - problem.X.mean(dim=0)
    return shares * Affine(Xc / (float(Xc.abs().max()) or 1.0), problem.weight, problem.skip).off(Y)
