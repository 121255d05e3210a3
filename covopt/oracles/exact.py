"""The exact oracle for some data: the circle for rank up to two, the sphere for rank three."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.model.activation import Activation
from covopt.model.problem import Problem
from covopt.model.spread import ALONE
from covopt.oracles.arrangement import ArrangementOracle, has_rank_at_most
from covopt.oracles.oracle import Answer
from covopt.oracles.sphere import SphereOracle


class LinearOracle:
    """The oracle of linear networks: all right singular vectors of Lambda^T Xt.

    The values are the singular values, and the largest one is the maximum.
    """

    def __init__(self, Xt: Float[Tensor, "N d"]) -> None:
        self.Xt = Xt.double()
        self._size = float(self.Xt.norm())

    def __call__(self, Lambda: Float[Tensor, "N m"], starts: Float[Tensor, "S d"] | None = None) -> Answer:
        """Return the right singular vectors, best first; `starts` is ignored."""
        Lambda = Lambda.double()
        _, s, Vh = torch.linalg.svd(Lambda.T @ self.Xt, full_matrices=False)
        rounding = 1e-13  # relative to |Lambda|_F |Xt|_F: far more than the errors of LAPACK and of the product
        allowance = rounding * len(self.Xt) ** 0.5 * float(Lambda.norm()) * self._size
        return Answer(Vh, s, float(s[0]) + allowance)


# More great circles than this are too many for their table of crossings (150 bytes for each pair).
MOST_CIRCLES = 1500
# More crossings of circles than this, of all views together, take too long: 200 samples with free biases.
MOST_CROSSINGS = 8_000_000


def exact_oracle(
    Xt: Float[Tensor, "N d"], activation: Activation, most_circles: int = MOST_CIRCLES
) -> ArrangementOracle | SphereOracle | None:
    """Return an exact oracle for rank <= 2, or 3 with up to `most_circles` rows; else None."""
    if has_rank_at_most(Xt, 2):
        return ArrangementOracle(Xt, activation)
    return SphereOracle(Xt, activation) if has_exact_oracle(Xt, most_circles) else None


def inputs_have_rank_at_most(problem: Problem, most: int) -> bool:
    """Return `has_rank_at_most` of a view of the inputs, assembled only where its first rows allow it."""
    spans = (problem.biases.spanned(X, problem.beta) for X in (problem.X[: 8 * (most + 1)], problem.X))
    return all(has_rank_at_most(span, most) for span in spans)


def problem_has_exact_oracle(problem: Problem) -> bool:
    """Return True if each view of the inputs has an exact oracle that is fast enough."""
    few = problem.samples <= MOST_CIRCLES
    if problem.spread is not ALONE:
        return has_rank_at_most(problem.condensed_Xt, 3 if few else 2)
    few = few and problem.biases.number_of_views(problem.samples) * problem.samples**2 <= MOST_CROSSINGS
    return problem.activation.is_linear or inputs_have_rank_at_most(problem, 3 if few else 2)


def has_exact_oracle(Xt: Float[Tensor, "N d"], most_circles: int = MOST_CIRCLES) -> bool:
    """Return True if `exact_oracle` has an oracle."""
    return has_rank_at_most(Xt, 3 if len(Xt) <= most_circles else 2)
